//! Every named scenario, in the worlds of several seeds.

use regent_lab::scenarios;

/// Seeds per scenario in the daily run; `LAB_SCENARIO_SEEDS=100 cargo test -p regent-lab --test scenarios`
/// tells each a hundred times.
fn seeds() -> u64 {
    let given = std::env::var("LAB_SCENARIO_SEEDS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(2)
}

#[test]
fn every_scenario_ends_well_in_the_worlds_of_several_seeds() {
    let mut broken = Vec::new();
    for scenario in scenarios::ALL {
        for seed in 1..=seeds() {
            let trial = scenario.run(seed, None);
            for violation in trial.violations() {
                broken.push(format!("{} with seed {seed}: {violation}", scenario.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_same_seed_tells_a_scenario_in_the_same_way() {
    for scenario in scenarios::ALL {
        let (first, second) = (scenario.run(7, None), scenario.run(7, None));
        assert!(first.history.events == second.history.events, "{}", scenario.name);
    }
}
