//! What all requests share, and the walk of one from its head to its answer.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use regent::fencing::http::door::Door;
use regent::fencing::http::{TERM_HEADER, TOKEN_HEADER, problem_of_turn, term_of};
use regent::fencing::signed::Verifier;
use regent_api::{Code, Problem};
use regent_election::{Group, Refusal, Term};

use crate::body::GatewayAnswer;
use crate::current::Current;
use crate::exchange::exchange;
use crate::headers::{check, check_read, towards_upstream};
use crate::limits::TERM_STEP_MAX;
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

/// Refuses a term that is too far above the mark for anybody to believe it. Without this, one request
/// could raise the mark to the highest term there is, and no leader would ever write again.
fn check_step(group: &Group, given: Term, mark: Term) -> Result<(), Problem> {
    let step = given.get().saturating_sub(mark.get());
    if step <= TERM_STEP_MAX {
        return Ok(());
    }
    let mut problem: Problem =
        Refusal::NeverGranted { group: group.clone(), given, current: mark }.into();
    problem.detail = format!(
        "term {given} is {step} above the highest that passed, {mark}, and a step is at most {TERM_STEP_MAX}; if the group was restored or moved, stop the gateway and confirm the term with --reset-mark, or use --strict or --require-signed"
    );
    Err(problem)
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
