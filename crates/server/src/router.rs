//! The one door: every request of every route walks through [`walk`] in the same order.
//!
//! The routes come from the table in `regent-api`; [`class`] and [`verb`] match on its operations in full, so a
//! row without a handler does not compile, and what has no row is not served.
//!
//! The road not taken is a stack of middleware layers: the order of checks would be spread over
//! files, and a route added outside the stack would skip them ("one path skipped the check" is how
//! most such services were broken).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};
use regent_api::openapi::allow;
use regent_api::{Code, Operation, Problem, Route, decode};
use regent_election::access::Voucher;

use crate::address::{self, Found};
use crate::admission::Class;
use crate::app::{App, Ask, Call};
use crate::audit::{self, Trail};
use crate::reply::{self, Reply, Response};
use crate::socket::ConnectionActivity;
use crate::{
    access, auth, backup, beliefs, body, campaign, cluster, groups, held, history, leader, origin,
    process, sessions, signing, step_down, tenure, token, watch,
};

/// What a request knows of the connection it came by.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The address at which it reached this server.
    pub(crate) local: SocketAddr,
    /// The user at the other end of a Unix socket, for whom the kernel vouches.
    pub(crate) user_id: Option<u32>,
    /// Who it is by its certificate, if it has shown one.
    pub(crate) client: Option<Arc<dyn Voucher>>,
    pub(crate) activity: Arc<ConnectionActivity>,
    /// Where the request came from, for the audit log.
    pub(crate) trail: Arc<Trail>,
}

/// Answers one request: by its row of the table, or with the problem that it names none.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>) -> Response {
    let is_head = request.method() == Method::HEAD;
    let mut response = match address::find(request.method(), request.uri().path()) {
        Found::Row(route) => serve(app, route, request).await,
        Found::OtherMethods(path) => wrong_method(&app, path, request.method()),
        Found::Nothing => not_found(&app, request.uri().path()),
    };
    if is_head {
        // The head says how long the body would be; a stream has no length.
        if let Some(length) = response.body().size_hint().exact() {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.body_mut() = reply::body(Bytes::new());
    }
    response
}

/// From a request to its answer, when its route is known.
async fn serve(app: Arc<App>, route: &'static Route, request: Request<Incoming>) -> Response {
    let began_at = Instant::now();
    let peer = request.extensions().get::<Peer>().cloned();
    let Peer { activity, trail, .. } = peer.expect("the connection put itself into every request");
    let uri = request.uri().clone();
    let reply = walk(&app, route, request).await.and_then(|response| {
        // What has happened cannot be refused any more.
        let may_refuse = route.method == regent_api::Method::Get;
        let held = held::hold(&app, &activity, response, may_refuse);
        held.ok_or_else(|| app.shed(class(route.operation).unwrap_or(Class::Read)))
    });
    let (code, response) = match reply {
        Ok(response) => ("OK", response),
        Err(problem) => {
            let group = address::group(route, uri.path()).ok().flatten();
            let group = group.and_then(|name| decode::group(&name).ok());
            audit::answered(&app, &trail, route, group.as_ref(), &problem);
            app.metrics.failed(route.operation, problem.code);
            (problem.code.word(), reply::problem(&problem))
        }
    };
    app.metrics.answered(route.path, code, began_at.elapsed());
    tracing::debug!(route = route.id, code, took_us = began_at.elapsed().as_micros(), "answered");
    response
}

/// From a request's head to its answer.
async fn walk(app: &Arc<App>, route: &'static Route, request: Request<Incoming>) -> Reply {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.remove::<Peer>();
    let peer = peer.expect("the connection put itself into every request");
    let hosts = &app.config.hosts_allowed;
    origin::check(&parts.method, &parts.uri, &parts.headers, peer.local, hosts)?;
    let group = address::group(route, parts.uri.path())?;
    let named = group.as_deref().map(decode::group).transpose()?;
    let guard = auth::admit(app, &peer, &parts.headers, route, named.as_ref()).await?;
    let body = match route.request {
        Some(_) => {
            let class = class(route.operation);
            body::read(app, &peer.activity, class, &parts.headers, body).await?
        }
        None => Bytes::new(),
    };
    // The place is taken only once the body is here: a slow sender holds up nobody.
    let place = app.enter(class(route.operation), guard.as_ref(), &peer.activity)?;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let headers = parts.headers;
    let Peer { activity, trail, .. } = peer;
    let ask = Ask { app: Arc::clone(app), guard, activity, trail, place };
    verb(Call { ask, route, headers, group, query, body }).await
}

