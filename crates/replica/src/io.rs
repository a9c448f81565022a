//! What goes into the core and what comes out of it. Drivers and the simulator speak only this.

use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Entry as LogEntry, HardState, Message, SnapshotMetadata};
use regent_election::access::Principal;
use regent_election::codec::{CodecError, Input as Bytes, Wire, put_block};
use regent_election::deed::DeedRecord;
use regent_election::state::{Query, View};
use regent_election::store::StoreError;
use regent_election::{
    Answer, Command, Event, Group, Refusal, RequestId, Revision, SessionId, SessionNo, Term,
};

use crate::core::Refused;
use crate::limits::{ENTRY_RECORD_BYTES, MEMBERS_LISTED_MAX};
use crate::member::{MemberChange, Members, ReplicaId, put_member, take_id, take_member};
use crate::raft_codec::{put_message, take_message};
use crate::replicated::ReplicatedState;

/// Names a request of this replica's own clients until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What happens to a replica.
#[derive(Debug)]
pub enum Input {
    /// A peer says something.
    Message { from: ReplicaId, message: PeerMessage },
    /// A snapshot arrived whole, with the message that announced it.
    Snapshot {
        from: ReplicaId,
        /// The announcement.
        message: Box<Message>,
        /// Its bytes, for the disk.
        bytes: Arc<[u8]>,
        /// What they mean.
        replicated: Box<ReplicatedState>,
    },
    /// A peer cannot be reached, or a connection to it was lost.
    Unreachable { replica: ReplicaId },
    /// A snapshot that was to be sent has arrived, or has not.
    SnapshotSent {
        to: ReplicaId,
        /// Whether it arrived.
        arrived: bool,
    },
    /// A client asks something.
    Request {
        /// By which name it is answered.
        token: Token,
        request: Request,
    },
    /// Everything up to this batch is durable.
    Persisted {
        /// The batch's number.
        batch: u64,
    },
    /// A snapshot of one's own is durable: the log before it may go.
    SnapshotKept {
        /// Where it stands.
        place: SnapshotMetadata,
    },
    /// A snapshot that was to be made was not: another one is asked for later.
    SnapshotNotMade,
    /// The disk has or has not room for more than what must always fit.
    Room {
        /// Whether it has.
        is_there: bool,
    },
}

