//! What a supervisor needs to know: how far the lease reaches, and who leads otherwise.

use std::time::Duration;

use regent::LeaderWatch;
use regent_election::{Door, Group, Home, Moment, Step, Term};

use crate::bench::{Bench, soon};

/// Waits until this node is seen to lead; says under which term.
async fn seen(watch: &mut LeaderWatch, node: &str) -> Term {
    soon(node, async {
        loop {
            let current = watch.next().await;
            if current.leader.is_some_and(|leader| leader.as_str() == node) {
                return current.term;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_extension_is_told_until_the_work_must_stop() {
    let bench = Bench::start();
    let regent = bench.at("a").ttl(Duration::from_secs(1)).connect().await.unwrap();
    let leadership = soon("a leads", regent.campaign("billing")).await.unwrap();
    let mut until = leadership.valid_until();
    assert!(until > Moment::ZERO);
    for _ in 0..3 {
        let next = soon("an extension", leadership.extended(until)).await.unwrap();
        assert!(next > until);
        until = next;
    }
    let known = soon("what is known", leadership.extended(Moment::ZERO)).await.unwrap();
    assert!(until <= known && known <= leadership.valid_until(), "it is told at once");
    let other = leadership.clone();
    let never = tokio::spawn(async move { other.extended(Moment::from_nanos(u64::MAX)).await });
    let watched = leadership.clone();
    let resigning = tokio::spawn(leadership.resign());
    soon("a is told to stop", watched.lost()).await;
    assert_eq!(soon("no more extensions", never).await.unwrap(), None);
    assert_eq!(soon("nor later", watched.extended(Moment::ZERO)).await, None);
    drop(watched);
    soon("resigned", resigning).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_tells_who_leads_without_standing_and_wherever_the_group_goes() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let connect = async |node: &str| old.at(node).connect().await.unwrap();
    let (a, b) = (connect("a").await, connect("b").await);
    let mut watch = b.watch_leader("billing").unwrap();
    let first = soon("a leads", a.campaign("billing")).await.unwrap();
    assert_eq!(seen(&mut watch, "a").await, first.term());
    assert_eq!(watch.known().unwrap().leader.as_ref(), Some(a.node()));
    soon("resigned", first.resign()).await.unwrap();

    let home = |bench: &Bench| Home::new(&bench.url).unwrap();
    let expect = Step::Expect { from: home(&old) };
    let view = new.store.move_group(&group, expect, None).await.unwrap();
    let Door::Expected { since, .. } = view.door else { panic!("{view:?}") };
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    let above = Term::new(1).unwrap();
    let arrive = Step::Arrive { since, above, heir: None };
    new.store.move_group(&group, arrive, None).await.unwrap();
    let second = soon("b leads in the new store", b.campaign("billing")).await.unwrap();
    assert_eq!(seen(&mut watch, "b").await, second.term());
    assert_eq!(watch.known().unwrap().leader.as_ref(), Some(b.node()));
}
