//! A socket that gives up on slow peers.
//!
//! hyper waits for ever for half an HTTP/2 preface, and neither protocol's time-outs cover every
//! way of being slow. So patience ends here, below both protocols, where every byte passes:
//!
//! - the first request's head must be complete `head_timeout` after the connection began, however
//!   little of it came; a later one over HTTP/1 that long after its first byte;
//! - a peer that reads nothing for `write_timeout` while there is something to read is left.
//!
//! Idle connections and slow bodies are not this file's business: `connection.rs` and `body.rs`.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::header::HeaderValue;
use regent_election::{Moment, SessionId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::held::Holdings;
use crate::known_peer::KnownPeer;
use crate::tls::ByteStream;

/// How long a closed connection still listens, so that the peer can read the last answer: closing
/// with unread bytes makes the kernel take that answer back.
const LINGER_FOR: Duration = Duration::from_secs(1);
/// How many bytes it then swallows.
const LINGER_BYTES_MAX: usize = 1 << 20;

/// What socket, service and driver of one connection tell each other.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    under_way: AtomicUsize,
    heads: AtomicUsize,
    is_http2: AtomicBool,
    idle_since: Mutex<Instant>,
    given_up: Notify,
    is_given_up: AtomicBool,
    /// The session whose opening or renewal it carried last, unless another connection did since, and until when it
    /// stays for that.
    carried: Mutex<Option<(SessionId, Instant)>>,
    /// Its number among all connections, and whether its place is in the reserve.
    place: AtomicU64,
    is_in_reserve: AtomicBool,
    /// What it counts under where nobody says who calls.
    address: OnceLock<IpAddr>,
    /// The host that its peer names, once a request under it was served.
    host_known: OnceLock<HeaderValue>,
    /// What its peer has shown.
    known_peer: KnownPeer,
    holdings: Holdings,
    /// When the last refusal that is held back is told.
    refusal_at: Mutex<Moment>,
}

/// One request of a connection, until its answer has been sent.
#[derive(Debug)]
pub(crate) struct Exchange(Arc<ConnectionActivity>);

/// A request under way of which nothing is served: its refusal is held back, until this is dropped.
#[derive(Debug)]
pub(crate) struct Rest<'a>(&'a ConnectionActivity);