/// What a client may ask of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Submit {
        command: Command,
        /// Makes a repeat take effect once.
        request: Option<RequestId>,
        /// What to read in the moment after it was applied.
        query: Option<Query>,
    },
    /// Keep a session alive, and perhaps prove one tenure.
    Heartbeat {
        session: SessionId,
        /// A rising number.
        sequence: Option<u64>,
        /// The tenure to be proved, if any.
        tenure: Option<(Group, Term)>,
    },
    Read {
        query: Query,
        /// Whether no older answer than the present one will do.
        linearizable: bool,
    },
    /// Change the members.
    Members(MemberChange),
    /// Hand Raft leadership over.
    Transfer {
        /// To whom; none means the most advanced voter.
        to: Option<ReplicaId>,
    },
    /// Keep a snapshot of everything applied so far; done when it is durable.
    Snapshot,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// A change was applied, or refused by the rules.
    Applied {
        /// The rules' answer.
        answer: Result<Answer, Refusal>,
        /// The revision that it has.
        revision: Revision,
        /// What was asked to be read right after it.
        view: Option<Result<View, Refusal>>,
    },
    /// A heartbeat is confirmed.
    Heartbeat {
        /// The session's ttl.
        ttl_ms: u64,
        /// The session's epoch.
        epoch: u64,
        /// As of which revision.
        revision: Revision,
        /// Whether the tenure to be proved still waits for its acceptance: it may not be acted upon.
        must_accept: bool,
    },
    /// A read is answered.
    View {
        view: View,
        /// How long ago this replica last knew that it was up to date; none for a linearizable read.
        stale_ms: Option<u64>,
    },
    /// A change of members is applied, or Raft leadership is on its way.
    Done,
    Error(StoreError),
}

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerMessage {
    /// Raft's own.
    Raft(Box<Message>),
    /// A follower's client asks for a change. The origin is the follower; it answers its client when
    /// it applies the entry itself, so no answer travels back.
    Propose {
        /// The follower's run.
        boot: u64,
        /// The proposal's number.
        number: u64,
        /// What to do.
        command: Command,
        /// Makes a repeat take effect once.
        request: Option<RequestId>,
    },
    /// A proposal was not appended and never will be.
    Declined {
        /// The follower's run.
        boot: u64,
        /// The proposal's number.
        number: u64,
        why: Decline,
    },
    /// A follower's client keeps a session alive.
    Heartbeat {
        /// The follower's run.
        boot: u64,
        /// Names the heartbeat.
        number: u64,
        session: SessionId,
        /// The session's rising number.
        sequence: Option<u64>,
        /// The tenure that it must prove before it counts: the follower may not know of its end yet.
        tenure: Option<(Group, Term)>,
    },
    /// A follower's client looks at a group as an operator does: who is silent only the leader knows.
    Look {
        /// The follower's run.
        boot: u64,
        /// Names the look.
        number: u64,
        /// At which group.
        group: Group,
    },
    /// What the leader sees, confirmed by a round begun after the look arrived.
    Seen {
        /// The follower's run.
        boot: u64,
        /// Names the look.
        number: u64,
        /// The round's index.
        index: u64,
        /// How long the leader of the group lives unheard.
        remaining_ms: Option<u64>,
        /// Who stands and was not heard for half its ttl.
        silent: Vec<SessionNo>,
    },
    /// What became of such a heartbeat.
    HeartbeatAnswer {
        /// The follower's run.
        boot: u64,
        /// Names the heartbeat.
        number: u64,
        /// What became of it.
        answer: HeartbeatAnswer,
    },
    /// The receiver was a member and is none any more: these are.
    Removed { members: Members },
}

/// Why a Raft leader did not append a proposal. Nothing happened, whatever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decline {
    /// It does not lead, or takes nothing at the moment.
    Unable,
    /// Its disk is full.
    DiskFull,
    /// Its budget for the state is: [`Refusal::StateFull`].
    StateFull { used: u64, adds: u64, max: u64 },
    /// The share of the principal that asked is: [`Refusal::ShareFull`].
    ShareFull { who: Box<Principal>, used: u64, adds: u64, max: u64 },
}

impl From<Decline> for StoreError {
    fn from(why: Decline) -> Self {
        let unavailable = |why: &str| Self::Unavailable { why: why.into(), retry_after: None };
        match why {
            Decline::Unable => unavailable("the Raft leader could not take the change"),
            Decline::DiskFull => unavailable("the disk of the Raft leader is full"),
            Decline::StateFull { used, adds, max } => Refusal::StateFull { used, adds, max }.into(),
            Decline::ShareFull { who, used, adds, max } => {
                Refusal::ShareFull { who, used, adds, max }.into()
            }
        }
    }
}

/// What became of a heartbeat at the Raft leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatAnswer {
    /// It is confirmed by a round begun after it arrived; the answer may be given from any state
    /// that has applied this index.
    Confirmed {
        /// The round's index.
        index: u64,
    },
    /// Its number is not above the last.
    NotNewer { last: u64 },
    /// The Raft leader could not confirm it, or is none.
    Unavailable,
    /// It does not prove its tenure, as of this index, and counted for nothing.
    Unproven { index: u64 },
}

/// What the disk is to keep, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Confirmed by [`Input::Persisted`].
    pub number: u64,
    /// A snapshot from the leader: it goes before the entries and replaces what was there.
    pub snapshot: Option<(SnapshotMetadata, Arc<[u8]>)>,
    /// Entries; those on disk from the first one's index on give way.
    pub entries: Vec<LogEntry>,
    /// Term, vote and commit, if they changed.
    pub hard_state: Option<HardState>,
    /// Whether it must be durable before it is confirmed. If not, it may wait for the next one.
    pub must_sync: bool,
}

