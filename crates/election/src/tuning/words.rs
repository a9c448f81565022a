//! The arithmetic behind an estimate, in words.

use super::curve::{DAY_MS, Estimate};
use super::lease::Renewals;
use super::log::LogTimers;
use super::surroundings::Surroundings;
use crate::timing::{Budget, Ms};

/// Why a budget costs what [`super::estimate_lease`] says.
#[must_use]
pub fn explain_lease(budget: &Budget, surroundings: &Surroundings, estimate: &Estimate) -> String {
    let renewals = Renewals::new(budget, surroundings);
    let tries: Vec<String> =
        renewals.tries(renewals.renew_ms).map(|at| Ms(at).to_string()).collect();
    let missed = renewals.missed(renewals.tries(renewals.renew_ms));
    let cycles = DAY_MS / renewals.renew_ms.max(1);
    format!(
        "ttl {}: renewed every {} and tried again after {}, so {} fit before work must stop, {} after the last heartbeat that was answered (at {}); one gets no answer with a chance of {}, none of them in time with {}, and there are {cycles} renewals a day: {} false failovers a day by the network, and {} by pauses ({}). A dead leader is freed {} after its last heartbeat arrived",
        Ms(budget.ttl_ms()),
        Ms(renewals.renew_ms),
        Ms(renewals.timeout_ms),
        counted(tries.len(), "try", "tries"),
        Ms(renewals.act_ms),
        tries.join(", "),
        chance(1.0 - renewals.answered),
        chance(missed),
        chance(estimate.false_by_network),
        chance(estimate.false_by_pauses),
        pauses(surroundings),
        Ms(budget.ttl_ms()),
    )
}

/// Why time-outs of the log cost what [`super::estimate_log`] says.
#[must_use]
pub fn explain_log(timers: &LogTimers, surroundings: &Surroundings, estimate: &Estimate) -> String {
    let LogTimers { heartbeat_ms, election_ms_min, election_ms_max } = *timers;
    let peers = surroundings.ways().len();
    if peers == 0 {
        return "a replica that is alone elects itself; no network can depose it".to_owned();
    }
    let slowest = surroundings.slowest();
    format!(
        "heartbeats every {}, {} of them before the most impatient of {} followers stands after {} (the most patient after {}); a round trip takes {} ms and one of a hundred longer than {} ms, a message is lost with a chance of {}: {} false elections a day by the network, and {} by pauses ({})",
        Ms(heartbeat_ms),
        election_ms_min / heartbeat_ms.max(1),
        peers,
        Ms(election_ms_min),
        Ms(election_ms_max),
        tenths(slowest.at_permille(500)),
        tenths(slowest.at_permille(990)),
        chance(f64::from(surroundings.loss_ppm()) / 1e6),
        chance(estimate.false_by_network),
        chance(estimate.false_by_pauses),
        pauses(surroundings),
    )
}

fn pauses(surroundings: &Surroundings) -> String {
    let told: Vec<String> = surroundings
        .pauses()
        .iter()
        .map(|pause| {
            format!("{} every {} in each process", Ms(pause.length_ms), Ms(pause.every_ms))
        })
        .collect();
    if told.is_empty() { "none known".to_owned() } else { told.join(", ") }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Microseconds as milliseconds with one decimal.
fn tenths(us: u64) -> String {
    format!("{}.{}", us / 1000, us % 1000 / 100)
}

/// A chance or a rate, with two digits that count.
fn chance(chance: f64) -> String {
    if chance == 0.0 {
        "0".to_owned()
    } else if chance >= 0.01 {
        format!("{chance:.2}")
    } else {
        format!("{chance:.1e}")
    }
}
