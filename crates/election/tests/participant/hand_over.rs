//! Hand-over: semantics 15 and 16 on the leader's side and on the standby's, one by one.

use std::time::Duration;

use regent_election::Refusal;
use regent_election::participant::{Event, Phase, Reply, Request, Trouble, Verb, Why};
use regent_election::store::{OfferView, OfficeState, StoreError};

use crate::bench::{Bench, group, node, tenure, term};

const WITHIN_MS: u64 = 20_000;

impl Bench {
    fn hand_over(&mut self, to: &str) {
        let (to, within) = (node(to), Duration::from_millis(WITHIN_MS));
        self.tell(Event::Transfer { group: group("a"), to, within });
    }

    /// The next heartbeat is answered, and its answer says that there is news.
    fn news(&mut self) {
        while !self.has_sent(|request| matches!(request, Request::Heartbeat(_))) {
            let wake_at = self.wake_at.expect("a heartbeat is due some time");
            self.run_to(wake_at.as_nanos().div_ceil(1_000_000));
        }
        let (attempt, _) = self.take_heartbeat();
        self.epoch += 1;
        self.revision += 1;
        self.acknowledge(attempt);
    }

    /// The next heartbeat brings news, and the list says this of the one tenure held.
    fn list_offer(&mut self, to: Option<&str>, is_warm: bool) {
        self.news();
        let list = self.take_list();
        let mut held = tenure("a", 1, OfficeState::Leading);
        (held.offered_to, held.is_warm) = (to.map(node), is_warm);
        let view = self.view(vec![held], &[]);
        self.answer(list, Ok(Reply::Session(view)));
    }

    /// A standby's list shows this offer, or none.
    fn list_offered(&mut self, offer: Option<(u64, bool)>) {
        let by = node("you");
        let offer = offer.map(|(number, is_warm)| {
            let (group, by) = (group("a"), by.clone());
            OfferView { group, term: term(number), by, is_warm }
        });
        self.offers = offer.into_iter().collect();
        self.news();
        let list = self.take_list();
        let view = self.view(vec![], &["a"]);
        self.answer(list, Ok(Reply::Session(view)));
    }
}

/// Semantics 15: offer while leading, wait until warm, then drain, then transfer.
#[test]
fn a_hand_over_is_offered_then_warm_then_drained_then_transferred() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    assert_eq!(bench.phase("a"), Some(Phase::Leading), "an offer stops nobody");
    bench.list_offer(Some("you"), false);
    assert_eq!(bench.phase("a"), Some(Phase::Leading), "nobody is warm");
    bench.list_offer(Some("you"), true);
    assert_eq!(bench.phase("a"), Some(Phase::Stopping));
    assert_eq!(bench.transitions[0].why, Why::HandOver);
    bench.tell(Event::Stopped { group: group("a") });
    assert_eq!(bench.check("a"), None);
    let transfer = bench.take_verb(&Verb::Transfer(term(1), node("you")));
    bench.run_to(bench.now_ms + 4000);
    let (_, heartbeat) = bench.take_heartbeat();
    assert_eq!(heartbeat.disowned, [], "disowning would let the line choose another");
    bench.answer(transfer, Ok(Reply::Done));
    assert_eq!(bench.phase("a"), Some(Phase::Standby));
}

#[test]
fn while_a_standby_gets_warm_heartbeats_ask_for_news_more_often() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    let (first, _) = bench.take_heartbeat();
    bench.acknowledge(first);
    bench.run_to(bench.now_ms + 900);
    let (second, _) = bench.take_heartbeat();
    bench.acknowledge(second);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
}

#[test]
fn a_list_asked_for_before_the_offer_says_nothing_about_it() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.hand_over("you");
    bench.epoch += 1;
    bench.acknowledge(attempt);
    let early = bench.take_list();
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    let view = bench.view(vec![tenure("a", 1, OfficeState::Leading)], &[]);
    bench.answer(early, Ok(Reply::Session(view)));
    assert_eq!(bench.troubles, [], "it was made before there was an offer to show");
    bench.list_offer(Some("you"), true);
    assert_eq!(bench.phase("a"), Some(Phase::Stopping));
}

