//! The link to one peer: a queue, a connection while there is one, and the dialling of the next.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regent_election::Moment;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use super::Shared;
use super::frame::{Kind, Purpose, put_frame, take_frame};
use super::handshake::dial;
use super::inbox::PeerInbox;
use super::roll::Standing;
use super::transport::Channel;
use crate::io::{Input, PeerMessage};
use crate::limits::PEER_OUTBOX_BYTES_MAX;
use crate::member::ReplicaId;
use crate::recent::Recent;

/// Pauses between two attempts to dial.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(50);
const DIAL_AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);
/// How long a peer that should dial may leave it.
const DIAL_ANYWAY_AFTER: Duration = Duration::from_secs(2);
/// How often a round trip is measured.
const PING_EVERY: Duration = Duration::from_millis(500);
/// A peer that says nothing for this long, not even an answer to a ping, is dialled anew. When a network
/// that swallowed everything comes back, the old connection would wait for minutes before it tries again.
const SILENT_FOR_MAX: Duration = Duration::from_secs(3);
/// A link that brought nothing for this long is not alive: three pings were not answered.
const ALIVE_WITHIN: Duration = Duration::from_millis(1500);
/// How long it may take to tell a replica that it was removed.
const FAREWELL_WITHIN: Duration = Duration::from_secs(1);
/// How long a frame that was begun may take.
const FRAME_WITHIN: Duration = Duration::from_secs(30);
/// Round trips that are remembered.
const TRIPS_KEPT: usize = 5;
/// Bytes gathered before they are written: one system call for many messages.
const GATHER_BYTES: usize = 256 << 10;

/// A connection on which greetings were exchanged.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) channel: Channel,
    pub(super) incarnation: u64,
}

/// The way to one peer.
pub(super) struct Link {
    queue: mpsc::Sender<PeerMessage>,
    queued: Arc<Queued>,
    pub(super) connected: mpsc::Sender<Connected>,
    pub(super) task: JoinHandle<()>,
    round_trip_ns: Arc<AtomicU64>,
    /// When it last said something other than that the connection lives; zero is never.
    spoke_ns: Arc<AtomicU64>,
    /// When it last said anything on the connection there is; zero if there is none.
    alive_ns: Arc<AtomicU64>,
    /// Round trips of the last minutes, whatever became of their connections.
    recent: Arc<Mutex<Recent>>,
    /// Ends the connection there is, if there is one.
    cut: Arc<Notify>,
}

impl Link {
    pub(super) fn start(shared: Arc<Shared>, to: ReplicaId, queue_max: usize) -> Self {
        let (queue, messages) = mpsc::channel(queue_max);
        let queued = Arc::new(Queued::default());
        let (connected, connections) = mpsc::channel(4);
        let round_trip_ns = Arc::new(AtomicU64::new(0));
        let spoke_ns = Arc::new(AtomicU64::new(0));
        let alive_ns = Arc::new(AtomicU64::new(0));
        let recent = Arc::new(Mutex::new(Recent::trips(regent_clock::now())));
        let cut = Arc::new(Notify::new());
        let keeper = Keeper {
            shared,
            to,
            messages: Outbox { messages, queued: Arc::clone(&queued) },
            inbox: PeerInbox::new(),
            connections,
            round_trip_ns: Arc::clone(&round_trip_ns),
            spoke_ns: Arc::clone(&spoke_ns),
            alive_ns: Arc::clone(&alive_ns),
            was_told: false,
            recent: Arc::clone(&recent),
            cut: Arc::clone(&cut),
        };
        let task = tokio::spawn(keeper.keep());
        Self { queue, queued, connected, task, round_trip_ns, spoke_ns, alive_ns, recent, cut }
    }

    /// Queues a message, or drops it.
    pub(super) fn send(&self, message: PeerMessage) {
        let bytes = message.records_bytes();
        if self.queued.add(bytes) && self.queue.try_send(message).is_err() {
            self.queued.take(bytes);
        }
    }

    /// Ends the connection there is. The next one is taken after a while.
    pub(super) fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Whether the peer said something lately.
    pub(super) fn spoke_within(&self, within: Duration) -> bool {
        is_within(&self.spoke_ns, within)
    }

