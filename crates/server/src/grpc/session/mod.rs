//! The session stream: one run of one node, with all its groups, on one connection.
//!
//! | file | what |
//! |---|---|
//! | `outbox` | what waits to be sent, most urgent first, every lane bounded |
//! | `reader` | what comes in: it never waits for the store, so a heartbeat never waits for a request |
//! | `asks` | requests of the stream, served by the functions that serve them elsewhere |
//! | `follow` | events of the groups followed |
//!
//! The stream holds no state that matters. The session lives in the store, for its ttl, whether the
//! stream breaks or not; a cursor says where its events go on. So a stream may end at any moment, and
//! the next one, here or at another replica, begins where it ended.
//!
//! The road not taken is to let a broken stream end its session at once: a network that drops one
//! connection would then depose every leader behind it.

mod asks;
mod follow;
mod limits;
mod outbox;
mod reader;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use regent_api::grpc as pb;
use regent_api::grpc::session_up::Message;
use regent_api::{Code, Operation, Problem, SessionResponse, ShowSessionRequest};
use regent_election::access::GuardedStore;
use regent_election::{Node, Refusal, Revision, SessionId};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Streaming;

use crate::admission::Class;
use crate::app::{App, Ask};
use crate::audit::{self, Trail};
use crate::count::Entered;
use crate::grpc::frame;
use crate::socket::ConnectionActivity;
use crate::{router, sessions};
use limits::{HOLDS_MAX, LOG_LEADER_EVERY};
use outbox::Outbox;
pub(super) use outbox::Outgoing;

/// What all parts of one stream share.
#[derive(Debug)]
struct Shared {
    app: Arc<App>,
    link: Link,
    lookout: Arc<Lookout>,
    session: SessionId,
    node: Node,
    outbox: Arc<Outbox>,
    told: Mutex<SentState>,
}

/// The connection of a stream, and who is at its other end.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) app: Arc<App>,
    /// The store as the caller may use it. Every request on the stream is judged anew.
    pub(super) guard: Option<GuardedStore>,
    pub(super) activity: Arc<ConnectionActivity>,
    pub(super) trail: Arc<Trail>,
}

impl Link {
    fn ask(&self, place: Option<Entered>) -> Ask {
        let Self { app, guard, activity, trail } = self.clone();
        Ask { app, guard, activity, trail, place }
    }
}

/// What the peer has been told, and when it was heard.
#[derive(Debug)]
struct SentState {
    ttl: Duration,
    epoch: u64,
    /// What the session held was told as of this revision.
    holds_at: Revision,
    log_leader: Option<pb::LogLeader>,
    /// When the last heartbeat arrived that was acknowledged.
    heard_at: Instant,
    /// Why one since then was not.
    trouble: Option<Problem>,
    is_in_jeopardy: bool,
}

/// Opens a session stream. What is refused before the welcome is the status of the call.
pub(super) async fn open(
    link: Link,
    lookout: Arc<Lookout>,
    mut inbound: Streaming<pb::SessionUp>,
) -> Result<Outgoing, Problem> {
    let app = Arc::clone(&link.app);
    let arrived_at = Instant::now();
    let hello = first(&mut inbound, app.config.body_timeout).await?;
    let window = match hello.window {
        Some(0) => return Err(bad("window: a window of no event lets none pass").at("window")),
        window => window,
    };
    let request = hello.read()?;
    let wish = follow::read(hello.follow.unwrap_or_default())?;
    let holds = begin(&link, request, hello.resume).await?;
    let log_leader = lookout.look(&app).await;
    let shared = Arc::new(Shared {
        session: holds.session_id,
        node: holds.node_id.clone(),
        outbox: Outbox::new(window),
        told: Mutex::new(SentState {
            ttl: Duration::from_millis(holds.ttl_ms),
            epoch: holds.epoch,
            holds_at: holds.revision,
            log_leader: log_leader.clone(),
            heard_at: arrived_at,
            trouble: None,
            is_in_jeopardy: false,
        }),
        app,
        link,
        lookout,
    });
    tracing::debug!(node = %shared.node, resumed = hello.resume, "a session stream begins");
    let welcome = pb::Welcome { session: Some(holds.into()), log_leader };
    let (wishes, wished) = watch::channel(wish);
    tokio::spawn(follow::follow(Arc::clone(&shared), wished));
    let outbox = Arc::clone(&shared.outbox);
    tokio::spawn(reader::read(shared, inbound, wishes));
    Ok(Outgoing { outbox, welcome: Some(Box::new(welcome)) })
}

/// The first message, which says who speaks.
async fn first(
    inbound: &mut Streaming<pb::SessionUp>,
    patience: Duration,
) -> Result<pb::Hello, Problem> {
    let message = match tokio::time::timeout(patience, inbound.message()).await {
        Ok(Ok(message)) => message.and_then(|up| up.message),
        Ok(Err(status)) => return Err(told_by(&status)),
        Err(_) => {
            let why = format!("no hello came within {} ms", patience.as_millis());
            return Err(Problem::new(Code::RequestTimeout, why));
        }
    };
    match message {
        Some(Message::Hello(hello)) => Ok(hello),
        Some(Message::Heartbeat(_) | Message::Ask(_) | Message::Follow(_) | Message::Taken(_))
        | None => Err(bad("the first message of a session is a hello")),
    }
}

