//! A service over its session stream, and over HTTP whenever there is none.
//!
//! A session is opened over HTTP. From then on a task beside the requests keeps a stream open for
//! it, at the replica that leads the log if the servers say which one that is. While the stream is
//! there, heartbeats, campaigns and events go over it; while it is not, everything goes over HTTP, at
//! once and without waiting for it. So a server, a proxy or a network that does not let streams pass
//! costs nothing but the stream.
//!
//! The road not taken is to open the session by the stream: its first answer would then wait for a
//! dial that may never succeed, and that wait would be missing in the budget of the lease.

mod connection;
mod lanes;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_api::grpc as pb;
use regent_api::grpc::ask::Verb as AskVerb;
use regent_api::grpc::{answer, heartbeat_answer};
use regent_api::{Code, Problem};
use regent_election::participant::{GroupRequest, Reply, Request, Verb};
use regent_election::store::{
    Campaign, CampaignSession, Consistency, GroupView, Heartbeat, LeaderView, Open, Scope,
    StoreResult,
};
use regent_election::{Cursor, Group, Resource, SessionId, Term};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::http::{HttpBackend, seen};
use super::{Backend, ObservedLeaders};
use crate::fresh;
use crate::remote::{Address, AddressError, Backoff, RemoteError};
use connection::{NoAnswer, StreamConnection};

/// A service at one or several addresses, spoken to over a stream where that is possible.
pub struct StreamBackend {
    http: HttpBackend,
    addresses: Vec<Address>,
    patience: Duration,
    line: Arc<watch::Sender<Option<Arc<StreamConnection>>>>,
    dialler: Mutex<Option<(SessionId, AbortHandle)>>,
}

impl StreamBackend {
    /// The service at these addresses, waiting so long for an answer.
    pub fn new(addresses: &[Address], request_timeout: Duration) -> Result<Self, AddressError> {
        Ok(Self {
            http: HttpBackend::new(addresses, request_timeout)?,
            addresses: addresses.to_vec(),
            patience: request_timeout,
            line: Arc::new(watch::Sender::new(None)),
            dialler: Mutex::default(),
        })
    }

    /// Where the session's stream is; none while there is none.
    #[must_use]
    pub fn stream_address(&self) -> Option<Address> {
        self.line.borrow().as_ref().map(|line| line.address.clone())
    }

    fn dialler(&self) -> MutexGuard<'_, Option<(SessionId, AbortHandle)>> {
        self.dialler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a stream open for this session, and for no other.
    fn keep_stream(&self, open: Open) {
        let mut dialler = self.dialler();
        if dialler.as_ref().is_some_and(|(session, _)| *session == open.session) {
            return;
        }
        if let Some((_, task)) = dialler.take() {
            task.abort();
            self.line.send_replace(None);
        }
        let session = open.session;
        let dial = Dial {
            addresses: self.addresses.clone(),
            open,
            patience: self.patience,
            line: Arc::clone(&self.line),
        };
        *dialler = Some((session, tokio::spawn(dial.run()).abort_handle()));
    }

    /// Ends the stream of this session. A farewell to an earlier one may come when the next has a
    /// stream already, which is none of its business.
    fn drop_stream_of(&self, session: SessionId) {
        let task = self.dialler().take_if(|(kept, _)| *kept == session);
        if let Some((_, task)) = task {
            task.abort();
            self.line.send_replace(None);
        }
    }

    fn line_of(&self, session: SessionId) -> Option<Arc<StreamConnection>> {
        self.line.borrow().clone().filter(|line| line.is_of(session))
    }

    /// What the stream answers; none if it cannot be asked this, or has certainly not been.
    async fn by_stream(&self, request: &Request) -> Option<Result<Reply, RemoteError>> {
        if let Request::Heartbeat(heartbeat) = request {
            let line = self.line_of(heartbeat.session)?;
            return self.heartbeat(&line, heartbeat).await;
        }
        let (session, verb, reads) = asked(request)?;
        let line = self.line_of(session)?;
        match line.ask(verb, self.patience).await {
            Ok(answer::Outcome::Problem(problem)) => {
                let problem = Problem::from(problem);
                // More than a stream should carry: HTTP can.
                if problem.code == Code::Unsupported || is_of_credential(&problem) {
                    return None;
                }
                Some(Err(judged(problem, reads)))
            }
            Ok(outcome) => {
                let reply = reply(outcome);
                Some(reply.ok_or_else(|| lost("an answer that cannot be read", reads)))
            }
            Err(NoAnswer::Unsent) => None,
            Err(NoAnswer::Lost) => Some(Err(lost("the session's stream broke", reads))),
        }
    }

