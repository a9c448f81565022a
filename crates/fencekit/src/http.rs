//! Trials on anything that speaks HTTP: other people's own storage, or what stands behind a gateway.
//!
//! The contract (docs/fencing.md has it for people):
//!
//! | request | answer |
//! |---|---|
//! | `PUT {base}/{resource}`, `Regent-Term: N`, the value as body | 2xx: written, and what it replaced is gone |
//! | | 409 or 412 with `STALE_TERM` and both numbers: refused, nothing written |
//! | | 408, 425, 429 or 5xx: it may have been written; any other: nothing was written |
//! | `GET {base}/{resource}` | 200 and the value as it is now; 404 if there is none |
//!
//! Half of the pauses are in the middle of the request: the head is sent with the term, and the body when the
//! writer goes on. A server that compares when it has read the head, and writes when it has read the body,
//! is caught by that.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use regent::fencing::{Proof as _, WriteResult, stale_in};
use regent_election::error_text::with_causes;
use regent_election::{FenceError, Term};

use crate::{Pause, Target, Write, failed, refuse, uncertain};

/// The header that carries a term.
pub const TERM_HEADER: &str = "regent-term";
/// The largest answer that is read: values are short, and problems not much longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How long a target may take for one request, pauses included.
const REQUEST_FOR: Duration = Duration::from_secs(30);

/// A base address.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    base: String,
    client: Client<HttpConnector, Late>,
}

impl HttpTarget {
    /// What is below this address, like `http://127.0.0.1:8080/objects`.
    pub fn at(base: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let base = base.trim_end_matches('/').to_owned();
        let parsed: hyper::Uri = base.parse()?;
        if parsed.scheme_str() != Some("http") || parsed.host().is_none() {
            return Err(
                "an address is written like http://host:port/path; for TLS use a tunnel".into()
            );
        }
        Ok(Self { base, client: Client::builder(TokioExecutor::new()).build_http() })
    }

    async fn ask(&self, request: Request<Late>) -> Result<(StatusCode, String), String> {
        let asked = async {
            let answer = self.client.request(request).await.map_err(|error| with_causes(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        };
        match tokio::time::timeout(REQUEST_FOR, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", REQUEST_FOR.as_secs())),
        }
    }
}

#[async_trait]
impl Target for HttpTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        let mut request = Request::put(format!("{}/{}", self.base, write.resource));
        if write.is_fenced {
            request = request.header(TERM_HEADER, write.leader.term().to_string());
        }
        let is_in_the_middle = write.value.len().is_multiple_of(2);
        let pause = if is_in_the_middle {
            write.pause.shows_term();
            Some(write.pause.clone())
        } else {
            write.pause.over().await;
            None
        };
        let request = request.header("content-type", "text/plain");
        let request = request.body(Late::new(write.value.clone(), pause));
        let request = request.map_err(failed)?;
        let answer = self.ask(request).await;
        // An answer may come before the body was asked for.
        let (status, body) = answer.map_err(uncertain)?;
        if status.is_success() {
            return Ok(());
        }
        let what = || format!("{status}: {}", body.chars().take(200).collect::<String>());
        match status.as_u16() {
            409 | 412 => match refusal(&body) {
                Some(why) => Err(refuse(&write.leader, why)),
                None => Err(failed(what())),
            },
            408 | 425 | 429 | 500..=599 => Err(uncertain(what())),
            _ => Err(failed(what())),
        }
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let request = Request::get(format!("{}/{resource}", self.base));
        let request = request.body(Late::new(String::new(), None))?;
        match self.ask(request).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) if status.is_success() => Ok(Some(body)),
            (status, _) => Err(format!("a read was answered {status}").into()),
        }
    }
}

/// Both numbers of a refusal: the members `given_term` and `current_term` of a problem, or the sentence
/// `STALE_TERM: term 100 < current 101`.
fn refusal(body: &str) -> Option<FenceError> {
    let told = || -> Option<FenceError> {
        let problem: serde_json::Value = serde_json::from_str(body).ok()?;
        let term = |name: &str| Term::new(problem.get(name)?.as_u64()?);
        let is_stale = problem.get("code")?.as_str()? == "STALE_TERM";
        let (given, current) = (term("given_term")?, term("current_term")?);
        is_stale.then_some(FenceError::Stale { given, current })
    };
    told().or_else(|| stale_in(body))
}

type Waiting = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A body that comes when its pause is over.
pub(crate) struct Late {
    value: Option<Bytes>,
    waits: Option<Waiting>,
}

impl Late {
    fn new(value: String, pause: Option<Pause>) -> Self {
        let waits = pause.map(|pause| Box::pin(async move { pause.over().await }) as Waiting);
        Self { value: Some(value.into()).filter(|bytes: &Bytes| !bytes.is_empty()), waits }
    }
}

impl Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(waits) = &mut self.waits {
            std::task::ready!(waits.as_mut().poll(context));
            self.waits = None;
        }
        Poll::Ready(self.value.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.value.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.value.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_from_a_problem_or_a_sentence() {
        let term = |number| Term::new(number).unwrap();
        let told = Some(FenceError::Stale { given: term(100), current: term(101) });
        let problem =
            r#"{"code":"STALE_TERM","given_term":100,"current_term":101,"title":"a term"}"#;
        assert_eq!(refusal(problem), told);
        assert_eq!(refusal("STALE_TERM: term 100 < current 101\n"), told);
        assert_eq!(refusal(r#"{"error":"STALE_TERM: term 100 < current 101"}"#), told);
        assert_eq!(refusal(r#"{"code":"STALE_TERM"}"#), None);
        assert_eq!(refusal(r#"{"code":"CONFLICT","given_term":1,"current_term":2}"#), None);
    }

    #[test]
    fn an_address_is_one() {
        assert!(HttpTarget::at("http://127.0.0.1:80/a/").is_ok());
        for bad in ["", "https://a", "127.0.0.1:80", "http://"] {
            assert!(HttpTarget::at(bad).is_err(), "{bad}");
        }
    }
}