    /// Whether the peer answers pings on the connection there is.
    pub(super) fn is_alive(&self) -> bool {
        is_within(&self.alive_ns, ALIVE_WITHIN)
    }

    /// The round trips of the last minutes: up to how many microseconds, and how many.
    pub(super) fn recent_trips(&self) -> Vec<(u64, u64)> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.forget(regent_clock::now());
        recent.counts()
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        let ns = self.round_trip_ns.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }
}

/// Whether a moment, zero for never, is at most this long ago.
fn is_within(at_ns: &AtomicU64, within: Duration) -> bool {
    let at = at_ns.load(Ordering::Relaxed);
    let ago_ns = regent_clock::now().as_nanos().saturating_sub(at);
    at > 0 && Duration::from_nanos(ago_ns) <= within
}

/// What the records of the messages that wait to be sent take.
#[derive(Debug, Default)]
struct Queued(AtomicUsize);

impl Queued {
    /// Counts one more; false if there is no room for it.
    fn add(&self, bytes: usize) -> bool {
        let with = |queued: usize| Some(queued + bytes).filter(|it| *it <= PEER_OUTBOX_BYTES_MAX);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok()
    }

    fn take(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What waits to be sent.
struct Outbox {
    messages: mpsc::Receiver<PeerMessage>,
    queued: Arc<Queued>,
}

impl Outbox {
    async fn recv(&mut self) -> Option<PeerMessage> {
        let message = self.messages.recv().await?;
        self.queued.take(message.records_bytes());
        Some(message)
    }

    fn try_recv(&mut self) -> Option<PeerMessage> {
        let message = self.messages.try_recv().ok()?;
        self.queued.take(message.records_bytes());
        Some(message)
    }
}

/// Keeps one link alive.
struct Keeper {
    shared: Arc<Shared>,
    to: ReplicaId,
    messages: Outbox,
    inbox: PeerInbox,
    connections: mpsc::Receiver<Connected>,
    round_trip_ns: Arc<AtomicU64>,
    spoke_ns: Arc<AtomicU64>,
    alive_ns: Arc<AtomicU64>,
    /// Whether the peer said at last that this replica is no member: that is asked again and again, and told once.
    was_told: bool,
    recent: Arc<Mutex<Recent>>,
    cut: Arc<Notify>,
}

impl Keeper {
    /// Until the peer is nobody any more.
    async fn keep(mut self) {
        let mut next = None;
        while self.shared.standing(self.to) != Standing::Stranger {
            let connected = match next.take() {
                Some(connected) => connected,
                None => match self.connect().await {
                    Some(connected) => connected,
                    None => return,
                },
            };
            if !self.shared.is_the_same(self.to, connected.incarnation).await {
                sleep(DIAL_AGAIN_AFTER_MAX).await;
                continue;
            }
            if !self.was_told {
                tracing::info!(replica = %self.to, "connected");
            }
            match self.serve(connected).await {
                Ok(connected) => next = Some(connected),
                Err(error) => {
                    self.alive_ns.store(0, Ordering::Relaxed);
                    let is_told = error.kind() == io::ErrorKind::ConnectionAborted
                        && error.to_string() == REMOVED;
                    if !(is_told && self.was_told) {
                        tracing::info!(replica = %self.to, %error, "disconnected");
                    }
                    self.was_told = is_told;
                    self.report_unreachable();
                    if error.kind() == io::ErrorKind::ConnectionAborted {
                        sleep(DIAL_AGAIN_AFTER_MAX).await;
                    }
                }
            }
        }
    }

    /// The next connection: dialled until it is there, or awaited. None when the link is closed.
    async fn connect(&mut self) -> Option<Connected> {
        let mut pause = DIAL_AGAIN_AFTER;
        if self.shared.identity.id > self.to {
            tokio::select! {
                connected = self.connections.recv() => return connected,
                () = sleep(DIAL_ANYWAY_AFTER) => pause = DIAL_AGAIN_AFTER_MAX,
            }
        }
        let mut changes = self.shared.changes();
        loop {
            if self.shared.standing(self.to) == Standing::Stranger {
                return None;
            }
            let dialled = tokio::select! {
                connected = self.connections.recv() => return connected,
                dialled = dial(&self.shared, self.to, Purpose::Messages) => dialled,
            };
            match dialled {
                Ok((channel, greeting)) => {
                    return Some(Connected { channel, incarnation: greeting.incarnation });
                }
                Err(error) => {
                    tracing::debug!(replica = %self.to, %error, "a peer cannot be reached");
                }
            }
            self.report_unreachable();
            tokio::select! {
                connected = self.connections.recv() => return connected,
                () = sleep(pause) => {}
                changed = changes.changed() => changed.ok()?,
            }
            pause = (pause * 2).min(DIAL_AGAIN_AFTER_MAX);
        }
    }

    /// What waited for a connection that is gone is old news to Raft.
    fn report_unreachable(&mut self) {
        while self.messages.try_recv().is_some() {}
        let _ = (self.shared.deliver)(Input::Unreachable { replica: self.to }, None);
    }

    /// Serves a connection until it ends, or until the peer has opened another, which is returned.
    async fn serve(&mut self, connected: Connected) -> io::Result<Connected> {
        let Connected { channel: Channel { reader, writer, .. }, incarnation } = connected;
        let (replies, to_write) = mpsc::channel(8);
        let trips = Trips {
            last: VecDeque::new(),
            shown: Arc::clone(&self.round_trip_ns),
            recent: Arc::clone(&self.recent),
        };
        let reading = Reading {
            reader: BufReader::with_capacity(256 << 10, reader),
            shared: Arc::clone(&self.shared),
            from: self.to,
            incarnation,
            is_member: self.shared.standing(self.to) == Standing::Member,
            spoke_ns: Arc::clone(&self.spoke_ns),
            alive_ns: Arc::clone(&self.alive_ns),
            inbox: self.inbox.clone(),
            replies,
            trips,
        };
        let writing = write(writer, &mut self.messages, to_write);
        let cut = Arc::clone(&self.cut);
        let refused = || {
            let why = "it sent what no replica in order sends";
            io::Error::new(io::ErrorKind::ConnectionAborted, why)
        };
        tokio::select! {
            error = reading.read() => Err(error),
            error = writing => Err(error),
            () = cut.notified() => Err(refused()),
            next = self.connections.recv() => {
                next.ok_or_else(|| io::Error::other("the link was closed"))
            }
        }
    }
}

/// The last round trips of one connection. What is shown is the middle one: a single slow answer is
/// no slow network, and a connection that is gone says nothing about the next.
struct Trips {
    last: VecDeque<u64>,
    shown: Arc<AtomicU64>,
    recent: Arc<Mutex<Recent>>,
}

impl Trips {
    fn note(&mut self, now: Moment, trip_ns: u64) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.note(now, Duration::from_nanos(trip_ns));
        drop(recent);
        if self.last.len() >= TRIPS_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(trip_ns);
        let mut sorted: Vec<u64> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        self.shown.store(sorted[(sorted.len() - 1) / 2], Ordering::Relaxed);
    }
}

impl Drop for Trips {
    fn drop(&mut self) {
        self.shown.store(0, Ordering::Relaxed);
    }
}

/// What the reader has the writer say.
enum Reply {
    /// What a ping brought goes back.
    Pong(Vec<u8>),
    /// The last word to a replica that was removed.
    Farewell(PeerMessage),
}

/// Why a link to a peer ended that does not know this replica any more.
const REMOVED: &str = "it says that this replica was removed from the cluster";

/// What is read from one connection.
struct Reading {
    reader: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    shared: Arc<Shared>,
    from: ReplicaId,
    incarnation: u64,
    /// Whether it was written down as a member.
    is_member: bool,
    spoke_ns: Arc<AtomicU64>,
    alive_ns: Arc<AtomicU64>,
    inbox: PeerInbox,
    replies: mpsc::Sender<Reply>,
    trips: Trips,
}

impl Reading {
    async fn read(mut self) -> io::Error {
        let mut buffer = Vec::new();
        loop {
            if let Err(error) = self.next(&mut buffer).await {
                return error;
            }
        }
    }

