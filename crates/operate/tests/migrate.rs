//! Moves between two stores of this process, with no server and no other process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent::Regent;
use regent_election::store::{Store, StoreError};
use regent_election::{Door, Group, Home, Refusal, Step, Term};
use regent_operate::migrate::{
    MigrateError, MigrateOptions, MigrateProgress, Mover, Reached, Side,
};
use regent_stores::MemoryStore;

type Told = Arc<Mutex<Vec<MigrateProgress>>>;

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().unwrap())
}

fn home(name: &str) -> Home {
    Home::new(&format!("memory:{name}")).unwrap()
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

/// A mover between two stores, and what it reports.
fn mover(from: (&Arc<dyn Store>, &str), to: (&Arc<dyn Store>, &str)) -> (Mover, Told) {
    let side = |(store, name): (&Arc<dyn Store>, &str)| Side::over(Arc::clone(store), home(name));
    let told = Told::default();
    let report = {
        let told = Arc::clone(&told);
        move |progress| told.lock().unwrap().push(progress)
    };
    let options =
        MigrateOptions { heir_wait: Duration::from_millis(50), ..MigrateOptions::default() };
    (Mover::new(side(from), side(to), options, report).unwrap(), told)
}

fn stopped_at(error: MigrateError) -> Reached {
    match error {
        MigrateError::Stopped(stopped) => stopped.reached,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_led_group_arrives_above_its_old_term_and_the_same_call_again_changes_nothing() {
    let (old, new) = (store(), store());
    let regent = Regent::over(Arc::clone(&old)).node("a").follow(false).connect().await.unwrap();
    let leadership = regent.campaign("billing").await.unwrap();
    let stops = tokio::spawn(async move {
        leadership.lost().await;
        drop(leadership);
    });
    let (mover, told) = mover((&old, "old"), (&new, "new"));
    mover.compare_levels().await.unwrap();
    let moved = mover.migrate(&group()).await.unwrap();
    assert_eq!((moved.last_term, moved.led_by.as_deref()), (1, Some("a")));
    stops.await.unwrap();
    let told = told.lock().unwrap().split_off(0);
    let [MigrateProgress::LeaderToldToStop { leader, .. }, MigrateProgress::HeirAbsent { .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(leader.as_str(), "a");
    let there = Regent::over(Arc::clone(&new)).node("b").connect().await.unwrap();
    let next = there.campaign("billing").await.unwrap();
    assert_eq!(next.term(), Term::new(2).unwrap());
    assert_eq!(old.group(&group()).await.unwrap().door, Door::Moved { to: home("new") });

    let again = mover.migrate(&group()).await.unwrap();
    assert_eq!((again.last_term, again.term, again.leader.as_deref()), (1, 2, Some("b")));
    assert!(next.check().is_ok());
}

#[tokio::test]
async fn a_move_that_was_begun_elsewhere_is_refused_and_the_opposite_one_turns_it_round() {
    let (old, new) = (store(), store());
    let depart = Step::Depart { to: home("elsewhere") };
    old.move_group(&group(), depart, None).await.unwrap();
    let (away, _) = mover((&old, "old"), (&new, "new"));
    assert_eq!(stopped_at(away.migrate(&group()).await.unwrap_err()), Reached::Nothing);

    // Expected in the new store, and then called off before it left the old one.
    let other = Group::new("mail").unwrap();
    new.move_group(&other, Step::Expect { from: home("old") }, None).await.unwrap();
    let (back, told) = mover((&new, "new"), (&old, "old"));
    old.put_policy(&other, None, None).await.unwrap();
    back.migrate(&other).await.unwrap();
    assert!(matches!(told.lock().unwrap()[..], [MigrateProgress::NotLeftYet { .. }]));
    assert_eq!(old.group(&other).await.unwrap().door, Door::Open);
    assert_eq!(new.group(&other).await.unwrap().door, Door::Moved { to: home("old") });
}

#[tokio::test]
async fn a_group_that_is_stopped_for_recovery_does_not_move() {
    let (old, new) = (store(), store());
    old.move_group(&group(), Step::Stop, None).await.unwrap();
    let (away, _) = mover((&old, "old"), (&new, "new"));
    assert_eq!(stopped_at(away.migrate(&group()).await.unwrap_err()), Reached::Nothing);
    assert!(away.close(&group()).await.is_err());
    let (here, _) = mover((&new, "new"), (&old, "old"));
    assert_eq!(stopped_at(here.migrate(&group()).await.unwrap_err()), Reached::Nothing);
    assert!(matches!(old.group(&group()).await.unwrap().door, Door::Stopped { .. }));
}

#[tokio::test]
async fn two_names_of_one_store_are_found_out_and_nothing_is_changed() {
    let one = store();
    for known_as in [None, Some(home("as-others-write-it"))] {
        let options = MigrateOptions { known_as, ..MigrateOptions::default() };
        let side = |name| Side::over(Arc::clone(&one), home(name));
        let mover = Mover::new(side("here"), side("also-here"), options, |_| {}).unwrap();
        let error = mover.migrate(&group()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "--from and --to are two names of the same store; nothing was changed"
        );
        assert_eq!(stopped_at(error), Reached::Nothing);
        let shown = one.group(&group()).await;
        assert!(
            matches!(shown, Err(StoreError::Refused(Refusal::GroupUnknown { .. }))),
            "{shown:?}"
        );
    }
    let side = || Side::over(Arc::clone(&one), home("here"));
    let same = Mover::new(side(), side(), MigrateOptions::default(), |_| {});
    assert!(matches!(same, Err(MigrateError::SameStore)));
}
