//! One connection to one server: what is sent on it, and who hears the answers and the changes.
//!
//! A connection belongs to a session of the server's. Dropped, the connection of a session that nothing hangs on
//! says farewell, which ends the session; that of a session that is to outlive it is only cut.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::messages::{
    self, Ask, Garbled, NUMBER_OF_CHANGES, NUMBER_OF_PINGS, Pass, TransactionOutcome, Welcome,
};
use crate::engine::change_feed::ChangeFeed;
use crate::engine::limits::{ANSWER_BYTES_MAX, RINGS_MAX};
use crate::engine::tls::ClientTls;
use crate::engine::tls::stream::NetStream;

/// Signs of life after which a server that is not heard is given up.
const PINGS_UNHEARD_MAX: u32 = 2;
/// Questions that may wait to be sent on one connection; more wait to wait.
const CALLS_MAX: usize = 1024;

/// A connection to one server, which answers in the order in which it was asked. Dropped, with all its
/// clones, it is closed.
#[derive(Clone)]
pub(super) struct Link {
    calls: mpsc::Sender<Call>,
    armed: Arc<Armed>,
}

/// What somebody who waits wants to be told of, once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchRequest {
    /// Any change of this node.
    Change(String),
    /// That this node, which has nothing below it, is no more.
    End(String),
}

impl WatchRequest {
    /// The node that it is about.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Change(path) | Self::End(path) => path,
        }
    }
}

/// The wishes that this connection will be told of.
type Armed = Mutex<BTreeSet<WatchRequest>>;

/// Something to be sent.
struct Call {
    /// The message; its number is given when it is sent.
    frame: Vec<u8>,
    answer: oneshot::Sender<ServerAnswer>,
    /// Where changes are told from now on.
    subscription: Option<mpsc::Sender<String>>,
}

/// What a server said: a code, and the rest.
type ServerAnswer = (i32, Vec<u8>);

/// Something that was sent, or soon will be.
#[derive(Debug)]
pub(super) struct Asked(oneshot::Receiver<ServerAnswer>);

/// Why a server did not do it.
#[derive(Debug)]
pub(super) enum Refused {
    /// It was never sent.
    NotSent,
    /// It may have been sent, and was not answered.
    Lost,
    /// It was answered with this code.
    Code(i32),
    /// It was answered with what is no answer.
    Garbled,
}

impl From<Garbled> for Refused {
    fn from(_: Garbled) -> Self {
        Self::Garbled
    }
}

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It could not be made, for this reason.
    Unreachable(String),
    /// The server knows the session of the pass no more.
    Unknown,
}

/// How a connection is made.
pub(super) struct Opening<'a> {
    pub(super) tls: Option<&'a Arc<ClientTls>>,
    pub(super) login: Option<&'a (String, String)>,
    /// How long the session is to live unheard.
    pub(super) session_ms: i32,
    /// The session that is gone on with; none for a fresh one.
    pub(super) pass: Option<Pass>,
    /// Whether the session ends with the connection, and is kept alive by it until then. If not, it is heard
    /// when the connection is made and whenever something is asked on it, and by nothing else.
    pub(super) is_bound: bool,
    /// Who is told of changes that were asked for once, and of the end of the connection.
    pub(super) feed: Option<Arc<ChangeFeed>>,
    pub(super) write_within: Duration,
}

