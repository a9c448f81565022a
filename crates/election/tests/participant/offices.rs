//! Leaving office: resignation, ill health, withdrawal; and what a watch may hint at.

use std::time::Duration;

use regent_election::access::{CredentialFlaw, Right};
use regent_election::participant::{Event, Phase, Reply, Request, Trouble, Verb, Why};
use regent_election::store::OfficeState;
use regent_election::{Metadata, Refusal};

use crate::bench::{Bench, at, group, node, tenure, term, uncertain};

/// Semantics 14: validity ends the moment the resignation is sent, whatever the answer.
#[test]
fn a_resignation_ends_validity_when_it_is_sent() {
    let mut bench = Bench::leading(&["a"]);
    bench.tell(Event::Resign { group: group("a") });
    assert!(bench.check("a").is_some(), "the work is still stopping");
    assert_eq!(bench.stops, [(group("a"), term(1), at(1000 + 9801))]);
    assert!(bench.sent.is_empty(), "nothing is given up before the work has ended");
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    assert_eq!(bench.check("a"), None);
    bench.answer(resign, Err(uncertain()));
    assert_eq!(bench.check("a"), None);
    bench.run_to(1300);
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Ok(Reply::Done));
    assert_eq!(bench.path("a"), [Phase::Stopping, Phase::Stopped, Phase::Standby]);
    bench.run_to(6400);
    bench.take_campaign(&group("a"));
}

#[test]
fn renewals_do_not_prolong_a_stop() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.tell(Event::Resign { group: group("a") });
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.acknowledge(attempt);
    bench.run_to(10_801);
    assert_eq!(bench.path("a"), [Phase::Stopping, Phase::Lost]);
    assert_eq!(bench.last_resorts, [(group("a"), term(1))]);
    assert!(bench.check("b").is_some(), "the session lives on");
    bench.take_verb(&Verb::Resign(term(1)));
}

#[test]
fn work_that_ends_by_itself_gives_the_office_up() {
    let mut bench = Bench::leading(&["a"]);
    bench.tell(Event::Stopped { group: group("a") });
    assert_eq!(bench.transitions[0].why, Why::WorkEnded);
    bench.take_verb(&Verb::Resign(term(1)));
    assert_eq!(bench.stops, []);
}

#[test]
fn giving_up_what_one_does_not_hold_is_said_so() {
    let mut bench = Bench::standing(&["a"]);
    bench.tell(Event::Resign { group: group("a") });
    let (to, within) = (node("you"), Duration::from_secs(30));
    bench.tell(Event::Transfer { group: group("a"), to, within });
    bench.tell(Event::Resign { group: group("nowhere") });
    assert_eq!(bench.troubles, vec![Trouble::NotLeading; 3]);
}

#[test]
fn an_unhealthy_leader_stops_then_resigns_and_stands_again_when_well() {
    let mut bench = Bench::leading(&["a"]);
    bench.stand("b");
    let campaign = bench.take_campaign(&group("b"));
    bench.stand_in_line(campaign, &group("b"));
    bench.tell(Event::Unhealthy);
    assert_eq!(bench.transitions[0].why, Why::Unhealthy);
    let withdraw = bench.take_verb(&Verb::Withdraw);
    bench.answer(withdraw, Ok(Reply::Done));
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Ok(Reply::Done));
    bench.run_to(60_000);
    assert!(!bench.has_sent(|request| matches!(request, Request::Campaign(_))));
    bench.tell(Event::Healthy);
    bench.take_campaign(&group("a"));
    bench.take_campaign(&group("b"));
}

/// Whoever took the right or the token away wants it to stop now, and not when its lease is over.
#[test]
fn a_leader_whose_right_was_withdrawn_stops_at_its_next_heartbeat_and_resigns() {
    let denied = Refusal::Denied { right: Right::Stand, group: None, why: "no binding".into() };
    let revoked = Refusal::CredentialOver { flaw: CredentialFlaw::Revoked };
    for refusal in [denied, revoked] {
        let mut bench = Bench::leading(&["a", "b"]);
        bench.run_to(4333);
        let (attempt, _) = bench.take_heartbeat();
        bench.refuse(attempt, refusal);
        for (name, number) in [("a", 1), ("b", 2)] {
            let told = bench.transitions.iter().find(|it| it.group == group(name)).unwrap();
            assert_eq!((told.to, told.why), (Phase::Stopping, Why::AccessLost));
            assert!(bench.check(name).is_some(), "it has the rest of its lease to stop");
            bench.tell(Event::Stopped { group: group(name) });
            let resign = bench.take_verb(&Verb::Resign(term(number)));
            bench.answer(resign, Ok(Reply::Done));
        }
    }
}

/// Its bearer may be about to show the next one.
#[test]
fn a_leader_whose_credential_is_past_its_date_leads_on_while_its_lease_lasts() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.refuse(attempt, Refusal::CredentialOver { flaw: CredentialFlaw::Expired });
    assert!(bench.transitions.iter().all(|told| told.to != Phase::Stopping));
    bench.run_to(5000);
    let (attempt, _) = bench.take_heartbeat();
    bench.acknowledge(attempt);
    bench.run_to(5001);
    assert!(bench.check("a").is_some_and(|proof| proof.remaining > Duration::from_secs(8)));
}

#[test]
fn an_unhealthy_process_declines_what_it_wins() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.tell(Event::Unhealthy);
    bench.elect(campaign, &group("a"), term(4));
    assert_eq!(bench.check("a"), None);
    bench.take_verb(&Verb::Resign(term(4)));
}

