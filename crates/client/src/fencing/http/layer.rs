//! A fence before one's own handlers: a `tower` layer, for axum and whatever else takes one.
//!
//! Handlers have the gateway's trouble: the term is compared before the handler runs, and the handler writes a
//! moment later. So they have the gateway's doorkeeper: a higher term enters when every handler of a lower one
//! has ended, and lower ones are refused from when it came.
//!
//! **A handler must have written when it ends.** The layer holds an [`Admitted`] for as long as the handler
//! runs; it is also among the request's extensions, and work that goes on after the answer (a task that was
//! spawned, a body that is streamed) must keep a clone of it. A handler that is dropped on the way, because its
//! client has gone, leaves an outcome that nobody knows: then a higher term waits for
//! [`DoorRules::settle_for`], too.
//!
//! It guards one process. Where several serve the same resource, only the resource itself can compare terms: let
//! the handler hand [`Admitted::term`] on to it.
//!
//! ```
//! use regent::Term;
//! use regent::fencing::http::{DoorRules, FenceLayer, KeepMark};
//! use std::time::Duration;
//! # use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// The mark in one's own storage, raised in one atomic and durable step.
//! struct Mark(/* a pool, a file, … */ AtomicU64);
//!
//! impl KeepMark for Mark {
//!     type Error = std::convert::Infallible;
//!     async fn raise(&self, term: Term) -> Result<Term, Self::Error> {
//!         let before = self.0.fetch_max(term.get(), Ordering::SeqCst);
//!         Ok(Term::new(before).unwrap_or(term).max(term))
//!     }
//! }
//!
//! let rules = DoorRules {
//!     drain_for: Duration::from_secs(10),
//!     settle_for: Duration::from_secs(5),
//!     waiting_max: 1024,
//! };
//! let layer = FenceLayer::new(Mark(AtomicU64::new(0)), rules); // router.layer(layer)
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll};

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use regent_api::Problem;
use regent_api::problem::PROBLEM_JSON;
use regent_election::fence::doorkeeper::{DoorRules, RequestEnd, TurnedAway};
use regent_election::{Moment, Term};
use tower::{Layer, Service};

use super::door::{Door, Pass};
use super::problems::check_step;
use super::{problem_of_turn, term_of};
#[cfg(feature = "fence-signed")]
use crate::fencing::signed::Verifier;

/// Where the mark is kept.
pub trait KeepMark: Send + Sync + 'static {
    /// Why it could not be kept.
    type Error: fmt::Display + Send;

    /// Raises the mark to `term` unless it is higher already, in one atomic step that no crash takes back, and
    /// says what it is then.
    ///
    /// It is also asked to raise the mark to term 1, which changes nothing that matters, to learn where the mark is.
    fn raise(&self, term: Term) -> impl Future<Output = Result<Term, Self::Error>> + Send;
}

/// Asks where a mark is; what cannot be asked is an error, told.
#[derive(Clone)]
struct Learn(Arc<dyn Fn() -> Learning + Send + Sync>);
type Learning = Pin<Box<dyn Future<Output = Result<Term, String>> + Send>>;

impl fmt::Debug for Learn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Learn")
    }
}

/// A fence before handlers. Clones share one door.
///
/// Without signatures a term is believed only if it is at most 65,536 above the mark, as by the gateway:
/// otherwise one request could close the fence for ever. If a group was restored or moved, raise the mark where it is
/// kept to just below its new term.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    door: Arc<Door>,
    /// Asks where the mark is kept.
    learn: Learn,
    timed: Arc<Once>,
    #[cfg(feature = "fence-signed")]
    signed: Option<Arc<Verifier>>,
}

impl FenceLayer {
    /// A fence whose mark is kept there.
    #[must_use]
    pub fn new(mark: impl KeepMark, rules: DoorRules) -> Self {
        let mark = Arc::new(mark);
        let learn = {
            let mark = Arc::clone(&mark);
            Learn(Arc::new(move || {
                let mark = Arc::clone(&mark);
                Box::pin(async move {
                    let first = Term::NONE.next().unwrap_or(Term::NONE);
                    mark.raise(first).await.map_err(|error| error.to_string())
                })
            }))
        };
        // The first request of any term asks where the mark is: nothing is assumed of it here.
        let door = Door::open(rules, Term::NONE, Moment::ZERO, move |door, term| {
            let (mark, door) = (Arc::clone(&mark), Arc::clone(door));
            tokio::spawn(async move {
                match mark.raise(term).await {
                    Ok(kept) => door.kept(kept.max(term)),
                    Err(error) => {
                        tracing::error!(%error, term = term.get(), "the mark cannot be kept");
                        door.not_kept();
                    }
                }
            });
        });
        Self {
            door,
            learn,
            timed: Arc::new(Once::new()),
            #[cfg(feature = "fence-signed")]
            signed: None,
        }
    }