impl Opening<'_> {
    /// Connects to a server and begins a session, or goes on with one.
    pub(super) async fn connect(self, server: &str) -> Result<(Link, Welcome), Closed> {
        let told = |error: std::io::Error| Closed::Unreachable(error.to_string());
        let mut stream = NetStream::connect(server, self.tls).await.map_err(told)?;
        let hello = messages::hello(self.session_ms, self.pass);
        write(&mut stream, &hello).await.map_err(told)?;
        let welcome = frame(&mut stream).await.map_err(|error| {
            let ended = error.kind() == std::io::ErrorKind::UnexpectedEof && self.tls.is_none();
            let hint = if ended { " (if this is its port for TLS, write ?tls=true)" } else { "" };
            Closed::Unreachable(format!("{error}{hint}"))
        })?;
        let welcome = messages::welcome(&welcome)
            .map_err(|Garbled| Closed::Unreachable("it is no ZooKeeper".to_owned()))?;
        let welcome = match (welcome, self.pass) {
            (Some(welcome), _) => welcome,
            (None, Some(_)) => return Err(Closed::Unknown),
            (None, None) => return Err(Closed::Unreachable("it grants no session".to_owned())),
        };
        if let Some((name, password)) = self.login {
            write(&mut stream, &messages::login(name, password)).await.map_err(told)?;
            let said = frame(&mut stream).await.map_err(told)?;
            if !matches!(messages::answer(&said), Ok((_, 0, _))) {
                return Err(Closed::Unreachable("it refuses the login".to_owned()));
            }
        }
        let (calls, waiting) = mpsc::channel(CALLS_MAX);
        let (reader, writer) = tokio::io::split(stream);
        let armed = Arc::new(Armed::default());
        let line = ConnectionTask {
            writer,
            asked: VecDeque::new(),
            subscription: None,
            feed: self.feed,
            armed: Arc::clone(&armed),
            last: 0,
            pings_unheard: 0,
            is_bound: self.is_bound,
            // Three signs of life in the time of a session, and two of them may be lost.
            ping_every: Duration::from_millis(welcome.session_ms) / 3,
            write_within: self.write_within,
        };
        tokio::spawn(line.serve(reader, waiting));
        Ok((Link { calls, armed }, welcome))
    }
}

impl Link {
    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// Sends a question after all that were sent before; the answer may be awaited later.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Asked, Refused> {
        self.call(ask, None).await
    }

    /// Asks to be told of every change at a node and below it, until the connection is lost or nobody
    /// listens.
    pub(super) async fn watch(&self, path: &str) -> Result<mpsc::Receiver<String>, Refused> {
        let (subscription, changes) = mpsc::channel(RINGS_MAX);
        let (code, _) = self.call(Ask::Watch { path }, Some(subscription)).await?.answer().await?;
        if code == 0 { Ok(changes) } else { Err(Refused::Code(code)) }
    }

    /// Sees to it that the feed tells what this asks for. Whether its node is there; not asked again, and not known, while
    /// the same wish is open.
    pub(super) async fn arm(&self, wish: &WatchRequest) -> Result<Option<bool>, Refused> {
        // Noted before it is asked: its change may be told before its answer is read here.
        if !armed(&self.armed).insert(wish.clone()) {
            return Ok(None);
        }
        let mut open = Open { armed: &self.armed, wish, is_answered: false };
        let ask = match wish {
            WatchRequest::Change(path) => Ask::WatchChange { path },
            WatchRequest::End(path) => Ask::WatchEnd { path },
        };
        let is_there = match self.ask(ask).await?.answer().await? {
            (0, _) => true,
            (messages::NO_NODE, _) => false,
            (code, _) => return Err(Refused::Code(code)),
        };
        // Nobody is told of the end of what is not there.
        open.is_answered = is_there || matches!(wish, WatchRequest::Change(_));
        Ok(Some(is_there))
    }

    async fn call(
        &self,
        ask: Ask<'_>,
        subscription: Option<mpsc::Sender<String>>,
    ) -> Result<Asked, Refused> {
        let (answer, asked) = oneshot::channel();
        let call = Call { frame: ask.framed(), answer, subscription };
        self.calls.send(call).await.map_err(|_| Refused::NotSent)?;
        Ok(Asked(asked))
    }
}

/// A wish that is being told. One that was given up before its answer is not counted on.
struct Open<'a> {
    armed: &'a Armed,
    wish: &'a WatchRequest,
    is_answered: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            armed(self.armed).remove(self.wish);
        }
    }
}

fn armed(armed: &Armed) -> MutexGuard<'_, BTreeSet<WatchRequest>> {
    armed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asked {
    /// The code and the rest.
    pub(super) async fn answer(self) -> Result<ServerAnswer, Refused> {
        self.0.await.map_err(|_| Refused::Lost)
    }

    /// What became of a transaction; a code of all of it is that of its first step.
    pub(super) async fn transacted(self) -> Result<TransactionOutcome, Refused> {
        match self.answer().await? {
            (0, body) => Ok(messages::outcome(&body)?),
            (code, _) => Ok(TransactionOutcome::Failed { step: 0, code }),
        }
    }
}

