//! Whether a run did enough to mean anything. One that did not is void: neither passed nor failed.

use regent_election::Command;
use regent_election::participant::Phase;

use crate::history::{History, Op, Stage, What};

/// Answers below which a run says nothing.
const ANSWERS_MIN: usize = 40;
/// Takeovers under faults below which a run says nothing.
const TAKEOVERS_MIN: usize = 2;

/// Why a run means nothing, if so.
#[must_use]
pub fn why_void(history: &History) -> Option<String> {
    let mut stage = Stage::Chaos;
    let mut is_faulted = false;
    let (mut answers, mut takeovers, mut reads) = (0, 0, 0);
    let mut read_calls = std::collections::BTreeSet::new();
    let mut tombstones = std::collections::BTreeSet::new();
    let mut is_buried = false;
    for event in &history.events {
        match &event.what {
            What::Stage { stage: entered, .. } => stage = *entered,
            What::Fault { .. } => is_faulted = true,
            What::Invoke { call, op: Op::Read { linearizable: true, .. } } => {
                read_calls.insert(*call);
            }
            What::Invoke {
                call,
                op: Op::Submit { command: Command::PutPolicy { group, .. }, .. },
            } if group.as_str() == "tombstone" => {
                tombstones.insert(*call);
            }
            What::Ok { call, .. } => {
                answers += 1;
                if read_calls.contains(call) && is_faulted && stage == Stage::Chaos {
                    reads += 1;
                }
                is_buried |= tombstones.contains(call);
            }
            What::Phase { phase: Phase::Leading, .. } if stage == Stage::Chaos => takeovers += 1,
            _ => {}
        }
    }
    if answers < ANSWERS_MIN {
        return Some(format!("only {answers} answers; at least {ANSWERS_MIN}"));
    }
    if takeovers < TAKEOVERS_MIN {
        return Some(format!("only {takeovers} takeovers in the chaos; at least {TAKEOVERS_MIN}"));
    }
    if is_faulted && reads == 0 {
        return Some("no read was answered while something was broken".into());
    }
    (!is_buried).then(|| "the closing write was not answered".into())
}
