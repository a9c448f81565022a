//! A resource that refuses a term: the office is lost at once, whatever the lease says.

use std::time::Duration;

use regent::fencing::Pretender;
use regent::fencing::file::FencedFile;
use regent::{Phase, Why};
use regent_election::store::StepDown;
use regent_election::{FenceError, Group, Reason, Resource, Term};

use crate::bench::{Bench, leader_of, soon, until};

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_is_the_loss_of_the_office() {
    let bench = Bench::start();
    let place = tempfile::tempdir().unwrap();
    let ledger = FencedFile::at(place.path().join("ledger"));
    let regent = bench.at("a").connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let work = leadership.spawn(std::future::pending::<()>());
    let permit = leadership.check().unwrap();
    ledger.replace(&permit, b"first").unwrap();

    // Somebody else, whom this store does not know of, has a higher term and was there.
    ledger.replace(&Pretender::new(term(101)), b"second").unwrap();
    let refused = ledger.replace(&permit, b"stale").unwrap_err();
    assert_eq!(refused.to_string(), "STALE_TERM: term 1 < current 101");

    // At once: nothing was awaited since.
    let lost = leadership.check().unwrap_err();
    assert_eq!((lost.why, lost.term), (Why::FenceRefused, term(1)));
    assert_eq!((leadership.phase(), leadership.valid_for()), (Phase::Lost, Duration::ZERO));
    let stop = soon("told", leadership.lost()).await;
    assert_eq!((stop.why, stop.within), (Why::FenceRefused, Duration::ZERO));
    assert_eq!(soon("the work is stopped", work).await.unwrap(), None);
    drop((permit, leadership));
    // The store is told, too: nobody keeps the office (semantics 4).
    until("the office is vacant", async || leader_of(&bench, "billing").await.is_none()).await;
    assert_eq!(ledger.read().unwrap().unwrap(), b"second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_says_nothing_of_a_higher_term_is_no_loss() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let permit = leadership.check().unwrap();
    for why in [
        FenceError::NeverGranted,
        // Of another term, and of one that is not higher.
        FenceError::Stale { given: term(7), current: term(8) },
        FenceError::Stale { given: term(1), current: term(1) },
    ] {
        permit.refused(&why);
        leadership.refused(&why);
        assert!(leadership.check().is_ok(), "{why}");
    }
    let place = tempfile::tempdir().unwrap();
    let nowhere = FencedFile::at(place.path().join("no/such/directory"));
    assert!(nowhere.replace(&permit, b"x").unwrap_err().refusal().is_none());
    assert_eq!(leadership.phase(), Phase::Leading);
    assert!(leadership.check().is_ok());
}

/// Lost is final for that term; the next one is a term like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_refused_may_lead_again_under_a_higher_term() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let first = soon("elected", regent.campaign("billing")).await.unwrap();
    first.refused(&FenceError::Stale { given: term(1), current: term(2) });
    assert!(first.check().is_err());
    drop(first);
    let second = soon("elected again", regent.campaign("billing")).await.unwrap();
    assert!(second.term() > term(1));
    assert!(second.check().is_ok());
}

/// The token service as the library asks it: over HTTP, and of a store without a service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_that_the_store_no_longer_admits_is_lost() {
    let bench = Bench::start();
    let rows = Resource::new("db/rows").unwrap();
    for (group, is_remote) in [("billing", true), ("mail", false)] {
        let at = |node: &str| if is_remote { bench.at(node) } else { bench.over(node) };
        let a = at("a").ttl(Duration::from_secs(60)).connect().await.unwrap();
        let b = at("b").ttl(Duration::from_secs(60)).connect().await.unwrap();
        let first = soon("a leads", a.campaign(group)).await.unwrap();
        let permit = first.check().unwrap();
        soon("the store admits it", permit.admit_at(&rows)).await.unwrap();
        // Succeeded by force, a does not know yet that it is.
        let step_down = StepDown {
            group: Group::new(group).unwrap(),
            reason: Reason::default(),
            to: None,
            immediate: true,
            request: None,
        };
        bench.store.step_down(step_down).await.unwrap();
        let second = soon("b leads", b.campaign(group)).await.unwrap();
        let later = second.check().unwrap();
        soon("the store admits the next", later.admit_at(&rows)).await.unwrap();
        let refused = soon("a is refused", permit.admit_at(&rows)).await.unwrap_err();
        let told = FenceError::Stale { given: first.term(), current: second.term() };
        assert_eq!(refused.refusal(), Some(told), "{refused}");
        assert!(first.check().is_err(), "a refusal is the loss of the office");
        soon("a hears of it", first.lost()).await;
    }
}
