//! Who is due, and when: only what was watched counts.

use std::time::Duration;

use proptest::prelude::*;
use regent_election::{Moment, Node};

use crate::lease::mutant::{Mutant, plant};
use crate::lease::observed::{Liveness, ObservedSessions};
use crate::lease::session::SessionRecord;
use crate::register::Version;

const TTL_MS: u64 = 1000;
const DRIFT_PPM: u32 = 10_000;

fn session(nonce: u128) -> SessionRecord {
    SessionRecord::open(nonce, Node::new("a").unwrap(), TTL_MS, false)
}

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

#[test]
fn a_newcomer_watches_a_whole_ttl_before_it_judges() {
    let mut observed = ObservedSessions::new(DRIFT_PPM, false);
    assert_eq!(observed.verdict(7, at(0)), Liveness::Unseen);
    let (record, version) = (session(1), Version::from(1));
    observed.see(7, Some((&record, &version)), at(100));
    observed.see(7, Some((&record, &version)), at(900));
    assert!(matches!(observed.verdict(7, at(600)), Liveness::Audible { .. }));
    assert!(matches!(observed.verdict(7, at(606)), Liveness::Silent { .. }));
    assert!(matches!(observed.verdict(7, at(1109)), Liveness::Silent { .. }));
    assert_eq!(observed.verdict(7, at(1110)), Liveness::Due { version });
    plant(Some(Mutant::StealsAtOnce));
    assert!(matches!(observed.verdict(7, at(101)), Liveness::Due { .. }));
    plant(None);
}

#[test]
fn what_others_write_is_no_sign_of_life() {
    let mut observed = ObservedSessions::new(DRIFT_PPM, false);
    let record = session(1);
    observed.see(7, Some((&record, &Version::from(1))), at(0));
    let told = SessionRecord { nonce: 2, ..record };
    observed.see(7, Some((&told, &Version::from(2))), at(900));
    assert_eq!(observed.verdict(7, at(1010)), Liveness::Due { version: Version::from(2) });
    observed.see(7, Some((&session(3), &Version::from(3))), at(1011));
    assert!(matches!(observed.verdict(7, at(1012)), Liveness::Audible { .. }));
}

#[test]
fn the_ended_have_ended_and_the_absent_may_come() {
    let mut observed = ObservedSessions::new(DRIFT_PPM, false);
    observed.see(7, Some((&SessionRecord::ended(1, Vec::new()), &Version::from(1))), at(0));
    observed.see(8, None, at(0));
    assert_eq!(observed.verdict(7, at(1)), Liveness::Ended);
    assert_eq!(observed.verdict(8, at(1)), Liveness::Unseen);
}

#[test]
fn a_session_that_the_server_times_is_asked_about_again_however_short_the_rests_are() {
    let mut observed = ObservedSessions::new(DRIFT_PPM, true);
    let (record, version) = (session(1), Version::from(1));
    observed.see(7, Some((&record, &version)), at(0));
    for now in (0..TTL_MS).step_by(50) {
        let ask_at = at(TTL_MS);
        let expected = Liveness::Audible { silent_at: ask_at, due_at: ask_at };
        assert_eq!(observed.verdict(7, at(now)), expected, "at {now}");
    }
    assert_eq!(observed.verdict(7, at(TTL_MS)), Liveness::Unseen);
    observed.see(7, Some((&record, &version)), at(TTL_MS));
    assert!(matches!(observed.verdict(7, at(TTL_MS)), Liveness::Audible { .. }));
    observed.miss(7);
    assert_eq!(observed.verdict(7, at(TTL_MS)), Liveness::Due { version });
}

proptest! {
    /// Whenever the looks and the heartbeats were, nobody is due within a ttl of the last heartbeat.
    #[test]
    fn nobody_is_due_within_a_ttl_of_a_heartbeat(
        heartbeats in proptest::collection::vec(0u64..5000, 1..12),
        looks in proptest::collection::vec(0u64..8000, 1..40),
        ahead_ppm in 0u64..10_000,
    ) {
        let (mut heartbeats, mut looks) = (heartbeats, looks);
        heartbeats.sort_unstable();
        looks.sort_unstable();
        let mut observed = ObservedSessions::new(DRIFT_PPM, false);
        for look in looks {
            let heard = heartbeats.iter().rposition(|heartbeat| *heartbeat <= look);
            let Some(heard) = heard else { continue };
            // The watcher's clock runs fast.
            let now = at(0) + Duration::from_micros(look * (1_000_000 + ahead_ppm) / 1000);
            let record = session(heard as u128 + 1);
            observed.see(7, Some((&record, &Version::from(heard as u64))), now);
            if look < heartbeats[heard] + TTL_MS {
                prop_assert!(!matches!(observed.verdict(7, now), Liveness::Due { .. }), "at {look}");
            }
        }
    }
}