/// Opens the session, or finds it open.
async fn begin(
    link: &Link,
    request: regent_api::OpenSessionRequest,
    resume: bool,
) -> Result<SessionResponse, Problem> {
    let operation = if resume { Operation::ShowSession } else { Operation::OpenSession };
    let class = router::class(operation).unwrap_or(Class::Campaign);
    let app = &link.app;
    // A stream holds its connection for as long as it lives, so it counts as one that waits.
    if !app.connection_limit.may_wait(&link.activity) {
        return Err(app.shed(class));
    }
    app.check_delay(Some(class))?;
    let place = app.enter(operation, link.guard.as_ref(), &link.activity)?;
    let ask = link.ask(place);
    let (Some(session_id), true) = (request.session_id, resume) else {
        return sessions::act_open(&ask, request).await;
    };
    let shown = sessions::act_show(&ask, ShowSessionRequest { session_id }).await?;
    let is_same = shown.node_id == request.node_id
        && request.ttl_ms.is_none_or(|ttl_ms| ttl_ms == shown.ttl_ms);
    if !is_same {
        // It does not say whose it is: the caller may not be its owner.
        return Err(Refusal::SessionMismatch.into());
    }
    Ok(shown)
}

fn bad(why: &str) -> Problem {
    Problem::new(Code::BadRequest, why)
}

/// The problem in a status that reading the stream gave.
fn told_by(status: &tonic::Status) -> Problem {
    match pb::status::problem(status) {
        Some(problem) => problem,
        // tonic's word for a message above the bound.
        None if status.code() == tonic::Code::OutOfRange => frame::too_large(),
        None => bad("the stream broke off"),
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, SentState> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a request of this kind.
    fn enter(&self, operation: Operation) -> Result<Ask, Problem> {
        let Link { guard, activity, .. } = &self.link;
        self.app.check_delay(router::class(operation))?;
        let place = self.app.enter(operation, guard.as_ref(), activity)?;
        Ok(self.link.ask(place))
    }

    /// Counts a request of the stream as if it had come by itself.
    fn count<T>(&self, operation: Operation, answer: &Result<T, Problem>, began_at: Instant) {
        if let Err(problem) = answer {
            audit::answered(&self.app, &self.link.trail, operation.route(), None, problem);
        }
        let code = answer.as_ref().err().map(|problem| problem.code);
        if let Some(code) = code {
            self.app.metrics.failed(operation, code);
        }
        let word = code.map_or("OK", Code::word);
        self.app.metrics.answered(operation.route().path, word, began_at.elapsed());
    }

    /// A heartbeat that arrived then was acknowledged.
    fn heartbeat_acknowledged(&self, arrived_at: Instant, ttl_ms: u64) {
        let mut told = self.told();
        told.ttl = Duration::from_millis(ttl_ms);
        told.heard_at = told.heard_at.max(arrived_at);
        told.trouble = None;
        told.is_in_jeopardy = false;
    }

    /// Reads what the session holds and tells it, unless that is known as of `revision` already.
    async fn tell_holds(&self, revision: Revision) {
        if self.told().holds_at >= revision {
            return;
        }
        let Ok(ask) = self.enter(Operation::ShowSession) else { return };
        let request = ShowSessionRequest { session_id: self.session };
        // Whoever is not told reads it when its next heartbeat brings an unknown epoch.
        let Ok(holds) = sessions::act_show(&ask, request).await else { return };
        let mut told = self.told();
        if told.holds_at >= holds.revision {
            return;
        }
        told.holds_at = holds.revision;
        told.epoch = holds.epoch;
        drop(told);
        if holds.tenures.len() + holds.standing.len() + holds.offers.len() <= HOLDS_MAX {
            self.outbox.note_holds(holds.into());
        }
    }

    /// Tells who leads the log, if that is another than was told.
    async fn tell_log_leader(&self) {
        let Some(leader) = self.lookout.look(&self.app).await else { return };
        let mut told = self.told();
        if told.log_leader.as_ref() == Some(&leader) {
            return;
        }
        told.log_leader = Some(leader.clone());
        drop(told);
        self.outbox.note_log_leader(leader);
    }
}

/// Looks who leads the log, once for all streams.
#[derive(Debug, Default)]
pub(super) struct Lookout(Mutex<Option<(Instant, Option<pb::LogLeader>)>>);

impl Lookout {
    /// Who leads the log, as this replica knew it not long ago.
    async fn look(&self, app: &App) -> Option<pb::LogLeader> {
        let cluster = app.cluster.as_deref()?;
        if let Some((seen_at, leader)) = &*self.lock()
            && seen_at.elapsed() < LOG_LEADER_EVERY
        {
            return leader.clone();
        }
        let shown = cluster.show().await;
        let is_this_one = shown.leader == Some(shown.replica);
        let leader = shown
            .leader
            .zip(shown.leader_address)
            .map(|(replica, address)| pb::LogLeader { replica, address, is_this_one });
        *self.lock() = Some((Instant::now(), leader.clone()));
        leader
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Option<pb::LogLeader>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
