//! A small HTTP client for engines whose server speaks JSON over HTTP.
//!
//! It sends one request and hands back one bounded answer. It repeats nothing that may have arrived: hyper
//! sends again only what a closed connection never took. What a status means is for the engine to say.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use regent_election::error_text::with_causes;

use super::Effect;
use super::limits::{ANSWER_BYTES_MAX, IDLE_CONNECTIONS_MAX};
use super::tls::dial::Dial;
use super::tls::{ClientTls, encryption};
use crate::register::{Encryption, RegisterError, RegisterResult};

/// One server and the connections to it.
pub(crate) struct Http {
    client: Client<Dial, Full<Bytes>>,
    tls: Option<Arc<ClientTls>>,
    /// `host:port`.
    server: String,
    /// Sent with every request; secrets among them.
    headers: Vec<(HeaderName, HeaderValue)>,
    request_for: Duration,
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is asked of a server.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) effect: Effect,
    pub(crate) method: Method,
    /// From the first slash on, encoded.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    /// How much longer than any request this one may take, because the server was asked to wait.
    pub(crate) patience: Duration,
}

impl Ask {
    /// Reads what lies at `path`.
    pub(crate) fn get(path: String) -> Self {
        Self {
            effect: Effect::Reads,
            method: Method::GET,
            path,
            body: Vec::new(),
            patience: Duration::ZERO,
        }
    }

    /// Sends `body` to `path`.
    pub(crate) fn put(effect: Effect, path: String, body: Vec<u8>) -> Self {
        Self { effect, method: Method::PUT, path, body, patience: Duration::ZERO }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({})", self.server)
    }
}

impl Http {
    /// A client of the server at `host:port`, by TLS if there is a way to; it connects when it is first asked.
    pub(crate) fn new(
        server: String,
        tls: Option<Arc<ClientTls>>,
        headers: Vec<(HeaderName, HeaderValue)>,
        request_for: Duration,
    ) -> Self {
        let connector = Dial::new(tls.clone(), request_for);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Self { client, tls, server, headers, request_for }
    }

    /// How connections are protected.
    pub(crate) fn encryption(&self) -> Encryption {
        encryption(self.tls.as_deref())
    }

    /// Sends one request. An answer of any status is an answer.
    pub(crate) async fn send(&self, ask: Ask) -> RegisterResult<HttpAnswer> {
        let Ask { effect, method, path, body, patience } = ask;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{scheme}://{}{path}", self.server))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| RegisterError::unavailable(format_args!("{path}: {error}")))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        // Whether the request had left is hyper's to know: one that is late is in doubt.
        let answer_within = self.request_for.saturating_add(patience);
        let answer = tokio::time::timeout(answer_within, self.answer(effect, request));
        answer.await.unwrap_or_else(|_| {
            Err(effect.unanswered(format_args!(
                "no answer from {} within {:?}",
                self.server, self.request_for
            )))
        })
    }

    async fn answer(
        &self,
        effect: Effect,
        request: Request<Full<Bytes>>,
    ) -> RegisterResult<HttpAnswer> {
        let answer = self.client.request(request).await.map_err(|error| {
            let why = format!("{}: {}", self.server, with_causes(&error));
            if error.is_connect() {
                RegisterError::unavailable(why)
            } else {
                effect.unanswered(why)
            }
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            let why = format!("half an answer from {}: {error}", self.server);
            if error.is::<LengthLimitError>() {
                RegisterError::corrupt(why)
            } else {
                effect.unanswered(why)
            }
        })?;
        Ok(HttpAnswer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}

/// A name as part of a path: what is not plain is encoded, and slashes stay.
pub(crate) fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_encoded_byte_by_byte_but_for_its_slashes() {
        assert_eq!(encoded("a/b-c_d.e"), "a/b-c_d.e");
        assert_eq!(encoded("a:b@c?d#e %"), "a%3Ab%40c%3Fd%23e%20%25");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_was_never_asked() {
        // Port 1 of this host: nobody listens.
        let http = Http::new("127.0.0.1:1".into(), None, Vec::new(), Duration::from_secs(30));
        let refused =
            http.send(Ask::put(Effect::Writes, "/".into(), Vec::new())).await.unwrap_err();
        assert!(matches!(refused, RegisterError::Unavailable { .. }), "{refused:?}");
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_the_answer_leaves_a_doubt_about_a_write() {
        for (effect, is_doubtful) in [(Effect::Writes, true), (Effect::Reads, false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = listener.local_addr().unwrap().to_string();
            let hang_up = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                // It arrived, and only the answer is lost.
                tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap();
            });
            let http = Http::new(server, None, Vec::new(), Duration::from_secs(30));
            let lost = http.send(Ask::put(effect, "/".into(), b"x".to_vec())).await.unwrap_err();
            assert_eq!(matches!(lost, RegisterError::Uncertain { .. }), is_doubtful, "{lost:?}");
            hang_up.await.unwrap();
        }
    }
}