#[test]
fn a_refused_offer_changes_nothing_and_a_refused_transfer_becomes_a_resignation() {
    let mut bench = Bench::leading(&["a"]);
    let (to, silent) =
        (node("you"), Refusal::SuccessorSilent { group: group("a"), to: node("you") });
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), to.clone()));
    bench.refuse(offer, silent.clone());
    assert_eq!((bench.phase("a"), bench.troubles.len()), (Some(Phase::Leading), 1));
    assert!(bench.sent.is_empty(), "nor is it offered again by itself");
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), to.clone()));
    bench.answer(offer, Ok(Reply::Done));
    bench.list_offer(Some("you"), true);
    bench.tell(Event::Stopped { group: group("a") });
    let transfer = bench.take_verb(&Verb::Transfer(term(1), to));
    bench.refuse(transfer, silent);
    bench.take_verb(&Verb::Resign(term(1)));
}

#[test]
fn a_standby_that_leaves_ends_the_wait_for_its_warmth() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    bench.list_offer(None, false);
    let gone = Refusal::SuccessorUnknown { group: group("a"), to: node("you") };
    assert_eq!(bench.troubles, [Trouble::Store(StoreError::Refused(gone))]);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
}

/// The application was told that it leads on, so it does: only asking again changes that.
#[test]
fn warmth_that_comes_too_late_takes_no_office() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    let until_ms = bench.now_ms + WITHIN_MS;
    while bench.now_ms < until_ms {
        bench.run_to((bench.now_ms + 500).min(until_ms));
        if bench.has_sent(|request| matches!(request, Request::Heartbeat(_))) {
            let (attempt, _) = bench.take_heartbeat();
            bench.acknowledge(attempt);
        }
    }
    assert_eq!(bench.troubles, [Trouble::NotWarm { to: node("you") }]);
    bench.list_offer(Some("you"), true);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
    bench.hand_over("you");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    bench.list_offer(Some("you"), true);
    assert_eq!(bench.phase("a"), Some(Phase::Stopping));
}

#[test]
fn an_offer_that_nobody_hears_is_given_up_in_time() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    bench.take_verb(&Verb::Offer(term(1), node("you")));
    let until_ms = bench.now_ms + WITHIN_MS;
    while bench.now_ms < until_ms {
        bench.run_to((bench.now_ms + 500).min(until_ms));
        while bench.has_sent(|request| matches!(request, Request::Heartbeat(_))) {
            let (attempt, _) = bench.take_heartbeat();
            bench.acknowledge(attempt);
        }
    }
    assert_eq!(bench.troubles, [Trouble::NotWarm { to: node("you") }]);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
}

#[test]
fn a_hand_over_that_was_asked_for_does_not_outlive_its_term() {
    let mut bench = Bench::leading(&["a"]);
    bench.hand_over("you");
    bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Ok(Reply::Done));
    bench.run_to(bench.now_ms + 6000);
    let campaign = bench.take_campaign(&group("a"));
    let (attempt, _) = bench.take_heartbeat();
    bench.acknowledge(attempt);
    bench.elect(campaign, &group("a"), term(2));
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
    assert!(!bench.has_sent(|request| matches!(request, Request::Group(_))), "nothing is offered");
}

/// Semantics 16: a better candidate is offered the office by the store; nobody is deposed.
#[test]
fn an_offer_made_by_the_store_is_carried_out_once_the_better_one_is_warm() {
    let mut bench = Bench::leading(&["a"]);
    bench.list_offer(Some("better"), false);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
    bench.list_offer(Some("better"), true);
    assert_eq!(bench.transitions[0].why, Why::HandOver);
    bench.tell(Event::Stopped { group: group("a") });
    bench.take_verb(&Verb::Transfer(term(1), node("better")));
}

