//! Connections to the upstream: made, kept for the next request, and closed for good.
//!
//! A connection that is closed sends nothing more. By default a system goes on delivering what it has
//! buffered, for minutes if the network is away, and does so even for a process that was killed; a write
//! could land long after its connection was given up. So every connection lingers for no time at all
//! (`SO_LINGER` 0): closing it throws away what has not left.

use std::io;
use std::sync::{Mutex, PoisonError};

use hyper::Uri;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use regent_clock::now;
use regent_election::Moment;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::tls::Tls;
use crate::body::Upload;
use crate::limits::{CONNECT_WITHIN, HEAD_BYTES_MAX, IDLE_CONNECTION_FOR, IDLE_CONNECTIONS_MAX};

#[cfg_attr(not(feature = "tls"), path = "upstream/no_tls.rs")]
mod tls;

/// Why a text names no upstream. The messages are clauses for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It is no address.
    #[error("{given:?} is no address of an upstream; write it like http://127.0.0.1:9000")]
    Malformed { given: String },
    /// TLS, which this build does not speak.
    #[error(
        "https:// is not spoken: this build has no TLS; build with the feature \"tls\", or put the gateway beside the upstream and use http://"
    )]
    NoTls,
    /// TLS cannot be spoken.
    #[error("https:// cannot be spoken: {why}")]
    Tls { why: String },
}

/// Where requests go, and the connections there that wait for the next one.
#[derive(Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    tls: Option<Tls>,
    authority: HeaderValue,
    /// Before every path; without a slash at its end.
    prefix: String,
    idle: Mutex<Vec<(Connection, Moment)>>,
}

/// One connection, which carries one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Upload>,
    task: Option<JoinHandle<()>>,
    /// Whether it has carried a request before: the upstream may have closed it since.
    pub(crate) is_used: bool,
}

impl std::str::FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let malformed = || UpstreamError::Malformed { given: text.chars().take(80).collect() };
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(malformed()),
        };
        let authority = uri.authority().ok_or_else(malformed)?;
        let has_more = uri.query().is_some() || text.contains(['#', '@']);
        if has_more || authority.host().is_empty() {
            return Err(malformed());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let tls = if is_tls { Some(Tls::to(&host)?) } else { None };
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            tls,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| malformed())?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            idle: Mutex::new(Vec::new()),
        })
    }
}

impl Upstream {
    /// What it is called in `Host`.
    pub(crate) const fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// The same address there.
    pub(crate) fn uri(&self, asked: &Uri) -> Option<Uri> {
        let path = asked.path_and_query()?;
        if self.prefix.is_empty() {
            let mut parts = hyper::http::uri::Parts::default();
            parts.path_and_query = Some(path.clone());
            return Uri::from_parts(parts).ok();
        }
        format!("{}{path}", self.prefix).parse().ok()
    }

    /// A connection that waits, or a fresh one.
    pub(crate) async fn connection(&self) -> io::Result<Connection> {
        while let Some(mut connection) = self.waiting() {
            if connection.sender.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        self.fresh().await
    }

    fn waiting(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        idle.retain(|(connection, since)| {
            !connection.sender.is_closed() && at.since(*since) < IDLE_CONNECTION_FOR
        });
        idle.pop().map(|(connection, _)| connection)
    }

    /// A fresh connection.
    pub(crate) async fn fresh(&self) -> io::Result<Connection> {
        let connecting = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            // Below TLS, too: what it has not given to the socket goes with it.
            stream.set_zero_linger()?;
            match &self.tls {
                None => Self::over(stream).await,
                Some(tls) => Self::over(tls.speak(stream).await?).await,
            }
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        timeout(CONNECT_WITHIN, connecting).await.map_err(late)?
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<Connection> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the upstream ended early");
            }
        });
        Ok(Connection { sender, task: Some(task), is_used: false })
    }

    /// Keeps a connection whose request is over for the next one.
    pub(crate) fn keep(&self, mut connection: Connection) {
        connection.is_used = true;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !connection.sender.is_closed() && idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push((connection, now()));
        }
    }
}

impl Connection {
    /// Closes it. When this returns, nothing more of it leaves.
    pub(crate) async fn close(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_may_have_a_path() {
        for (text, asked, expected) in [
            ("http://127.0.0.1:9000", "/a?b=c", "/a?b=c"),
            ("http://127.0.0.1:9000/", "http://gateway/a", "/a"),
            ("http://[::1]:9000/store/", "/a", "/store/a"),
        ] {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.uri(&asked.parse().unwrap()).unwrap().to_string(), expected);
        }
        let upstream: Upstream = "http://[::1]/".parse().unwrap();
        assert_eq!((upstream.host.as_str(), upstream.port), ("::1", 80));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "127.0.0.1:9000", "ftp://x", "http://", "http://u@x", "http://x?y", "http://x#y"]
        {
            let error = text.parse::<Upstream>().unwrap_err();
            assert!(matches!(error, UpstreamError::Malformed { .. }), "{text}: {error}");
        }
    }
}
