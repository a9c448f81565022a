//! The life of the session and the pace of everything that is retried.

use regent_election::participant::{Event, Phase, Reply, Request, Trouble, Verb};
use regent_election::store::OfficeState;
use regent_election::{Refusal, SessionId};

use crate::bench::{Bench, group, node, office, term, unavailable, uncertain};

#[test]
fn a_lease_that_ran_out_abandons_its_session_for_a_fresh_one() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.run_to(10_801);
    assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Lost), Some(Phase::Lost)));
    assert_eq!(bench.take_close(), SessionId::new(1).unwrap(), "for quicker succession");
    bench.sent.clear();
    bench.give_session();
    let open = bench.take_open();
    bench.answer_open(open);
    assert!(bench.sent.is_empty(), "no campaign while the old work may run: {:?}", bench.sent);
    bench.tell(Event::Stopped { group: group("a") });
    assert_eq!(bench.phase("a"), Some(Phase::Standby));
    bench.run_to(11_100);
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(5));
    assert_eq!(bench.check("a").unwrap().term, term(5));
    assert_eq!(bench.phase("b"), Some(Phase::Lost));
}

#[test]
fn a_standby_that_hears_nothing_keeps_its_session_and_its_place() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    bench.run_to(60_000);
    assert!(!bench.needs_session);
    assert!(bench.has_sent(|request| matches!(request, Request::Heartbeat(_))));
}

#[test]
fn an_expired_session_is_replaced_and_all_groups_campaign_again() {
    let mut bench = Bench::leading(&["a"]);
    bench.stand("b");
    let campaign = bench.take_campaign(&group("b"));
    bench.stand_in_line(campaign, &group("b"));
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.refuse(attempt, Refusal::SessionUnknown);
    assert_eq!(bench.path("a"), [Phase::Lost]);
    assert!(!bench.has_sent(|r| matches!(r, Request::Close(_))), "there is nothing to close");
    bench.tell(Event::Stopped { group: group("a") });
    bench.give_session();
    bench.run_to(4600);
    let open = bench.take_open();
    bench.answer_open(open);
    bench.run_to(5000);
    bench.take_campaign(&group("a"));
    bench.take_campaign(&group("b"));
}

#[test]
fn answers_to_an_abandoned_session_mean_nothing() {
    let mut bench = Bench::standing(&["a"]);
    let old_campaign = bench.take_campaign(&group("a"));
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.refuse(attempt, Refusal::SessionUnknown);
    bench.elect(old_campaign, &group("a"), term(1));
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.phase("a"), Some(Phase::Standby));
}

/// Semantics 21: open: retry the same id.
#[test]
fn an_uncertain_opening_is_repeated_with_the_same_secret() {
    let mut bench = Bench::new();
    bench.stand("a");
    bench.give_session();
    for _ in 0..3 {
        let open = bench.take_open();
        bench.answer(open, Err(uncertain()));
        assert!(!bench.needs_session);
        bench.run_to(bench.now_ms + 1000);
    }
    let open = bench.take_open();
    bench.refuse(open, Refusal::SessionUnknown);
    assert!(bench.needs_session, "the first try had opened it, and it has ended since");
}

/// Lets time pass for one of two twins, and answers its heartbeats as a store does that has seen `last`.
fn heartbeat_to(twin: &mut Bench, ms: u64, last: &mut u64) {
    twin.run_to(ms);
    while twin.has_sent(|request| matches!(request, Request::Heartbeat(_))) {
        let (attempt, heartbeat) = twin.take_heartbeat();
        let given = heartbeat.sequence.expect("a participant numbers its heartbeats");
        if given > *last {
            *last = given;
            twin.acknowledge(attempt);
        } else {
            twin.refuse(attempt, Refusal::HeartbeatNotNewer { given, last: *last });
        }
    }
}

