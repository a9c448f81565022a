//! Groups that move to another store while this process leads them.

use std::time::Duration;

use regent_election::store::{Consistency, OfficeState};
use regent_election::{Door, Group, Home, Step, Term};

use crate::bench::{Bench, soon, until};

/// A leader whose work does not stop in time stood in the new store meanwhile, but it must not be elected there: it
/// would lead twice, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_term_begins_in_the_new_store_while_work_of_the_old_one_runs() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let first = soon("a leads", regent.campaign("billing")).await.unwrap();
    let permit = first.check().unwrap();
    let home = |bench: &Bench| Home::new(&bench.url).unwrap();
    let expect = Step::Expect { from: home(&old) };
    let view = new.store.move_group(&group, expect, None).await.unwrap();
    let Door::Expected { since, .. } = view.door else { panic!("{view:?}") };
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    soon("a is told", first.lost()).await;
    until("a stands in the new store", async || {
        new.store.group(&group).await.unwrap().standbys_count == 1
    })
    .await;
    // It wants to lead again, and something still works under its old term.
    drop(first);
    let again = tokio::spawn(regent.campaign("billing").into_future());
    until("its lease is over", async || {
        let office = old.store.leader(&group, Consistency::Linearizable).await.unwrap();
        office.state == OfficeState::Vacant
    })
    .await;
    until("a does not stand any more", async || {
        new.store.group(&group).await.unwrap().standbys_count == 0
    })
    .await;
    let above = Term::new(1).unwrap();
    let arrive = Step::Arrive { since, above, heir: Some(regent.node().clone()) };
    new.store.move_group(&group, arrive, None).await.unwrap();
    let office = new.store.leader(&group, Consistency::Linearizable).await.unwrap();
    assert_eq!(office.leader, None, "work of the old term still runs");
    assert!(!again.is_finished());
    drop(permit);
    let second = soon("a leads in the new store", again).await.unwrap().unwrap();
    assert_eq!(second.term(), Term::new(2).unwrap());
}

/// A program that is told to stop and does not want to lead again leaves nobody's office behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_campaign_again_is_not_elected_where_its_group_went() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let first = soon("a leads", regent.campaign("billing")).await.unwrap();
    let home = |bench: &Bench| Home::new(&bench.url).unwrap();
    let expect = Step::Expect { from: home(&old) };
    new.store.move_group(&group, expect, None).await.unwrap();
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    soon("a is told", first.lost()).await;
    until("a stands in the new store", async || {
        new.store.group(&group).await.unwrap().standbys_count == 1
    })
    .await;
    drop(first);
    until("a stands there no more", async || {
        new.store.group(&group).await.unwrap().standbys_count == 0
    })
    .await;
}
