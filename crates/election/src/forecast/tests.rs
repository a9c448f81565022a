//! The forecaster told heartbeat by heartbeat: what it decides, and the many times it decides nothing.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::belief::Claim;

const TTL_MS: u64 = 10_000;
const RENEW_MS: u64 = 3_333;
const HEALTHY_MS: u64 = 5_460;
const LEADER: u128 = 1;
const STANDBY: u128 = 2;

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn node(name: &str) -> Node {
    Node::new(name).unwrap()
}

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn beliefs(who: &str, margin_ms: u64, offices: &[(&str, u64)]) -> Beliefs {
    let claim = |(place, number): &(&str, u64)| Claim {
        group: group(place),
        term: term(*number),
        left_ms: 9000,
        digest: None,
    };
    let claims = offices.iter().map(claim).collect();
    let margin_ms = Some(margin_ms);
    Beliefs { node: node(who), ttl_ms: TTL_MS, margin_ms, claims, refused: Vec::new() }
}

/// A forecaster, and the clock of its server.
#[derive(Default)]
struct Bench {
    forecaster: Forecaster,
    now_ms: u64,
}

impl Bench {
    fn now(&self) -> Moment {
        Moment::from_millis(self.now_ms)
    }

    fn heartbeat(&mut self, from: u128, beliefs: &Beliefs) -> Option<Suspicion> {
        self.forecaster.heartbeat(self.now(), session(from), beliefs)
    }

    fn judge(
        &mut self,
        from: u128,
        (place, number): (&str, u64),
        standbys: &[&str],
    ) -> ForecastDecision {
        let standbys: Vec<Node> = standbys.iter().map(|name| node(name)).collect();
        let now = self.now();
        self.forecaster.judge(
            now,
            SuspectOffice {
                session: session(from),
                group: &group(place),
                term: term(number),
                leads_on: true,
                standbys: &standbys,
                minimum_tenure: Duration::from_secs(30),
            },
        )
    }

    /// One renewal of a leader and of its standby; what is decided, if anything is.
    fn renew(&mut self, number: u64, leader_ms: u64, standby_ms: u64) -> Option<ForecastDecision> {
        self.now_ms += RENEW_MS;
        assert_eq!(
            self.heartbeat(STANDBY, &beliefs("b", standby_ms, &[])),
            None,
            "it does not lead"
        );
        let told = beliefs("a", leader_ms, &[("g", number)]);
        self.heartbeat(LEADER, &told).map(|_| self.judge(LEADER, ("g", number), &["b"]))
    }

    /// The leader was healthy for long, and its standby is.
    fn healthy() -> Self {
        let mut bench = Self::default();
        for _ in 0..20 {
            assert_eq!(bench.renew(1, HEALTHY_MS, HEALTHY_MS), None);
        }
        bench
    }

    /// The leader's renewals fall by this until something is decided, or it is too late.
    fn fall(&mut self, step_ms: u64, standby_ms: impl Fn(u64) -> u64) -> Vec<ForecastDecision> {
        let mut verdicts = Vec::new();
        let mut margin_ms = HEALTHY_MS;
        while margin_ms > step_ms {
            margin_ms -= step_ms;
            verdicts.extend(self.renew(1, margin_ms, standby_ms(margin_ms)));
        }
        verdicts
    }
}

fn hands_over(verdict: &ForecastDecision) -> bool {
    matches!(verdict.outcome, ForecastAction::HandOver { .. })
}

#[test]
fn a_failing_leader_is_replaced_once_by_a_standby_that_does_better() {
    let mut bench = Bench::healthy();
    let verdicts = bench.fall(300, |_| HEALTHY_MS);
    let decided: Vec<_> = verdicts.iter().filter(|verdict| hands_over(verdict)).collect();
    assert_eq!(decided.len(), 1, "{verdicts:?}");
    assert_eq!(decided[0].outcome, ForecastAction::HandOver { to: node("b") });
    let told = &decided[0].reason;
    assert!(told.starts_with("predicted: a's renewals came with "), "{told}");
    assert!(told.contains(" of 10.0s left and would come too late within "), "{told}");
    assert!(told.ends_with("; b has 5.4s"), "{told}");
    assert!(decided[0].is_news);
}

#[test]
fn what_is_slow_for_both_is_nobodys_fault() {
    let mut bench = Bench::healthy();
    let verdicts = bench.fall(300, |margin_ms| margin_ms);
    assert!(!verdicts.is_empty(), "it is told");
    let is_told = |verdict: &&ForecastDecision| verdict.outcome == ForecastAction::NobodyBetter;
    assert_eq!(verdicts.iter().filter(is_told).count(), verdicts.len(), "{verdicts:?}");
    assert_eq!(verdicts.iter().filter(|verdict| verdict.is_news).count(), 1, "once");
    assert!(verdicts[0].reason.ends_with("no standby is known to do clearly better"));
}

