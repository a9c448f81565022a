//! News: lists, endings, promotions, and terms that are lost for good (semantics 4, 11, 12).

use std::time::Duration;

use regent_election::Metadata;
use regent_election::participant::{Event, Phase, Reply, Request, Verb, Why};
use regent_election::store::OfficeState;

use crate::bench::{Bench, at, group, node, office, tenure, term, uncertain};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Semantics 11 (M): an acknowledgement with an epoch that has not been processed extends nothing.
#[test]
fn news_extends_nothing_until_the_list_is_read() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.epoch = 1;
    bench.acknowledge(attempt);
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 4333));
    let list = bench.take_list();
    bench.now_ms = 5000;
    let view = bench.view(vec![tenure("a", 1, OfficeState::Leading)], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    assert_eq!(bench.check("a").unwrap().remaining, ms(4333 + 9801 - 5000));
}

#[test]
fn a_list_older_than_the_news_is_read_again() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    let stale = bench.view(vec![tenure("a", 1, OfficeState::Leading)], &[]);
    bench.epoch = 1;
    bench.acknowledge(attempt);
    let list = bench.take_list();
    bench.answer(list, Ok(Reply::Session(stale)));
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 4333), "nothing extended");
    bench.run_to(4333 + 416);
    let list = bench.take_list();
    let view = bench.view(vec![tenure("a", 1, OfficeState::Leading)], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    assert_eq!(bench.check("a").unwrap().remaining, ms(9801 - 416));
}

/// Semantics 11: the tenure that is ending stops and is confirmed; the others are extended.
#[test]
fn an_ending_tenure_is_stopped_and_confirmed_and_never_extended() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.epoch = 1;
    bench.acknowledge(attempt);
    let list = bench.take_list();
    let ending = tenure("a", 1, OfficeState::Ending);
    let view = bench.view(vec![ending, tenure("b", 2, OfficeState::Leading)], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 4333));
    assert_eq!(bench.check("b").unwrap().remaining, ms(9801));
    assert_eq!((bench.path("a"), bench.path("b")), (vec![Phase::Stopping], vec![]));
    assert_eq!(bench.stops, [(group("a"), term(1), at(1000 + 9801))]);
    assert!(!bench.has_sent(|r| matches!(r, Request::Group(_))), "confirmed only when stopped");
    bench.tell(Event::Stopped { group: group("a") });
    bench.take_verb(&Verb::Resign(term(1)));
    assert_eq!(bench.check("a"), None);
}

#[test]
fn a_tenure_that_is_gone_from_the_list_is_lost() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    (bench.epoch, bench.revision) = (1, 50);
    bench.acknowledge(attempt);
    let list = bench.take_list();
    let view = bench.view(vec![], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    assert_eq!(bench.check("a"), None);
    assert_eq!(bench.transitions[0].why, Why::TenureGone);
    assert_eq!(bench.stops, [(group("a"), term(1), at(4333 + 1000))], "at once, with a grace");
    bench.run_to(5333);
    assert_eq!(bench.last_resorts, [(group("a"), term(1))]);
}

#[test]
fn a_list_made_before_the_election_proves_nothing_about_it() {
    let mut bench = Bench::standing(&["a", "b"]);
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    bench.epoch = 1;
    bench.acknowledge(attempt);
    let list = bench.take_list();
    let view = bench.view(vec![], &[]);
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(1));
    bench.answer(list, Ok(Reply::Session(view)));
    assert!(bench.check("a").is_some());
}

/// Semantics 12: accept first, act only after the acceptance is acknowledged.
#[test]
fn a_promoted_standby_acts_only_after_its_acceptance_is_acknowledged() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    bench.run_to(4333);
    let (attempt, _) = bench.take_heartbeat();
    (bench.epoch, bench.revision) = (1, 50);
    bench.acknowledge(attempt);
    let list = bench.take_list();
    let view = bench.view(vec![tenure("a", 7, OfficeState::Elected)], &[]);
    bench.answer(list, Ok(Reply::Session(view)));
    assert_eq!(bench.check("a"), None);
    let accept = bench.take_verb(&Verb::Accept(term(7)));
    bench.answer(accept, Err(uncertain()));
    assert_eq!(bench.check("a"), None, "perhaps is not yes");
    bench.run_to(4600);
    let accept = bench.take_verb(&Verb::Accept(term(7)));
    bench.acknowledge(accept);
    assert_eq!(bench.check("a").unwrap().term, term(7));
}