    async fn heartbeat(
        &self,
        line: &StreamConnection,
        heartbeat: &Heartbeat,
    ) -> Option<Result<Reply, RemoteError>> {
        let message = pb::Heartbeat {
            // Without a number an answer could not be told from another.
            sequence: heartbeat.sequence?,
            disown: heartbeat
                .disowned
                .iter()
                .map(|(group, term)| pb::Disowned { group: group.to_string(), term: term.get() })
                .collect(),
            beliefs: heartbeat
                .beliefs
                .as_deref()
                .map(|beliefs| regent_api::BeliefsBody::from(beliefs.clone()).into()),
        };
        // Half the time, so that a retry over HTTP still fits where one was planned.
        match line.heartbeat(message, self.patience / 2).await {
            Ok(heartbeat_answer::Outcome::Heartbeat(heard)) => {
                let heard = regent_api::HeartbeatResponse::from(heard);
                Some(Ok(Reply::Heartbeat(heard.into())))
            }
            Ok(heartbeat_answer::Outcome::Problem(problem)) => {
                let problem = Problem::from(problem);
                (!is_of_credential(&problem)).then(|| Err(judged(problem, false)))
            }
            Err(NoAnswer::Unsent) => None,
            Err(NoAnswer::Lost) => Some(Err(lost("the session's stream broke", false))),
        }
    }
}

impl Drop for StreamBackend {
    fn drop(&mut self) {
        if let Some((_, task)) = self.dialler().take() {
            task.abort();
        }
        self.line.send_replace(None);
    }
}

impl fmt::Debug for StreamBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBackend")
            .field("http", &self.http)
            .field("stream", &self.stream_address())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for StreamBackend {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        if let Some(answer) = self.by_stream(&request).await {
            return answer.map_err(RemoteError::into_store_error);
        }
        if let Request::Close(session) = &request {
            self.drop_stream_of(*session);
        }
        let opened = match &request {
            Request::Open(open) => Some(open.clone()),
            Request::Heartbeat(_)
            | Request::List(_)
            | Request::Close(_)
            | Request::Campaign(_)
            | Request::Group(_) => None,
        };
        let reply = self.http.perform(request).await?;
        if let Some(open) = opened {
            self.keep_stream(open);
        }
        Ok(reply)
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        self.http.leader(group, consistency).await
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        self.http.group(group).await
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        self.http.admit(group, resource, term).await
    }

    async fn watch(&self, scope: Scope, sights: ObservedLeaders) {
        let mut lines = self.line.subscribe();
        let mut cursor: Option<Cursor> = None;
        loop {
            let line = lines.borrow_and_update().clone();
            let following = line.and_then(|line| line.follow(wish(&scope, cursor)));
            let Some(mut following) = following else {
                // What HTTP tells begins with the present state, and so must what follows it.
                cursor = None;
                tokio::select! {
                    // It returns only if nobody listens, or if it can never work.
                    () = self.http.watch(scope.clone(), sights.clone()) => return,
                    changed = lines.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                }
            };
            while let Some(event) = following.next().await {
                cursor = Some(event.cursor());
                if !seen(event).into_iter().all(|sight| sights.tell(sight)) {
                    return;
                }
            }
        }
    }
}

fn wish(scope: &Scope, cursor: Option<Cursor>) -> pb::Follow {
    let (groups, prefix) = match scope {
        Scope::Group(group) | Scope::Turn(group) => (vec![group.to_string()], None),
        Scope::Groups(groups) => (groups.iter().map(ToString::to_string).collect(), None),
        Scope::Prefix(prefix) => (Vec::new(), Some(prefix.clone())),
    };
    pb::Follow { groups, prefix, cursor: cursor.map(|cursor| cursor.to_string()) }
}

/// A request as one of the stream, and whether it only reads; none for what goes over HTTP.
fn asked(request: &Request) -> Option<(SessionId, AskVerb, bool)> {
    match request {
        Request::Open(_) | Request::Heartbeat(_) | Request::Close(_) => None,
        Request::List(session) => {
            Some((*session, AskVerb::Show(pb::ShowSessionRequest::default()), true))
        }
        Request::Campaign(campaign) => {
            let (session, message) = campaigning(campaign)?;
            Some((session, AskVerb::Campaign(message), false))
        }
        Request::Group(request) => Some((request.session, in_group(request), false)),
    }
}

fn campaigning(campaign: &Campaign) -> Option<(SessionId, pb::CampaignRequest)> {
    // The stream campaigns for its own session, and waits for nobody.
    let CampaignSession::Own(session) = campaign.session else { return None };
    if campaign.wait.is_some() {
        return None;
    }
    let metadata = campaign.metadata.iter();
    let message = pb::CampaignRequest {
        group: campaign.group.to_string(),
        node_id: campaign.node.to_string(),
        ttl_ms: campaign.ttl_ms,
        session_id: None,
        wait_ms: None,
        priority: i32::from(campaign.priority),
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        request_id: campaign.request.as_ref().map(ToString::to_string),
    };
    Some((session, message))
}

