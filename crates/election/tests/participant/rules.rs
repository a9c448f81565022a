//! Validity and heartbeats: semantics 2, 3, 10 and 21, promises S1 and S13, one by one.

use std::time::Duration;

use regent_election::Refusal;
use regent_election::participant::{Event, Phase, Reply, Request, Trouble, Verb, Why};
use regent_election::store::HeartbeatView;

use crate::bench::{Bench, at, group, term, unavailable, uncertain};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn validity_counts_from_the_send_of_a_heartbeat_not_from_its_answer() {
    let mut bench = Bench::leading(&["a"]);
    assert_eq!(bench.check("a").unwrap().remaining, ms(9801));
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.run_to(6000);
    bench.acknowledge(attempt);
    assert_eq!(bench.check("a").unwrap().remaining, ms(4333 + 9801 - 6000));
}

/// Semantics 3 (M): the store may have opened the session at the first try.
#[test]
fn a_repeated_opening_counts_from_the_send_of_its_first_try() {
    let mut bench = Bench::new();
    bench.stand("a");
    bench.give_session();
    let first = bench.take_open();
    bench.answer(first, Err(uncertain()));
    bench.run_to(1500);
    let second = bench.take_open();
    bench.answer_open(second);
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(1));
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 1500));
}

#[test]
fn being_elected_adds_no_validity() {
    let mut bench = Bench::standing(&["a"]);
    bench.run_to(2900);
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(1));
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 2900));
}

#[test]
fn an_answer_that_outlived_its_lease_wins_nothing() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.sleep_to(4333 + 9801);
    bench.acknowledge(attempt);
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.path("a"), [Phase::Lost]);
}

/// An acknowledgement that comes after the lease in hand has ended, though within its own: the term
/// stays lost, whatever the session may still be good for.
#[test]
fn a_late_acknowledgement_does_not_revive_a_lost_term() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(10_700);
    let (attempt, _) = bench.take_heartbeat();
    bench.sleep_to(10_801);
    bench.acknowledge(attempt);
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.phase("a"), Some(Phase::Lost));
}

/// The same after a pause that skipped every warning: the acknowledgement is the first thing the
/// process hears on waking, and time is judged before it.
#[test]
fn a_pause_longer_than_the_lease_loses_the_term_whatever_was_acknowledged_meanwhile() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.sleep_to(11_000);
    bench.acknowledge(attempt);
    assert_eq!(bench.path("a"), [Phase::Lost]);
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.last_resorts, [(group("a"), term(1))]);
}

/// S13: after a pause of any length the first check whose clock read is past the end fails, though
/// nobody has told the machine that time went on.
#[test]
fn a_check_tells_the_truth_after_any_pause() {
    let bench = Bench::leading(&["a"]);
    let check = |ms| bench.machine.check(at(ms), &group("a")).is_some();
    assert!(check(1000 + 9800));
    for pause in [9801, 20_000, 86_400_000] {
        assert!(!check(1000 + pause));
    }
}

#[test]
fn a_clock_that_seems_to_run_backwards_gives_nothing_back() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(10_801);
    assert_eq!(bench.phase("a"), Some(Phase::Lost));
    assert_eq!(bench.machine.check(at(2000), &group("a")), None);
}

#[test]
fn one_heartbeat_keeps_every_group_alive() {
    let names: Vec<String> = (0..20).map(|n| format!("g{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::leading(&names);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    assert!(bench.sent.is_empty(), "and nothing else is sent: {:?}", bench.sent);
    bench.acknowledge(attempt);
    for name in names {
        assert_eq!(bench.check(name).unwrap().remaining, ms(9801));
    }
}

/// Semantics 10.
#[test]
fn heartbeats_rise_and_a_retry_takes_a_new_number() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(9000);
    let mut last = 0;
    for (_, request) in &bench.sent {
        if let Request::Heartbeat(heartbeat) = request {
            assert!(heartbeat.sequence.unwrap() > last);
            last = heartbeat.sequence.unwrap();
        }
    }
    assert!(last >= 3, "a silent store is asked again and again: {last}");
}

/// Semantics 10.
#[test]
fn only_the_newest_heartbeats_refusal_counts() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(6333);
    let (older, _) = bench.take_heartbeat();
    let (newer, _) = bench.take_heartbeat();
    bench.refuse(older, Refusal::SessionUnknown);
    assert!(bench.check("a").is_some(), "the newer one may have been heard");
    bench.refuse(newer, Refusal::SessionUnknown);
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.transitions[1].why, Why::SessionGone);
}

#[test]
fn an_older_heartbeats_acknowledgement_still_counts_from_its_own_send() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(6333);
    let (older, _) = bench.take_heartbeat();
    bench.acknowledge(older);
    assert_eq!(bench.check("a").unwrap().remaining, ms(4333 + 9801 - 6333));
}

/// Semantics 21: heartbeat: no extension.
#[test]
fn an_uncertain_heartbeat_extends_nothing() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.answer(attempt, Err(uncertain()));
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 4333));
    bench.run_to(4333 + 416);
    let (again, heartbeat) = bench.take_heartbeat();
    assert_eq!(heartbeat.sequence, Some(2), "tried again after a short pause");
    bench.acknowledge(again);
    assert_eq!(bench.check("a").unwrap().remaining, ms(9801));
}

