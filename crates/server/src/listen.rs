//! Accepting connections, whatever happens.
//!
//! An error of `accept` never ends the loop: one peer that hangs up early, or a moment without file
//! descriptors, must not make a server deaf.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use regent_api::problem::PROBLEM_JSON;
use regent_api::{Code, Problem};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

use crate::app::{App, Phase};
use crate::connection;
use crate::faces::Faces;
use crate::quiet::{self, Quiet};
use crate::socket::{ConnectionActivity, Stream, UNIX};
use crate::tls::{self, Tls};

static UNACCEPTED: Quiet = quiet::lines();

/// How long to wait when the system has no more file descriptors or memory to give.
const PAUSE: Duration = Duration::from_millis(100);
/// Milliseconds to wait for connections that are being closed; beyond it a newcomer is refused.
const CLEARING_TURNS_MAX: u32 = 1000;
/// Connections that the system keeps until they are accepted, if it allows so many (`net.core.somaxconn`). As many as one
/// address may have: all clients come back at once after a restart, and one that finds no room tries again only after one,
/// two and four seconds, which is longer than a short lease.
const BACKLOG: u32 = 4096;

/// Listens to clients, with room for all of them to come at once.
///
/// # Errors
/// If the address cannot be listened at.
pub fn bind(wanted: SocketAddr) -> io::Result<TcpListener> {
    let socket = if wanted.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that was restarted takes the port of its connections that are still being closed.
    socket.set_reuseaddr(true)?;
    socket.bind(wanted)?;
    socket.listen(BACKLOG)
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// Clients speak TLS, and nothing else.
    Tls(TcpListener, Arc<dyn Tls>),
    /// A socket of this machine, at whose other end the kernel knows the user.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl Listener {
    /// How TLS is spoken here, if it is.
    pub(crate) const fn tls(&self) -> Option<&Arc<dyn Tls>> {
        match self {
            Self::Tls(_, tls) => Some(tls),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// The next connection, and the address that it is counted under.
    async fn accept(&self) -> std::io::Result<(Stream, IpAddr)> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => {
                let (stream, from) = listener.accept().await?;
                Ok((Stream::Tcp(stream), from.ip()))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), UNIX))
            }
        }
    }
}

/// Accepts until the server closes. Connections go on after that.
pub(crate) async fn listen(
    listener: Listener,
    app: Arc<App>,
    faces: Faces,
    protocol: Arc<auto::Builder<TokioExecutor>>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = app.reached(Phase::Closing) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                cleared(&app).await;
                let activity = Arc::new(ConnectionActivity::begin());
                match app.connection_limit.enter(from, &activity) {
                    Ok(place) => {
                        let (app, faces) = (Arc::clone(&app), faces.clone());
                        let protocol = Arc::clone(&protocol);
                        let turn = match listener.tls() {
                            Some(tls) => {
                                Some((Arc::clone(tls), app.handshakes.enter(&activity).await))
                            }
                            None => None,
                        };
                        tokio::spawn(async move {
                            let secured = match (stream, turn) {
                                (Stream::Tcp(stream), Some((tls, turn))) => {
                                    tls::secure(stream, &*tls, turn, &activity, &app).await
                                }
                                (stream, _) => Some((stream, None)),
                            };
                            if let Some((stream, client)) = secured {
                                connection::serve(stream, client, activity, app, faces, protocol)
                                    .await;
                            }
                            drop(place);
                        });
                    }
                    Err(no_room) => {
                        app.metrics.turned_away(no_room);
                        // Over TLS nothing can be told before a handshake.
                        if listener.tls().is_none() {
                            turn_away(&stream);
                        }
                    }
                }
            }
            Err(error) => {
                app.metrics.accept_failed();
                if let Some(untold) = UNACCEPTED.admit() {
                    tracing::warn!(%error, untold, "a connection could not be accepted");
                }
                if !is_peers_fault(error.kind()) {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Waits, not for long, until connections that gave way have closed: others wait in the system's queue meanwhile.
async fn cleared(app: &App) {
    for _ in 0..CLEARING_TURNS_MAX {
        if !app.connection_limit.is_clearing() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Errors that concern one peer only: the next one can be accepted at once.
fn is_peers_fault(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

/// Says why, if the peer's buffer takes it; nobody waits for those that have no place.
fn turn_away(stream: &Stream) {
    let problem = Problem::new(
        Code::RateLimited,
        "there are too many connections; close some, or try again in 1000 ms",
    )
    .retry_after(1000);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: {PROBLEM_JSON}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.try_write(answer.as_bytes());
}
