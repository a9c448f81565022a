//! The state machine against a naive model, and against its promises.
//!
//! Random sequences of entries, right and wrong, late and repeated, go into the state machine and
//! into a model that keeps plain lists and scans them. After every entry both must agree on the
//! answer, the events, the offices, the lines, the terms, the waits and whose epoch rose. Beside the
//! model stand the promises themselves (`promises`), checked on the machine alone, and a second
//! machine that was restored from bytes and works in slices.
//!
//! A failing sequence is shrunk and told line by line. `PROPTEST_CASES` raises the number of
//! sequences, `PROPTEST_RNG_SEED` repeats them.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "state_model/bytes.rs"]
mod bytes;
#[path = "state_model/compare.rs"]
mod compare;
#[path = "state_model/corners.rs"]
mod corners;
#[path = "state_model/entry.rs"]
mod entry;
#[path = "state_model/fences.rs"]
mod fences;
#[path = "state_model/findings.rs"]
mod findings;
#[path = "state_model/many.rs"]
mod many;
#[path = "state_model/model.rs"]
mod model;
#[path = "state_model/moves.rs"]
mod moves;
#[path = "state_model/office.rs"]
mod office;
#[path = "state_model/orders.rs"]
mod orders;
#[path = "state_model/promises.rs"]
mod promises;
#[path = "state_model/reach.rs"]
mod reach;
#[path = "state_model/steps.rs"]
mod steps;
#[path = "state_model/verbs.rs"]
mod verbs;
#[path = "state_model/windows.rs"]
mod windows;
#[path = "state_model/world.rs"]
mod world;

use std::cell::RefCell;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use reach::Reach;
use world::World;

/// Sequences that keep the usual run short; `PROPTEST_CASES` asks for more.
const SEQUENCES: u32 = 1000;
const STEPS_MAX: usize = 80;

fn config(usual: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let cases = asked.unwrap_or(usual);
    Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() }
}

#[test]
fn the_machine_and_the_model_agree_on_every_entry() {
    let config = config(SEQUENCES);
    let is_whole = config.cases >= SEQUENCES;
    let reach = RefCell::new(Reach::default());
    let outcome = TestRunner::new(config).run(&steps::steps(STEPS_MAX), |steps| {
        let mut world = World::new();
        for step in &steps {
            world.run(step).map_err(TestCaseError::fail)?;
        }
        world.end().map_err(TestCaseError::fail)?;
        reach.borrow_mut().add(&world.reach);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    // A sequence that never comes to a rule proves nothing about it.
    let missed = reach.borrow().missed();
    assert!(!is_whole || missed.is_empty(), "no sequence came to {missed:?}");
}
