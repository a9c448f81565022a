//! The driver: the one thread that measures, and proposes what time has brought about.
//!
//! It sleeps on a condition variable, whose clock stands still in suspend, so it never trusts its
//! sleep: every look reads the lease clock, and there is a look at least every quarter of a second.
//! A thread and not a task: a runtime whose workers are all busy must not keep leases from ending.

use std::time::Duration;

use regent_election::ledger::Turn;
use regent_election::{Command, Moment};

use super::core::{Core, Phase};
use super::shared::Shared;

/// Longest time between two looks.
const DEADLINES_POLL_EVERY: Duration = Duration::from_millis(250);
/// Most checks and waits of one look, so that callers get the lock in between.
const CHECKS_MAX: usize = 4096;

/// Runs until the store stops.
pub(super) fn drive(shared: &Shared) {
    let mut core = shared.lock();
    while core.phase != Phase::Stopped {
        let now = regent_clock::now();
        look(&mut core, now);
        shared.settle(&mut core);
        let next_at = core.ledger.next_at();
        let pause =
            next_at.map_or(DEADLINES_POLL_EVERY, |at| now.until(at).min(DEADLINES_POLL_EVERY));
        core.driver_wakes_at = now + pause;
        if pause.is_zero() {
            // More is due; callers that wait for the lock go first.
            drop(core);
            std::thread::yield_now();
            core = shared.lock();
            continue;
        }
        core = shared.rest_driver(core, pause);
    }
}

/// Proposes everything that is due.
fn look(core: &mut Core, now: Moment) {
    match core.ledger.turn(now) {
        Turn::Steady => {}
        Turn::Restarted { away } => {
            tracing::warn!(?away, "the store was away; every session gets a full ttl");
        }
    }
    for command in core.ledger.due(now, CHECKS_MAX) {
        if let Command::Expire { sessions } = &command {
            tracing::info!(sessions = sessions.len(), "sessions expired");
        }
        core.run(command, None);
    }
}
