//! The gRPC face: the same verbs on the same port, through the same checks.
//!
//! The life of a call, file by file:
//!
//! 1. `connection` sees the label `application/grpc` on an HTTP/2 request and hands it to [`Grpc`].
//! 2. [`Grpc::serve`] finds its method, checks the origin, and reads the one message of a call that
//!    is no stream, bounded in bytes and time (`frame`), before anything else is asked to look at it.
//! 3. tonic decodes the message and calls its method in `verbs`: a place among the requests under
//!    way, then the very function that serves the verb over HTTP.
//! 4. What was answered is counted under the verb's route, whichever face it came by.
//!
//! The road not taken is tonic's own server: it brings a second accept loop with other limits, and
//! waits without end for half a message.

mod frame;
mod health;
mod session;
mod verbs;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response};
use regent_api::grpc::methods;
use regent_api::grpc::regent_server::RegentServer;
use regent_api::grpc::{DESCRIPTORS, status};
use regent_api::limits::BODY_BYTES_MAX;
use regent_api::{Code, Operation, Problem, ROUTES, Route};
use regent_election::access::GuardedStore;
use tonic::Status;
use tonic::body::Body as GrpcBody;
use tonic::codegen::Service;
use tonic_health::pb::health_server::HealthServer;

use crate::admission::Class;
use crate::app::App;
use crate::audit::{self, Trail};
use crate::auth;
use crate::grpc::health::Pulse;
use crate::grpc::verbs::Verbs;
use crate::origin;
use crate::reply;
use crate::router::{self, Peer};

/// The label of calls that meet no method, in metrics.
const NO_METHOD: &str = "_unknown";
/// The label of session streams, whose requests are counted one by one beside it.
const SESSION: &str = "_session";

type Answering = Pin<Box<dyn Future<Output = Response<GrpcBody>> + Send>>;
type Handler = Arc<dyn Fn(Request<GrpcBody>) -> Answering + Send + Sync>;

/// Whatever answers calls.
pub(crate) struct Grpc {
    app: Arc<App>,
    methods: HashMap<String, Operation>,
    session: String,
    regent: Handler,
    health: Handler,
    reflection: Handler,
    reflection_old: Handler,
}

/// Whom a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A verb of the table.
    Verb(Operation),
    /// The session stream, which no row of the table has.
    Session,
    /// How the process is; counted as the row of the table that says the same.
    Health,
    /// What this server can be asked, in one of two versions of the same question.
    Reflection,
    ReflectionOld,
}

impl Target {
    /// The row of the table whose right it needs.
    fn route(self) -> &'static Route {
        match self {
            Self::Verb(operation) => operation.route(),
            // Whoever may open a session may have a stream for it.
            Self::Session => Operation::OpenSession.route(),
            Self::Health => Operation::Readyz.route(),
            Self::Reflection | Self::ReflectionOld => Operation::OpenApi.route(),
        }
    }
}

