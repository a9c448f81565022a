//! A leader that is cut off from the store: warned, told to stop, lost, all before anybody else leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent::backend::{Backend, DirectBackend, ObservedLeaders};
use regent::{Phase, Regent, Why};
use regent_election::Group;
use regent_election::participant::{Reply, Request};
use regent_election::store::{Consistency, LeaderView, Scope, StoreError, StoreResult};

use crate::bench::{Bench, soon};

/// An office behind a wire that can be cut.
#[derive(Debug)]
struct Wire {
    inner: DirectBackend,
    is_cut: Arc<AtomicBool>,
}

#[async_trait]
impl Backend for Wire {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(StoreError::Uncertain { why: "the wire is cut".to_owned() });
        }
        self.inner.perform(request).await
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        self.inner.leader(group, consistency).await
    }

    async fn watch(&self, _: Scope, _: ObservedLeaders) {
        std::future::pending().await
    }
}

async fn behind_a_wire(bench: &Bench, ttl: Duration) -> (Regent, Arc<AtomicBool>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let inner = DirectBackend::new(bench.store.clone(), Duration::from_millis(400));
    let wire = Wire { inner, is_cut: Arc::clone(&is_cut) };
    let connect = Regent::through(Arc::new(wire)).node("a").ttl(ttl);
    (connect.connect().await.unwrap(), is_cut)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_warned_with_what_is_left_and_recovers() {
    let bench = Bench::start();
    let (regent, is_cut) = behind_a_wire(&bench, Duration::from_secs(10)).await;
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let remaining = soon("warned", leadership.jeopardy()).await.unwrap();
    assert!(remaining < regent.budget().valid_for());
    is_cut.store(false, Ordering::SeqCst);
    assert!(soon("renewed", leadership.recovered()).await);
    assert!(leadership.check().is_ok());
    assert_eq!(leadership.term().get(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stays_cut_off_stops_before_anybody_else_leads() {
    let bench = Bench::start();
    let ttl = Duration::from_secs(2);
    let (regent, is_cut) = behind_a_wire(&bench, ttl).await;
    let mut transitions = regent.transitions();
    let first = soon("elected", regent.campaign("billing")).await.unwrap();
    let other = bench.at("b").ttl(ttl).connect().await.unwrap();
    let old = first.clone();
    let waiting = tokio::spawn(async move {
        let second = other.campaign("billing").await.unwrap();
        // At this instant both have been looked at, and only one may say yes.
        (old.check().is_err(), second.check().is_ok(), second)
    });
    is_cut.store(true, Ordering::SeqCst);
    let why = soon("told", first.lost()).await.why;
    assert!(matches!(why, Why::LeaseNearlyOver | Why::LeaseOver), "{why:?}");
    let (is_over, is_valid, second) = soon("b leads", waiting).await.unwrap();
    assert!(is_over && is_valid);
    assert_eq!(second.term().get(), 2);
    drop(first);
    let mut phases = Vec::new();
    while phases.last() != Some(&Phase::Lost) {
        phases.push(soon("transitions", transitions.next()).await.unwrap().to);
    }
    // A slow machine may oversleep the warning, never the order.
    assert!(phases.is_sorted() && phases.first() == Some(&Phase::Leading), "{phases:?}");
}