/// S14. Twins that take turns meet each other's numbers exactly, never a higher one, unless somebody
/// makes a leap.
#[test]
fn twins_of_one_session_never_both_go_on_leading() {
    for lag_ms in [0, 50, 400, 450, 1000, 1700, 3300] {
        let mut first = Bench::leading(&["a"]);
        let mut second = first.twin();
        let mut last = 0;
        for step in 0..2000 {
            let ms = 1000 + step * 50;
            heartbeat_to(&mut first, ms, &mut last);
            if let Some(late_ms) = ms.checked_sub(lag_ms).filter(|late_ms| *late_ms >= 1000) {
                heartbeat_to(&mut second, late_ms, &mut last);
            }
        }
        let leads = [first.check("a"), second.check("a")].map(|held| held.is_some());
        assert!(leads[0] != leads[1], "lag {lag_ms} ms: {leads:?}, last heartbeat {last}");
    }
}

/// The opening's answer came after its whole validity: the session is there, but nothing is valid
/// until a heartbeat is acknowledged.
#[test]
fn an_opening_answered_too_late_waits_for_a_heartbeat() {
    let mut bench = Bench::new();
    bench.stand("a");
    bench.give_session();
    let open = bench.take_open();
    bench.sleep_to(20_000);
    bench.answer_open(open);
    let (attempt, _) = bench.take_heartbeat();
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(1));
    assert_eq!((bench.check("a"), bench.phase("a")), (None, Some(Phase::Standby)));
    bench.acknowledge(attempt);
    assert_eq!(bench.path("a"), [Phase::Leading]);
}

#[test]
fn losing_campaigns_are_repeated_for_ever_between_100_ms_and_half_the_ttl() {
    let mut bench = Bench::standing(&["a"]);
    let mut pauses = Vec::new();
    for _ in 0..60 {
        let lost = bench.take_campaign(&group("a"));
        let (lost_at, seat) =
            (bench.now_ms, office(&group("a"), OfficeState::Leading, term(3), 20));
        bench.campaigned(lost, seat, None, false, None);
        while !bench.has_sent(|request| matches!(request, Request::Campaign(_))) {
            let next = bench.wake_at.unwrap().as_nanos().div_ceil(1_000_000);
            bench.run_to(next);
            acknowledge_heartbeats(&mut bench);
        }
        pauses.push(bench.now_ms - lost_at);
    }
    assert!(pauses[0] <= 201 && pauses[1] <= 401, "{pauses:?}");
    assert!(pauses.iter().all(|pause| (100..=5001).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause > 4000), "the ceiling is reached: {pauses:?}");
    assert!(pauses[10..].iter().any(|pause| *pause < 1500), "and the jitter is full: {pauses:?}");
}

fn acknowledge_heartbeats(bench: &mut Bench) {
    while bench.has_sent(|request| matches!(request, Request::Heartbeat(_))) {
        let (attempt, _) = bench.take_heartbeat();
        bench.acknowledge(attempt);
    }
}

#[test]
fn the_stores_retry_after_wins_and_an_absurd_one_is_bounded() {
    let mut bench = Bench::standing(&["a", "b"]);
    let lost = bench.take_campaign(&group("a"));
    let seat = office(&group("a"), OfficeState::Leading, term(3), 20);
    bench.campaigned(lost, seat, None, false, Some(777));
    bench.run_to(1776);
    assert!(!bench.has_sent(|r| matches!(r, Request::Campaign(c) if c.group == group("a"))));
    bench.run_to(1777);
    let lost = bench.take_campaign(&group("a"));
    bench.answer(lost, Err(unavailable(Some(1234))));
    bench.run_to(1777 + 1234);
    bench.take_campaign(&group("a"));

    let lost = bench.take_campaign(&group("b"));
    let seat = office(&group("b"), OfficeState::Leading, term(3), 20);
    bench.campaigned(lost, seat, None, false, Some(u64::MAX));
    let hour_ms = 3_600_000;
    assert!(bench.wake_at.unwrap().as_nanos() < (bench.now_ms + hour_ms) * 1_000_000);
    bench.sleep_to(bench.now_ms + hour_ms);
    bench.tell(Event::Tick);
    bench.take_campaign(&group("b"));
}

