//! A connection to one server of a ZooKeeper ensemble, and to another when it is lost.
//!
//! Every connection is a session of its own: nothing of ours hangs on a session but a watch, so there is
//! nothing to carry over. What was asked on a lost connection is never asked again here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::messages::{
    self, Ask, Garbled, NO_AUTH, NODE_EXISTS, NUMBER_OF_CHANGES, NUMBER_OF_PINGS, Rights, Step,
};
use crate::engine::limits::{ANSWER_BYTES_MAX, RINGS_MAX};
use crate::engine::place::Place;
use crate::engine::{Abandoned, Effect, Sent, fresh, in_time};
use crate::register::{RegisterError, RegisterResult};

/// How long a session lives unheard, if the server grants it.
const SESSION_MS: i32 = 10_000;
/// How long a server may take to begin a session. One that is starting takes what it is told and forgets it.
const CONNECT_FOR: Duration = Duration::from_secs(2);
/// Signs of life after which a server that is not heard is given up.
const PINGS_UNHEARD_MAX: u32 = 2;
/// Questions that may wait to be sent on one connection; more wait to wait.
const CALLS_MAX: usize = 1024;

/// The servers, and the connection to one of them.
pub(super) struct Wire {
    servers: Vec<String>,
    login: Option<(String, String)>,
    /// Nodes that must be there, parents first.
    nodes: Vec<String>,
    place: String,
    request_for: Duration,
    /// Whose turn it is.
    turn: AtomicUsize,
    link: Mutex<Option<Link>>,
    abandoned: Abandoned,
}

/// A connection to one server, which answers in the order in which it was asked. Dropped, with all its
/// clones, it is closed.
#[derive(Clone)]
pub(super) struct Link {
    calls: mpsc::Sender<Call>,
    number: u64,
}

/// Something to be sent.
struct Call {
    /// The message; its number is given when it is sent.
    frame: Vec<u8>,
    answer: oneshot::Sender<Answer>,
    /// Where changes are told from now on.
    ear: Option<mpsc::Sender<String>>,
}

/// What a server said: a code, and the rest.
type Answer = (i32, Vec<u8>);

/// Something that was sent, or soon will be.
#[derive(Debug)]
pub(super) struct Asked(oneshot::Receiver<Answer>);

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

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.place)
    }
}

impl Wire {
    /// The servers of a place, below whose `root` these shelves must be.
    pub(super) fn new(place: &Place, root: &str, shelves: &[&str], request_for: Duration) -> Self {
        let ends = root.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let mut nodes: Vec<_> = ends.map(|at| root[..at].to_owned()).collect();
        nodes.push(root.to_owned());
        nodes.extend(shelves.iter().map(|shelf| format!("{root}/{shelf}")));
        // Not all who name the same servers are to begin with the same one.
        let turn = usize::try_from(fresh() % 1024).unwrap_or(0);
        Self {
            servers: place.servers.clone(),
            login: place.login.clone(),
            nodes,
            place: place.servers.join(","),
            request_for,
            turn: AtomicUsize::new(turn),
            link: Mutex::new(None),
            abandoned: Abandoned::default(),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The rights of nodes that are created.
    pub(super) fn rights(&self) -> Rights {
        if self.login.is_some() { Rights::Creator } else { Rights::Everybody }
    }

    /// Asks what takes one question or several of one server, within one time-out.
    pub(super) async fn ask<T>(
        &self,
        effect: Effect,
        asking: impl AsyncFnOnce(Link) -> Result<T, Refused>,
    ) -> RegisterResult<T> {
        let server = format!("ZooKeeper at {}", self.place);
        in_time(self.request_for, effect, &server, async |sent: &Sent| {
            let link = self.link().await?;
            let number = link.number;
            let question = self.abandoned.asks(number, self.request_for);
            sent.leaves_now();
            let answer = asking(link).await;
            question.answered();
            match answer {
                Ok(answer) => Ok(answer),
                Err(refused) => {
                    self.give_up(number).await;
                    Err(meaning(effect, &server, &refused))
                }
            }
        })
        .await
    }

    fn serves(&self, link: &Link) -> bool {
        !link.calls.is_closed() && !self.abandoned.has(link.number)
    }

    /// A connection to a server that can be reached and serves.
    pub(super) async fn link(&self) -> RegisterResult<Link> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| self.serves(link)) {
            return Ok(link.clone());
        }
        // Every server gets its share of the time, or one that is gone would take it all.
        let share = self.request_for / u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        let share = share.min(CONNECT_FOR);
        let mut last_words = Vec::new();
        for _ in 0..self.servers.len() {
            let turn = self.turn.fetch_add(1, Ordering::AcqRel);
            let number = turn as u64;
            let server = &self.servers[turn % self.servers.len()];
            let connected = tokio::time::timeout(share, self.connect(server, number)).await;
            let why = match connected {
                Ok(Ok(link)) => match self.lay_out(&link).await {
                    Ok(()) => return Ok(held.insert(link).clone()),
                    Err(refused) => format!("{refused:?}"),
                },
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {share:?}"),
            };
            last_words.push(format!("{server}: {why}"));
        }
        Err(RegisterError::unavailable(format_args!(
            "no server of ZooKeeper serves: {}",
            last_words.join("; ")
        )))
    }

