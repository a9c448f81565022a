//! Whole elections in virtual time, over a register with every fault that the port allows.
//!
//! Several stores, each with a clock of its own pace, share the entries; participants open sessions,
//! campaign, send heartbeats, resign, hand over, vanish and are paused; an administrator steps leaders
//! down and deletes groups. Everything is drawn from one seed, so a seed that fails is a story that can
//! be told again: `REGENT_LEASE_SEED=17 cargo nextest run -p regent-stores sim`.

mod faulty;
mod judge;
mod player;
mod world;

use super::super::mutant::{Mutant, plant};
use judge::Verdicts;
use world::{Plan, run};

/// Seeds of an ordinary test run; `REGENT_LEASE_SEEDS` asks for more.
const SEEDS: u64 = 50;
/// Seeds within which every mistake must show.
const SEEDS_OF_MUTANT: u64 = 400;

fn seeds() -> Vec<u64> {
    let asked = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a seed is a number"))
    };
    match asked("REGENT_LEASE_SEED") {
        Some(seed) => vec![seed],
        None => (1..=asked("REGENT_LEASE_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

fn judged(plan: Plan) -> Verdicts {
    judge::judge(&run(plan))
}

fn sweep(is_servers: bool) {
    let mut claims = 0;
    let seeds = seeds();
    for seed in &seeds {
        let seed = *seed;
        let story = run(Plan { seed, is_servers });
        let verdicts = judge::judge(&story);
        assert!(
            verdicts.broken.is_empty(),
            "seed {seed}: {:#?}\n{}",
            verdicts.broken,
            story.lines.join("\n")
        );
        claims += verdicts.claims;
    }
    // A sweep in which nobody leads proves nothing.
    assert!(claims > seeds.len(), "only {claims} tenures");
}

#[test]
fn elections_are_safe_and_live_under_every_fault() {
    sweep(false);
}

#[test]
fn elections_timed_by_the_server_are_safe_and_live_under_every_fault() {
    sweep(true);
}

#[test]
fn the_same_seed_tells_the_same_story() {
    for seed in [3, 11] {
        for is_servers in [false, true] {
            let plan = Plan { seed, is_servers };
            let (once, again) = (run(plan).lines, run(plan).lines);
            let differs = once.iter().zip(&again).find(|(one, other)| one != other);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(once.len(), again.len(), "seed {seed}");
        }
    }
}

/// Plants a mistake and looks for the first seed that shows it.
fn is_found(mutant: Mutant) -> Option<(u64, String)> {
    plant(Some(mutant));
    let found = (1..=SEEDS_OF_MUTANT).find_map(|seed| {
        let verdicts = judged(Plan { seed, is_servers: false });
        verdicts.broken.into_iter().find(|broken| broken.starts_with('S')).map(|one| (seed, one))
    });
    plant(None);
    found
}

macro_rules! mutants {
    ($($name:ident = $mutant:ident;)+) => {$(
        #[test]
        fn $name() {
            let found = is_found(Mutant::$mutant);
            let (seed, what) = found.expect("no seed shows it");
            println!("seed {seed}: {what}");
        }
    )+};
}

mutants! {
    a_nonce_that_is_not_compared_is_found = NonceIgnored;
    a_session_taken_for_dead_at_once_is_found = StealsAtOnce;
    a_session_expired_before_it_ended_is_found = ExpiresWithoutEnding;
    a_holder_that_nobody_told_is_found = NobodyIsTold;
    a_lease_counted_from_the_answer_is_found = CountsFromAnswer;
    a_conflict_taken_for_success_is_found = ConflictIgnored;
}