    /// The same, which takes terms from tokens that its service signed (`Regent-Token`), and from nowhere else.
    /// A handler finds the [`Verified`](crate::fencing::signed::Verified) term among the extensions of its request and hands it on to an
    /// adapter, if there is one behind it.
    #[cfg(feature = "fence-signed")]
    #[must_use]
    pub fn signed(self, verifier: Verifier) -> Self {
        Self { signed: Some(Arc::new(verifier)), ..self }
    }

    /// The term of a request, if it can be believed.
    async fn term_of<B>(&self, request: &mut Request<B>) -> Result<Term, Problem> {
        #[cfg(feature = "fence-signed")]
        if let Some(verifier) = &self.signed {
            let verified = verifier.of_headers(request.headers()).await?;
            let term = verified.term();
            request.extensions_mut().insert(verified);
            return Ok(term);
        }
        let term = term_of(request.headers())?;
        self.check_step(term).await?;
        Ok(term)
    }

    /// Refuses a term that leaps. Before that it asks where the mark is: this process may be the first one to ask, or
    /// another may have raised it.
    async fn check_step(&self, term: Term) -> Result<(), Problem> {
        let way_out =
            "raise the mark where it is kept to just below its term, or take signed terms";
        let check = || check_step(term, self.door.looks().mark, way_out);
        if check().is_ok() {
            return Ok(());
        }
        match (self.learn.0)().await {
            Ok(kept) => self.door.kept(kept),
            Err(error) => {
                tracing::error!(%error, "the mark cannot be read");
                return Err(problem_of_turn(TurnedAway::NotKept));
            }
        }
        check()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, inner: S) -> FenceService<S> {
        FenceService { fence: self.clone(), inner }
    }
}

/// A handler behind a fence.
#[derive(Clone, Debug)]
pub struct FenceService<S> {
    fence: FenceLayer,
    inner: S,
}

/// A request that was let in. While one of its clones lives, no higher term enters.
#[derive(Clone, Debug)]
pub struct Admitted {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    pass: Option<Pass>,
    term: Term,
    /// Whether the handler came to its end.
    has_ended: AtomicBool,
}

impl Admitted {
    fn new(pass: Pass) -> Self {
        let term = pass.term();
        // A handler cannot be cut: it is waited for, like a request that has left in full.
        pass.sent()();
        Self { held: Arc::new(Held { pass: Some(pass), term, has_ended: AtomicBool::new(false) }) }
    }

    /// The term under which it was let in.
    #[must_use]
    pub fn term(&self) -> Term {
        self.held.term
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let ended =
            if *self.has_ended.get_mut() { RequestEnd::Settled } else { RequestEnd::Unknown };
        if let Some(pass) = self.pass.take() {
            pass.over(ended);
        }
    }
}

impl<S, B, R> Service<Request<B>> for FenceService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that said it was ready is the one to call.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let fence = self.fence.clone();
        self.fence.timed.call_once(|| {
            let door = Arc::clone(&fence.door);
            tokio::spawn(async move { door.keep_time().await });
        });
        Box::pin(async move {
            let term = match fence.term_of(&mut request).await {
                Ok(term) => term,
                Err(problem) => return Ok(refuse(&problem)),
            };
            let admitted = match fence.door.enter(term).await {
                Ok(pass) => Admitted::new(pass),
                Err(why) => return Ok(refuse(&problem_of_turn(why))),
            };
            request.extensions_mut().insert(admitted.clone());
            let answer = inner.call(request).await;
            admitted.held.has_ended.store(true, Ordering::Release);
            answer
        })
    }
}

fn refuse<R: From<Bytes>>(problem: &Problem) -> Response<R> {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = Response::new(R::from(body.into()));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if let Some(millis) = problem.retry_after_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000).max(1)));
    }
    response
}

#[cfg(test)]
mod tests;
