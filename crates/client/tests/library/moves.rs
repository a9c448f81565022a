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

/// Who can write to the old store alone points honest processes at any store on an allowed host. One that was never told
/// of a move neither hears of the group nor grants it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_follows_to_a_store_that_does_not_expect_the_group() {
    let (old, unrelated) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let first = soon("a leads", regent.campaign("billing")).await.unwrap();
    let home = Home::new(&unrelated.url).unwrap();
    old.store.move_group(&group, Step::Depart { to: home }, None).await.unwrap();
    soon("a is told", first.lost()).await;
    drop(first);
    let refused = soon("a is refused", regent.campaign("billing")).await.unwrap_err();
    assert!(refused.to_string().contains("neither expects billing"), "{refused}");
    let census = unrelated.store.census().await.unwrap();
    assert_eq!((census.groups, census.sessions), (0, 0), "it was nowhere but there to read");

    // Another group of that name, which never came from there.
    let other = unrelated.at("b").connect().await.unwrap();
    let _others = soon("b leads", other.campaign("ledger")).await.unwrap();
    let ledger = Group::new("ledger").unwrap();
    for _ in 0..2 {
        let term = soon("a leads", regent.campaign("ledger")).await.unwrap();
        soon("a resigns", term.resign()).await.unwrap();
    }
    let home = Home::new(&unrelated.url).unwrap();
    old.store.move_group(&ledger, Step::Depart { to: home }, None).await.unwrap();
    let refused = soon("a is refused", regent.campaign("ledger")).await.unwrap_err();
    assert!(refused.to_string().contains("term 2 or above"), "{refused}");
}

/// It was moved while nobody was here, and is led there already: the term shows that it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_has_arrived_before_is_followed() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let term = soon("a leads", regent.campaign("billing")).await.unwrap();
    soon("a resigns", term.resign()).await.unwrap();
    let home = |bench: &Bench| Home::new(&bench.url).unwrap();
    let expect = Step::Expect { from: home(&old) };
    let view = new.store.move_group(&group, expect, None).await.unwrap();
    let Door::Expected { since, .. } = view.door else { panic!("{view:?}") };
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    let arrive = Step::Arrive { since, above: Term::new(1).unwrap(), heir: None };
    new.store.move_group(&group, arrive, None).await.unwrap();
    let second = soon("a leads in the new store", regent.campaign("billing")).await.unwrap();
    assert_eq!(second.term(), Term::new(2).unwrap());
}

/// The name of a server's store in moves.
fn home(bench: &Bench) -> Home {
    Home::new(&bench.url).unwrap()
}

/// Takes a group in from a store that it is said to come from.
async fn receive(bench: &Bench, group: &Group, from: &Home, above: u64) {
    let expect = Step::Expect { from: from.clone() };
    let view = bench.store.move_group(group, expect, None).await.unwrap();
    let Door::Expected { since, .. } = view.door else { panic!("{view:?}") };
    let arrive = Step::Arrive { since, above: Term::new(above).unwrap(), heir: None };
    bench.store.move_group(group, arrive, None).await.unwrap();
}

/// The departure named a store that does not exist, and was put right: who waits for the wrong one goes to the right one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_departure_that_is_put_right_is_followed_by_who_waits_for_a_dead_store() {
    let (old, new) = (Bench::start(), Bench::start());
    let dead = Home::new("http://127.0.0.1:1").unwrap();
    for (name, is_brought_back) in [("billing", true), ("ledger", false)] {
        let group = Group::new(name).unwrap();
        let regent = old.at(name).ttl(Duration::from_secs(2)).connect().await.unwrap();
        let depart = Step::Depart { to: dead.clone() };
        old.store.move_group(&group, depart, None).await.unwrap();
        let waits = tokio::spawn(regent.campaign(name).into_future());
        // Longer than one look at the new store takes.
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(!waits.is_finished());
        receive(&old, &group, &dead, 1).await;
        if !is_brought_back {
            // A moment later, so that it goes to where the second departure says.
            let expect = Step::Expect { from: home(&old) };
            new.store.move_group(&group, expect, None).await.unwrap();
            let depart = Step::Depart { to: home(&new) };
            old.store.move_group(&group, depart, None).await.unwrap();
            let view = new.store.group(&group).await.unwrap();
            let Door::Expected { since, .. } = view.door else { panic!("{view:?}") };
            let above = old.store.leader(&group, Consistency::Linearizable).await.unwrap().term;
            let arrive = Step::Arrive { since, above, heir: None };
            new.store.move_group(&group, arrive, None).await.unwrap();
        }
        let term = soon("it leads where the group is", waits).await.unwrap().unwrap();
        assert!(term.term() >= Term::new(2).unwrap());
        let lives_at = if is_brought_back { &old } else { &new };
        until("it leads there", async || {
            let office = lives_at.store.leader(&group, Consistency::Linearizable).await.unwrap();
            office.leader.as_ref() == Some(regent.node())
        })
        .await;
    }
}

/// The store that it followed to is gone for good, and an operator brought the group back to where it came from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_followed_to_a_store_that_is_gone_returns_when_its_group_was_brought_back() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    let regent = old.at("a").ttl(Duration::from_secs(1)).connect().await.unwrap();
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    receive(&new, &group, &home(&old), 1).await;
    let first = soon("a leads in the new store", regent.campaign("billing")).await.unwrap();
    assert_eq!(first.term(), Term::new(2).unwrap());
    let gone = home(&new);
    drop(new);
    soon("a loses its lease", first.lost()).await;
    drop(first);
    let again = tokio::spawn(regent.campaign("billing").into_future());
    receive(&old, &group, &gone, 2).await;
    let second = soon("a leads where the group is again", again).await.unwrap().unwrap();
    assert_eq!(second.term(), Term::new(3).unwrap());
}

/// A restored store has leapt ahead with its terms, also those of groups that had moved away. The new store shows where
/// the group came from, and that is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_a_restored_store_is_followed_to_where_it_went() {
    let (old, new) = (Bench::start(), Bench::start());
    let group = Group::new("billing").unwrap();
    // As a restore leaves it: moved, at a term that the new store never heard of.
    receive(&old, &group, &Home::new("http://elsewhere.example:1").unwrap(), 1 << 32).await;
    old.store.move_group(&group, Step::Depart { to: home(&new) }, None).await.unwrap();
    receive(&new, &group, &home(&old), 1).await;
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let term = soon("a leads in the new store", regent.campaign("billing")).await.unwrap();
    assert_eq!(term.term(), Term::new(2).unwrap());
}

/// A group of the same name in another store, at whatever term, is another group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_follows_to_a_group_of_the_same_name_that_did_not_come_from_here() {
    let (old, foreign) = (Bench::start(), Bench::start());
    let regent = old.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let other = foreign.at("b").connect().await.unwrap();
    for _ in 0..3 {
        let term = soon("b leads", other.campaign("ledger")).await.unwrap();
        soon("b resigns", term.resign()).await.unwrap();
    }
    let elsewhere = Home::new("http://127.0.0.1:2").unwrap();
    let expect = Step::Expect { from: elsewhere };
    let expected = Group::new("expected").unwrap();
    foreign.store.move_group(&expected, expect, None).await.unwrap();
    for name in ["ledger", "expected"] {
        let group = Group::new(name).unwrap();
        let depart = Step::Depart { to: home(&foreign) };
        old.store.move_group(&group, depart, None).await.unwrap();
        let refused = soon("a is refused", regent.campaign(name)).await.unwrap_err();
        assert!(refused.to_string().contains("neither expects"), "{refused}");
    }
}