/// A snapshot to be made beside the loop: the last one, plus these entries.
#[derive(Clone, Debug)]
pub struct SnapshotTask {
    /// Where it stands when it is made.
    pub place: SnapshotMetadata,
    /// Everything between the last snapshot and that place.
    pub entries: Vec<LogEntry>,
    /// For a witness: of those, only changes of members are remembered.
    pub has_no_state: bool,
}

/// What a turn of the core wants done.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be sent at once; may be lost.
    pub sends: Vec<(ReplicaId, PeerMessage)>,
    /// To be written, in order.
    pub batches: Vec<Batch>,
    /// To be told to clients.
    pub answers: Vec<(Token, Response)>,
    /// What was applied, entry by entry, for watchers.
    pub events: Vec<(Revision, Vec<Event>)>,
    /// The same for a recorder, if there is one: only what changed something.
    pub taped: Vec<DeedRecord>,
    /// To be made beside the loop.
    pub snapshot: Option<SnapshotTask>,
    /// A snapshot was installed: watchers that are behind it get a gap.
    pub installed: Option<Revision>,
    /// Who votes or learns is different from before this turn.
    pub members_changed: bool,
    /// Peers that sent what no honest replica sends: their links are to be ended.
    pub refused: Vec<(ReplicaId, Refused)>,
    /// To whom this replica hands Raft leadership because of its disk, and why; for the log.
    pub hands_over: Option<(ReplicaId, HandOverCause)>,
}

/// What is wrong with the disk of a Raft leader that hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverCause {
    /// It has no room.
    DiskFull,
    /// It confirms nothing.
    DiskStuck,
    /// Its syncs take long, and another voter's do not.
    DiskSlow {
        /// How many did in a row.
        syncs: u32,
        /// What the last of them took.
        took: Duration,
    },
}

impl std::fmt::Display for HandOverCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DiskFull => f.write_str("its disk is full"),
            Self::DiskStuck => f.write_str("its disk confirms nothing"),
            Self::DiskSlow { syncs, took } => write!(
                f,
                "its last {syncs} syncs were slower than another voter's, the last took {} ms",
                took.as_millis()
            ),
        }
    }
}

impl PeerMessage {
    /// What its records take in memory, beside the bytes that they hold: an entry of three bytes on the wire is not small.
    #[must_use]
    pub fn records_bytes(&self) -> usize {
        match self {
            Self::Raft(message) => message.entries.len() * ENTRY_RECORD_BYTES,
            Self::Seen { silent, .. } => silent.len() * size_of::<SessionNo>(),
            Self::Propose { command, .. } => (1 + command.elements()) * ENTRY_RECORD_BYTES,
            Self::Removed { members } => members.len() * ENTRY_RECORD_BYTES,
            Self::Declined { .. }
            | Self::Heartbeat { .. }
            | Self::Look { .. }
            | Self::HeartbeatAnswer { .. } => 0,
        }
    }