/// A campaign and a withdrawal that overtake each other would leave an office held by nobody: the
/// campaign's outcome is learnt first.
#[test]
fn a_withdrawal_waits_for_the_outcome_of_the_campaign_before_it() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.tell(Event::Withdraw { group: group("a") });
    bench.answer(campaign, Err(uncertain()));
    assert!(bench.sent.is_empty());
    bench.run_to(1300);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    let withdraw = bench.take_verb(&Verb::Withdraw);
    bench.answer(withdraw, Ok(Reply::Done));
    assert_eq!(bench.phase("a"), None);
}

#[test]
fn a_withdrawal_before_anything_was_sent_sends_nothing() {
    let mut bench = Bench::new();
    bench.stand("a");
    bench.tell(Event::Withdraw { group: group("a") });
    assert_eq!(bench.path("a"), [Phase::Stopped]);
    bench.needs_session = false;
    bench.run_to(60_000);
    assert!(bench.sent.is_empty() && bench.machine.is_done());
}

#[test]
fn standing_again_with_another_priority_campaigns_again() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    bench.tell(Event::Stand { group: group("a"), priority: 5, metadata: Metadata::NONE });
    let (_, request) = bench.take_campaign_request(&group("a"));
    assert_eq!(request.priority, 5);
}

#[test]
fn a_higher_term_seen_by_a_watch_is_believed() {
    let mut bench = Bench::leading(&["a"]);
    let seen = |number, leader| Event::Watched { group: group("a"), term: term(number), leader };
    bench.tell(seen(1, Some(node("me"))));
    assert!(bench.check("a").is_some());
    bench.tell(seen(2, Some(node("you"))));
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.transitions[0].why, Why::Superseded);
}

#[test]
fn a_vacancy_of_its_own_term_seen_by_a_watch_is_believed() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.tell(Event::Watched { group: group("b"), term: term(1), leader: None });
    assert!(bench.check("b").is_some(), "an older vacancy is history");
    bench.tell(Event::Watched { group: group("b"), term: term(2), leader: None });
    assert_eq!(bench.check("b"), None);
}

/// A node name is a label: the acceptance proves whose promotion it was.
#[test]
fn a_promotion_seen_by_a_watch_is_asked_for_and_not_acted_on() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    let promoted = Event::Watched { group: group("a"), term: term(3), leader: Some(node("me")) };
    bench.tell(promoted);
    assert_eq!(bench.check("a"), None);
    let accept = bench.take_verb(&Verb::Accept(term(3)));
    let (group_a, leader) = (group("a"), Some(node("me")));
    bench.refuse(
        accept,
        Refusal::NotLeader { group: group_a, given: term(3), term: term(3), leader },
    );
    assert_eq!(bench.check("a"), None);
    bench.run_to(1300);
    bench.take_campaign(&group("a"));
}

#[test]
fn a_vacancy_seen_by_a_watch_brings_the_next_campaign_forward() {
    let mut bench = Bench::standing(&["a"]);
    let lost = bench.take_campaign(&group("a"));
    let seat = crate::bench::office(&group("a"), OfficeState::Leading, term(3), 20);
    bench.campaigned(lost, seat, None, false, Some(60_000));
    bench.tell(Event::Watched { group: group("a"), term: term(3), leader: None });
    bench.run_to(1101);
    bench.take_campaign(&group("a"));
}

/// An office under our session in a group we know nothing of: nobody would fill it.
#[test]
fn an_office_nobody_here_asked_for_is_disowned() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.epoch = 1;
    bench.acknowledge(attempt);
    let list = bench.take_list();
    let ghost = tenure("ghost", 6, OfficeState::Leading);
    let view = bench.view(vec![tenure("a", 1, OfficeState::Leading), ghost], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    bench.run_to(8000);
    assert_eq!(bench.take_heartbeat().1.disowned, [(group("ghost"), term(6))]);
}

/// The heartbeat that disowns an office ends it at the store. Whoever stands there again meanwhile
/// must not lead on what is being given back: the next leader begins when the store hears of it.
#[test]
fn an_office_that_is_being_disowned_is_not_taken_by_standing_again() {
    let ghost = group("ghost");
    for is_late in [false, true] {
        let mut bench = Bench::leading(&["a"]);
        bench.run_to(4333);
        let (attempt, _) = bench.take_heartbeat();
        bench.epoch = 1;
        bench.acknowledge(attempt);
        let list = bench.take_list();
        let held = tenure("a", 1, OfficeState::Leading);
        let view = bench.view(vec![held, tenure("ghost", 6, OfficeState::Leading)], &[]);
        bench.answer(list, Ok(Reply::Session(view)));
        bench.stand("ghost");
        let campaign = bench.take_campaign(&ghost);
        if is_late {
            // The store answers the campaign first, but its answer comes after the heartbeat's.
            bench.run_to(7666);
            let (attempt, heartbeat) = bench.take_heartbeat();
            assert_eq!(heartbeat.disowned, [(ghost.clone(), term(6))]);
            bench.acknowledge(attempt);
        }
        bench.elect(campaign, &ghost, term(6));
        assert_eq!(bench.check("ghost"), None, "late: {is_late}");
        let resign = bench.take_verb(&Verb::Resign(term(6)));
        bench.answer(resign, Ok(Reply::Done));
        bench.sent.clear();
        bench.run_to(9000);
        let campaign = bench.take_campaign(&ghost);
        bench.elect(campaign, &ghost, term(7));
        assert_eq!(bench.check("ghost").map(|held| held.term), Some(term(7)));
    }
}
