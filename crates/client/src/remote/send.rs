//! Sends one request and decides what its end means.
//!
//! Three ends are told apart: it never left, it left and no whole answer came, it was answered. The
//! first may be tried at the next address; the second too, if it only reads; the third is judged.

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use hyper::{Request, Response};
use regent_api::{Operation, Reply};
use regent_election::SessionId;
use regent_election::error_text::{innermost, without_os_number};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep};

use super::error::{RemoteError, echo, judge};
use super::{Remote, RemoteResult, tls};
use crate::limits::ANSWER_BYTES_MAX;

/// One request, the same at every address.
#[derive(Clone, Debug)]
pub(super) struct Call {
    operation: Operation,
    path_and_query: String,
    body: Bytes,
    for_events: bool,
    headers: Vec<(HeaderName, String)>,
    /// Largest answer that is read.
    bytes_max: usize,
}

/// How one attempt ended without an answer.
enum Failed {
    /// Not one byte of it left.
    Unsent(String),
    /// It may have arrived.
    Lost(String),
}

/// What a server answered.
enum ServerAnswer {
    /// All of it.
    Whole(Bytes),
    /// The beginning of a stream of events.
    Stream(Incoming),
}

impl Call {
    /// A request without a body.
    pub(super) fn bare(operation: Operation, path: String) -> Self {
        Self {
            operation,
            path_and_query: path,
            body: Bytes::new(),
            for_events: false,
            headers: Vec::new(),
            bytes_max: ANSWER_BYTES_MAX,
        }
    }

    /// A request with a JSON body.
    pub(super) fn with_body(operation: Operation, path: String, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("the types of the wire are written in memory");
        Self { body: body.into(), ..Self::bare(operation, path) }
    }

    /// The same, with a query.
    pub(super) fn query(mut self, query: &impl Serialize) -> Self {
        let query = serde_urlencoded::to_string(query)
            .expect("queries are flat and hold only text, numbers and words");
        if !query.is_empty() {
            self.path_and_query.push('?');
            self.path_and_query.push_str(&query);
        }
        self
    }

    /// The same, with the secret of a session: it never stands in an address, which are logged.
    pub(super) fn proving(self, session: SessionId) -> Self {
        let name = HeaderName::from_static(regent_api::token::SESSION_HEADER);
        self.header(name, session.reveal())
    }

    fn for_events(self) -> Self {
        Self { for_events: true, ..self }
    }

    /// The same, whose answer may be this large.
    pub(super) fn bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// The same, with one more header.
    pub(super) fn header(mut self, name: HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    fn reads(&self) -> bool {
        self.operation.route().only_reads
    }
}

impl Remote {
    /// Sends a call and reads its answer, within the time-out plus what the call itself waits.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        call: Call,
        waits: Duration,
    ) -> RemoteResult<A> {
        let body = self.call_bytes(call, waits).await?;
        serde_json::from_slice(&body).map_err(|error| unreadable(&error, &body))
    }

    /// The same, whatever the answer holds.
    pub(super) async fn call_bytes(&self, call: Call, waits: Duration) -> RemoteResult<Bytes> {
        let deadline = pin!(sleep(self.request_timeout.saturating_add(waits)));
        match self.try_each(&call, deadline).await? {
            ServerAnswer::Whole(body) => Ok(body),
            ServerAnswer::Stream(_) => {
                unreachable!("only a call for events is answered by a stream")
            }
        }
    }

    /// Opens a stream; the answer is its body.
    pub(super) async fn open_stream(&self, call: Call) -> RemoteResult<Incoming> {
        let deadline = pin!(sleep(self.request_timeout));
        match self.try_each(&call.for_events(), deadline).await? {
            ServerAnswer::Stream(body) => Ok(body),
            ServerAnswer::Whole(_) => unreachable!("a call for events is answered by nothing else"),
        }
    }

    /// Turns away from the address that is preferred: it does not serve.
    pub(super) fn avoid_preferred(&self) {
        self.shared.preferred.fetch_add(1, Ordering::Relaxed);
    }