#[test]
fn a_standby_that_nobody_knows_does_not_do_better() {
    let mut bench = Bench::healthy();
    bench.forecaster.closed(session(STANDBY));
    for margin_ms in [5000, 4500, 4000, 3500, 3000, 2500] {
        bench.now_ms += RENEW_MS;
        if bench.heartbeat(LEADER, &beliefs("a", margin_ms, &[("g", 1)])).is_some() {
            let verdict = bench.judge(LEADER, ("g", 1), &["b"]);
            assert_eq!(verdict.outcome, ForecastAction::NobodyBetter, "{verdict:?}");
            // It comes, but must show itself first.
            bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
        }
    }
    let verdict = bench.judge(LEADER, ("g", 1), &[]);
    assert_eq!(verdict.outcome, ForecastAction::NobodyBetter, "{verdict:?}");
}

/// Two processes that share a name: nobody knows which of them would follow.
#[test]
fn a_name_that_two_bear_follows_nobody() {
    let mut bench = Bench::healthy();
    let mut margin_ms = HEALTHY_MS;
    let mut verdicts = Vec::new();
    while margin_ms > 1000 {
        margin_ms -= 400;
        bench.heartbeat(7, &beliefs("c", HEALTHY_MS, &[]));
        bench.heartbeat(8, &beliefs("c", margin_ms, &[]));
        bench.now_ms += RENEW_MS;
        if bench.heartbeat(LEADER, &beliefs("a", margin_ms, &[("g", 1)])).is_some() {
            bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
            verdicts.push(bench.judge(LEADER, ("g", 1), &["b", "b", "c", "a"]));
        }
    }
    assert!(!verdicts.is_empty() && !verdicts.iter().any(hands_over), "{verdicts:?}");
}

#[test]
fn the_first_in_line_of_those_that_do_better_follows() {
    let mut bench = Bench::healthy();
    let mut to = None;
    for margin_ms in [5000, 4500, 4000, 3500, 3000, 2500] {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(3, &beliefs("slow", margin_ms, &[]));
        bench.heartbeat(4, &beliefs("first", 5000, &[]));
        bench.heartbeat(5, &beliefs("best", HEALTHY_MS, &[]));
        if bench.heartbeat(LEADER, &beliefs("a", margin_ms, &[("g", 1)])).is_some() {
            let verdict = bench.judge(LEADER, ("g", 1), &["slow", "first", "best"]);
            to = to.or(hands_over(&verdict).then_some(verdict.outcome));
        }
    }
    assert_eq!(to, Some(ForecastAction::HandOver { to: node("first") }));
}

#[test]
fn who_was_replaced_does_not_follow_however_well_it_looks() {
    let mut bench = Bench::healthy();
    assert!(bench.fall(300, |_| HEALTHY_MS).iter().any(hands_over));
    // b leads; a has nothing to do and looks well. Then b becomes slow under the same work.
    let renew = |bench: &mut Bench, margin_ms: u64| {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(LEADER, &beliefs("a", HEALTHY_MS, &[]));
        let told = beliefs("b", margin_ms, &[("g", 2)]);
        bench.heartbeat(STANDBY, &told).map(|_| bench.judge(STANDBY, ("g", 2), &["a"]))
    };
    let fall = |bench: &mut Bench| {
        let falling = (0..10).map(|step| HEALTHY_MS - 500 * step);
        let verdicts: Vec<_> = falling.filter_map(|margin_ms| renew(bench, margin_ms)).collect();
        verdicts
    };
    assert_eq!(fall(&mut bench), [], "the group is left alone for a while");
    bench.now_ms += u64::try_from(COOL_DOWN.as_millis()).unwrap();
    for _ in 0..20 {
        renew(&mut bench, HEALTHY_MS);
    }
    let verdicts = fall(&mut bench);
    assert!(!verdicts.is_empty() && !verdicts.iter().any(hands_over), "{verdicts:?}");
    bench.now_ms += u64::try_from(REST.as_millis()).unwrap();
    for _ in 0..20 {
        renew(&mut bench, HEALTHY_MS);
    }
    assert!(fall(&mut bench).iter().any(hands_over), "it has rested");
}

#[test]
fn a_leader_serves_its_minimum_tenure_as_far_as_is_known() {
    let mut bench = Bench::default();
    for _ in 0..20 {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
        bench.heartbeat(LEADER, &beliefs("a", HEALTHY_MS, &[]));
    }
    // It has just won, and is slow from the first day on.
    let verdicts = bench.fall(300, |_| HEALTHY_MS);
    let soon =
        verdicts.iter().take_while(|verdict| verdict.outcome == ForecastAction::TooSoon).count();
    assert!(soon > 0 && verdicts[soon..].iter().any(hands_over), "{verdicts:?}");
}

