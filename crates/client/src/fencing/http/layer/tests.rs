//! The layer before a handler that can be held back, and before axum's own router.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::*;
use crate::fencing::http::{TERM_HEADER, refusal, value_of};

#[derive(Clone, Debug, Default)]
struct Mark(Arc<AtomicU64>, Arc<AtomicBool>);

impl KeepMark for Mark {
    type Error = &'static str;

    async fn raise(&self, term: Term) -> Result<Term, &'static str> {
        if self.1.load(Ordering::SeqCst) {
            return Err("the disk is full");
        }
        let before = self.0.fetch_max(term.get(), Ordering::SeqCst);
        Ok(Term::new(before).unwrap().max(term))
    }
}

fn rules(drain_ms: u64, settle_ms: u64) -> DoorRules {
    DoorRules {
        drain_for: Duration::from_millis(drain_ms),
        settle_for: Duration::from_millis(settle_ms),
        waiting_max: 16,
    }
}

/// What a handler wrote, in order, and what lets it write.
#[derive(Clone, Debug)]
struct Store {
    rows: Arc<Mutex<Vec<u64>>>,
    gate: Arc<Semaphore>,
    came: Arc<Semaphore>,
}

impl Store {
    fn new(open: bool) -> Self {
        Self {
            rows: Arc::default(),
            gate: Arc::new(Semaphore::new(if open { Semaphore::MAX_PERMITS } else { 0 })),
            came: Arc::new(Semaphore::new(0)),
        }
    }

    fn rows(&self) -> Vec<u64> {
        self.rows.lock().unwrap().clone()
    }
}

type Request_ = Request<Full<Bytes>>;

async fn write(store: Store, request: Request_) -> Result<Response<Full<Bytes>>, Infallible> {
    let admitted = request.extensions().get::<Admitted>().unwrap().clone();
    store.came.add_permits(1);
    store.gate.acquire().await.unwrap().forget();
    store.rows.lock().unwrap().push(admitted.term().get());
    Ok(Response::new(Full::default()))
}

fn request(term: u64) -> Request_ {
    let mut request = Request::new(Full::default());
    request.headers_mut().insert(TERM_HEADER, value_of(Term::new(term).unwrap()));
    request
}

async fn ask(
    service: impl Service<Request_, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>,
    request: Request_,
) -> (u16, Bytes) {
    let answer = service.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.into_body().collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn a_handler_of_a_higher_term_waits_for_those_of_lower_ones() {
    let (mark, store) = (Mark::default(), Store::new(false));
    let layer = FenceLayer::new(mark.clone(), rules(60_000, 0));
    let inside = store.clone();
    let service = layer.layer(tower::service_fn(move |request| write(inside.clone(), request)));
    let old = tokio::spawn(ask(service.clone(), request(100)));
    store.came.acquire().await.unwrap().forget();
    let new = tokio::spawn(ask(service.clone(), request(101)));
    while mark.0.load(Ordering::SeqCst) < 101 {
        tokio::task::yield_now().await;
    }
    let (status, body) = ask(service, request(100)).await;
    assert_eq!(refusal(status, &body).unwrap().to_string(), "term 100 < current 101");
    assert_eq!(store.came.available_permits(), 0, "the higher one is not inside");
    store.gate.add_permits(2);
    assert_eq!((old.await.unwrap().0, new.await.unwrap().0), (200, 200));
    assert_eq!(store.rows(), [100, 101]);
}

#[tokio::test]
async fn work_that_goes_on_after_the_answer_keeps_higher_terms_out() {
    let layer = FenceLayer::new(Mark::default(), rules(50, 0));
    let kept = Arc::new(Mutex::new(None));
    let inside = Arc::clone(&kept);
    let service = layer.layer(tower::service_fn(move |request: Request_| {
        let admitted = request.extensions().get::<Admitted>().unwrap().clone();
        inside.lock().unwrap().get_or_insert(admitted);
        async { Ok(Response::new(Full::default())) }
    }));
    assert_eq!(ask(service.clone(), request(100)).await.0, 200);
    assert_eq!(ask(service.clone(), request(101)).await.0, 503, "the work goes on");
    drop(kept.lock().unwrap().take());
    assert_eq!(ask(service, request(101)).await.0, 200);
}

#[tokio::test]
async fn a_handler_that_was_dropped_leaves_an_outcome_that_must_settle() {
    let store = Store::new(false);
    let layer = FenceLayer::new(Mark::default(), rules(20, 300));
    let inside = store.clone();
    let service = layer.layer(tower::service_fn(move |request| write(inside.clone(), request)));
    let dropped = tokio::spawn(ask(service.clone(), request(100)));
    store.came.acquire().await.unwrap().forget();
    dropped.abort();
    let _ = dropped.await;
    store.gate.add_permits(100);
    let began_at = regent_clock::now();
    while ask(service.clone(), request(101)).await.0 != 200 {
        tokio::task::yield_now().await;
    }
    let after = regent_clock::now().since(began_at);
    assert!(after >= Duration::from_millis(250), "it was let in after {after:?}");
    assert_eq!(store.rows(), [101]);
}

#[tokio::test]
async fn a_mark_that_cannot_be_kept_lets_nobody_in() {
    let (mark, store) = (Mark::default(), Store::new(true));
    let layer = FenceLayer::new(mark.clone(), rules(1000, 0));
    let inside = store.clone();
    let service = layer.layer(tower::service_fn(move |request| write(inside.clone(), request)));
    mark.1.store(true, Ordering::SeqCst);
    assert_eq!(ask(service.clone(), request(7)).await.0, 503);
    assert!(store.rows().is_empty());
    mark.1.store(false, Ordering::SeqCst);
    assert_eq!(ask(service.clone(), request(7)).await.0, 200);
    // Somebody else has raised it: another process, or this one before it was restarted.
    mark.0.store(9, Ordering::SeqCst);
    let (status, body) = ask(service, request(8)).await;
    assert_eq!(refusal(status, &body).unwrap().to_string(), "term 8 < current 9");
}

/// The layer fits axum's router.
#[tokio::test]
async fn an_axum_router_can_be_fenced() {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::Extension;
    use axum::routing::put;

    let handler =
        |Extension(admitted): Extension<Admitted>| async move { admitted.term().to_string() };
    let layer = FenceLayer::new(Mark::default(), rules(1000, 0));
    let router: Router = Router::new().route("/row", put(handler)).layer(layer);
    let ask = |term: Option<u64>| {
        let mut request = Request::put("/row");
        if let Some(term) = term {
            request = request.header(TERM_HEADER, term);
        }
        let router = router.clone();
        async move {
            let answer = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.unwrap().to_bytes())
        }
    };
    assert_eq!(ask(Some(5)).await, (200, Bytes::from("5")));
    assert_eq!(ask(Some(4)).await.0, 409);
    assert_eq!(ask(None).await.0, 428);
}