#[test]
fn a_refused_campaign_is_told_to_a_person_and_tried_again() {
    let mut bench = Bench::standing(&["a"]);
    let refused = bench.take_campaign(&group("a"));
    let refusal = Refusal::NotAllowed { group: group("a"), node: node("me") };
    bench.refuse(refused, refusal.clone());
    assert!(
        matches!(&bench.troubles[..], [Trouble::Store(error)] if error.to_string() == refusal.to_string())
    );
    bench.run_to(1300);
    bench.take_campaign(&group("a"));
}

#[test]
fn an_id_the_store_has_forgotten_is_replaced_by_a_fresh_one() {
    let mut bench = Bench::standing(&["a"]);
    let (first, request) = bench.take_campaign_request(&group("a"));
    let id = request.request.unwrap();
    let seen = id.seen;
    bench.refuse(first, Refusal::RequestTooOld { seen, forgotten: seen });
    bench.run_to(1300);
    let (second, request) = bench.take_campaign_request(&group("a"));
    assert_ne!(request.request.unwrap(), id);
    bench.elect(second, &group("a"), term(1));
    assert!(bench.check("a").is_some());
}

#[test]
fn many_groups_share_a_few_requests_and_a_resignation_does_not_queue() {
    let names: Vec<String> = (0..300).map(|n| format!("g{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::standing(&names);
    assert_eq!(bench.sent.len(), 32);
    let campaign = bench.take_campaign(&group("g000"));
    bench.elect(campaign, &group("g000"), term(1));
    assert_eq!(bench.sent.len(), 32, "one answered, one sent");
    bench.tell(Event::Resign { group: group("g000") });
    bench.tell(Event::Stopped { group: group("g000") });
    let campaign = bench.take_campaign(&group("g001"));
    bench.elect(campaign, &group("g001"), term(2));
    bench.take_verb(&Verb::Resign(term(1)));
    bench.run_to(4332);
    bench.sent.clear();
    bench.run_to(4333);
    bench.take_heartbeat();
}

#[test]
fn leaving_stops_gives_up_and_closes() {
    let mut bench = Bench::leading(&["a"]);
    bench.stand("b");
    let campaign = bench.take_campaign(&group("b"));
    bench.stand_in_line(campaign, &group("b"));
    bench.tell(Event::Leave);
    assert_eq!(bench.path("a"), [Phase::Stopping]);
    let withdraw = bench.take_verb(&Verb::Withdraw);
    bench.answer(withdraw, Ok(Reply::Done));
    assert_eq!(bench.path("b"), [Phase::Stopped]);
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Ok(Reply::Done));
    assert_eq!(bench.path("a"), [Phase::Stopped]);
    assert!(!bench.machine.is_done());
    bench.take_close();
    bench.run_to(bench.now_ms + 30_000);
    assert!(bench.machine.is_done(), "by then it has expired by itself");
    assert_eq!(bench.wake_at, None);
}

#[test]
fn a_thousand_groups_are_lost_together_and_given_up_by_one_message() {
    let names: Vec<String> = (0..1000).map(|n| format!("g{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::standing(&names);
    for name in &names {
        let campaign = bench.take_campaign(&group(name));
        bench.elect(campaign, &group(name), term(1));
    }
    bench.transitions.clear();
    bench.sleep_to(30_000);
    bench.tell(Event::Tick);
    assert_eq!(bench.transitions.len(), names.len());
    assert_eq!(bench.last_resorts.len(), names.len());
    let closes = bench.sent.iter().filter(|(_, r)| matches!(r, Request::Close(_))).count();
    assert_eq!(closes, 1);
}
