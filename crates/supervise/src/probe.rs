//! Asks the program whether it works: a command that must succeed, or an address that must answer.
//!
//! Only plain `http:` and only what it takes: one request, one status line. A probe is for the same
//! machine; whoever needs more writes a command.

use std::time::Duration;

use regent_election::Moment;
use regent_tether::shell::{self, ShellEnvironment};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How the program is asked whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A shell command that must succeed.
    Command(String),
    /// A request that must be answered with 2xx.
    Http {
        /// Host and port.
        address: String,
        /// The path to `GET`.
        path: String,
    },
}

impl Probe {
    /// A command, or an address that begins with `http://`; a clause says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err("https is not asked by a probe; use a command, like `curl -fsS URL`".into());
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Ok(Self::Command(text.to_owned()));
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(rest) {
            return Err(format!("{text:?} is no address like http://127.0.0.1:8080/healthz"));
        }
        let has_port =
            authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        Ok(Self::Http { address, path })
    }

    /// Asks once; gives when it began, if it succeeded.
    pub(crate) async fn ask(
        &self,
        told: &ShellEnvironment,
        limit: Duration,
    ) -> Result<Moment, String> {
        let asked_at = regent_clock::now();
        match self {
            Self::Command(line) => shell::run(line, told, limit).await?,
            Self::Http { address, path } => {
                match tokio::time::timeout(limit, get(address, path)).await {
                    Ok(Ok(200..=299)) => {}
                    Ok(Ok(status)) => return Err(format!("{address} answered {status}")),
                    Ok(Err(error)) => return Err(format!("{address}: {error}")),
                    Err(_) => return Err(format!("{address} did not answer within {limit:?}")),
                }
            }
        }
        Ok(asked_at)
    }
}

/// The status of one answer.
async fn get(address: &str, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    std::str::from_utf8(&line)
        .ok()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line[9..].parse().ok())
        .ok_or_else(|| std::io::Error::other("this is no answer of HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(address: &str, path: &str) -> Result<Probe, String> {
        Ok(Probe::Http { address: address.into(), path: path.into() })
    }

    #[test]
    fn an_address_is_told_from_a_command() {
        assert_eq!(Probe::parse("http://127.0.0.1:80/a?b=c"), http("127.0.0.1:80", "/a?b=c"));
        assert_eq!(Probe::parse("http://[::1]:8080"), http("[::1]:8080", "/"));
        assert_eq!(Probe::parse("http://db"), http("db:80", "/"));
        assert_eq!(Probe::parse("pg_isready"), Ok(Probe::Command("pg_isready".into())));
        for text in ["https://a/", "http://", "http:///x", "http://a b/", "http://u@h/"] {
            assert!(Probe::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn only_a_success_proves_anything() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answers =
            ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 503 x\r\n\r\n", "SSH-2.0-x-1.0\r\n"];
        let serve = tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 64];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let probe = Probe::Http { address, path: "/".into() };
        let limit = Duration::from_secs(30);
        assert!(probe.ask(&ShellEnvironment::new(), limit).await.is_ok());
        assert!(probe.ask(&ShellEnvironment::new(), limit).await.unwrap_err().contains("503"));
        assert!(
            probe
                .ask(&ShellEnvironment::new(), limit)
                .await
                .unwrap_err()
                .contains("no answer of HTTP")
        );
        serve.await.unwrap();
        assert!(probe.ask(&ShellEnvironment::new(), limit).await.is_err());
    }
}