/// How much an operation matters; none for those that say how the process is, which must answer exactly when the
/// rest does not.
pub(crate) const fn class(operation: Operation) -> Option<Class> {
    match operation {
        // A holder whose epoch changed extends nothing until it has read its session.
        Operation::Renew | Operation::Heartbeat | Operation::Accept | Operation::ShowSession => {
            Some(Class::Renew)
        }
        // A step-down frees an office, and is asked when things go wrong already; so is whatever
        // repairs the store itself.
        Operation::Resign
        | Operation::Withdraw
        | Operation::CloseSession
        | Operation::Offer
        | Operation::Warm
        | Operation::Transfer
        | Operation::StepDown
        | Operation::AddMember
        | Operation::PromoteMember
        | Operation::RemoveMember
        | Operation::TransferCluster => Some(Class::Release),
        Operation::Watch | Operation::WatchMany => Some(Class::Watch),
        Operation::Campaign | Operation::OpenSession => Some(Class::Campaign),
        Operation::Leader
        | Operation::ShowGroup
        | Operation::History
        | Operation::Token
        | Operation::Claims
        | Operation::ListFences => Some(Class::Read),
        // A write waits for it, and a leader that is refused must hear so.
        Operation::ValidateToken => Some(Class::Release),
        Operation::PutGroup
        | Operation::MoveGroup
        | Operation::DeleteFence
        | Operation::DeleteGroup
        | Operation::ListGroups
        | Operation::Backup
        | Operation::ShowBindings
        | Operation::PutBindings
        | Operation::ListAuthTokens
        | Operation::CreateAuthToken
        | Operation::RevokeAuthToken => Some(Class::Admin),
        Operation::ShowCluster
        | Operation::Keys
        | Operation::Healthz
        | Operation::Readyz
        | Operation::Metrics
        | Operation::OpenApi
        | Operation::Dashboard => None,
    }
}

async fn verb(call: Call) -> Reply {
    match call.route.operation {
        Operation::Campaign => campaign::answer(call).await,
        Operation::Renew => tenure::answer(call, tenure::renew).await,
        Operation::Resign => tenure::answer(call, tenure::resign).await,
        Operation::Withdraw => tenure::answer(call, tenure::withdraw).await,
        Operation::Accept => tenure::answer(call, tenure::accept).await,
        Operation::Offer => tenure::answer(call, tenure::offer).await,
        Operation::Warm => tenure::answer(call, tenure::warm).await,
        Operation::Transfer => tenure::answer(call, tenure::transfer).await,
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
        Operation::Heartbeat => sessions::heartbeat(call).await,
        Operation::ShowSession => sessions::show(call).await,
        Operation::CloseSession => sessions::close(call).await,
        Operation::ShowCluster => cluster::show(call).await,
        Operation::AddMember => cluster::add(call).await,
        Operation::PromoteMember => cluster::promote(call).await,
        Operation::RemoveMember => cluster::remove(call).await,
        Operation::TransferCluster => cluster::transfer(call).await,
        Operation::Backup => backup::answer(call).await,
        Operation::ShowBindings => access::show(call).await,
        Operation::PutBindings => access::put(call).await,
        Operation::ListAuthTokens => access::tokens(call).await,
        Operation::CreateAuthToken => access::create(call).await,
        Operation::RevokeAuthToken => access::revoke(call).await,
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

fn not_found(app: &App, path: &str) -> Response {
    app.metrics.answered(NO_ROUTE, Code::NotFound.word(), std::time::Duration::ZERO);
    let hint = if path.starts_with("/v1/groups/") {
        "a slash inside a group name is written %2F; /openapi.json lists every address"
    } else {
        "/openapi.json lists every address"
    };
    reply::problem(&Problem::new(Code::NotFound, format!("there is nothing here; {hint}")))
}

fn wrong_method(app: &App, path: &str, asked: &Method) -> Response {
    app.metrics.answered(NO_ROUTE, Code::MethodNotAllowed.word(), std::time::Duration::ZERO);
    let allowed = allow(path);
    let asked: String = asked.as_str().chars().take(20).collect();
    let detail = format!("{path} knows {allowed}, not {asked}");
    let mut response = reply::problem(&Problem::new(Code::MethodNotAllowed, detail));
    let allowed = HeaderValue::from_str(&allowed).expect("methods are plain words");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}