#[test]
fn accepting_adds_no_validity() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    bench.stand_in_line(campaign, &group("a"));
    bench.run_to(4000);
    let (group_a, leader) = (group("a"), Some(node("me")));
    bench.tell(Event::Watched { group: group_a, term: term(7), leader });
    let accept = bench.take_verb(&Verb::Accept(term(7)));
    bench.acknowledge(accept);
    assert_eq!(bench.check("a").unwrap().remaining, ms(1000 + 9801 - 4000));
}

/// The campaign of a session that was promoted meanwhile is answered `elected`, but the office waits
/// for its acceptance and may be passed on.
#[test]
fn a_campaign_that_finds_itself_promoted_accepts_before_it_acts() {
    let mut bench = Bench::standing(&["a"]);
    let campaign = bench.take_campaign(&group("a"));
    let seat = office(&group("a"), OfficeState::Elected, term(7), 20);
    bench.campaigned(campaign, seat, Some(term(7)), false, None);
    assert_eq!(bench.check("a"), None);
    let accept = bench.take_verb(&Verb::Accept(term(7)));
    bench.revision = 21;
    bench.acknowledge(accept);
    assert_eq!(bench.check("a").unwrap().term, term(7));
}

/// The campaign won at revision 11, the tenure was ended at 12, the list that says so was read at
/// 13, and the campaign's answer comes last: it must not lead under an epoch it has processed.
#[test]
fn an_answer_made_before_the_list_does_not_overrule_it() {
    for (listed, verb) in
        [(Some(tenure("a", 1, OfficeState::Ending)), Some(Verb::Resign(term(1)))), (None, None)]
    {
        let mut bench = Bench::standing(&["a"]);
        let campaign = bench.take_campaign(&group("a"));
        bench.run_to(2900);
        bench.tell(Event::Stand { group: group("b"), priority: 0, metadata: Metadata::NONE });
        bench.run_to(4333);
        let (attempt, _) = bench.take_heartbeat();
        (bench.epoch, bench.revision) = (1, 13);
        bench.acknowledge(attempt);
        let list = bench.take_list();
        let view = bench.view(listed.into_iter().collect(), &[]);
        bench.answer(list, Ok(Reply::Session(view)));
        let seat = office(&group("a"), OfficeState::Leading, term(1), 11);
        bench.campaigned(campaign, seat, Some(term(1)), false, None);
        assert_eq!(bench.check("a"), None);
        assert_eq!(bench.phase("a"), Some(Phase::Standby));
        if let Some(verb) = verb {
            bench.take_verb(&verb);
        }
    }
}

/// Semantics 4 (M): otherwise a live session would keep an office nobody fills.
#[test]
fn a_lost_term_is_disowned_in_every_heartbeat_until_the_store_knows() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.tell(Event::FenceRefused { group: group("a"), term: term(1) });
    assert_eq!((bench.phase("a"), bench.phase("b")), (Some(Phase::Lost), Some(Phase::Leading)));
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Err(uncertain()));
    let disowned = vec![(group("a"), term(1))];
    bench.run_to(4333);
    let (lost, heartbeat) = bench.take_heartbeat();
    assert_eq!(heartbeat.disowned, disowned);
    bench.answer(lost, Err(uncertain()));
    bench.run_to(4333 + 416);
    let (attempt, heartbeat) = bench.take_heartbeat();
    assert_eq!(heartbeat.disowned, disowned);
    bench.acknowledge(attempt);
    assert_eq!(bench.phase("a"), Some(Phase::Standby), "settled: it may campaign again");
    bench.run_to(8200);
    assert_eq!(bench.take_heartbeat().1.disowned, []);
}

/// Semantics 4: a campaign that is answered with the term declared lost revives nothing.
#[test]
fn a_lost_term_offered_again_is_given_back() {
    let mut bench = Bench::leading(&["a"]);
    bench.tell(Event::FenceRefused { group: group("a"), term: term(1) });
    bench.tell(Event::Stopped { group: group("a") });
    let resign = bench.take_verb(&Verb::Resign(term(1)));
    bench.answer(resign, Ok(Reply::Done));
    bench.run_to(1300);
    let campaign = bench.take_campaign(&group("a"));
    bench.elect(campaign, &group("a"), term(1));
    assert_eq!(bench.check("a"), None);
    bench.take_verb(&Verb::Resign(term(1)));
}
