//! How long elections take, as the ledger counts it.

use super::tests::{TTL_MS, apply, at, campaign, group, ledger, no, pass, secret};
use super::*;
use crate::command::Opening;
use crate::elections::{ElectionCounts, ElectionTimes};
use crate::name::{Metadata, Node};
use crate::policy::Policy;
use crate::store::OfficesView;
use crate::term::Term;

fn times(ledger: &Ledger) -> ElectionTimes {
    match ledger.read(at(0), &Query::Offices(Vec::new())).unwrap() {
        View::Offices(OfficesView { times: Some(times), .. }) => times,
        other => panic!("{other:?}"),
    }
}

/// How many there were, and how long they took together.
fn sum(counts: ElectionCounts) -> (u64, u64) {
    (counts.count(), u64::try_from(counts.sum.as_millis()).unwrap())
}

fn success(ledger: &Ledger, cause: Cause) -> (u64, u64) {
    sum(times(ledger).get(&cause).copied().unwrap_or_default().success)
}

fn failed(ledger: &Ledger, cause: Cause) -> (u64, u64) {
    sum(times(ledger).get(&cause).copied().unwrap_or_default().failed)
}

fn resign(who: u128, in_group: usize, term: u64) -> Command {
    Command::Resign { group: group(in_group), session: secret(who), term: Term::new(term).unwrap() }
}

fn accept(who: u128, in_group: usize, term: u64) -> Command {
    Command::Accept { group: group(in_group), session: secret(who), term: Term::new(term).unwrap() }
}

/// A campaign that leaves nothing behind if it loses.
fn poll(who: u128, in_group: usize) -> Command {
    let node = Node::new(&format!("n{who}")).unwrap();
    Command::Campaign {
        group: group(in_group),
        session: secret(who),
        opening: Some(Opening { node, ttl_ms: Some(TTL_MS), passing: true }),
        if_lost: IfLost::Leave,
        priority: 0,
        metadata: Metadata::NONE,
    }
}

#[test]
fn an_expiry_is_measured_from_the_deadline_to_the_acceptance_of_the_promoted_standby() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 0, campaign(1, 0));
    pass(&mut ledger, 100, 9_900);
    ledger.heartbeat(at(9_900), secret(1), None);
    // The lease of the leader is over at 10 s. The store notices at 10.4 s, and applies it at 11 s.
    for now_ms in (10_000..10_400).step_by(100) {
        ledger.turn(at(now_ms));
    }
    let due = ledger.due(at(10_400), usize::MAX);
    assert_eq!(due, [Command::Expire { sessions: vec![no(&ledger, 0)] }]);
    apply(&mut ledger, 11_000, due[0].clone());
    assert_eq!(times(&ledger).get(&Cause::Expired), None, "it is promoted, and does not know yet");
    apply(&mut ledger, 12_000, accept(1, 0, 2));
    assert_eq!(success(&ledger, Cause::Expired), (1, 2_000));
    assert_eq!(success(&ledger, Cause::Elected), (1, 0), "the first one");
}

#[test]
fn an_office_that_nobody_wants_is_no_election_however_long_it_is_vacant() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 1_000, resign(0, 0, 1));
    apply(&mut ledger, 7_007, campaign(1, 0));
    assert_eq!(success(&ledger, Cause::Resigned), (0, 0));
    assert_eq!(success(&ledger, Cause::Elected), (2, 0));
    assert_eq!(failed(&ledger, Cause::Resigned), (0, 0));
}

#[test]
fn a_campaign_that_lost_and_comes_back_wants_the_office_until_its_pause_is_over() {
    let mut ledger = ledger();
    for in_group in [0, 1] {
        apply(&mut ledger, 0, campaign(0, in_group));
        apply(&mut ledger, 500, poll(1, in_group));
        apply(&mut ledger, 1_000, resign(0, in_group, 1));
    }
    assert_eq!(failed(&ledger, Cause::Elected), (0, 0), "a campaign that loses is no election");
    apply(&mut ledger, 3_000, poll(1, 0));
    assert_eq!(success(&ledger, Cause::Resigned), (1, 2_000));
    // In the other group it stays away for longer than it was told to wait, which is half a ttl.
    apply(&mut ledger, 6_000, campaign(2, 1));
    assert_eq!(success(&ledger, Cause::Resigned), (1, 2_000));
    assert_eq!(success(&ledger, Cause::Elected), (3, 0));
}

#[test]
fn a_standby_that_does_not_accept_is_a_failed_election_and_the_next_one_counts_from_the_vacancy() {
    let mut ledger = ledger();
    for who in 0..3 {
        apply(&mut ledger, 0, campaign(who, 0));
    }
    apply(&mut ledger, 1_000, resign(0, 0, 1));
    pass(&mut ledger, 1_100, 5_000);
    let (count, took_ms) = failed(&ledger, Cause::Resigned);
    assert_eq!(count, 1);
    assert!((TTL_MS / 3..TTL_MS / 3 + 200).contains(&took_ms), "{took_ms} ms");
    apply(&mut ledger, 5_000, accept(2, 0, 3));
    assert_eq!(success(&ledger, Cause::Resigned), (1, 4_000));
}

#[test]
fn an_election_whose_last_candidate_leaves_has_failed_once() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 0, campaign(1, 0));
    apply(&mut ledger, 1_000, resign(0, 0, 1));
    apply(&mut ledger, 1_700, Command::Close { session: secret(1) });
    assert_eq!(failed(&ledger, Cause::Resigned), (1, 700));
    apply(&mut ledger, 9_000, campaign(2, 0));
    assert_eq!(success(&ledger, Cause::Elected), (2, 0));
}

#[test]
fn an_election_that_began_before_this_ledger_served_is_not_measured() {
    let mut ledger = ledger();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 0, campaign(1, 0));
    ledger.stop_serving();
    apply(&mut ledger, 1_000, resign(0, 0, 1));
    ledger.serve(at(2_000));
    apply(&mut ledger, 3_000, accept(1, 0, 2));
    assert_eq!(success(&ledger, Cause::Resigned), (0, 0));
    assert_eq!(success(&ledger, Cause::Elected), (1, 0), "the first one alone");
}

#[test]
fn a_lock_delay_is_part_of_the_election_that_waits_for_it() {
    let mut ledger = ledger();
    let policy = Policy { lock_delay_ms: 3_000, ..Policy::default() };
    let put = Command::PutPolicy { group: group(0), policy: Some(Box::new(policy)) };
    apply(&mut ledger, 0, put).answer.unwrap();
    apply(&mut ledger, 0, campaign(0, 0));
    apply(&mut ledger, 0, campaign(1, 0));
    pass(&mut ledger, 100, 9_900);
    ledger.heartbeat(at(9_900), secret(1), None);
    pass(&mut ledger, 10_000, 13_000);
    apply(&mut ledger, 13_000, accept(1, 0, 2)).answer.unwrap();
    let (count, took_ms) = success(&ledger, Cause::Expired);
    assert_eq!(count, 1);
    assert!((2_900..=3_000).contains(&took_ms), "{took_ms} ms");
}
