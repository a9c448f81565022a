//! A client that costs next to nothing: one connection, requests made in advance, answers read just far
//! enough to know whether they are the right ones.
//!
//! The library's own client is no choice here: on one machine it would take as much CPU as the service
//! and so decide how fast that is asked.

use std::io;

use regent::remote::Address;
use regent_api::{Method, Operation};
use regent_election::Group;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What a client shows a server: nothing, a bearer token, or a certificate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) token: Option<String>,
    /// How TLS is spoken, if the address asks for it.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<std::sync::Arc<tokio_rustls::rustls::ClientConfig>>,
}

/// A connection in the clear, or one over TLS.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// One connection.
pub(crate) struct Wire {
    stream: Box<dyn Duplex>,
    /// `host:port`, and the path before every path.
    host: String,
    place: String,
    prefix: String,
    /// A line of every head, or nothing.
    authorization: String,
    answer: Vec<u8>,
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Wire {
    /// A connection of a client that shows nothing.
    pub(crate) async fn connect(address: &Address) -> io::Result<Self> {
        Self::connect_as(address, &Shown::default()).await
    }

    /// A connection of a client that shows this.
    pub(crate) async fn connect_as(address: &Address, shown: &Shown) -> io::Result<Self> {
        let base = address.to_string();
        let rest = base.split_once("://").map_or(base.as_str(), |(_, rest)| rest);
        let (host, prefix) = rest
            .split_once('/')
            .map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
        let place = if host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let stream = TcpStream::connect(&place).await?;
        stream.set_nodelay(true)?;
        let stream = if base.starts_with("https:") {
            secured(stream, &place, shown).await?
        } else {
            Box::new(stream)
        };
        let authorization = shown
            .token
            .as_ref()
            .map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let answer = Vec::with_capacity(4096);
        Ok(Self { stream, host: host.to_owned(), place, prefix, authorization, answer })
    }

    /// Where it leads, as `host:port`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The bytes of a request about a group, or about none.
    pub(crate) fn request(
        &self,
        operation: Operation,
        group: Option<&Group>,
        body: Option<&impl Serialize>,
    ) -> Vec<u8> {
        let body = body.map(serde_json::to_string).and_then(Result::ok).unwrap_or_default();
        self.bytes(operation, group, "", &body)
    }

    /// The same for a request without a body, with this behind its address.
    pub(crate) fn request_with(
        &self,
        operation: Operation,
        group: Option<&Group>,
        query: &str,
    ) -> Vec<u8> {
        self.bytes(operation, group, query, "")
    }

    fn bytes(
        &self,
        operation: Operation,
        group: Option<&Group>,
        query: &str,
        body: &str,
    ) -> Vec<u8> {
        let route = operation.route();
        let path = group.map_or_else(|| route.path.to_owned(), |group| route.of_group(group));
        let method = match route.method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        };
        let mut request =
            format!("{method} {}{path}{query} HTTP/1.1\r\nhost: {}\r\n", self.prefix, self.host);
        request.push_str(&self.authorization);
        if !body.is_empty() {
            let length = body.len();
            request.push_str("content-type: application/json\r\n");
            request.push_str(&format!("content-length: {length}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(body);
        request.into_bytes()
    }

    /// Sends a request and reads its answer: the body if the status is 200.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> io::Result<Option<&[u8]>> {
        let body_at = self.exchange(request).await?;
        let is_ok = self.answer.starts_with(b"HTTP/1.1 200 ");
        Ok(is_ok.then(|| &self.answer[body_at..]))
    }

    /// The last answer, for people.
    pub(crate) fn told(&self) -> String {
        String::from_utf8_lossy(&self.answer).into_owned()
    }

    /// Sends a request and reads its answer: the status.
    pub(crate) async fn status(&mut self, request: &[u8]) -> io::Result<u16> {
        self.exchange(request).await?;
        let digits = self.answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| broken("no status"))
    }

    /// Sends a request and reads its answer; where the body begins.
    async fn exchange(&mut self, request: &[u8]) -> io::Result<usize> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        let (mut body_at, mut end) = (0, usize::MAX);
        while self.answer.len() < end {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if body_at == 0
                && let Some(at) = self.answer.windows(4).position(|four| four == b"\r\n\r\n")
            {
                body_at = at + 4;
                end = body_at + content_length(&self.answer[..at])?;
            }
            if self.answer.len() > ANSWER_BYTES_MAX {
                return Err(broken("the answer is longer than any answer here"));
            }
        }
        Ok(body_at)
    }
}

/// The same connection after a TLS handshake.
#[cfg(feature = "tls")]
async fn secured(stream: TcpStream, place: &str, shown: &Shown) -> io::Result<Box<dyn Duplex>> {
    use tokio_rustls::rustls::pki_types::ServerName;
    let config = shown.tls.clone().ok_or_else(|| broken("no CA is known for this address"))?;
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connected = tokio_rustls::TlsConnector::from(config).connect(name, stream).await?;
    Ok(Box::new(connected))
}

/// A build without TLS makes no such connection.
#[cfg(not(feature = "tls"))]
async fn secured(_: TcpStream, _: &str, _: &Shown) -> io::Result<Box<dyn Duplex>> {
    Err(broken("this build has no TLS; build with --features tls"))
}

/// How many bytes follow this head.
pub(crate) fn content_length(head: &[u8]) -> io::Result<usize> {
    let head = std::str::from_utf8(head).map_err(|_| broken("the head is no text"))?;
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.trim().parse().ok())
        .ok_or_else(|| broken("the answer does not say how long it is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_answer_is_found_whatever_its_case() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length:  17\r\ncache-control: no-store";
        assert_eq!(content_length(head).unwrap(), 17);
        assert!(content_length(b"HTTP/1.1 200 OK\r\n").is_err());
    }
}
