//! Makes a failing plan small: fewer faults, fewer clients, less time.
//!
//! Greedy and bounded: whatever can be left out while the same promise still breaks is left out. Every
//! concern rolls its own dice, so what is left mostly happens as before.

use crate::plan::Plan;
use crate::trial::{Trial, run};

/// The smallest failing run found. The given one, if nothing can be left out.
#[must_use]
pub fn shrink(trial: &Trial, runs_max: usize) -> Trial {
    let mut best = run(trial.plan.clone());
    let Some(promise) = best.violations().first().map(|violation| violation.promise) else {
        // It does not fail again: there is nothing to shrink by.
        return best;
    };
    let mut runs = 0;
    loop {
        let mut is_smaller = false;
        for plan in smaller(&best.plan) {
            if runs >= runs_max {
                return best;
            }
            runs += 1;
            let tried = run(plan);
            if tried.violations().iter().any(|violation| violation.promise == promise) {
                best = tried;
                is_smaller = true;
                break;
            }
        }
        if !is_smaller {
            return best;
        }
    }
}

/// Plans with a little less, those that leave most out first.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        if smaller != *plan {
            plans.push(smaller);
        }
    };
    with(&|plan| plan.chaos_ms = (plan.chaos_ms / 2).max(500));
    for fault in &plan.faults {
        with(&|plan| plan.leave_out(*fault));
    }
    with(&|plan| plan.members = (plan.members - 1).max(1));
    with(&|plan| plan.callers = (plan.callers - 1).max(1));
    with(&|plan| plan.watchers = plan.watchers.saturating_sub(1));
    with(&|plan| plan.groups = (plan.groups - 1).max(1));
    with(&|plan| plan.chaos_ms = (plan.chaos_ms * 4 / 5).max(500));
    plans
}
