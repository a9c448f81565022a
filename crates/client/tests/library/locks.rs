//! Locks and semaphores.

use std::time::Duration;

use regent::LockError;

use crate::bench::{Bench, leader_of, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_by_one_session_and_waited_for_in_vain_by_another() {
    let bench = Bench::start();
    let (a, b) = (bench.at("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let guard = soon("a", a.lock("report").unwrap().acquire()).await.unwrap();
    let wait = Duration::from_millis(50);
    let refused = soon("b", b.lock("report").unwrap().wait(wait).acquire()).await.unwrap_err();
    assert!(matches!(refused, LockError::TimedOut { waited, .. } if waited == wait), "{refused}");
    let term = guard.term();
    soon("released", guard.release()).await.unwrap();
    let guard = soon("b", b.lock("report").unwrap().acquire()).await.unwrap();
    // One higher, or two: the withdrawal of the first wait may have crossed with the release, and
    // then b was promoted and gave the term back.
    assert!(guard.term() > term);
}

/// Semantics 33.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taking_a_lock_again_keeps_its_term_and_the_last_guard_frees_it() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let lock = regent.lock("report").unwrap();
    let (one, other) = tokio::join!(lock.acquire(), lock.acquire());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.term(), other.term());
    drop(one);
    assert!(other.check().is_ok());
    assert_eq!(leader_of(&bench, "report").await.as_deref(), Some("a"));
    drop(other);
    let again = soon("again", lock.acquire()).await.unwrap();
    assert!(again.term().get() > 1, "a lock that was free is another term");
    drop(again);
    until("free", async || leader_of(&bench, "report").await.is_none()).await;
    assert!(soon("closed", regent.close()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_lets_in_as_many_as_it_has_places() {
    let bench = Bench::start();
    let (a, b) = (bench.at("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let (at_a, at_b) = (a.semaphore("slots", 2).unwrap(), b.semaphore("slots", 2).unwrap());
    let first = soon("first", at_a.acquire()).await.unwrap();
    let second = soon("second", at_b.acquire()).await.unwrap();
    assert_ne!(first.place(), second.place());
    let wait = Duration::from_millis(100);
    let refused = soon("third", at_a.clone().wait(wait).acquire()).await.unwrap_err();
    assert!(matches!(refused, LockError::TimedOut { .. }), "{refused}");
    let place = second.place().clone();
    soon("released", second.release()).await.unwrap();
    let third = soon("third", at_a.acquire()).await.unwrap();
    assert_eq!(*third.place(), place);
    assert!(first.check().is_ok() && third.check().is_ok());
    assert!(a.semaphore("slots", 0).is_err() && a.semaphore("slots", u32::MAX).is_err());
}
