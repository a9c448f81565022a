//! Seeds of elections kept in a register, under the faults of the other worlds: no promise is broken, and
//! each seed gives one history.

use std::ops::ControlFlow;

use regent_lab::trial::replay;
use regent_lab::{StoreKind, SweepOptions, sweep};

/// Seeds in the daily run; `LAB_SEEDS=10000 cargo test -p regent-lab --test leases` runs more.
fn seeds() -> u64 {
    std::env::var("LAB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn no_seed_of_a_lease_breaks_a_promise() {
    let options = SweepOptions {
        store: StoreKind::Lease,
        seeds: seeds(),
        failures_max: 3,
        ..SweepOptions::default()
    };
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
fn the_same_seed_gives_the_same_history_of_a_lease() {
    for seed in [1, 7, 13] {
        let again = || replay(StoreKind::Lease, seed).history.to_json_lines();
        assert!(again() == again(), "seed {seed} gave two different histories");
    }
}
