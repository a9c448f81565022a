//! Connections of clients over TLS: the port that speaks it, and handshakes that are bounded in time and number.
//!
//! The cryptography is passed in ([`Tls`]), as peers' transports are to a replica: this crate needs none.
//!
//! A handshake costs more than a request and happens before anybody is known. So:
//!
//! - It has `head_timeout`, and its connection counts as idle: a newcomer takes its place if there are too many.
//! - At most [`HANDSHAKES_MAX`] are under way. With one more, the oldest is closed if it had [`KEPT_FOR`]; until then
//!   newcomers wait in the system's queue. The road not taken is to close the oldest at once: when thousands of honest
//!   clients come back after a restart, that is the one that is nearest to its end.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use regent_api::problem::PROBLEM_JSON;
use regent_api::{Code, Problem};
use regent_election::access::Voucher;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::{App, Phase};
use crate::quiet::{self, Quiet};
use crate::socket::{ConnectionActivity, Socket, Stream};

/// Most handshakes at once. Each may hold 64 KiB of certificates.
const HANDSHAKES_MAX: usize = 512;
/// For how long a handshake is not closed in favour of another: some hundred round trips within a data centre.
const KEPT_FOR: Duration = Duration::from_millis(250);
/// The first byte of whatever opens with a handshake of TLS.
const HANDSHAKE: u8 = 0x16;

static FAILED: Quiet = quiet::lines();

/// Bytes both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection after its handshake.
pub struct Secured {
    pub stream: Box<dyn ByteStream>,
    /// Who the client is, if it has shown a certificate.
    pub client: Option<Arc<dyn Voucher>>,
}

impl fmt::Debug for Secured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("client", &self.client).finish_non_exhaustive()
    }
}

/// How TLS is spoken on a port.
#[async_trait]
pub trait Tls: fmt::Debug + Send + Sync {
    /// The handshake with one client. It has no time limit of its own; dropping it ends it.
    async fn accept(&self, stream: TcpStream) -> io::Result<Secured>;

    /// When the certificate in use ends, in seconds since 1970.
    fn expires_at_s(&self) -> u64;

    /// How often files that changed could not be used.
    fn reload_failures(&self) -> u64;
}

/// Why a handshake came to nothing, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsecured {
    /// It took too long.
    Slow,
    /// Another one took its place.
    GaveWay,
    /// The client speaks HTTP in the clear.
    Plaintext,
    /// One of the two refused.
    Failed,
}

impl Unsecured {
    pub(crate) const ALL: [Self; 4] = [Self::Slow, Self::GaveWay, Self::Plaintext, Self::Failed];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::GaveWay => "gave_way",
            Self::Plaintext => "plaintext",
            Self::Failed => "failed",
        }
    }
}

/// The handshakes under way, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    places: Mutex<Places>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Places {
    last: u64,
    taken: VecDeque<(u64, Instant, Arc<ConnectionActivity>)>,
}

/// The place of one handshake, until dropped.
#[derive(Debug)]
pub(crate) struct HandshakePlace {
    of: Arc<Handshakes>,
    number: u64,
}

impl Handshakes {
    /// A place for one more, once there is one.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        activity: &Arc<ConnectionActivity>,
    ) -> HandshakePlace {
        loop {
            match self.try_enter(activity, Instant::now()) {
                Ok(place) => return place,
                Err(until) => {
                    let _ = timeout_at(until, self.freed.notified()).await;
                }
            }
        }
    }

    /// A place, or until when there is none.
    fn try_enter(
        self: &Arc<Self>,
        activity: &Arc<ConnectionActivity>,
        now: Instant,
    ) -> Result<HandshakePlace, Instant> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.taken.len() >= HANDSHAKES_MAX
            && let Some((_, since, oldest)) = places.taken.front()
        {
            if *since + KEPT_FOR > now {
                return Err(*since + KEPT_FOR);
            }
            oldest.give_up();
            places.taken.pop_front();
        }
        places.last += 1;
        let number = places.last;
        places.taken.push_back((number, now, Arc::clone(activity)));
        Ok(HandshakePlace { of: Arc::clone(self), number })
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut places = self.of.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = places.taken.binary_search_by_key(&self.number, |(number, ..)| *number) {
            places.taken.remove(at);
        }
        self.of.freed.notify_one();
    }
}