/// What a connection is doing.
struct ConnectionTask {
    writer: WriteHalf<NetStream>,
    /// What was sent and not answered, in order.
    asked: VecDeque<(i32, oneshot::Sender<ServerAnswer>)>,
    subscription: Option<mpsc::Sender<String>>,
    feed: Option<Arc<ChangeFeed>>,
    armed: Arc<Armed>,
    /// The last number that was given.
    last: i32,
    /// Signs of life since the server was last heard.
    pings_unheard: u32,
    is_bound: bool,
    ping_every: Duration,
    write_within: Duration,
}

impl ConnectionTask {
    /// Sends what is to be sent and hands on what comes, until either ends.
    async fn serve(mut self, mut reader: ReadHalf<NetStream>, mut calls: mpsc::Receiver<Call>) {
        let mut inbox = Vec::with_capacity(4096);
        let mut pulse = tokio::time::interval(self.ping_every);
        pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let went = tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    Ok(count) if count > 0 => self.hear(&mut inbox),
                    Ok(_) | Err(_) => None,
                },
                call = calls.recv() => match call {
                    Some(call) => self.send(call, &mut calls).await,
                    None => self.part().await,
                },
                _ = pulse.tick(), if self.is_bound => self.ping().await,
            };
            if went.is_none() {
                break;
            }
        }
        if let Some(feed) = &self.feed {
            // Nobody will be told of changes any more, until they are asked for elsewhere.
            feed.publish_to_all();
        }
    }

    /// Nobody asks any more.
    async fn part(&mut self) -> Option<()> {
        if self.is_bound {
            let mut farewell = Ask::End.framed();
            messages::give_number(&mut farewell, self.next());
            self.write(&farewell).await?;
        }
        None
    }

    async fn ping(&mut self) -> Option<()> {
        if self.pings_unheard >= PINGS_UNHEARD_MAX {
            return None;
        }
        self.pings_unheard += 1;
        self.write(&messages::ping()).await
    }

    fn next(&mut self) -> i32 {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }

    /// Sends a call, and with it all that wait.
    async fn send(&mut self, call: Call, calls: &mut mpsc::Receiver<Call>) -> Option<()> {
        let mut out = Vec::new();
        let mut waiting = Some(call);
        while let Some(Call { mut frame, answer, subscription }) = waiting {
            let number = self.next();
            messages::give_number(&mut frame, number);
            out.extend(frame);
            self.asked.push_back((number, answer));
            if subscription.is_some() {
                self.subscription = subscription;
            }
            waiting = calls.try_recv().ok();
        }
        self.write(&out).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        tokio::time::timeout(self.write_within, write(&mut self.writer, bytes)).await.ok()?.ok()
    }

    /// Hands on every answer that is there in full; none if what came is no answer.
    fn hear(&mut self, inbox: &mut Vec<u8>) -> Option<()> {
        self.pings_unheard = 0;
        let mut read = 0;
        while let Some(length) = inbox.get(read..read + 4) {
            let length = u32::from_be_bytes(length.try_into().ok()?);
            let length = usize::try_from(length).ok().filter(|it| *it <= ANSWER_BYTES_MAX)?;
            let Some(frame) = inbox.get(read + 4..read + 4 + length) else { break };
            read += 4 + length;
            let (number, code, body) = messages::answer(frame).ok()?;
            match number {
                NUMBER_OF_CHANGES => self.tell(&messages::changed(body).ok()?),
                NUMBER_OF_PINGS => {}
                _ => {
                    // An answer out of its turn answers nothing that can be trusted.
                    let (_, answer) = self.asked.pop_front().filter(|(it, _)| *it == number)?;
                    // Whoever asked may have given up.
                    let _ = answer.send((code, body.to_vec()));
                }
            }
        }
        inbox.drain(..read);
        Some(())
    }

    /// Tells of a change. A listener that is too slow, or gone, hears no more, and begins again.
    fn tell(&mut self, path: &str) {
        if let Some(feed) = &self.feed {
            // Whichever of the two it was: a wish that the server still has may be told to it again.
            for wish in [WatchRequest::Change(path.to_owned()), WatchRequest::End(path.to_owned())]
            {
                armed(&self.armed).remove(&wish);
            }
            feed.publish(path);
        }
        if self
            .subscription
            .as_ref()
            .is_some_and(|subscription| subscription.try_send(path.to_owned()).is_err())
        {
            self.subscription = None;
        }
    }
}

/// Writes all of it, past whatever encrypts it.
async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// One message from a connection that nothing else reads.
async fn frame(stream: &mut NetStream) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other("it is no ZooKeeper"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}