    async fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let kind = next_frame(&mut self.reader, buffer).await?;
        self.alive_ns.store(regent_clock::now().as_nanos(), Ordering::Relaxed);
        // Members change while a connection lasts.
        match self.shared.standing(self.from) {
            Standing::Member if self.is_member => {}
            Standing::Member => {
                if !self.shared.is_the_same(self.from, self.incarnation).await {
                    return Err(io::Error::other("it is not the replica that was met before"));
                }
                self.is_member = true;
            }
            Standing::OnTrial => self.is_member = false,
            Standing::Stranger => {
                if let Some(farewell) = self.shared.farewell(self.from) {
                    let _ = self.replies.send(Reply::Farewell(farewell)).await;
                    // Closed at once, with something unread, the connection would be reset and this lost.
                    sleep(FAREWELL_WITHIN).await;
                }
                return Err(io::Error::other("it is no member any more"));
            }
        }
        match kind {
            Kind::Message => {
                let message = PeerMessage::decode(buffer).map_err(io::Error::other)?;
                self.spoke_ns.store(regent_clock::now().as_nanos(), Ordering::Relaxed);
                let is_farewell = matches!(message, PeerMessage::Removed { .. });
                let place = self.inbox.enter(&message, buffer.len()).await;
                // What finds no room is lost, as on any network.
                let _ = (self.shared.deliver)(Input::Message { from: self.from, message }, place);
                if is_farewell {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, REMOVED));
                }
            }
            Kind::Ping => {
                let _ = self.replies.try_send(Reply::Pong(buffer.clone()));
            }
            Kind::Pong => {
                if let Ok(sent) = <[u8; 8]>::try_from(buffer.as_slice()) {
                    let now = regent_clock::now();
                    let trip_ns = now.as_nanos().saturating_sub(u64::from_le_bytes(sent));
                    self.trips.note(now, trip_ns.max(1));
                }
            }
            Kind::Announcement | Kind::Chunk | Kind::End => {
                return Err(io::Error::other("a snapshot does not travel here"));
            }
        }
        Ok(())
    }
}

