//! Hand-over in two steps: the standby gets warm while the leader leads on (semantics 15).

use std::time::Duration;

use regent::{Connect, Offer, TransferError};
use regent_election::Node;
use tokio::sync::{mpsc, watch};

use crate::bench::{Bench, soon, until};

/// Long enough that nothing is lost on a slow machine, short enough that epochs are seen soon.
const TTL: Duration = Duration::from_secs(3);

fn b() -> Node {
    Node::new("b").unwrap()
}

async fn stands(bench: &Bench) {
    let store = bench.store.clone();
    until("b stands", async || {
        store.group(&"billing".parse().unwrap()).await.unwrap().standbys_count == 1
    })
    .await;
}

/// A leads, b stands, and b's warm-up ends when the gate is opened.
async fn waits_for_warmth(bench: &Bench, at: impl Fn(&str) -> Connect) {
    let a = at("a").ttl(TTL).connect().await.unwrap();
    let b_regent = at("b").ttl(TTL).connect().await.unwrap();
    let (gate, opened) = watch::channel(false);
    let (sender, mut offers) = mpsc::unbounded_channel::<Offer>();
    let warm_up = move |offer| {
        let (sender, mut opened) = (sender.clone(), opened.clone());
        async move {
            sender.send(offer).unwrap();
            opened.wait_for(|is_open| *is_open).await.unwrap();
        }
    };
    b_regent.on_offer("billing", warm_up).unwrap();
    let leadership = soon("a leads", a.campaign("billing")).await.unwrap();
    let working = leadership.clone();
    let campaign = b_regent.campaign("billing").into_future();
    let waiting = tokio::spawn(async move { campaign.await.unwrap() });
    stands(bench).await;

    let handing = tokio::spawn(leadership.transfer(b()));
    let offer = soon("offered", offers.recv()).await.unwrap();
    assert_eq!((offer.by.as_str(), offer.term), ("a", working.term()));
    // The leader works on for as long as the standby is not warm: longer than a lease lasts here,
    // so that it must have been renewed meanwhile.
    tokio::time::sleep(TTL).await;
    assert!(working.check().is_ok(), "the leader stopped before the standby was warm");
    assert!(!waiting.is_finished() && !handing.is_finished());

    gate.send(true).unwrap();
    let stop = soon("told to stop", working.lost()).await;
    assert_eq!(stop.why, regent::Why::HandOver);
    drop(working);
    soon("handed over", handing).await.unwrap().unwrap();
    let second = soon("b leads", waiting).await.unwrap();
    assert_eq!((second.term().get(), second.node().as_str()), (2, "b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_leads_on_until_the_standby_is_warm() {
    let bench = Bench::start();
    waits_for_warmth(&bench, |node| bench.at(node)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_leads_on_until_the_standby_is_warm_without_a_server() {
    let bench = Bench::start();
    waits_for_warmth(&bench, |node| bench.over(node)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_never_gets_warm_leaves_the_leader_in_office() {
    let bench = Bench::start();
    let a = bench.at("a").ttl(TTL).connect().await.unwrap();
    let b_regent = bench.at("b").ttl(TTL).connect().await.unwrap();
    let (gate, opened) = watch::channel(false);
    let warm_up = move |_| {
        let mut opened = opened.clone();
        async move {
            opened.wait_for(|is_open| *is_open).await.unwrap();
        }
    };
    b_regent.on_offer("billing", warm_up).unwrap();
    let leadership = soon("a leads", a.campaign("billing")).await.unwrap();
    let campaign = b_regent.campaign("billing").into_future();
    let waiting = tokio::spawn(async move { campaign.await.unwrap() });
    stands(&bench).await;

    let refused = soon("given back", leadership.transfer_within(b(), TTL)).await.unwrap_err();
    let TransferError::NotWarm { leadership, .. } = refused else { panic!("{refused:?}") };
    assert!(leadership.check().is_ok(), "it leads on under the same term");
    // Warm too late: the application was told that it leads on.
    gate.send(true).unwrap();
    tokio::time::sleep(TTL).await;
    assert!(leadership.check().is_ok());
    assert!(!waiting.is_finished());
    // Asked again, the standby is warm already.
    soon("handed over", leadership.transfer(b())).await.unwrap();
    assert_eq!(soon("b leads", waiting).await.unwrap().term().get(), 2);
}
