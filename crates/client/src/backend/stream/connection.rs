//! One open session stream: what is asked on it finds its answer, and its events their follower.
//!
//! A line that broke tells everybody who waits on it. Nothing is repeated here: whether that is safe
//! only the participant knows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use regent_api::grpc as pb;
use regent_api::grpc::ask::Verb;
use regent_api::grpc::regent_client::RegentClient;
use regent_api::grpc::session_down::Message;
use regent_api::grpc::{answer, heartbeat_answer, status};
use regent_api::{Code, Problem, WatchEvent};
use regent_election::SessionId;
use regent_election::store::Open;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::body::Body;
use tonic::metadata::AsciiMetadataValue;
use tonic::{IntoStreamingRequest, Status, Streaming};

use super::lanes::{Lanes, Upward};
use crate::limits::EVENT_BYTES_MAX;
use crate::remote::{Address, AddressError, Connector, Spoken, connector, credential};

/// Events that may be on their way before this side took them.
const WINDOW: u32 = 64;
/// How often a silent server is asked whether it lives, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct StreamConnection {
    pub(super) address: Address,
    /// Whether a token was shown when it was opened.
    shows_token: bool,
    session: SessionId,
    lanes: Arc<Lanes>,
    waiting: Arc<Waiting>,
    number: AtomicU64,
    ended: watch::Receiver<Option<Code>>,
    leader: watch::Receiver<Option<pb::LogLeader>>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Waiting {
    heartbeats: Mutex<HashMap<u64, oneshot::Sender<heartbeat_answer::Outcome>>>,
    asks: Mutex<HashMap<u64, oneshot::Sender<answer::Outcome>>>,
    follower: Mutex<Option<mpsc::Sender<WatchEvent>>>,
}

/// Why a stream could not be opened.
#[derive(Debug)]
pub(super) struct NotOpened {
    pub(super) why: String,
    /// What the server said, if it was reached.
    pub(super) code: Option<Code>,
}

/// The line broke, or gave no answer in time: it may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It was not sent.
    Unsent,
    /// It was sent.
    Lost,
}

impl StreamConnection {
    /// Resumes the session of `open` on a stream of its own connection.
    pub(super) async fn open(
        address: Address,
        open: &Open,
        patience: Duration,
    ) -> Result<Self, NotOpened> {
        let not_opened = |why: String| NotOpened { why, code: None };
        let origin = address.of("").map_err(|error| not_opened(error.to_string()))?;
        let lanes = Lanes::new(pb::Hello {
            node_id: open.node.to_string(),
            // The ttl may have been changed since.
            ttl_ms: None,
            session_id: open.session.reveal(),
            follow: None,
            window: Some(WINDOW),
            resume: true,
        });
        let channel = channel(&address).map_err(|error| not_opened(error.to_string()))?;
        let mut client =
            RegentClient::with_origin(channel, origin).max_decoding_message_size(EVENT_BYTES_MAX);
        let credential = credential().map_err(|error| not_opened(error.to_string()))?;
        let shown =
            credential.and_then(|it| AsciiMetadataValue::try_from(it.value().as_bytes()).ok());
        let shows_token = shown.is_some();
        let opening = async {
            let mut request = Upward(Arc::clone(&lanes)).into_streaming_request();
            if let Some(value) = &shown {
                request.metadata_mut().insert("authorization", value.clone());
            }
            let mut down = client.session(request).await?.into_inner();
            let first = down.message().await?.and_then(|down| down.message);
            Ok((first, down))
        };
        let opened: Result<_, Status> = match tokio::time::timeout(patience, opening).await {
            Ok(opened) => opened,
            Err(_) => return Err(not_opened("it did not open in time".to_owned())),
        };
        let (welcome, down) = match opened {
            Ok((Some(Message::Welcome(welcome)), down)) => (welcome, down),
            Ok(_) => return Err(not_opened("no welcome came".to_owned())),
            Err(told) => {
                let code = status::problem(&told).map(|problem| problem.code);
                return Err(NotOpened { why: told.message().to_owned(), code });
            }
        };
        let waiting = Arc::new(Waiting::default());
        let (ending, ended) = watch::channel(None);
        let (leading, leader) = watch::channel(welcome.log_leader);
        let reading = Reading { lanes: Arc::clone(&lanes), waiting: Arc::clone(&waiting), leading };
        tokio::spawn(async move {
            let code = reading.run(down).await;
            reading.lanes.end();
            reading.waiting.release();
            ending.send_replace(Some(code));
        });
        let session = open.session;
        let number = AtomicU64::new(1);
        Ok(Self { address, shows_token, session, lanes, waiting, number, ended, leader })
    }

    pub(super) fn is_of(&self, session: SessionId) -> bool {
        self.session == session && self.ended.borrow().is_none()
    }

