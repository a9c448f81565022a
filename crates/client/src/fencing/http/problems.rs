//! What a fence over HTTP answers when it refuses, as problems.

#![cfg_attr(
    not(feature = "tools"),
    allow(dead_code, unreachable_pub, reason = "public with the feature `tools`")
)]

use std::time::Duration;

use regent_api::{Code, Problem};
use regent_election::fence::doorkeeper::TurnedAway;
use regent_election::{FenceError, Term};

/// The longest wait that an answer asks for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The problem that tells a refusal.
#[must_use]
pub fn problem_of(why: FenceError) -> Problem {
    match why {
        FenceError::Stale { given, current } => {
            let detail = format!("{why}: this write was not passed on; stop at once");
            let mut problem = Problem::new(Code::StaleTerm, detail);
            problem.facts.given_term = Some(given);
            problem.facts.current_term = Some(current);
            problem
        }
        FenceError::NeverGranted => Problem::new(Code::BadRequest, why.to_string()),
    }
}

/// The problem that tells of a request that was cut on its way by a higher term.
#[must_use]
pub fn problem_of_cut(given: Term, current: Term) -> Problem {
    let detail = format!(
        "term {given} < current {current}: this write was on its way and may have taken effect; stop at once"
    );
    let mut problem = Problem::new(Code::Uncertain, detail);
    problem.facts.given_term = Some(given);
    problem.facts.current_term = Some(current);
    problem
}

/// Why the door did not open, as a problem.
#[must_use]
pub fn problem_of_turn(why: TurnedAway) -> Problem {
    match why {
        TurnedAway::Term(why) => problem_of(why),
        TurnedAway::NotOver { retry_after } => {
            Problem::new(Code::FenceClosed, why.to_string()).retry_after(soon(retry_after))
        }
        TurnedAway::Full { retry_after } => {
            Problem::new(Code::RateLimited, why.to_string()).retry_after(soon(retry_after))
        }
        TurnedAway::NotKept => Problem::new(Code::FenceClosed, why.to_string()).retry_after(1000),
    }
}

fn soon(retry_after: Duration) -> u64 {
    u64::try_from(retry_after.min(RETRY_AFTER_MAX).as_millis()).unwrap_or(u64::MAX).max(1)
}