    async fn connect(&self, server: &str, number: u64) -> Result<Link, String> {
        let told = |error: std::io::Error| error.to_string();
        let mut stream = TcpStream::connect(server).await.map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        stream.write_all(&messages::hello(SESSION_MS)).await.map_err(told)?;
        let welcome = frame(&mut stream).await.map_err(told)?;
        let granted_ms = messages::granted_ms(&welcome)
            .map_err(|Garbled| "it is no ZooKeeper".to_owned())?
            .ok_or_else(|| "it grants no session".to_owned())?;
        if let Some((name, password)) = &self.login {
            stream.write_all(&messages::login(name, password)).await.map_err(told)?;
            let said = frame(&mut stream).await.map_err(told)?;
            if !matches!(messages::answer(&said), Ok((_, 0, _))) {
                return Err("it refuses the login".to_owned());
            }
        }
        let (calls, waiting) = mpsc::channel(CALLS_MAX);
        let (reader, writer) = stream.into_split();
        let line = Line {
            writer,
            asked: VecDeque::new(),
            ear: None,
            last: 0,
            pings_unheard: 0,
            // Three signs of life in the time of a session, and two of them may be lost.
            ping_every: Duration::from_millis(granted_ms) / 3,
            write_within: self.request_for,
        };
        tokio::spawn(line.serve(reader, waiting));
        Ok(Link { calls, number })
    }

    /// Creates the nodes that must be there. One that may not be created may be there all the same.
    async fn lay_out(&self, link: &Link) -> Result<(), Refused> {
        let rights = self.rights();
        let mut asked = Vec::with_capacity(self.nodes.len());
        for path in &self.nodes {
            let steps = [Step::Create { path, data: &[], rights }];
            asked.push(link.ask(Ask::Transaction { steps: &steps }).await?);
        }
        for asked in asked {
            match asked.transacted().await? {
                0 | NODE_EXISTS | NO_AUTH => {}
                code => return Err(Refused::Code(code)),
            }
        }
        Ok(())
    }

    /// Drops this connection unless it was replaced already; the next server is asked then.
    async fn give_up(&self, number: u64) {
        let mut held = self.link.lock().await;
        if held.as_ref().is_some_and(|link| link.number == number) {
            *held = None;
        }
    }

    /// Drops whatever connection there is. Questions under way keep theirs until they are answered.
    pub(super) async fn hang_up(&self) {
        *self.link.lock().await = None;
    }
}

impl Link {
    /// Sends a question after all that were sent before; the answer may be awaited later.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Asked, Refused> {
        self.call(ask, None).await
    }

    /// Asks to be told of every change at a node and below it, until the connection is lost or nobody
    /// listens.
    pub(super) async fn watch(&self, path: &str) -> Result<mpsc::Receiver<String>, Refused> {
        let (ear, changes) = mpsc::channel(RINGS_MAX);
        let (code, _) = self.call(Ask::Watch { path }, Some(ear)).await?.answer().await?;
        if code == 0 { Ok(changes) } else { Err(Refused::Code(code)) }
    }

    async fn call(
        &self,
        ask: Ask<'_>,
        ear: Option<mpsc::Sender<String>>,
    ) -> Result<Asked, Refused> {
        let (answer, asked) = oneshot::channel();
        let call = Call { frame: ask.framed(), answer, ear };
        self.calls.send(call).await.map_err(|_| Refused::NotSent)?;
        Ok(Asked(asked))
    }
}

impl Asked {
    /// The code and the rest.
    pub(super) async fn answer(self) -> Result<Answer, Refused> {
        self.0.await.map_err(|_| Refused::Lost)
    }

    /// What became of a transaction: the code of the step that failed, or zero.
    pub(super) async fn transacted(self) -> Result<i32, Refused> {
        match self.answer().await? {
            (0, body) => Ok(messages::outcome(&body)?),
            (code, _) => Ok(code),
        }
    }
}

/// What a connection is doing.
struct Line {
    writer: OwnedWriteHalf,
    /// What was sent and not answered, in order.
    asked: VecDeque<(i32, oneshot::Sender<Answer>)>,
    ear: Option<mpsc::Sender<String>>,
    /// The last number that was given.
    last: i32,
    /// Signs of life since the server was last heard.
    pings_unheard: u32,
    ping_every: Duration,
    write_within: Duration,
}