fn in_group(request: &GroupRequest) -> AskVerb {
    let group = request.group.to_string();
    let request_id = Some(request.request.to_string());
    // The stream knows its session.
    let session_id = String::new();
    match &request.verb {
        Verb::Withdraw => AskVerb::Withdraw(pb::WithdrawRequest { group, session_id, request_id }),
        Verb::Accept(term) => {
            let term = term.get();
            AskVerb::Accept(pb::AcceptRequest { group, session_id, term, request_id })
        }
        Verb::Resign(term) => {
            let term = term.get();
            AskVerb::Resign(pb::ResignRequest { group, session_id, term, request_id })
        }
        Verb::Offer(term, to) => {
            let (term, to) = (term.get(), to.to_string());
            AskVerb::Offer(pb::OfferRequest { group, session_id, term, to, request_id })
        }
        Verb::Warm(term) => {
            let term = term.get();
            AskVerb::Warm(pb::WarmRequest { group, session_id, term, request_id })
        }
        Verb::Transfer(term, to) => {
            let (term, to) = (term.get(), to.to_string());
            AskVerb::Transfer(pb::TransferRequest { group, session_id, term, to, request_id })
        }
    }
}

fn reply(outcome: answer::Outcome) -> Option<Reply> {
    match outcome {
        answer::Outcome::Campaign(message) => Some(Reply::Campaigned(message.received()?.into())),
        answer::Outcome::Done(_) => Some(Reply::Done),
        answer::Outcome::Heartbeat(heard) => {
            Some(Reply::Heartbeat(regent_api::HeartbeatResponse::from(heard).into()))
        }
        answer::Outcome::Session(message) => Some(Reply::Session(message.received()?.into())),
        answer::Outcome::Leader(_) | answer::Outcome::Problem(_) => None,
    }
}

fn lost(why: &str, reads: bool) -> RemoteError {
    let why = why.to_owned();
    if reads {
        RemoteError::Unavailable { why, retry_after: None, problem: None }
    } else {
        RemoteError::Uncertain { why: format!("{why}; it may have happened"), problem: None }
    }
}

/// Whether the credential with which the stream was opened is no good any more. There may be another by now: HTTP shows
/// the one of this moment, and its answer counts.
fn is_of_credential(problem: &Problem) -> bool {
    matches!(problem.code, Code::CredentialOver | Code::Unauthenticated)
}

/// What a problem means for whoever asked: the same as over HTTP.
fn judged(problem: Problem, reads: bool) -> RemoteError {
    RemoteError::judged(reads, problem.status, problem)
}

/// Keeps a stream open for one session.
struct Dial {
    addresses: Vec<Address>,
    open: Open,
    patience: Duration,
    line: Arc<watch::Sender<Option<Arc<StreamConnection>>>>,
}

impl Dial {
    async fn run(self) {
        let mut backoff = Backoff::default();
        let mut next = 0;
        loop {
            let address = self.addresses[next % self.addresses.len()].clone();
            match StreamConnection::open(address.clone(), &self.open, self.patience).await {
                Ok(line) => {
                    backoff.reset();
                    tracing::debug!(%address, "the session has a stream");
                    if self.hold(Arc::new(line)).await == Code::SessionExpired {
                        return;
                    }
                    next += 1;
                }
                Err(refused) if refused.code == Some(Code::SessionExpired) => return,
                Err(refused) => {
                    tracing::debug!(%address, why = refused.why, "no stream; HTTP goes on");
                    next += 1;
                }
            }
            let pause = backoff.pause(None, fresh::number().unwrap_or_default());
            tokio::time::sleep(pause).await;
        }
    }

    /// Offers the line to everybody until it ends, and moves to the log's leader when one is told.
    async fn hold(&self, mut line: Arc<StreamConnection>) -> Code {
        self.line.send_replace(Some(Arc::clone(&line)));
        let mut wait = Backoff::default();
        let code = loop {
            let leader = tokio::select! {
                code = line.ended() => break code,
                leader = line.leader_elsewhere(&self.addresses) => leader,
            };
            // The one there is stays in use until the better one is open.
            match StreamConnection::open(leader.clone(), &self.open, self.patience).await {
                Ok(better) => {
                    tracing::debug!(address = %leader, "the stream moves to the log's leader");
                    line = Arc::new(better);
                    self.line.send_replace(Some(Arc::clone(&line)));
                }
                Err(refused) => {
                    tracing::debug!(address = %leader, why = refused.why, "no stream there");
                }
            }
            let pause = wait.pause(None, fresh::number().unwrap_or_default());
            tokio::select! {
                code = line.ended() => break code,
                () = tokio::time::sleep(pause) => {}
            }
        };
        self.line.send_replace(None);
        code
    }
}
