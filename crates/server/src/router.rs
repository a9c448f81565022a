//! The one door: every request of every route walks through [`walk`] in the same order.
//!
//! The routes come from the table in `regent-api`; [`verb`] matches on its operations in full, so a
//! row without a handler does not compile, and what has no row is not served.
//!
//! The road not taken is a stack of middleware layers: the order of checks would be spread over
//! files, and a route added outside the stack would skip them ("one path skipped the check" is how
//! most such services were broken).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use hyper::body::Bytes;
use regent_api::openapi::allow;
use regent_api::{Code, Method, Operation, Problem, ROUTES, Route};

use crate::admission::Class;
use crate::app::{App, Ask, Call};
use crate::reply::{self, Reply};
use crate::socket::Talk;
use crate::{
    accept, beliefs, body, campaign, cluster, direct, groups, history, leader, offer, origin,
    process, renew, resign, sessions, signing, step_down, token, transfer, warm, watch, withdraw,
};

/// What a request knows of the connection it came by.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The address at which it reached this server.
    pub(crate) local: SocketAddr,
    pub(crate) talk: Arc<Talk>,
}

/// All routes of the table, and problems for everything else.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let paths: BTreeSet<_> = ROUTES.iter().map(|route| route.path).collect();
    let mut router = Router::new();
    for path in paths {
        router = router.route(path, methods(path, app));
    }
    let app = Arc::clone(app);
    router.fallback(move |request: Request| async move { not_found(&app, &request) })
}

fn methods(path: &'static str, app: &Arc<App>) -> MethodRouter {
    let mut methods = MethodRouter::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        let app = Arc::clone(app);
        let filter = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Put => MethodFilter::PUT,
            Method::Delete => MethodFilter::DELETE,
        };
        methods = methods.merge(on(filter, move |request: Request| serve(app, route, request)));
    }
    let app = Arc::clone(app);
    methods.fallback(move |request: Request| async move { wrong_method(&app, path, &request) })
}

/// From a request to its answer, when its route is known.
pub(crate) async fn serve(app: Arc<App>, route: &'static Route, request: Request) -> Response {
    let began_at = Instant::now();
    let reply = walk(&app, route, request).await;
    let (code, response) = match reply {
        Ok(response) => ("OK", response),
        Err(problem) => {
            app.metrics.failed(route.operation, problem.code);
            (problem.code.word(), reply::problem(&problem))
        }
    };
    app.metrics.answered(route.path, code, began_at.elapsed());
    tracing::debug!(route = route.id, code, took_us = began_at.elapsed().as_micros(), "answered");
    response
}

/// From a request's head to its answer.
async fn walk(app: &Arc<App>, route: &'static Route, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.remove::<Peer>();
    let Peer { local, talk } = peer.expect("the connection put itself into every request");
    let hosts = &app.config.hosts_allowed;
    origin::check(&parts.method, &parts.uri, &parts.headers, local, hosts)?;
    let group = direct::group(route, parts.uri.path())?;
    let body = match route.request {
        Some(_) => body::read(&parts.headers, body, app.config.body_timeout).await?,
        None => Bytes::new(),
    };
    // The place is taken only once the body is here: a slow sender holds up nobody.
    let place = match Class::of(route.operation) {
        Some(class) => Some(app.admission.admit(class).ok_or_else(|| app.shed(class))?),
        None => None,
    };
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let headers = parts.headers;
    let ask = Ask { app: Arc::clone(app), talk, place };
    verb(Call { ask, route, headers, group, query, body }).await
}

async fn verb(call: Call) -> Reply {
    match call.route.operation {
        Operation::Campaign => campaign::answer(call).await,
        Operation::Renew => renew::answer(call).await,
        Operation::Resign => resign::answer(call).await,
        Operation::Withdraw => withdraw::answer(call).await,
        Operation::Accept => accept::answer(call).await,
        Operation::Offer => offer::answer(call).await,
        Operation::Warm => warm::answer(call).await,
        Operation::Transfer => transfer::answer(call).await,
        Operation::Leader => leader::answer(call).await,
        Operation::Watch => watch::one(call).await,
        Operation::WatchMany => watch::many(call).await,
        Operation::StepDown => step_down::answer(call).await,
        Operation::MoveGroup => groups::take_step(call).await,
        Operation::History => history::answer(call).await,
        Operation::Token => token::show(call).await,
        Operation::ValidateToken => token::validate(call).await,
        Operation::ListFences => token::list(call).await,
        Operation::DeleteFence => token::delete(call).await,
        Operation::Claims => beliefs::answer(call).await,
        Operation::PutGroup => groups::put(call).await,
        Operation::ShowGroup => groups::show(call).await,
        Operation::DeleteGroup => groups::delete(call).await,
        Operation::ListGroups => groups::list(call).await,
        Operation::OpenSession => sessions::open(call).await,
        Operation::RenewSession => sessions::renew(call).await,
        Operation::ShowSession => sessions::show(call).await,
        Operation::CloseSession => sessions::close(call).await,
        Operation::ShowCluster => cluster::show(call).await,
        Operation::AddMember => cluster::add(call).await,
        Operation::PromoteMember => cluster::promote(call).await,
        Operation::RemoveMember => cluster::remove(call).await,
        Operation::TransferCluster => cluster::transfer(call).await,
        Operation::Backup => cluster::backup(call).await,
        Operation::Keys => signing::keys(&call),
        Operation::Healthz => process::healthz(),
        Operation::Readyz => process::readyz(call).await,
        Operation::Metrics => process::metrics(call).await,
        Operation::OpenApi => process::openapi(),
        Operation::Dashboard => process::dashboard(),
    }
}

/// The label of requests that meet no route, in metrics.
const NO_ROUTE: &str = "_unknown";

fn not_found(app: &App, request: &Request) -> Response {
    app.metrics.answered(NO_ROUTE, Code::NotFound.word(), std::time::Duration::ZERO);
    let hint = if request.uri().path().starts_with("/v1/groups/") {
        "a slash inside a group name is written %2F; /openapi.json lists every address"
    } else {
        "/openapi.json lists every address"
    };
    reply::problem(&Problem::new(Code::NotFound, format!("there is nothing here; {hint}")))
}

fn wrong_method(app: &App, path: &str, request: &Request) -> Response {
    app.metrics.answered(NO_ROUTE, Code::MethodNotAllowed.word(), std::time::Duration::ZERO);
    let allowed = allow(path);
    let asked: String = request.method().as_str().chars().take(20).collect();
    let detail = format!("{path} knows {allowed}, not {asked}");
    let mut response = reply::problem(&Problem::new(Code::MethodNotAllowed, detail));
    let allowed = HeaderValue::from_str(&allowed).expect("methods are plain words");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}
