//! A few hundred seeds of whole clusters under faults: no promise is broken, the same seed gives the
//! same history, and what is deliberately broken is found.

use regent_lab::checkers::{check, why_void};
use regent_lab::{History, Plan, Sabotage, Stats, World};

fn live(plan: Plan) -> (History, Stats) {
    let mut world = World::new(plan);
    world.live();
    world.into_history()
}

/// Seeds in the daily run; `LAB_SEEDS=10000 cargo test -p regent-lab --test seeds` runs more.
fn seeds() -> u64 {
    std::env::var("LAB_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[test]
fn no_seed_breaks_a_promise() {
    let mut total = Stats::default();
    let (mut broken, mut void) = (Vec::new(), 0);
    for seed in 1..=seeds() {
        let (history, stats) = live(Plan::draw(seed));
        total += stats;
        void += u64::from(why_void(&history).is_some());
        broken.extend(check(&history).into_iter().map(|violation| format!("{seed}: {violation}")));
    }
    println!("{total}");
    assert!(broken.is_empty(), "seeds that broke a promise:\n{}", broken.join("\n"));
    assert!(void * 4 < seeds(), "{void} of {} runs did too little to mean anything", seeds());
}

#[test]
fn the_same_seed_gives_the_same_history_of_a_whole_cluster() {
    for seed in (1..=seeds()).step_by(20) {
        let (first, _) = live(Plan::draw(seed));
        let (second, _) = live(Plan::draw(seed));
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
        let lived = std::panic::catch_unwind(|| live(plan));
        lived.map_or(true, |(history, _)| !check(&history).is_empty())
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