impl Line {
    /// Sends what is to be sent and hands on what comes, until either ends.
    async fn serve(mut self, mut reader: OwnedReadHalf, mut calls: mpsc::Receiver<Call>) {
        let mut inbox = Vec::with_capacity(4096);
        let mut pulse = tokio::time::interval(self.ping_every);
        pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let went = tokio::select! {
                read = reader.read_buf(&mut inbox) => match read {
                    Ok(count) if count > 0 => self.hear(&mut inbox),
                    Ok(_) | Err(_) => return,
                },
                call = calls.recv() => match call {
                    Some(call) => self.send(call, &mut calls).await,
                    None => {
                        let mut farewell = messages::farewell();
                        messages::give_number(&mut farewell, self.next());
                        let _ = self.write(&farewell).await;
                        return;
                    }
                },
                _ = pulse.tick() => {
                    if self.pings_unheard >= PINGS_UNHEARD_MAX {
                        return;
                    }
                    self.pings_unheard += 1;
                    self.write(&messages::ping()).await
                }
            };
            if went.is_none() {
                return;
            }
        }
    }

    fn next(&mut self) -> i32 {
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.last
    }

    /// Sends a call, and with it all that wait.
    async fn send(&mut self, call: Call, calls: &mut mpsc::Receiver<Call>) -> Option<()> {
        let mut out = Vec::new();
        let mut waiting = Some(call);
        while let Some(Call { mut frame, answer, ear }) = waiting {
            let number = self.next();
            messages::give_number(&mut frame, number);
            out.extend(frame);
            self.asked.push_back((number, answer));
            if ear.is_some() {
                self.ear = ear;
            }
            waiting = calls.try_recv().ok();
        }
        self.write(&out).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        tokio::time::timeout(self.write_within, self.writer.write_all(bytes)).await.ok()?.ok()
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
        if self.ear.as_ref().is_some_and(|ear| ear.try_send(path.to_owned()).is_err()) {
            self.ear = None;
        }
    }
}

/// One message from a connection that nothing else reads.
async fn frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other("it is no ZooKeeper"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

/// What a refusal says about the question.
fn meaning(effect: Effect, server: &str, refused: &Refused) -> RegisterError {
    match refused {
        Refused::NotSent => {
            RegisterError::unavailable(format_args!("{server}: the connection was lost before"))
        }
        Refused::Lost => effect.unanswered(format_args!("{server}: the connection was lost")),
        Refused::Garbled => effect.unanswered(format_args!("{server}: an answer that is none")),
        Refused::Code(code) => {
            let (words, is_undone) = told(*code);
            let why = format!("{server}: {words} ({code})");
            if is_undone { RegisterError::unavailable(why) } else { effect.unanswered(why) }
        }
    }
}

/// A code in words, and whether it says that nothing was done.
fn told(code: i32) -> (&'static str, bool) {
    match code {
        messages::NO_NODE => ("the node is gone", true),
        messages::NO_AUTH => ("the login may not do that", true),
        messages::BAD_VERSION => ("the node has another version", true),
        messages::NODE_EXISTS => ("the node is there already", true),
        messages::UNIMPLEMENTED => ("the server does not know the request", true),
        -5 => ("the server could not read the request; is jute.maxbuffer too small", true),
        -112 => ("the session has expired", true),
        -114 => ("the rights are none", true),
        -115 => ("the login failed", true),
        -118 => ("the session is on another server", true),
        -119 => ("the server may only read", true),
        -125 => ("a quota is exceeded", true),
        -127 => ("the server is too busy", true),
        _ => ("it failed", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(servers: &str) -> Wire {
        let place = Place::parse(&format!("zookeeper://{servers}"), 2181).unwrap();
        Wire::new(&place, "/a/b", &["groups"], Duration::from_secs(30))
    }

    #[test]
    fn every_node_comes_after_its_parent() {
        assert_eq!(wire("h").nodes, ["/a", "/a/b", "/a/b/groups"]);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_was_never_asked() {
        // Port 1 of this host: nobody listens.
        let wire = wire("127.0.0.1:1,127.0.0.1:1");
        let asked = wire.ask(Effect::Writes, async |_| Ok(())).await.unwrap_err();
        assert!(matches!(asked, RegisterError::Unavailable { .. }), "{asked:?}");
    }

    #[test]
    fn a_doubt_is_told_only_of_what_writes_and_was_sent() {
        let of = |effect, refused| meaning(effect, "x", &refused);
        let is_doubt = |error| matches!(error, RegisterError::Uncertain { .. });
        assert!(is_doubt(of(Effect::Writes, Refused::Lost)));
        assert!(is_doubt(of(Effect::Writes, Refused::Garbled)));
        // Codes that nobody knows, and a server's own time-out, say nothing.
        assert!(is_doubt(of(Effect::Writes, Refused::Code(-1))));
        assert!(is_doubt(of(Effect::Writes, Refused::Code(-7))));
        assert!(!is_doubt(of(Effect::Writes, Refused::Code(messages::NO_AUTH))));
        assert!(!is_doubt(of(Effect::Writes, Refused::NotSent)));
        assert!(!is_doubt(of(Effect::Reads, Refused::Lost)));
    }
}