#[test]
fn a_store_that_asks_for_patience_is_still_asked_in_time() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.answer(attempt, Err(unavailable(Some(3_600_000))));
    bench.run_to(4333 + 3333);
    bench.take_heartbeat();
}

#[test]
fn a_shorter_acknowledged_ttl_is_believed() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.run_to(9000);
    let heard = HeartbeatView { ttl_ms: 7000, ..bench.acknowledgement() };
    bench.answer(attempt, Ok(Reply::Heartbeat(heard)));
    assert_eq!(bench.check("a").unwrap().remaining, ms(4333 + 6861 - 9000));
}

/// Jeopardy, stop and loss, each at its moment and with what is left.
#[test]
fn a_leader_that_cannot_renew_is_warned_then_stopped_then_lost() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(20_000);
    let told: Vec<_> = bench.transitions.iter().map(|t| (t.to, t.why, t.remaining)).collect();
    assert_eq!(
        told,
        [
            (Phase::Jeopardy, Why::RenewalsFail, ms(9801 - 5333)),
            (Phase::Stopping, Why::LeaseNearlyOver, ms(1000)),
            (Phase::Lost, Why::LeaseOver, ms(0)),
        ]
    );
    assert_eq!(bench.stops, [(group("a"), term(1), at(1000 + 9801))]);
    assert_eq!(bench.last_resorts, [(group("a"), term(1))]);
}

#[test]
fn a_renewal_ends_jeopardy() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(6400);
    assert_eq!(bench.path("a"), [Phase::Jeopardy]);
    let (_, _) = bench.take_heartbeat();
    let (attempt, _) = bench.take_heartbeat();
    bench.acknowledge(attempt);
    assert_eq!(bench.path("a"), [Phase::Leading]);
}

#[test]
fn work_that_was_told_to_stop_is_not_told_to_go_on() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(9900);
    assert_eq!(bench.path("a"), [Phase::Jeopardy, Phase::Stopping]);
    let attempt = std::iter::from_fn(|| {
        bench.has_sent(|r| matches!(r, Request::Heartbeat(_))).then(|| bench.take_heartbeat().0)
    })
    .last()
    .unwrap();
    bench.acknowledge(attempt);
    assert_eq!(bench.phase("a"), Some(Phase::Stopping));
    assert_eq!(bench.check("a").unwrap().remaining, ms(901), "and its end does not move");
    bench.tell(Event::Stopped { group: group("a") });
    bench.take_verb(&Verb::Resign(term(1)));
    assert_eq!(bench.path("a"), [Phase::Stopped]);
}

#[test]
fn work_that_stops_in_time_needs_no_force() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(10_000);
    bench.tell(Event::Stopped { group: group("a") });
    bench.run_to(30_000);
    assert_eq!(bench.last_resorts, []);
}

#[test]
fn a_fence_that_refused_an_older_term_changes_nothing() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.tell(Event::FenceRefused { group: group("b"), term: term(1) });
    assert!(bench.check("b").is_some());
}

/// Semantics 21: retry with the same id, act on nothing.
#[test]
fn an_uncertain_campaign_is_repeated_under_the_same_id_and_acted_on_never() {
    let mut bench = Bench::standing(&["a"]);
    let (first, request) = bench.take_campaign_request(&group("a"));
    bench.answer(first, Err(uncertain()));
    assert_eq!((bench.phase("a"), bench.check("a")), (Some(Phase::Standby), None));
    bench.run_to(1300);
    let (second, again) = bench.take_campaign_request(&group("a"));
    assert_eq!(again.request, request.request);
    bench.elect(second, &group("a"), term(1));
    assert!(bench.check("a").is_some());
}

#[test]
fn a_late_yes_to_an_earlier_try_is_a_yes_and_a_late_no_is_nothing() {
    let mut bench = Bench::standing(&["a", "b"]);
    let (a, b) = (bench.take_campaign(&group("a")), bench.take_campaign(&group("b")));
    bench.run_to(4000); // the time-out, and a pause
    bench.take_campaign(&group("a"));
    let again = bench.take_campaign(&group("b"));
    bench.elect(a, &group("a"), term(1));
    assert!(bench.check("a").is_some());
    bench.refuse(b, Refusal::NobodyLeads { group: group("b") });
    bench.elect(again, &group("b"), term(2));
    assert!(bench.check("b").is_some());
}

#[test]
fn an_answer_told_twice_counts_once() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.acknowledge(attempt);
    bench.run_to(6000);
    bench.refuse(attempt, Refusal::SessionUnknown);
    assert!(bench.check("a").is_some());
}

/// S14: two processes with one session id.
#[test]
fn a_session_used_by_another_process_is_given_up() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, heartbeat) = bench.take_heartbeat();
    let given = heartbeat.sequence.unwrap();
    bench.refuse(attempt, Refusal::HeartbeatNotNewer { given, last: given });
    assert!(bench.check("a").is_some(), "our own duplicate proves nothing");
    bench.run_to(4333 + 416);
    let (attempt, heartbeat) = bench.take_heartbeat();
    let given = heartbeat.sequence.unwrap();
    bench.refuse(attempt, Refusal::HeartbeatNotNewer { given, last: given + 3 });
    assert_eq!(bench.check("a"), None);
    assert!(bench.needs_session);
    let shared = Trouble::SessionShared { given, last: given + 3 };
    assert!(bench.troubles.contains(&shared));
}
