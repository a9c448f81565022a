//! What a participant tells about itself in its heartbeats.

use regent_election::Digest;
use regent_election::belief::Beliefs;
use regent_election::limits::CLAIMS_PER_HEARTBEAT_MAX;
use regent_election::participant::{Attempt, Event, Phase};

use super::bench::{Bench, TTL_MS, at, group, node, term, uncertain};

impl Bench {
    /// The next heartbeat and what it tells.
    fn told(&mut self) -> (Attempt, Option<Beliefs>) {
        let (attempt, heartbeat) = self.take_heartbeat();
        (attempt, heartbeat.beliefs.map(|beliefs| *beliefs))
    }
}

#[test]
fn a_leader_tells_the_terms_it_acts_under_and_a_standby_only_its_margins() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, told) = bench.told();
    let told = told.expect("it leads");
    assert_eq!((told.node, told.ttl_ms, told.margin_ms), (node("me"), TTL_MS, None));
    assert_eq!(told.claims.len(), 1);
    let claim = &told.claims[0];
    assert_eq!((&claim.group, claim.term, &claim.digest), (&group("a"), term(1), &None));
    let left = bench.machine.check(at(bench.now_ms), &group("a")).unwrap().remaining;
    assert_eq!(u128::from(claim.left_ms), left.as_millis());
    bench.acknowledge(attempt);

    let mut standby = Bench::standing(&["a"]);
    standby.run_to(4333);
    let (attempt, told) = standby.told();
    assert_eq!(told, None, "there was no renewal before this one");
    standby.acknowledge(attempt);
    standby.tell(Event::Renew);
    let told = standby.told().1.expect("how it would do is told");
    assert_eq!((told.claims.as_slice(), told.margin_ms), (&[][..], Some(8801 - (4333 - 1000))));
}

/// Nothing is a word too: whoever listens must not go on believing.
#[test]
fn who_acts_no_more_says_so_once() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, told) = bench.told();
    assert_eq!(told.expect("it leads").claims.len(), 1);
    bench.acknowledge(attempt);
    bench.tell(Event::Resign { group: group("a") });
    bench.tell(Event::Stopped { group: group("a") });
    bench.tell(Event::Renew);
    let (attempt, told) = bench.told();
    let told = told.expect("it did lead");
    assert_eq!(told.claims, []);
    assert!(told.margin_ms.is_some(), "how much was left when the last renewal came");
    bench.answer(attempt, Err(uncertain()));
    bench.tell(Event::Renew);
    assert_eq!(bench.told().1, None);
}

#[test]
fn the_smallest_margin_of_all_renewals_is_told_once() {
    let mut bench = Bench::leading(&["a"]);
    bench.run_to(4333);
    let (attempt, _) = bench.told();
    bench.acknowledge(attempt);
    let margin_ms = 8801 - (4333 - 1000);
    bench.tell(Event::Renew);
    let (attempt, told) = bench.told();
    assert_eq!(told.expect("it leads").margin_ms, Some(margin_ms));
    bench.answer(attempt, Err(uncertain()));
    bench.run_to(bench.now_ms + 416);
    assert_eq!(bench.told().1.expect("it leads").margin_ms, None);
}

/// The office is lost, and the work does not care.
#[test]
fn work_that_did_not_stop_in_time_is_told_as_such() {
    let mut bench = Bench::leading(&["a", "b"]);
    bench.tell(Event::FenceRefused { group: group("a"), term: term(1) });
    assert_eq!(bench.phase("a"), Some(Phase::Lost));
    bench.run_to(4333);
    let (lost, told) = bench.told();
    assert_eq!(told.expect("it leads").refused, [(group("a"), term(1))]);
    bench.answer(lost, Err(uncertain()));
    bench.run_to(4333 + 416);
    let (attempt, told) = bench.told();
    let told = told.expect("it leads");
    assert_eq!(told.refused, [(group("a"), term(1))], "until it is known to be heard");
    let left: Vec<_> = told.claims.iter().map(|claim| (&claim.group, claim.left_ms > 0)).collect();
    assert_eq!(left, [(&group("a"), false), (&group("b"), true)], "its grace was a second");
    bench.acknowledge(attempt);
    bench.tell(Event::Stopped { group: group("a") });
    bench.tell(Event::Renew);
    let told = bench.told().1.expect("it leads");
    assert_eq!(told.claims.len(), 1, "{told:?}");
    assert_eq!(told.refused, [], "once");
}

#[test]
fn a_digest_belongs_to_its_term() {
    let mut bench = Bench::leading(&["a"]);
    let digest = Digest::new("sha256:00ff").unwrap();
    let tell =
        |number| Event::Digest { group: group("a"), term: term(number), digest: digest.clone() };
    bench.tell(tell(7));
    bench.run_to(4333);
    let (attempt, told) = bench.told();
    assert_eq!(told.expect("it leads").claims[0].digest, None, "of another term");
    bench.acknowledge(attempt);
    bench.tell(tell(1));
    bench.tell(Event::Renew);
    assert_eq!(bench.told().1.expect("it leads").claims[0].digest, Some(digest));
}

/// A leader of very many groups tells them all, a few at a time.
#[test]
fn everybody_has_a_turn() {
    let names: Vec<String> = (0..150).map(|number| format!("g{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::leading(&names);
    let mut told = Vec::new();
    for _ in 0..4 {
        bench.tell(Event::Renew);
        let (attempt, beliefs) = bench.told();
        let claims = beliefs.expect("it leads").claims;
        assert_eq!(claims.len(), CLAIMS_PER_HEARTBEAT_MAX);
        told.extend(claims.into_iter().map(|claim| claim.group));
        bench.acknowledge(attempt);
    }
    for (index, name) in told.iter().enumerate() {
        assert_eq!(name, &group(names[index % 150]), "{index}");
    }
}

/// Among very many groups, the one whose work does not stop is told every time.
#[test]
fn who_did_not_stop_is_told_first() {
    let names: Vec<String> = (0..150).map(|number| format!("g{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::leading(&names);
    bench.tell(Event::FenceRefused { group: group("g149"), term: term(150) });
    for _ in 0..3 {
        bench.tell(Event::Renew);
        let (attempt, beliefs) = bench.told();
        let claims = beliefs.expect("it leads").claims;
        assert_eq!((claims.len(), &claims[0].group), (CLAIMS_PER_HEARTBEAT_MAX, &group("g149")));
        bench.acknowledge(attempt);
    }
}