#[test]
fn the_one_that_was_named_goes_before_the_one_that_the_store_prefers() {
    let mut bench = Bench::leading(&["a"]);
    bench.list_offer(Some("better"), false);
    bench.hand_over("you");
    bench.list_offer(Some("better"), true);
    assert_eq!(bench.phase("a"), Some(Phase::Leading), "somebody else was named");
    let offer = bench.take_verb(&Verb::Offer(term(1), node("you")));
    bench.answer(offer, Ok(Reply::Done));
    bench.list_offer(Some("you"), true);
    bench.tell(Event::Stopped { group: group("a") });
    bench.take_verb(&Verb::Transfer(term(1), node("you")));
}

fn standby() -> Bench {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    bench
}

#[test]
fn a_standby_hears_of_an_offer_and_says_when_it_is_warm() {
    let mut bench = standby();
    bench.tell(Event::Warm { group: group("a"), term: term(9) });
    assert!(bench.sent.is_empty(), "nobody asked");
    bench.list_offered(Some((9, false)));
    assert_eq!(bench.offered, [(group("a"), term(9), true)]);
    assert!(bench.sent.is_empty(), "the application is not warm yet");
    bench.tell(Event::Warm { group: group("a"), term: term(8) });
    assert!(bench.sent.is_empty(), "that is another office");
    bench.tell(Event::Warm { group: group("a"), term: term(9) });
    let warm = bench.take_verb(&Verb::Warm(term(9)));
    bench.answer(warm, Ok(Reply::Done));
    assert_eq!(bench.phase("a"), Some(Phase::Standby));
    bench.list_offered(Some((9, true)));
    assert!(bench.sent.is_empty(), "said once");
    bench.list_offered(Some((9, false)));
    bench.take_verb(&Verb::Warm(term(9)));
    assert_eq!(bench.offered.len(), 1, "offered anew, it needs no second warming");
}

#[test]
fn an_offer_that_is_gone_is_told_and_another_leaders_offer_is_another() {
    let mut bench = standby();
    bench.list_offered(Some((9, false)));
    bench.list_offered(None);
    bench.list_offered(Some((9, false)));
    bench.list_offered(Some((10, false)));
    let told: Vec<(u64, bool)> =
        bench.offered.iter().map(|(_, term, stands)| (term.get(), *stands)).collect();
    assert_eq!(told, [(9, true), (9, false), (9, true), (9, false), (10, true)]);
    bench.tell(Event::Warm { group: group("a"), term: term(9) });
    assert!(bench.sent.is_empty(), "the leader of term 9 asks no more");
}

/// The word that it is warm must not stand in the way of the office it is about.
#[test]
fn a_promotion_does_not_wait_for_the_answer_to_a_warm() {
    let mut bench = standby();
    bench.list_offered(Some((9, false)));
    bench.tell(Event::Warm { group: group("a"), term: term(9) });
    bench.take_verb(&Verb::Warm(term(9)));
    let (group_a, leader) = (group("a"), Some(node("me")));
    bench.tell(Event::Watched { group: group_a, term: term(10), leader });
    let accept = bench.take_verb(&Verb::Accept(term(10)));
    bench.acknowledge(accept);
    assert_eq!(bench.phase("a"), Some(Phase::Leading));
    assert_eq!(bench.offered.last(), Some(&(group("a"), term(9), false)));
}

#[test]
fn a_standby_that_leaves_says_so_whatever_became_of_its_warmth() {
    let mut bench = standby();
    bench.list_offered(Some((9, false)));
    bench.tell(Event::Warm { group: group("a"), term: term(9) });
    bench.take_verb(&Verb::Warm(term(9)));
    bench.tell(Event::Withdraw { group: group("a") });
    let withdraw = bench.take_verb(&Verb::Withdraw);
    bench.answer(withdraw, Ok(Reply::Done));
    assert_eq!(bench.phase("a"), None);
}