    /// Returns once the line is over, with what the server said last.
    pub(super) async fn ended(&self) -> Code {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(code) => code.unwrap_or(Code::Unrecognised),
            Err(_) => Code::Unrecognised,
        }
    }

    /// Returns once the server says that another replica leads the log, with that one's address: one of those `given`, or
    /// one beside this server's.
    pub(super) async fn leader_elsewhere(&self, given: &[Address]) -> Address {
        let mut leader = self.leader.clone();
        let found = |leader: &str| {
            let given = given.iter().find(|given| given.is_at(leader)).cloned();
            given.or_else(|| self.address.beside(leader, self.shows_token).ok())
        };
        loop {
            let told = leader.borrow_and_update().clone();
            if let Some(leader) = told.filter(|leader| !leader.is_this_one)
                && let Some(address) = found(&leader.address)
                && address != self.address
            {
                return address;
            }
            if leader.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Ends the line; the server ends it too.
    pub(super) fn hang_up(&self) {
        self.lanes.end();
    }

    /// Sends a heartbeat and waits so long for its answer. A line that gives none is given up: the
    /// next attempt must not meet it again.
    pub(super) async fn heartbeat(
        &self,
        heartbeat: pb::Heartbeat,
        patience: Duration,
    ) -> Result<heartbeat_answer::Outcome, NoAnswer> {
        let (tell, told) = oneshot::channel();
        let sequence = heartbeat.sequence;
        lock(&self.waiting.heartbeats).insert(sequence, tell);
        let sent = self.lanes.heartbeat(heartbeat);
        let answer = match sent {
            Ok(()) => tokio::time::timeout(patience, told).await,
            Err(_) => {
                lock(&self.waiting.heartbeats).remove(&sequence);
                return Err(NoAnswer::Unsent);
            }
        };
        lock(&self.waiting.heartbeats).remove(&sequence);
        match answer {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) => Err(NoAnswer::Lost),
            Err(_) => {
                self.hang_up();
                Err(NoAnswer::Lost)
            }
        }
    }

    /// Sends a request and waits so long for its answer.
    pub(super) async fn ask(
        &self,
        verb: Verb,
        patience: Duration,
    ) -> Result<answer::Outcome, NoAnswer> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        lock(&self.waiting.asks).insert(number, tell);
        let sent = self.lanes.ask(pb::Ask { number, verb: Some(verb) });
        let answer = match sent {
            Ok(()) => tokio::time::timeout(patience, told).await,
            Err(_) => {
                lock(&self.waiting.asks).remove(&number);
                return Err(NoAnswer::Unsent);
            }
        };
        lock(&self.waiting.asks).remove(&number);
        match answer {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Lost),
        }
    }

    /// Follows these groups instead of those before.
    pub(super) fn follow(&self, follow: pb::Follow) -> Option<Following> {
        let (events, queue) = mpsc::channel(WINDOW as usize);
        *lock(&self.waiting.follower) = Some(events);
        self.lanes.follow(follow).ok()?;
        Some(Following { queue, lanes: Arc::clone(&self.lanes) })
    }
}

impl Drop for StreamConnection {
    fn drop(&mut self) {
        self.hang_up();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections for one line alone.
fn channel(address: &Address) -> Result<Client<Connector, Body>, AddressError> {
    let connector = connector(std::slice::from_ref(address), Spoken::Two)?;
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_only(true)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_EVERY)
        .build(connector))
}

impl Waiting {
    /// Tells everybody that nothing more comes.
    fn release(&self) {
        lock(&self.heartbeats).clear();
        lock(&self.asks).clear();
        *lock(&self.follower) = None;
    }
}

/// The events of a line, for one follower.
#[derive(Debug)]
pub(super) struct Following {
    queue: mpsc::Receiver<WatchEvent>,
    lanes: Arc<Lanes>,
}

impl Following {
    /// The next event; none if the line broke or somebody else follows.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        let event = self.queue.recv().await?;
        self.lanes.took_event();
        Some(event)
    }
}

impl Drop for Following {
    /// What nobody will take counts as taken, so that the window does not close for ever.
    fn drop(&mut self) {
        self.queue.close();
        while self.queue.try_recv().is_ok() {
            self.lanes.took_event();
        }
    }
}

/// The receiving half.
struct Reading {
    lanes: Arc<Lanes>,
    waiting: Arc<Waiting>,
    leading: watch::Sender<Option<pb::LogLeader>>,
}

impl Reading {
    /// Reads until the line ends; what the server said last.
    async fn run(&self, mut down: Streaming<pb::SessionDown>) -> Code {
        loop {
            match down.message().await {
                Ok(Some(down)) => {
                    if let Some(message) = down.message {
                        self.take(message);
                    }
                }
                Ok(None) => return Code::Unrecognised,
                Err(told) => {
                    let problem = status::problem(&told);
                    return problem.map_or(Code::Unrecognised, |problem: Problem| problem.code);
                }
            }
        }
    }

    fn take(&self, message: Message) {
        match message {
            Message::Heartbeat(answer) => {
                let waits = lock(&self.waiting.heartbeats).remove(&answer.sequence);
                if let (Some(waits), Some(outcome)) = (waits, answer.outcome) {
                    let _ = waits.send(outcome);
                }
            }
            Message::Answer(answer) => {
                let waits = lock(&self.waiting.asks).remove(&answer.number);
                if let (Some(waits), Some(outcome)) = (waits, answer.outcome) {
                    let _ = waits.send(outcome);
                }
            }
            Message::Event(event) => self.pass_on(event),
            Message::LogLeader(leader) => {
                self.leading.send_replace(Some(leader));
            }
            Message::Jeopardy(hint) => {
                let (unheard_for_ms, ttl_ms) = (hint.unheard_for_ms, hint.ttl_ms);
                tracing::warn!(unheard_for_ms, ttl_ms, "the server has not heard this session");
            }
            // The event that follows it, or the epoch of the next heartbeat, says the same.
            Message::Holds(_) | Message::Welcome(_) => {}
        }
    }

    fn pass_on(&self, event: pb::WatchEvent) {
        let follower = lock(&self.waiting.follower).clone();
        let is_passed = match (event.received(), follower) {
            (Some(event), Some(follower)) => follower.try_send(event).is_ok(),
            (None, _) | (_, None) => false,
        };
        if !is_passed {
            self.lanes.took_event();
        }
    }
}