/// The handshake of one connection: what to go on with, or none if it came to nothing.
pub(crate) async fn secure(
    stream: TcpStream,
    tls: &dyn Tls,
    place: HandshakePlace,
    activity: &Arc<ConnectionActivity>,
    app: &App,
) -> Option<(Stream, Option<Arc<dyn Voucher>>)> {
    let (local, from) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    // Answers are small and awaited: gathering them for a fuller packet only delays them.
    let _ = stream.set_nodelay(true);
    let (why, error) = tokio::select! {
        biased;
        () = activity.given_up() => (Unsecured::GaveWay, None),
        () = app.reached(Phase::Closing) => return None,
        ended = timeout(app.config.head_timeout, handshake(stream, tls)) => match ended {
            Err(_) => (Unsecured::Slow, None),
            Ok(Err(error)) => (Unsecured::Failed, Some(error)),
            Ok(Ok(Begun::Tls(Secured { stream, client }))) => {
                return Some((Stream::Tls { inner: stream, local, peer: from }, client));
            }
            Ok(Ok(Begun::Plain(stream))) => {
                drop(place);
                send_away(stream, activity, app).await;
                (Unsecured::Plaintext, None)
            }
        },
    };
    app.metrics.unsecured(why);
    // Whoever only looks whether the port is open is not worth a line.
    let is_hung_up = matches!(
        error.as_ref().map(io::Error::kind),
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
    );
    if !is_hung_up && let Some(untold) = FAILED.admit() {
        let error = error.map(|error| error.to_string());
        tracing::info!(%from, why = why.word(), error, untold, "no TLS with a client");
    }
    None
}

/// What a connection begins with.
enum Begun {
    Tls(Secured),
    Plain(TcpStream),
}

async fn handshake(stream: TcpStream, tls: &dyn Tls) -> io::Result<Begun> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A method of HTTP is a word.
    if first[0] != HANDSHAKE && first[0].is_ascii_alphabetic() {
        return Ok(Begun::Plain(stream));
    }
    tls.accept(stream).await.map(Begun::Tls)
}

/// Tells a client that speaks HTTP in the clear what to do, whatever it asked for.
async fn send_away(stream: TcpStream, activity: &Arc<ConnectionActivity>, app: &App) {
    let problem = Problem::new(Code::BadRequest, "this port speaks TLS only; use https://");
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {PROBLEM_JSON}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let config = &app.config;
    let mut socket = Socket::new(
        Stream::Tcp(stream),
        Arc::clone(activity),
        config.head_timeout,
        config.write_timeout,
    );
    // Closing lingers, so that the peer can read this.
    let _ = socket.write_all(answer.as_bytes()).await;
    let _ = socket.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_handshakes_waits_and_then_the_oldest_gives_way() {
        let handshakes = Arc::new(Handshakes::default());
        let connection = || Arc::new(ConnectionActivity::begin());
        let start = Instant::now();
        let silent: Vec<_> = (0..HANDSHAKES_MAX).map(|_| connection()).collect();
        let mut places: Vec<_> =
            silent.iter().map(|it| handshakes.try_enter(it, start).unwrap()).collect();
        let newcomer = connection();
        let early = handshakes.try_enter(&newcomer, start + KEPT_FOR / 2);
        assert_eq!(early.unwrap_err(), start + KEPT_FOR);
        assert!(!silent[0].is_given_up(), "an honest one may be nearly through");
        // One that ends makes room at once.
        drop(places.pop());
        let _one = handshakes.try_enter(&newcomer, start + KEPT_FOR / 2).unwrap();
        let _two = handshakes.try_enter(&newcomer, start + KEPT_FOR).unwrap();
        let _three = handshakes.try_enter(&newcomer, start + KEPT_FOR).unwrap();
        let gone: Vec<usize> = (0..silent.len()).filter(|at| silent[*at].is_given_up()).collect();
        assert_eq!(gone, [0, 1]);
        // Places of those that gave way are given back once.
        drop(places);
        assert_eq!(handshakes.places.lock().unwrap().taken.len(), 3);
    }
}