#[test]
fn many_that_fail_at_once_are_not_the_leaders_fault() {
    let mut bench = Bench::default();
    let mut verdicts = Vec::new();
    let names: Vec<String> = (0..6).map(|number| format!("g{number}")).collect();
    for step in 0..40u64 {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
        let margin_ms = HEALTHY_MS - 300 * step.saturating_sub(25);
        let mut suspects = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let told = beliefs(&format!("n{number}"), margin_ms, &[(name, 1)]);
            if bench.heartbeat(100 + number as u128, &told).is_some() {
                suspects.push((100 + number as u128, name));
            }
        }
        for (session, name) in suspects {
            verdicts.push(bench.judge(session, (name, 1), &["b"]));
        }
    }
    let is_seen = |verdict: &ForecastDecision| verdict.outcome == ForecastAction::EverybodySlow;
    assert!(!verdicts.is_empty() && verdicts.iter().all(is_seen), "{verdicts:?}");
}

#[test]
fn a_leader_that_recovered_or_hands_over_already_is_left_alone() {
    let mut bench = Bench::healthy();
    let mut suspected = 0;
    for margin_ms in [5000, 4500, 4000, 3500, 3000] {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
        suspected +=
            usize::from(bench.heartbeat(LEADER, &beliefs("a", margin_ms, &[("g", 1)])).is_some());
    }
    assert!(suspected > 0);
    let (place, standbys) = (group("g"), [node("b")]);
    let sight = SuspectOffice {
        session: session(LEADER),
        group: &place,
        term: term(1),
        leads_on: false,
        standbys: &standbys,
        minimum_tenure: Duration::ZERO,
    };
    let now = bench.now();
    assert_eq!(bench.forecaster.judge(now, sight).outcome, ForecastAction::Overtaken);
    // Between the suspicion and the read it told a good margin.
    bench.heartbeat(LEADER, &beliefs("a", HEALTHY_MS, &[("g", 1)]));
    assert_eq!(bench.judge(LEADER, ("g", 1), &["b"]).outcome, ForecastAction::Overtaken);
    // Or it was not heard any more, or closed its session.
    bench.now_ms += TTL_MS;
    assert_eq!(bench.judge(LEADER, ("g", 1), &["b"]).outcome, ForecastAction::Overtaken);
    bench.forecaster.closed(session(LEADER));
    assert_eq!(bench.judge(LEADER, ("g", 1), &["b"]).outcome, ForecastAction::Overtaken);
}

#[test]
fn a_leader_that_still_fails_after_a_while_is_asked_again() {
    let mut bench = Bench::healthy();
    let first = bench.fall(300, |_| HEALTHY_MS);
    assert_eq!(first.iter().filter(|verdict| hands_over(verdict)).count(), 1);
    // The standby that was asked has left and come back; the leader is close to too late all the time.
    let renewals = COOL_DOWN.as_millis() as u64 / RENEW_MS + 2;
    let later: Vec<_> = (0..renewals).filter_map(|_| bench.renew(1, 500, HEALTHY_MS)).collect();
    let asked: Vec<_> = later.iter().filter(|verdict| hands_over(verdict)).collect();
    assert_eq!(asked.len(), 1, "{later:?}");
    assert!(asked[0].is_news, "it is to be done, not only thought");
}

#[test]
fn a_name_that_two_bear_follows_nobody_nor_does_one_of_whom_a_session_does_badly() {
    let mut bench = Bench::healthy();
    bench.heartbeat(3, &beliefs("c", HEALTHY_MS, &[]));
    for step in 0..12 {
        bench.now_ms += RENEW_MS;
        for (who, name) in [(STANDBY, "b"), (3, "c"), (4, "c")] {
            bench.heartbeat(who, &beliefs(name, if who == 4 { 600 } else { HEALTHY_MS }, &[]));
        }
        bench.heartbeat(LEADER, &beliefs("a", HEALTHY_MS - 400 * step, &[("g", 1)]));
    }
    let to = |bench: &mut Bench, line: &[&str]| bench.judge(LEADER, ("g", 1), line).outcome;
    assert_eq!(to(&mut bench, &["b", "b"]), ForecastAction::NobodyBetter);
    assert_eq!(to(&mut bench, &["c"]), ForecastAction::NobodyBetter);
    assert_eq!(to(&mut bench, &["unheard"]), ForecastAction::NobodyBetter);
    assert_eq!(to(&mut bench, &["unheard", "c", "b"]), ForecastAction::HandOver { to: node("b") });
}

