//! What all requests share, and the walk of one from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use regent::fencing::http::door::Door;
use regent::fencing::http::{TERM_HEADER, TOKEN_HEADER, problem_of_turn, term_of};
use regent::fencing::signed::Verifier;
use regent_api::{Code, Problem};
use regent_election::{Group, Term};

use crate::body::GatewayAnswer;
use crate::current::Current;
use crate::exchange::exchange;
use crate::headers::{check, check_read, towards_upstream};
use crate::metrics::Metrics;
use crate::reply;
use crate::report::Reporter;
use crate::upstream::Upstream;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// A head, from when the connection waits for one.
    pub(crate) head: Duration,
    /// The next part of a body, up or down, where the client is the one who is slow.
    pub(crate) idle: Duration,
    /// The next part of an answer.
    pub(crate) answer: Duration,
}

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) group: Group,
    pub(crate) door: Arc<Door>,
    pub(crate) upstream: Upstream,
    pub(crate) current: Option<Arc<Current>>,
    pub(crate) reporter: Option<Reporter>,
    pub(crate) signed: Option<Verifier>,
    pub(crate) allows_reads: bool,
    pub(crate) keeps_host: bool,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

/// Refuses a term that leaps, and names the ways out that the gateway has.
fn check_step(group: &Group, given: Term, mark: Term) -> Result<(), Problem> {
    let way_out = "stop the gateway and confirm the term with --reset-mark, or use --strict or --require-signed";
    regent::fencing::http::check_step(given, mark, way_out).map_err(|mut problem| {
        problem.facts.group = Some(group.clone());
        problem
    })
}

/// From a request to its answer.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>) -> Response<GatewayAnswer> {
    app.metrics.came();
    match walk(&app, request).await {
        Ok(response) => response,
        Err(problem) => {
            app.metrics.refused(problem.code.word());
            tracing::debug!(code = problem.code.word(), detail = problem.detail, "refused");
            reply::problem(&problem)
        }
    }
}

async fn walk(
    app: &Arc<App>,
    mut request: Request<Incoming>,
) -> Result<Response<GatewayAnswer>, Problem> {
    check(&request)?;
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let has_term = [TERM_HEADER, TOKEN_HEADER].iter().any(|it| request.headers().contains_key(it));
    let pass = if is_read && app.allows_reads && !has_term {
        check_read(&request)?;
        None
    } else {
        let term = match &app.signed {
            Some(signed) => signed.of_headers(request.headers()).await?.term(),
            None => term_of(request.headers())?,
        };
        match &app.current {
            Some(current) => current.check(term).await?,
            // A signature vouches for a term as the service does.
            None if app.signed.is_some() => {}
            None => check_step(&app.group, term, app.door.looks().mark)?,
        }
        let entered = app.door.enter(term).await.map_err(problem_of_turn);
        if let Some(reporter) = &app.reporter {
            match &entered {
                Ok(_) => reporter.admitted(term),
                Err(problem) if problem.code == Code::StaleTerm => reporter.refused(term),
                Err(_) => {}
            }
        }
        Some(entered?)
    };
    let uri = app.upstream.uri(request.uri()).ok_or_else(|| {
        Problem::new(Code::BadRequest, "the upstream has no such address; it may be too long")
    });
    let uri = match uri {
        Ok(uri) => uri,
        Err(problem) => {
            if let Some(pass) = pass {
                pass.over(regent_election::fence::doorkeeper::RequestEnd::Settled);
            }
            return Err(problem);
        }
    };
    *request.uri_mut() = uri;
    *request.version_mut() = hyper::Version::HTTP_11;
    let host = (!app.keeps_host).then(|| app.upstream.authority());
    towards_upstream(request.headers_mut(), host);
    exchange(Arc::clone(app), request, pass).await
}
