//! What a fence over HTTP answers when it refuses, as problems.

#![cfg_attr(
    not(feature = "tools"),
    allow(dead_code, unreachable_pub, reason = "public with the feature `tools`")
)]

use std::time::Duration;

use regent_api::{Code, Problem};
use regent_election::fence::doorkeeper::TurnedAway;
use regent_election::limits::TERM_STEP_MAX;
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

/// Refuses a term that is too far above the mark for anybody to believe it. Without this, one request could raise the
/// mark to the highest term there is, and no leader would ever write again.
///
/// # Errors
/// If it leaps by more than [`TERM_STEP_MAX`]; the problem names the way out.
pub fn check_step(given: Term, mark: Term, way_out: &str) -> Result<(), Problem> {
    let step = given.get().saturating_sub(mark.get());
    if step <= TERM_STEP_MAX {
        return Ok(());
    }
    let detail = format!(
        "term {given} is {step} above the highest that passed, {mark}, and a step is at most {TERM_STEP_MAX}; if the group was restored or moved, {way_out}"
    );
    let mut problem = Problem::new(Code::NeverGranted, detail);
    problem.facts.given_term = Some(given);
    problem.facts.current_term = Some(mark);
    Err(problem)
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