#[test]
fn what_could_not_be_done_is_decided_again() {
    let mut bench = Bench::healthy();
    let mut decided = 0;
    let mut margin_ms = HEALTHY_MS;
    while margin_ms > 1000 {
        margin_ms -= 300;
        if bench.renew(1, margin_ms, HEALTHY_MS).is_some_and(|verdict| hands_over(&verdict)) {
            decided += 1;
            let now = bench.now();
            bench.forecaster.undone(now, &group("g"));
        }
    }
    assert!(decided > 1, "{decided}");
}

#[test]
fn a_leader_of_very_many_is_relieved_of_a_few_at_a_time() {
    let mut bench = Bench::default();
    let names: Vec<String> = (0..64).map(|number| format!("g{number:02}")).collect();
    let offices: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut relieved = BTreeSet::new();
    for step in 0..36u64 {
        bench.now_ms += RENEW_MS;
        bench.heartbeat(STANDBY, &beliefs("b", HEALTHY_MS, &[]));
        let margin_ms = HEALTHY_MS - 250 * step.saturating_sub(20);
        let suspicion = bench.heartbeat(LEADER, &beliefs("a", margin_ms, &offices));
        let Some(suspicion) = suspicion else { continue };
        assert!(suspicion.offices.len() <= SUSPECTS_PER_HEARTBEAT_MAX);
        for (place, number) in suspicion.offices {
            let verdict = bench.judge(LEADER, (place.as_str(), number.get()), &["b"]);
            assert!(hands_over(&verdict) && relieved.insert(place), "{verdict:?}");
        }
    }
    assert!(relieved.len() > 2 * SUSPECTS_PER_HEARTBEAT_MAX, "{}", relieved.len());
}

#[test]
fn memory_is_bounded_and_who_is_gone_is_forgotten() {
    let mut bench = Bench::default();
    for number in 0..FORECASTS_MAX as u128 + 10 {
        bench.heartbeat(1 + number, &beliefs("x", HEALTHY_MS, &[("g", 1)]));
    }
    assert_eq!(bench.forecaster.sessions.len(), FORECASTS_MAX);
    bench.now_ms += 2 * TTL_MS;
    bench.heartbeat(u128::MAX >> 1, &beliefs("y", HEALTHY_MS, &[("g", 2)]));
    assert_eq!(bench.forecaster.sessions.len(), 1);
    assert_eq!(bench.forecaster.count(bench.now()), (1, 0));
}

proptest! {
    /// Whatever two nodes tell: if they never differ by what is clearly better, nobody is replaced.
    #[test]
    fn a_slowdown_of_all_replaces_nobody(
        common in vec(0u64..5460, 1..80),
        apart in vec(0u64..990, 1..20),
    ) {
        let mut bench = Bench::healthy();
        let mut apart = apart.iter().cycle();
        for margin_ms in common {
            let standby_ms = margin_ms + apart.next().unwrap();
            if let Some(verdict) = bench.renew(1, margin_ms, standby_ms) {
                prop_assert!(!hands_over(&verdict), "{verdict:?}");
            }
        }
    }

    /// Whatever is told, by whomever: at most one decision for a group while it cools down.
    #[test]
    fn decisions_about_a_group_are_far_apart(
        told in vec((0u64..5460, 0u64..5460, 1u64..4, 0u64..9000), 1..300),
    ) {
        let mut bench = Bench::healthy();
        let mut last: Option<Moment> = None;
        for (leader_ms, standby_ms, number, pause_ms) in told {
            bench.now_ms += pause_ms;
            let verdict = bench.renew(number, leader_ms, standby_ms);
            if verdict.is_some_and(|verdict| hands_over(&verdict)) {
                let now = bench.now();
                prop_assert!(last.is_none_or(|last| last + COOL_DOWN <= now));
                last = Some(now);
            }
        }
    }

    #[test]
    fn a_decline_beside_a_healthy_standby_is_always_relieved_in_time(
        step_ms in 200u64..700,
        noise in vec(0u64..30, 16),
    ) {
        let mut bench = Bench::healthy();
        let mut noise = noise.iter().cycle();
        let mut margin_ms = HEALTHY_MS;
        let mut decided = None;
        while margin_ms > step_ms && decided.is_none() {
            margin_ms -= step_ms;
            let verdict = bench.renew(1, margin_ms + noise.next().unwrap(), HEALTHY_MS);
            decided = verdict.filter(hands_over);
        }
        prop_assert!(decided.is_some());
        prop_assert!(margin_ms >= 1500, "{margin_ms} ms left");
    }
}