impl Grpc {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        let methods = ROUTES.iter().filter_map(|route| {
            route.method_name().map(|method| (methods::path(&method), route.operation))
        });
        let verbs = RegentServer::new(Verbs { app: Arc::clone(app), lookout: Arc::default() })
            .max_decoding_message_size(BODY_BYTES_MAX);
        let health = HealthServer::new(Pulse { app: Arc::clone(app) })
            .max_decoding_message_size(BODY_BYTES_MAX);
        let mirror = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // The descriptors are part of this binary; a test reads them back.
        let broken = "the descriptors in this binary can be read";
        Self {
            app: Arc::clone(app),
            methods: methods.collect(),
            session: methods::path(methods::SESSION),
            regent: handler(verbs),
            health: handler(health),
            reflection: handler(
                mirror().build_v1().expect(broken).max_decoding_message_size(BODY_BYTES_MAX),
            ),
            reflection_old: handler(
                mirror().build_v1alpha().expect(broken).max_decoding_message_size(BODY_BYTES_MAX),
            ),
        }
    }

    /// Answers one call.
    pub(crate) async fn serve(&self, request: Request<Incoming>) -> reply::Response {
        let began_at = Instant::now();
        let target = self.target(request.uri().path());
        let trail = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.trail));
        let response = match self.walk(target, request).await {
            Ok(response) => response,
            Err(problem) => Status::from(problem).into_http(),
        };
        self.count(target, &response, began_at, trail.as_deref());
        response.map(reply::streamed)
    }

    fn target(&self, path: &str) -> Option<Target> {
        if let Some(operation) = self.methods.get(path) {
            return Some(Target::Verb(*operation));
        }
        if path == self.session {
            return Some(Target::Session);
        }
        match path.trim_start_matches('/').split('/').next()? {
            "grpc.health.v1.Health" => Some(Target::Health),
            "grpc.reflection.v1.ServerReflection" => Some(Target::Reflection),
            "grpc.reflection.v1alpha.ServerReflection" => Some(Target::ReflectionOld),
            _ => None,
        }
    }

    /// From a call's head to the head of its answer, in the order of the HTTP face.
    async fn walk(
        &self,
        target: Option<Target>,
        request: Request<Incoming>,
    ) -> Result<Response<GrpcBody>, Problem> {
        let (mut parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().cloned();
        let peer = peer.expect("the connection put itself into every request");
        let hosts = &self.app.config.hosts_allowed;
        origin::check(&parts, peer.local, hosts, peer.activity.host_known())?;
        if parts.method != Method::POST {
            return Err(Problem::new(Code::MethodNotAllowed, "a gRPC call is a POST"));
        }
        frame::check_label(&parts.headers)?;
        let Some(target) = target else {
            return Err(Problem::new(
                Code::NotFound,
                "there is no such method; ask the server's reflection for all of them",
            ));
        };
        let class = match target {
            Target::Verb(operation) => router::class(operation),
            // What a session stream is for, its first message says.
            Target::Session | Target::Health | Target::Reflection | Target::ReflectionOld => None,
        };
        self.app.check_head(class, &peer.activity).await?;
        let route = target.route();
        // The group stands in the message: the guarded store judges by it.
        if let Some(guard) = auth::admit(&self.app, &peer, &parts.headers, route, None).await? {
            parts.extensions.insert(guard);
        }
        // What takes a stream may stay open: it counts among those that wait.
        let app = &self.app;
        let (handler, place) = match target {
            Target::Verb(_) => (&self.regent, None),
            Target::Session => {
                let who = parts.extensions.get::<GuardedStore>().map(|it| &it.caller().who);
                let place = app.admission.wait(who).ok_or_else(|| app.shed(Class::Renew))?;
                (&self.regent, Some(place))
            }
            Target::Health => (&self.health, None),
            Target::Reflection => (&self.reflection, Some(app.wait_in_the_open(&peer.activity)?)),
            Target::ReflectionOld => {
                (&self.reflection_old, Some(app.wait_in_the_open(&peer.activity)?))
            }
        };
        if let Some(place) = place {
            let request = Request::from_parts(parts, GrpcBody::new(body));
            let response = handler(request).await;
            return Ok(response.map(|body| GrpcBody::new(frame::Held::new(body, place))));
        }
        let whole = frame::read(&self.app, &peer.activity, class, body).await?;
        Ok(handler(Request::from_parts(parts, GrpcBody::new(whole))).await)
    }

    /// Counts the call under the route of its verb.
    fn count(
        &self,
        target: Option<Target>,
        response: &Response<GrpcBody>,
        began_at: Instant,
        trail: Option<&Trail>,
    ) {
        // A refusal's status stands in the head; that of a yes follows the answer.
        let refused = Status::from_header_map(response.headers())
            .filter(|status| status.code() != tonic::Code::Ok);
        let problem = refused.as_ref().and_then(status::problem);
        if let (Some(trail), Some(target), Some(problem)) = (trail, target, &problem) {
            audit::answered(&self.app, trail, target.route(), None, problem);
        }
        let code = refused.map(|_| problem.map_or(Code::Unrecognised, |problem| problem.code));
        let operation = match target {
            Some(Target::Verb(operation)) => Some(operation),
            Some(Target::Health) => Some(Operation::Readyz),
            Some(Target::Reflection | Target::ReflectionOld) => Some(Operation::OpenApi),
            Some(Target::Session) | None => None,
        };
        if let (Some(operation), Some(code)) = (operation, code) {
            self.app.metrics.failed(operation, code);
        }
        let route = match (target, operation) {
            (Some(Target::Session), _) => SESSION,
            (_, Some(operation)) => operation.route().path,
            (_, None) => NO_METHOD,
        };
        let word = code.map_or("OK", Code::word);
        self.app.metrics.answered(route, word, began_at.elapsed());
        let took_us = began_at.elapsed().as_micros();
        tracing::debug!(route, code = word, took_us, "answered over gRPC");
    }
}

/// Whether a request is for this face.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let label = headers.get(header::CONTENT_TYPE).map(|label| label.as_bytes());
    label.is_some_and(|label| {
        let rest = label.strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
    })
}

fn handler<S>(service: S) -> Handler
where
    S: Service<Request<GrpcBody>, Response = Response<GrpcBody>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    Arc::new(move |request| {
        let answering = service.clone().call(request);
        Box::pin(async move {
            match answering.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_grpc_itself_is_taken_for_grpc() {
        let labelled = |label: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, label.parse().unwrap());
            is_grpc(&headers)
        };
        for label in ["application/grpc", "application/grpc+proto", "application/grpc; a=b"] {
            assert!(labelled(label), "{label}");
        }
        for label in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""]
        {
            assert!(!labelled(label), "{label}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
