//! A connection to one member of an etcd cluster, and to another when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::sync::Mutex;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{AuthenticateRequest, AuthenticateResponse, LeaseRequest, LeaseResponse};
use crate::engine::place::Place;
use crate::engine::{Abandoned, Effect, Sent, UrlError, in_time};
use crate::register::{RegisterError, RegisterResult};

/// Most bytes of an answer: a listing of many entries.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A message of either direction.
pub(super) trait Wired: Message + Default + 'static {}
impl<T: Message + Default + 'static> Wired for T {}

/// The members, and the connection to one of them.
pub(super) struct Wire {
    endpoints: Vec<Endpoint>,
    login: Option<(String, String)>,
    place: String,
    request_for: Duration,
    /// Whose turn it is.
    turn: AtomicUsize,
    link: Mutex<Option<Link>>,
    abandoned: Abandoned,
}

/// A connection to one member. All that is asked on it is answered by that member.
#[derive(Clone)]
pub(super) struct Link {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    number: u64,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.place)
    }
}

impl Wire {
    pub(super) fn new(place: &Place, request_for: Duration) -> Result<Self, UrlError> {
        // Every member gets its share of the time, or one that is gone would take it all.
        let share = request_for / u32::try_from(place.servers.len()).unwrap_or(u32::MAX).max(1);
        let endpoints = place
            .servers
            .iter()
            .map(|server| {
                let endpoint = Endpoint::from_shared(format!("http://{server}"));
                let endpoint = endpoint.map_err(|error| {
                    UrlError::new(format_args!("{server} is no address of etcd: {error}"))
                })?;
                Ok(endpoint
                    .connect_timeout(share)
                    .http2_keep_alive_interval(request_for)
                    .keep_alive_timeout(request_for)
                    .keep_alive_while_idle(true))
            })
            .collect::<Result<Vec<_>, UrlError>>()?;
        let login = place.login.clone();
        let (turn, link, abandoned) = Default::default();
        let place = place.servers.join(",");
        Ok(Self { endpoints, login, place, request_for, turn, link, abandoned })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Asks what takes one question or several of one member, within one time-out.
    pub(super) async fn ask<T>(
        &self,
        effect: Effect,
        asking: impl AsyncFnOnce(Link) -> Result<T, Refused>,
    ) -> RegisterResult<T> {
        let server = format!("etcd at {}", self.place);
        in_time(self.request_for, effect, &server, async |sent: &Sent| {
            let link = self.link().await?;
            let number = link.number;
            let question = self.abandoned.asks(number, self.request_for);
            sent.leaves_now();
            let answer = asking(link).await;
            question.answered();
            match answer {
                Ok(answer) => Ok(answer),
                Err(Refused::Doubt(why)) => Err(effect.unanswered(why)),
                Err(Refused::Status(status)) => {
                    self.give_up(number).await;
                    Err(meaning(effect, &server, &status))
                }
            }
        })
        .await
    }

    /// A connection to a member that can be reached.
    pub(super) async fn link(&self) -> RegisterResult<Link> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| !self.abandoned.has(link.number)) {
            return Ok(link.clone());
        }
        let mut last_words = Vec::new();
        for _ in 0..self.endpoints.len() {
            let turn = self.turn.fetch_add(1, Ordering::AcqRel);
            let number = turn as u64;
            let endpoint = &self.endpoints[turn % self.endpoints.len()];
            match self.connect(endpoint, number).await {
                Ok(link) => return Ok(held.insert(link).clone()),
                Err(why) => last_words.push(format!("{}: {why}", endpoint.uri())),
            }
        }
        Err(RegisterError::unavailable(format_args!(
            "no member of etcd answers: {}",
            last_words.join("; ")
        )))
    }

    async fn connect(&self, endpoint: &Endpoint, number: u64) -> Result<Link, String> {
        let channel = endpoint.connect().await.map_err(|error| told(&error))?;
        let mut link = Link { channel, token: None, number };
        if let Some((name, password)) = self.login.clone() {
            let ask = AuthenticateRequest { name, password };
            let answer: AuthenticateResponse = link
                .unary("/etcdserverpb.Auth/Authenticate", ask)
                .await
                .map_err(|status| status.message().to_owned())?;
            let token = answer.token.parse();
            link.token = Some(token.map_err(|_| "a token that is none".to_owned())?);
        }
        Ok(link)
    }

    /// Drops this connection unless it was replaced already; the next member is asked then.
    async fn give_up(&self, number: u64) {
        let mut held = self.link.lock().await;
        if held.as_ref().is_some_and(|link| link.number == number) {
            *held = None;
        }
    }

    /// Drops whatever connection there is. Questions under way keep theirs until they are answered.
    pub(super) async fn hang_up(&self) {
        *self.link.lock().await = None;
    }
}

/// Why a member did not do it.
#[derive(Debug)]
pub(super) enum Refused {
    Status(Status),
    /// It was answered, and the answer proves nothing.
    Doubt(&'static str),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl Link {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member without a leader refuses at once, and another can be asked.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(told(&error)))?;
        Ok(grpc)
    }

    pub(super) async fn unary<Q: Wired, A: Wired>(
        &self,
        path: &'static str,
        ask: Q,
    ) -> Result<A, Status> {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.request(ask), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// Keeps a lease alive, once.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<LeaseResponse, Status> {
        let ask = tokio_stream::once(LeaseRequest { id });
        let mut answers = self.stream("/etcdserverpb.Lease/LeaseKeepAlive", ask).await?;
        answers.message().await?.ok_or_else(|| Status::unavailable("no answer about a lease"))
    }

    /// Opens a stream of answers to a stream of questions.
    pub(super) async fn stream<Q: Wired, A: Wired>(
        &self,
        path: &'static str,
        asks: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status> {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(path);
        let answers =
            grpc.streaming(self.request(asks), path, ProstCodec::<Q, A>::default()).await?;
        Ok(answers.into_inner())
    }
}

/// What a status says about the question.
fn meaning(effect: Effect, server: &str, status: &Status) -> RegisterError {
    let why = format!("{server}: {} ({:?})", status.message(), status.code());
    match status.code() {
        // Refused by a member or by the log's own rules: it was not done.
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::OutOfRange => RegisterError::unavailable(why),
        // Time-outs, lost leaders and lost connections: a proposal may be on its way. And the one that
        // fills the quota is carried out and then told that there is no space.
        Code::Ok
        | Code::ResourceExhausted
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => effect.unanswered(why),
    }
}

/// An error with its causes, which its own text leaves out.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