impl ConnectionActivity {
    pub(crate) fn begin() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            heads: AtomicUsize::new(0),
            is_http2: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
            given_up: Notify::new(),
            is_given_up: AtomicBool::new(false),
            carried: Mutex::new(None),
            place: AtomicU64::new(0),
            is_in_reserve: AtomicBool::new(false),
            address: OnceLock::new(),
            host_known: OnceLock::new(),
            known_peer: KnownPeer::default(),
            holdings: Holdings::default(),
            refusal_at: Mutex::default(),
        }
    }

    /// The host under which its peer has been served, for [`crate::origin`].
    pub(crate) const fn host_known(&self) -> &OnceLock<HeaderValue> {
        &self.host_known
    }

    /// What its peer has shown, and who it was found to be.
    pub(crate) const fn known_peer(&self) -> &KnownPeer {
        &self.known_peer
    }

    /// What its requests and answers hold in memory.
    pub(crate) const fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// When one more refusal is told, by when the last one is.
    pub(crate) fn next_refusal(&self, told_at: impl FnOnce(Moment) -> Moment) -> Moment {
        let mut refusal_at = self.refusal_at.lock().unwrap_or_else(PoisonError::into_inner);
        *refusal_at = told_at(*refusal_at);
        *refusal_at
    }

    /// From here on, one of its requests only waits to be refused: for as long, the connection gives way to a newcomer as if
    /// that request were not there.
    pub(crate) fn rests(&self) -> Rest<'_> {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.under_way.fetch_sub(1, Ordering::AcqRel);
        Rest(self)
    }

    /// Its peer has this address.
    pub(crate) fn comes_from(&self, address: IpAddr) {
        let _ = self.address.set(address);
    }

    /// The address of its peer; this machine's own if it has none.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.get().copied().unwrap_or(LOCAL.ip())
    }

    /// A request's head is complete.
    pub(crate) fn head_arrived(self: &Arc<Self>, is_http2: bool) -> Exchange {
        self.is_http2.store(is_http2, Ordering::Release);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        self.heads.fetch_add(1, Ordering::AcqRel);
        Exchange(Arc::clone(self))
    }

    /// Since when no request has been under way; none if one is.
    fn idle_since(&self) -> Option<Instant> {
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        (self.under_way.load(Ordering::Acquire) == 0).then_some(since)
    }

    /// The peer takes nothing of what it asked for: its connection shall end. Over HTTP/2 a peer can
    /// stall one stream and keep the socket flowing, which this file cannot see.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.given_up.notify_one();
    }

    /// Whether somebody gave up on the peer.
    #[cfg(test)]
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// The session that it carried last.
    pub(crate) fn carried(&self) -> Option<SessionId> {
        let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        carried.map(|(session, _)| session)
    }

    /// This session lives by it, until then if nothing more is heard; says which one did before.
    pub(crate) fn carry(&self, session: Option<(SessionId, Instant)>) -> Option<SessionId> {
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *carried, session).map(|(session, _)| session)
    }

    /// The session that it carries was renewed; false if it carries another, or none.
    pub(crate) fn carries_on(&self, session: SessionId, until: Instant) -> bool {
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *carried {
            Some((same, ends_at)) if *same == session => {
                *ends_at = until;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether it can be closed in favour of a newcomer: nothing of it is being served, and no session lives by it.
    pub(crate) fn can_give_way(&self, now: Instant) -> bool {
        let carried = *self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        self.under_way.load(Ordering::Acquire) == 0 && carried.is_none_or(|(_, until)| until <= now)
    }

    /// It has the place of this number.
    pub(crate) fn place_taken(&self, number: u64, is_in_reserve: bool) {
        self.place.store(number, Ordering::Release);
        self.is_in_reserve.store(is_in_reserve, Ordering::Release);
    }

    /// The number of its place.
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Ordering::Acquire)
    }

    /// Whether its place is in the reserve.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.is_in_reserve.load(Ordering::Acquire)
    }

    /// Returns once somebody gave up on the peer.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// Returns once no request has been under way for `timeout`.
    pub(crate) async fn idle_for(&self, timeout: Duration) {
        loop {
            let until = self.idle_since().unwrap_or_else(Instant::now) + timeout;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_add(1, Ordering::AcqRel);
    }
}

/// The address under which connections of this machine's own socket are known.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The address under which those connections are counted. No peer of a network has it, so none takes their places.
pub(crate) const UNIX: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The bytes of a connection, whichever way it came.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// After a handshake, at this address of the server.
    Tls {
        inner: Box<dyn ByteStream>,
        local: SocketAddr,
        peer: SocketAddr,
    },
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp(_) => "Tcp",
            Self::Unix(_) => "Unix",
            Self::Tls { .. } => "Tls",
        })
    }
}

impl Stream {
    /// The address at which the peer reached this server, and the peer's user, if the kernel knows it.
    pub(crate) fn ends(&self) -> io::Result<(SocketAddr, Option<u32>)> {
        match self {
            Self::Tcp(stream) => {
                // Answers are small and awaited: gathering them for a fuller packet only delays them.
                let _ = stream.set_nodelay(true);
                Ok((stream.local_addr()?, None))
            }
            Self::Unix(stream) => Ok((LOCAL, Some(stream.peer_cred()?.uid()))),
            Self::Tls { local, .. } => Ok((*local, None)),
        }
    }