    /// Tries the addresses in turn, from the preferred one, for as long as that is safe.
    async fn try_each(
        &self,
        call: &Call,
        mut deadline: Pin<&mut Sleep>,
    ) -> RemoteResult<ServerAnswer> {
        let count = self.shared.addresses.len();
        let first = self.shared.preferred.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..count {
            let index = first.wrapping_add(turn) % count;
            let address = &self.shared.addresses[index];
            let ended = tokio::select! {
                biased;
                ended = self.attempt(index, call) => Some(ended),
                () = &mut deadline => None,
            };
            let (error, may_go_on) = match ended {
                Some(Ok(Ok(answer))) => {
                    self.shared.preferred.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                // It says itself that nothing happened: another server may do better.
                Some(Ok(Err(error @ RemoteError::Unavailable { .. }))) => (error, true),
                Some(Ok(Err(error))) => {
                    self.shared.preferred.store(index, Ordering::Relaxed);
                    return Err(error);
                }
                Some(Err(Failed::Unsent(why))) => {
                    let why = format!("no connection to {address}: {why}");
                    (RemoteError::unreachable(why), true)
                }
                Some(Err(Failed::Lost(why))) => {
                    let why = format!("the connection to {address} was lost: {why}");
                    (not_answered(call.reads(), why), call.reads())
                }
                None => {
                    let why = format!("{address} did not answer in time");
                    (not_answered(call.reads(), why), false)
                }
            };
            tracing::debug!(%address, operation = ?call.operation, %error, "no answer");
            self.shared.preferred.store(index.wrapping_add(1), Ordering::Relaxed);
            if !may_go_on {
                return Err(error);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| RemoteError::unreachable("there is no address".into())))
    }

    /// One address, once: how it failed, or what it answered.
    async fn attempt(
        &self,
        index: usize,
        call: &Call,
    ) -> Result<RemoteResult<ServerAnswer>, Failed> {
        let response = self.exchange(index, call).await?;
        let status = response.status().as_u16();
        let is_success = (200..300).contains(&status);
        if is_success && call.for_events {
            let label = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            if label.is_some_and(|label| label.starts_with("text/event-stream")) {
                return Ok(Ok(ServerAnswer::Stream(response.into_body())));
            }
            let why = format!("asked for a stream of events and got {label:?}");
            return Ok(Err(RemoteError::Protocol { why }));
        }
        Ok(match whole_body(response, call.bytes_max).await? {
            Some(body) if is_success => Ok(ServerAnswer::Whole(body)),
            Some(body) => Err(judge(call.reads(), status, &body)),
            None => {
                let why = format!("an answer of more than {} bytes", call.bytes_max);
                Err(RemoteError::Protocol { why })
            }
        })
    }

    async fn exchange(&self, index: usize, call: &Call) -> Result<Response<Incoming>, Failed> {
        let unsent = |error: &dyn std::error::Error| Failed::Unsent(error.to_string());
        let uri = self.shared.addresses[index]
            .of(&call.path_and_query)
            .map_err(|error| unsent(&error))?;
        let accept = match (call.for_events, call.operation.route().reply) {
            (true, _) => "text/event-stream",
            (false, Reply::Other(label)) => label,
            (false, Reply::Json(_) | Reply::JsonOrEvents(_)) => "application/json",
        };
        let mut request = Request::builder()
            .method(call.operation.route().method.word())
            .uri(uri)
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("regent/", env!("CARGO_PKG_VERSION")));
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(credential) = &self.shared.credential {
            request = request.header(AUTHORIZATION, credential.value());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(call.body.clone())).map_err(|error| unsent(&error))?;
        self.shared.http.request(request).await.map_err(|error| {
            if let Some(why) = tls::failure(&error) {
                return Failed::Unsent(why);
            }
            let why = without_os_number(innermost(&error));
            if error.is_connect() { Failed::Unsent(why) } else { Failed::Lost(why) }
        })
    }
}

/// The body of an answer; none if it is larger than any honest one.
async fn whole_body(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<Option<Bytes>, Failed> {
    match Limited::new(response.into_body(), bytes_max).collect().await {
        Ok(body) => Ok(Some(body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(None),
        Err(error) => Err(Failed::Lost(without_os_number(innermost(&*error)))),
    }
}

fn not_answered(reads: bool, why: String) -> RemoteError {
    if reads {
        RemoteError::unreachable(why)
    } else {
        RemoteError::lost(format!("{why}; it may have happened"))
    }
}

fn unreadable(error: &serde_json::Error, body: &[u8]) -> RemoteError {
    let said = echo(body);
    let why = format!("this is no answer of a Regent server ({error}): {said:?}");
    RemoteError::Protocol { why }
}
