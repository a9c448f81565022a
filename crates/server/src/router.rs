//! The one door: every request of every route walks through [`walk`] in the same order.
//!
//! The routes come from the table in `regent-api`; [`class`] and [`verb`] match on its operations in full, so a
//! row without a handler does not compile, and what has no row is not served.
//!
//! The road not taken is a stack of middleware layers: the order of checks would be spread over
//! files, and a route added outside the stack would skip them ("one path skipped the check" is how
//! most such services were broken).

use std::future::{Future, ready};
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request};
use regent_api::openapi::allow;
use regent_api::{Code, Operation, Problem, Route, decode};
use regent_election::Group;
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
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.remove::<Peer>();
    let peer = peer.expect("the connection put itself into every request");
    let (activity, trail) = (Arc::clone(&peer.activity), Arc::clone(&peer.trail));
    let group = group_of(route, parts.uri.path());
    let named = group.as_ref().ok().cloned().flatten();
    let reply = walk(&app, route, peer, group, &mut parts, body).await.and_then(|response| {
        // What has happened cannot be refused any more.
        let may_refuse = route.method == regent_api::Method::Get;
        let held = held::hold(&app, &activity, response, may_refuse);
        held.ok_or_else(|| app.shed(class(route.operation).unwrap_or(Class::Read)))
    });
    let took = began_at.elapsed();
    let (code, response) = match reply {
        Ok(response) => {
            app.metrics.served(route.operation, took);
            ("OK", response)
        }
        Err(problem) => {
            audit::answered(&app, &trail, route, named.as_ref(), &problem);
            app.metrics.failed(route.operation, problem.code);
            let code = problem.code.word();
            app.metrics.answered(route.path, code, took);
            (code, reply::problem(&problem))
        }
    };
    tracing::debug!(route = route.id, code, took_us = took.as_micros(), "answered");
    response
}

/// The group that a path names, if its route has one.
fn group_of(route: &Route, path: &str) -> Result<Option<Group>, Problem> {
    address::group(route, path)?.as_deref().map(decode::group).transpose()
}

/// From a request's head to its answer.
async fn walk(
    app: &Arc<App>,
    route: &'static Route,
    peer: Peer,
    group: Result<Option<Group>, Problem>,
    parts: &mut Parts,
    body: Incoming,
) -> Reply {
    let hosts = &app.config.hosts_allowed;
    origin::check(parts, peer.local, hosts, peer.activity.host_known())?;
    let class = class(route.operation);
    app.check_head(class, &peer.activity).await?;
    let group = group?;
    let guard = auth::admit(app, &peer, &parts.headers, route, group.as_ref()).await?;
    let body = match route.request {
        Some(_) => body::read(app, &peer.activity, class, &parts.headers, body).await?,
        None => Bytes::new(),
    };
    // The place is taken only once the body is here: a slow sender holds up nobody.
    let place = app.enter(route.operation, guard.as_ref(), &peer.activity)?;
    let (uri, headers) = (mem::take(&mut parts.uri), mem::take(&mut parts.headers));
    let Peer { activity, trail, .. } = peer;
    let ask = Ask { app: Arc::clone(app), guard, activity, trail, place };
    verb(Call { ask, route, headers, group, uri, body }).await
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
        Operation::ValidateToken => Some(Class::Validate),
        Operation::PutGroup
        | Operation::MoveGroup
        | Operation::DeleteFence
        | Operation::DeleteGroup
        | Operation::ListGroups
        | Operation::Backup
        | Operation::ShowBindings
        | Operation::PutBindings
        | Operation::ShowUsage
        | Operation::ListAuthTokens
        | Operation::CreateAuthToken
        | Operation::RevokeAuthToken => Some(Class::Admin),
        Operation::ShowCluster
        | Operation::Keys
        | Operation::Healthz
        | Operation::Livez
        | Operation::Readyz
        | Operation::Metrics
        | Operation::OpenApi
        | Operation::Dashboard => None,
    }
}

/// Each verb has a future of its own size: the connection moves the future of a request, and would move that of the
/// largest verb for each.
fn verb(call: Call) -> Pin<Box<dyn Future<Output = Reply> + Send>> {
    match call.route.operation {
        Operation::Campaign => Box::pin(campaign::answer(call)),
        Operation::Renew => Box::pin(tenure::answer(call, tenure::renew)),
        Operation::Resign => Box::pin(tenure::answer(call, tenure::resign)),
        Operation::Withdraw => Box::pin(tenure::answer(call, tenure::withdraw)),
        Operation::Accept => Box::pin(tenure::answer(call, tenure::accept)),
        Operation::Offer => Box::pin(tenure::answer(call, tenure::offer)),
        Operation::Warm => Box::pin(tenure::answer(call, tenure::warm)),
        Operation::Transfer => Box::pin(tenure::answer(call, tenure::transfer)),
        Operation::Leader => Box::pin(leader::answer(call)),
        Operation::Watch => Box::pin(watch::one(call)),
        Operation::WatchMany => Box::pin(watch::many(call)),
        Operation::StepDown => Box::pin(step_down::answer(call)),
        Operation::MoveGroup => Box::pin(groups::take_step(call)),
        Operation::History => Box::pin(history::answer(call)),
        Operation::Token => Box::pin(token::show(call)),
        Operation::ValidateToken => Box::pin(token::validate(call)),
        Operation::ListFences => Box::pin(token::list(call)),
        Operation::DeleteFence => Box::pin(token::delete(call)),
        Operation::Claims => Box::pin(beliefs::answer(call)),
        Operation::PutGroup => Box::pin(groups::put(call)),
        Operation::ShowGroup => Box::pin(groups::show(call)),
        Operation::DeleteGroup => Box::pin(groups::delete(call)),
        Operation::ListGroups => Box::pin(groups::list(call)),
        Operation::OpenSession => Box::pin(sessions::open(call)),
        Operation::Heartbeat => Box::pin(sessions::heartbeat(call)),
        Operation::ShowSession => Box::pin(sessions::show(call)),
        Operation::CloseSession => Box::pin(sessions::close(call)),
        Operation::ShowCluster => Box::pin(cluster::show(call)),
        Operation::AddMember => Box::pin(cluster::add(call)),
        Operation::PromoteMember => Box::pin(cluster::promote(call)),
        Operation::RemoveMember => Box::pin(cluster::remove(call)),
        Operation::TransferCluster => Box::pin(cluster::transfer(call)),
        Operation::Backup => Box::pin(backup::answer(call)),
        Operation::ShowBindings => Box::pin(access::show(call)),
        Operation::PutBindings => Box::pin(access::put(call)),
        Operation::ShowUsage => Box::pin(access::usage(call)),
        Operation::ListAuthTokens => Box::pin(access::tokens(call)),
        Operation::CreateAuthToken => Box::pin(access::create(call)),
        Operation::RevokeAuthToken => Box::pin(access::revoke(call)),
        Operation::Keys => Box::pin(ready(signing::keys(&call))),
        Operation::Healthz | Operation::Livez => Box::pin(ready(process::healthz())),
        Operation::Readyz => Box::pin(process::readyz(call)),
        Operation::Metrics => Box::pin(process::metrics(call)),
        Operation::OpenApi => Box::pin(ready(process::openapi())),
        Operation::Dashboard => Box::pin(ready(process::dashboard())),
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
