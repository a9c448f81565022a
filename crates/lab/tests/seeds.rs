//! Seeds of whole clusters under faults: no promise is broken, each seed gives one history, and a
//! driver's mistake is found.

use std::ops::ControlFlow;

use regent_lab::trial::replay;
use regent_lab::{Plan, Sabotage, StoreKind, SweepOptions, sweep};

/// Seeds in the daily run; `LAB_SEEDS=10000 cargo test -p regent-lab --test seeds` runs more.
fn seeds() -> u64 {
    std::env::var("LAB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

#[test]
fn no_seed_breaks_a_promise() {
    let options = SweepOptions { seeds: seeds(), failures_max: 3, ..SweepOptions::default() };
    let report = sweep(options, &mut |_| ControlFlow::Continue(()));
    println!("{}", report.progress.stats);
    for failure in &report.failures {
        println!("seed {}: regent lab {}\n{}", failure.seed, failure.command(), failure.story);
    }
    assert!(report.failures.is_empty(), "{} seeds broke a promise", report.progress.failed);
    let void = report.progress.void;
    assert!(void * 4 < seeds(), "{void} of {} runs did too little to mean anything", seeds());
}

#[test]
fn the_same_seed_gives_the_same_history_of_a_whole_cluster() {
    for seed in [1, 7, 13] {
        let (first, second) =
            (replay(StoreKind::Replica, seed).history, replay(StoreKind::Replica, seed).history);
        assert!(
            first.to_json_lines() == second.to_json_lines(),
            "seed {seed} gave two different histories"
        );
    }
}

/// Whether any of the first seeds shows that something is wrong.
fn is_found(sabotage: Sabotage) -> bool {
    (1..=1000).any(|seed| {
        let plan = Plan { sabotage: Some(sabotage), ..Plan::draw(seed) };
        !regent_lab::run(plan).violations().is_empty()
    })
}

#[test]
fn a_disk_that_lies_about_syncing_is_found() {
    assert!(is_found(Sabotage::FsyncSkipped));
}

#[test]
fn a_register_without_its_fence_is_found() {
    assert!(is_found(Sabotage::FenceOff));
}
