//! A connection to one member of an etcd cluster, and to another when it is lost.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message;
use regent_election::error_text::with_causes;
use tonic::client::Grpc;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{AuthenticateRequest, AuthenticateResponse, LeaseRequest, LeaseResponse};
use crate::engine::address::StoreAddress;
use crate::engine::held::Held;
use crate::engine::tls::dial::Dial;
use crate::engine::tls::{ClientTls, encryption};
use crate::engine::{Effect, UrlError};
use crate::register::{Encryption, RegisterError, RegisterResult};

/// Most bytes of an answer: a listing of many entries.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// A message of either direction.
pub(super) trait Wired: Message + Default + 'static {}
impl<T: Message + Default + 'static> Wired for T {}

/// The members, and the connection to one of them.
pub(super) struct Wire {
    /// Each by its `host:port`.
    endpoints: Vec<(String, Endpoint)>,
    dial: Dial,
    login: Option<(String, String)>,
    place: String,
    /// Whose turn it is.
    turn: AtomicUsize,
    held: Held<Link>,
}

/// A connection to one member. All that is asked on it is answered by that member.
#[derive(Clone)]
pub(super) struct Link {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.place)
    }
}

impl Wire {
    pub(super) fn new(
        place: &StoreAddress,
        tls: Option<Arc<ClientTls>>,
        request_for: Duration,
    ) -> Result<Self, UrlError> {
        // Every member gets its share of the time, or one that is gone would take it all.
        let share = request_for / u32::try_from(place.servers.len()).unwrap_or(u32::MAX).max(1);
        let endpoints = place
            .servers
            .iter()
            .map(|server| {
                let bad = |error: &dyn fmt::Display| {
                    UrlError::new(format_args!("{server} is no address of etcd: {error}"))
                };
                let mut endpoint = Endpoint::from_shared(format!("http://{server}"))
                    .map_err(|error| bad(&error))?;
                if tls.is_some() {
                    // What requests say. The connection itself is made encrypted below them.
                    let origin: Uri =
                        format!("https://{server}").parse().map_err(|error| bad(&error))?;
                    endpoint = endpoint.origin(origin);
                }
                let endpoint = endpoint
                    .connect_timeout(share)
                    .http2_keep_alive_interval(request_for)
                    .keep_alive_timeout(request_for)
                    .keep_alive_while_idle(true);
                Ok((server.clone(), endpoint))
            })
            .collect::<Result<Vec<_>, UrlError>>()?;
        let login = place.login.clone();
        let (turn, held) = (AtomicUsize::new(0), Held::new(request_for, |_| true));
        let place = place.servers.join(",");
        let dial = Dial::new(tls, share);
        Ok(Self { endpoints, dial, login, place, turn, held })
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
        let asking = async |link: Link| match asking(link).await {
            Ok(answer) => Ok(Ok(answer)),
            // Nothing is wrong with the connection.
            Err(Refused::Doubt(why)) => Ok(Err(effect.unanswered(why))),
            Err(Refused::Status(status)) => Err(meaning(effect, &server, &status, self.hint())),
        };
        self.held.ask(effect, &server, async || self.reach().await, asking).await?
    }

    /// How the connection is protected.
    pub(super) fn encryption(&self) -> Encryption {
        encryption(self.dial.tls.as_deref())
    }

    /// Where to look if a member hangs up on us: one that expects TLS does so on whoever speaks in the clear.
    fn hint(&self) -> &'static str {
        match self.dial.tls {
            Some(_) => "",
            None => " (if it requires TLS, write etcds://)",
        }
    }

    /// A connection to a member that can be reached.
    pub(super) async fn link(&self) -> RegisterResult<Link> {
        self.held.connection(async || self.reach().await).await
    }

    /// Connects to one member after the other, beginning with the one whose turn it is.
    async fn reach(&self) -> RegisterResult<Link> {
        let mut last_words = Vec::new();
        for _ in 0..self.endpoints.len() {
            let turn = self.turn.fetch_add(1, Ordering::AcqRel);
            let (server, endpoint) = &self.endpoints[turn % self.endpoints.len()];
            match self.connect(endpoint).await {
                Ok(link) => return Ok(link),
                Err(why) => last_words.push(format!("{server}: {why}")),
            }
        }
        Err(RegisterError::unavailable(format_args!(
            "no member of etcd answers: {}",
            last_words.join("; ")
        )))
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Link, String> {
        let channel = endpoint.connect_with_connector(self.dial.clone()).await;
        let channel = channel.map_err(|error| with_causes(&error))?;
        let mut link = Link { channel, token: None };
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

    /// Drops whatever connection there is. Questions under way keep theirs until they are answered.
    pub(super) async fn hang_up(&self) {
        self.held.hang_up().await;
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
        grpc.ready().await.map_err(|error| Status::unavailable(with_causes(&error)))?;
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
fn meaning(effect: Effect, server: &str, status: &Status, hint: &str) -> RegisterError {
    let mut why = format!("{server}: {} ({:?})", status.message(), status.code());
    // What the member said itself has no cause; what became of the connection has.
    if let Some(cause) = status.source() {
        why = format!("{why}: {}{hint}", with_causes(cause));
    }
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