    /// Where the peer is, for people: its address without the port, or its user.
    pub(crate) fn source(&self) -> String {
        let shown = |peer: SocketAddr| peer.ip().to_canonical().to_string();
        match self {
            Self::Tcp(stream) => stream.peer_addr().map_or_else(|_| "unknown".to_owned(), shown),
            Self::Tls { peer, .. } => shown(*peer),
            Self::Unix(stream) => stream
                .peer_cred()
                .map_or_else(|_| "unix".to_owned(), |peer| format!("unix uid {}", peer.uid())),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            // It would need room for the record around them.
            Self::Tls { .. } => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Passes a call on to whichever stream there is.
macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::Tls { inner: $inner, .. } => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls { inner, .. } => inner.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    activity: Arc<ConnectionActivity>,
    head_timeout: Duration,
    write_timeout: Duration,
    /// When patience with an incomplete head ends; none while no head is awaited.
    head_due_at: Option<Instant>,
    /// The timer for that. Most heads come in one piece and never need it.
    head_due: Option<Pin<Box<Sleep>>>,
    /// How many heads had arrived when it was last looked.
    heads_seen: usize,
    /// When patience with a full send buffer ends; none while it drains.
    write_due: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

#[derive(Debug)]
struct Linger {
    due: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Socket {
    pub(crate) fn new(
        stream: Stream,
        activity: Arc<ConnectionActivity>,
        head_timeout: Duration,
        write_timeout: Duration,
    ) -> Self {
        Self {
            stream,
            activity,
            head_timeout,
            write_timeout,
            head_due_at: Some(Instant::now() + head_timeout),
            head_due: None,
            heads_seen: 0,
            write_due: None,
            linger: None,
        }
    }

    /// An error once a head has been incomplete for too long; otherwise wakes when that may be.
    fn check_head(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let heads = self.activity.heads.load(Ordering::Acquire);
        if heads != self.heads_seen {
            self.heads_seen = heads;
            self.head_due_at = None;
            self.head_due = None;
        }
        let Some(due_at) = self.head_due_at else { return Ok(()) };
        let due = self.head_due.get_or_insert_with(|| Box::pin(sleep_until(due_at)));
        let is_due = due.as_mut().poll(cx).is_ready();
        if is_due { Err(slow("the request's head did not come in time")) } else { Ok(()) }
    }

    /// Bytes came between two requests: over HTTP/1 they can only be the next head. Over HTTP/2 they
    /// may be anything, and the driver's patience with idle connections must do.
    fn note_read(&mut self) {
        let awaits_head = self.activity.under_way.load(Ordering::Acquire) == 0;
        let is_http2 = self.activity.is_http2.load(Ordering::Acquire);
        if awaits_head && !is_http2 && self.head_due_at.is_none() {
            self.head_due_at = Some(Instant::now() + self.head_timeout);
        }
    }

    fn note_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_due = None;
            return written;
        }
        let timeout = self.write_timeout;
        let due = self.write_due.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(due.as_mut().poll(cx));
        Poll::Ready(Err(slow("the peer reads nothing")))
    }
}

fn slow(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_head(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Over TLS, what was written may wait here for a peer that reads nothing.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note_write(cx, flushed)
    }

    /// Ends the sending half, then swallows what the peer still sends, for a while.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
            ready!(self.note_write(cx, ended))?;
        }
        let Self { stream, linger, .. } = &mut *self;
        let linger = linger.get_or_insert_with(|| Linger {
            due: Box::pin(sleep(LINGER_FOR)),
            bytes_left: LINGER_BYTES_MAX,
        });
        let mut scratch = [0; 4096];
        while linger.bytes_left > 0 && linger.due.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    linger.bytes_left = linger.bytes_left.saturating_sub(buffer.filled().len());
                }
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_closing_socket_swallows_what_its_peer_still_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let sent = 32 << 10;
        peer.write_all(&vec![0; sent]).await.unwrap();
        peer.shutdown().await.unwrap();
        let patience = Duration::from_secs(60);
        let mut socket = Socket::new(
            Stream::Tcp(stream),
            Arc::new(ConnectionActivity::begin()),
            patience,
            patience,
        );
        socket.shutdown().await.unwrap();
        assert_eq!(socket.linger.unwrap().bytes_left, LINGER_BYTES_MAX - sent);
    }
}