    /// Appends the message.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Raft(message) => {
                out.push(1);
                put_message(message, out);
            }
            Self::Propose { boot, number, command, request } => {
                out.push(2);
                boot.put(out);
                number.put(out);
                let mut body = Vec::new();
                command.put(&mut body);
                put_block(&body, out);
                request.put(out);
            }
            Self::Declined { boot, number, why } => {
                out.push(3);
                boot.put(out);
                number.put(out);
                match why {
                    Decline::Unable => out.push(1),
                    Decline::DiskFull => out.push(2),
                    Decline::StateFull { used, adds, max } => {
                        out.push(3);
                        used.put(out);
                        adds.put(out);
                        max.put(out);
                    }
                    Decline::ShareFull { who, used, adds, max } => {
                        out.push(4);
                        who.put(out);
                        used.put(out);
                        adds.put(out);
                        max.put(out);
                    }
                }
            }
            Self::Heartbeat { boot, number, session, sequence, tenure } => {
                out.push(4);
                boot.put(out);
                number.put(out);
                session.put(out);
                sequence.put(out);
                tenure.put(out);
            }
            Self::Look { boot, number, group } => {
                out.push(6);
                boot.put(out);
                number.put(out);
                group.put(out);
            }
            Self::Seen { boot, number, index, remaining_ms, silent } => {
                out.push(7);
                boot.put(out);
                number.put(out);
                index.put(out);
                remaining_ms.put(out);
                silent.put(out);
            }
            Self::HeartbeatAnswer { boot, number, answer } => {
                out.push(5);
                boot.put(out);
                number.put(out);
                match answer {
                    HeartbeatAnswer::Confirmed { index } => {
                        out.push(1);
                        index.put(out);
                    }
                    HeartbeatAnswer::NotNewer { last } => {
                        out.push(2);
                        last.put(out);
                    }
                    HeartbeatAnswer::Unavailable => out.push(3),
                    HeartbeatAnswer::Unproven { index } => {
                        out.push(4);
                        index.put(out);
                    }
                }
            }
            Self::Removed { members } => {
                out.push(8);
                (members.len() as u64).put(out);
                for (id, member) in members {
                    id.get().put(out);
                    put_member(member, out);
                }
            }
        }
    }

    /// Reads what [`PeerMessage::put`] wrote, and nothing more.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Bytes::new(bytes);
        let message = match u8::take(&mut input)? {
            1 => Self::Raft(Box::new(take_message(&mut input)?)),
            2 => Self::Propose {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                command: {
                    let mut body = Bytes::new(input.block("a command")?);
                    let command = Command::take(&mut body)?;
                    body.end()?;
                    command
                },
                request: Wire::take(&mut input)?,
            },
            3 => Self::Declined {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                why: match u8::take(&mut input)? {
                    1 => Decline::Unable,
                    2 => Decline::DiskFull,
                    3 => Decline::StateFull {
                        used: Wire::take(&mut input)?,
                        adds: Wire::take(&mut input)?,
                        max: Wire::take(&mut input)?,
                    },
                    4 => Decline::ShareFull {
                        who: Wire::take(&mut input)?,
                        used: Wire::take(&mut input)?,
                        adds: Wire::take(&mut input)?,
                        max: Wire::take(&mut input)?,
                    },
                    tag => {
                        return Err(CodecError::Unknown {
                            what: "why a proposal was declined",
                            tag: tag.into(),
                        });
                    }
                },
            },
            4 => Self::Heartbeat {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                session: Wire::take(&mut input)?,
                sequence: Wire::take(&mut input)?,
                tenure: Wire::take(&mut input)?,
            },
            5 => Self::HeartbeatAnswer {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                answer: match u8::take(&mut input)? {
                    1 => HeartbeatAnswer::Confirmed { index: Wire::take(&mut input)? },
                    2 => HeartbeatAnswer::NotNewer { last: Wire::take(&mut input)? },
                    3 => HeartbeatAnswer::Unavailable,
                    4 => HeartbeatAnswer::Unproven { index: Wire::take(&mut input)? },
                    tag => {
                        return Err(CodecError::Unknown {
                            what: "an answer to a heartbeat",
                            tag: tag.into(),
                        });
                    }
                },
            },
            6 => Self::Look {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                group: Wire::take(&mut input)?,
            },
            7 => Self::Seen {
                boot: Wire::take(&mut input)?,
                number: Wire::take(&mut input)?,
                index: Wire::take(&mut input)?,
                remaining_ms: Wire::take(&mut input)?,
                silent: Wire::take(&mut input)?,
            },
            8 => Self::Removed { members: take_members(&mut input)? },
            tag => return Err(CodecError::Unknown { what: "a peer message", tag: tag.into() }),
        };
        input.end()?;
        Ok(message)
    }
}

/// Reads a list of members, no longer than any that is sent.
fn take_members(input: &mut Bytes<'_>) -> Result<Members, CodecError> {
    let count = input.count("members")?;
    if count > MEMBERS_LISTED_MAX {
        let why = format!("{count} members; at most {MEMBERS_LISTED_MAX}");
        return Err(CodecError::Malformed { what: "a list of members", why });
    }
    (0..count).map(|_| Ok((take_id(input)?, take_member(input)?))).collect()
}