/// The next frame, from a peer that is heard of now and then.
async fn next_frame(
    reader: &mut BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    buffer: &mut Vec<u8>,
) -> io::Result<Kind> {
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "nothing was heard of it");
    timeout(SILENT_FOR_MAX, reader.fill_buf()).await.map_err(silent)??;
    timeout(FRAME_WITHIN, take_frame(reader, buffer)).await.map_err(silent)?
}

async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    messages: &mut Outbox,
    mut replies: mpsc::Receiver<Reply>,
) -> io::Error {
    let mut out = Vec::with_capacity(GATHER_BYTES);
    let mut ping = interval(PING_EVERY);
    loop {
        out.clear();
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => put_frame(Kind::Message, &mut out, |out| message.put(out)),
                None => return io::Error::other("the link was closed"),
            },
            reply = replies.recv() => match reply {
                Some(Reply::Pong(sent)) => put_frame(Kind::Pong, &mut out, |out| out.extend(sent)),
                Some(Reply::Farewell(message)) => {
                    put_frame(Kind::Message, &mut out, |out| message.put(out));
                }
                None => return io::Error::other("the connection is over"),
            },
            _ = ping.tick() => {
                let now = regent_clock::now().as_nanos();
                put_frame(Kind::Ping, &mut out, |out| out.extend(now.to_le_bytes()));
            }
        }
        while out.len() < GATHER_BYTES
            && let Some(message) = messages.try_recv()
        {
            put_frame(Kind::Message, &mut out, |out| message.put(out));
        }
        if let Err(error) = send(&mut writer, &out).await {
            return error;
        }
    }
}

/// An encrypted connection keeps what was written until it is flushed.
async fn send(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_last_round_trips_counts_until_the_connection_is_gone() {
        let shown = Arc::new(AtomicU64::new(0));
        let recent = Arc::new(Mutex::new(Recent::trips(Moment::ZERO)));
        let of_link = Arc::clone(&recent);
        let mut trips = Trips { last: VecDeque::new(), shown: Arc::clone(&shown), recent: of_link };
        let mut after = |trip| {
            trips.note(Moment::ZERO, trip);
            shown.load(Ordering::Relaxed)
        };
        assert_eq!([1, 900, 2, 3, 4].map(&mut after), [1, 1, 2, 2, 3]);
        assert_eq!([800, 800, 800].map(&mut after), [4, 4, 800], "what stays slow is slow");
        drop(trips);
        assert_eq!(shown.load(Ordering::Relaxed), 0);
        assert_eq!(recent.lock().unwrap().count(), 8, "the link remembers them");
    }
}
