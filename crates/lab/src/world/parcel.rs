//! What travels between processes, and what a client may ask of a replica's server.

use std::sync::Arc;

use regent_election::state::Query;
use regent_election::store::{Scope, StoreError, WatchItem};
use regent_election::{Command, Cursor, Group, RequestId, SessionId, Term};
use regent_replica::io::{Request, Response};
use regent_replica::{MemberChange, ReplicaId};

use regent_stores::register::RegisterResult;

use super::lease::{EngineAnswer, Question};
use crate::history::{Op, Out, What, plain, revision_of};

/// One message.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    /// Between replicas, as its bytes.
    Peer {
        /// The encoded message.
        bytes: Arc<[u8]>,
        /// A snapshot that travels with it, and the print of all entries up to it.
        snapshot: Option<(Arc<[u8]>, u64)>,
        /// The run of the receiver it is meant for, if it must not outlive its connection.
        run: Option<u64>,
    },
    /// A client asks.
    Ask {
        /// Names the call.
        call: u64,
        ask: Ask,
    },
    /// A replica answers.
    Reply {
        /// Names the call.
        call: u64,
        response: Box<Response>,
    },
    /// A client wants to watch.
    Watch {
        /// Names the watch.
        watch: u64,
        scope: Scope,
        cursor: Option<Cursor>,
    },
    /// A client does not want to watch any more.
    Unwatch {
        /// Names the watch.
        watch: u64,
    },
    /// A watch delivers something.
    Item {
        /// Names the watch.
        watch: u64,
        /// Its number within the watch: a connection keeps the order.
        number: u64,
        item: Item,
    },
    /// A leader writes to the registers of a group.
    Write {
        group: Group,
        /// The fencing token.
        term: Term,
        /// The run of the client, for the answer.
        run: u32,
        /// What an application of a user's writes.
        value: Option<Box<str>>,
    },
    /// A host asks the engine.
    Question {
        /// The run of the host, for the answer.
        run: u64,
        /// Names the question.
        token: u64,
        question: Box<Question>,
    },
    /// The engine answers.
    Told {
        /// The run of the host that asked.
        run: u64,
        /// Names the question.
        token: u64,
        answer: Box<RegisterResult<EngineAnswer>>,
    },
    /// A register has refused a write.
    Refused {
        group: Group,
        /// The term that was refused.
        term: Term,
    },
}

/// What a watch delivers.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// As the hub says it.
    Hub(WatchItem),
    /// Everything up to here was delivered.
    Mark(Cursor),
}

/// What a client may ask of the server in front of a replica.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Submit {
        command: Command,
        request: Option<RequestId>,
        query: Option<Query>,
    },
    /// Keep a session alive, and give some terms up.
    Heartbeat {
        session: SessionId,
        sequence: Option<u64>,
        tenure: Option<(Group, Term)>,
        disowned: Vec<(Group, Term)>,
    },
    Read {
        query: Query,
        linearizable: bool,
    },
    /// Change the members.
    Members(MemberChange),
    /// Hand Raft leadership over.
    RaftTransfer {
        to: Option<ReplicaId>,
    },
}

impl Ask {
    /// As the history tells it.
    pub(super) fn op(&self) -> Op {
        match self.clone() {
            Self::Submit { command, request, query } => Op::Submit { command, request, query },
            Self::Heartbeat { session, sequence, tenure, disowned } => {
                Op::Heartbeat { session, sequence, tenure, disowned }
            }
            Self::Read { query, linearizable } => Op::Read { query, linearizable },
            Self::Members(change) => Op::Members(change),
            Self::RaftTransfer { to } => Op::RaftTransfer { to },
        }
    }

    /// As the replica is asked, once nothing is left to be given up.
    pub(super) fn request(self) -> Request {
        match self {
            Self::Submit { command, request, query } => Request::Submit { command, request, query },
            Self::Heartbeat { session, sequence, tenure, .. } => {
                Request::Heartbeat { session, sequence, tenure }
            }
            Self::Read { query, linearizable } => Request::Read { query, linearizable },
            Self::Members(change) => Request::Members(change),
            Self::RaftTransfer { to } => Request::Transfer { to },
        }
    }
}

/// What the history says of an answer.
pub(super) fn told(call: u64, response: &Response) -> What {
    let ok = |revision, out| What::Ok { call, revision, out: Box::new(out) };
    match response.clone() {
        Response::Applied { answer, revision, view } => {
            let view = view.map(|view| view.map(plain));
            ok(Some(revision), Out::Applied { answer, view })
        }
        Response::Heartbeat { ttl_ms, epoch, revision, .. } => {
            ok(Some(revision), Out::Heartbeat { ttl_ms, epoch })
        }
        Response::View { view, .. } => ok(revision_of(&view), Out::Seen(plain(view))),
        Response::Done => ok(None, Out::Done),
        Response::Error(StoreError::Uncertain { .. }) => What::Info { call },
        Response::Error(error) => What::Fail { call, error },
    }
}