/// Signed terms before handlers: whoever has no token that is believed does not come in, whatever number it tells.
#[cfg(feature = "fence-signed")]
#[tokio::test]
async fn a_layer_with_keys_believes_signed_terms_and_nothing_else() {
    use crate::fencing::http::TOKEN_HEADER;
    use crate::fencing::signed::tests::{claims, group, published, signed, unbelievable};
    use crate::fencing::signed::{Verified, Verifier};

    let rows = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::clone(&rows);
    let verifier = Verifier::of_keys(published(&[1]), group()).of_cluster("main");
    let layer = FenceLayer::new(Mark::default(), rules(1000, 0)).signed(verifier);
    let service = layer.layer(tower::service_fn(move |request: Request_| {
        let verified = request.extensions().get::<Verified>().unwrap();
        assert_eq!(
            request.extensions().get::<Admitted>().map(Admitted::term),
            Some(verified.term())
        );
        inside.lock().unwrap().push(verified.term().get());
        async { Ok(Response::new(Full::default())) }
    }));
    let with = |tokens: &[&str], term: Option<u64>| {
        let mut asked = Request::new(Full::default());
        for token in tokens {
            let value = HeaderValue::from_str(token).unwrap();
            asked.headers_mut().append(TOKEN_HEADER, value);
        }
        if let Some(term) = term {
            asked.headers_mut().insert(TERM_HEADER, value_of(Term::new(term).unwrap()));
        }
        let service = service.clone();
        async move {
            let (status, body) = ask(service, asked).await;
            let problem: Option<Problem> = serde_json::from_slice(&body).ok();
            (status, problem.map_or("", |problem| problem.code.word()))
        }
    };
    let [seventh, eighth] = [7, 8].map(|term| signed(&claims(term), 1));
    assert_eq!(with(&[&seventh], None).await, (200, ""));
    assert_eq!(with(&[&seventh], Some(7)).await, (200, ""));
    assert_eq!(with(&[&seventh], Some(9)).await, (400, "BAD_REQUEST"));
    assert_eq!(with(&[&seventh, &seventh], None).await, (400, "BAD_REQUEST"));
    assert_eq!(with(&[], Some(9)).await, (428, "TERM_MISSING"), "a number is no token");
    for (token, words) in unbelievable() {
        assert_eq!(with(&[&token], None).await, (403, "TOKEN_REFUSED"), "{words}");
    }
    assert_eq!(with(&[&eighth], None).await, (200, ""));
    assert_eq!(with(&[&seventh], None).await, (409, "STALE_TERM"));
    assert_eq!(*rows.lock().unwrap(), [7, 7, 8]);
}

/// As by the gateway: one request must not close the fence for ever.
#[tokio::test]
async fn a_term_that_leaps_is_refused_unless_the_mark_was_raised_for_it() {
    use regent_election::limits::TERM_STEP_MAX;
    let (mark, store) = (Mark::default(), Store::new(true));
    let layer = FenceLayer::new(mark.clone(), rules(1000, 0));
    let write = tower::service_fn({
        let store = store.clone();
        move |request| write(store.clone(), request)
    });
    for (term, status) in [((1 << 53) - 1, 409), (7, 200), (8 + TERM_STEP_MAX, 409), (6, 409)] {
        let (answered, body) = ask(layer.layer(write.clone()), request(term)).await;
        assert_eq!(answered, status, "{term}: {body:?}");
    }
    let leapt = 1 << 40;
    let (refused, body) = ask(layer.layer(write.clone()), request(leapt)).await;
    assert_eq!(refused, 409);
    assert!(String::from_utf8_lossy(&body).contains("raise the mark"), "{body:?}");
    mark.0.store(leapt - 1, Ordering::SeqCst);
    let (taken, body) = ask(layer.layer(write), request(leapt)).await;
    assert_eq!(taken, 200, "{body:?}");
    assert_eq!(store.rows(), [7, leapt]);
}
