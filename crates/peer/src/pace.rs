//! How long things take and are waited for, and whether that fits together.
//!
//! A leader must be able to lose one heartbeat without losing its office, and a token must be able to pass
//! over everybody who is dead before its starter asks again. Whoever gives no patience gets the shortest
//! round one that fits; whoever gives one that does not is shown the sum.

use std::time::Duration;

use regent_protocols::Pace;

use crate::Algorithm;
use crate::limits::{PACE_MAX, PACE_MIN};

/// How often a leader shows itself if nobody says.
const HEARTBEAT_DEFAULT: Duration = Duration::from_millis(100);
/// How long an answer is waited for if nobody says: a round trip on loopback, on a busy machine.
const ANSWER_DEFAULT: Duration = Duration::from_millis(100);
/// Heartbeats that fit into a patience that nobody gave.
const HEARTBEATS_MISSED: u32 = 4;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// How often a leader shows itself.
    pub heartbeat: Option<Duration>,
    /// The range of the election timeout.
    pub patience: Option<Patience>,
    /// How long an answer is waited for.
    pub answer: Option<Duration>,
}

/// The range from which the election timeout is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub min: Duration,
    pub max: Duration,
}

/// Why paces are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaceError {
    #[error("{flag} {given} is refused: {min} to {max}", given = show(*.given), min = show(PACE_MIN), max = show(PACE_MAX))]
    OutOfBounds { flag: &'static str, given: Duration },
    #[error("--patience {}..{} ends before it begins", show(*.min), show(*.max))]
    Backwards { min: Duration, max: Duration },
    #[error(
        "a patience of {} is shorter than two heartbeats and an answer (2 x {} + {} = {}), so one lost \
         heartbeat ends a leader; raise --patience, or lower --heartbeat or --answer",
        show(*.patience), show(*.heartbeat), show(*.answer), show(*.need)
    )]
    Heartbeat { patience: Duration, heartbeat: Duration, answer: Duration, need: Duration },
    #[error(
        "a patience of {} is shorter than a token needs to pass over everybody else on a ring of {nodes} \
         ({} x {} = {}), so elections would overtake each other; raise --patience or lower --answer",
        show(*.patience), .nodes - 1, show(*.answer), show(*.need)
    )]
    Round { patience: Duration, nodes: u16, answer: Duration, need: Duration },
}

/// Settles the paces of a run.
pub fn settle(algorithm: Algorithm, nodes: u16, wishes: &Wishes) -> Result<Pace, PaceError> {
    let heartbeat = wishes.heartbeat.unwrap_or(HEARTBEAT_DEFAULT);
    let answer = wishes.answer.unwrap_or(ANSWER_DEFAULT);
    check("--heartbeat", heartbeat)?;
    check("--answer", answer)?;
    let shown = 2 * heartbeat + answer;
    let round = match algorithm {
        // Its elections have waits of their own, which the machine derives from --answer.
        Algorithm::Bully => Duration::ZERO,
        Algorithm::Ring | Algorithm::ChangRoberts => u32::from(nodes - 1) * answer,
    };
    let Patience { min, max } = wishes.patience.unwrap_or_else(|| {
        let min = shown.max(round).max(HEARTBEATS_MISSED * heartbeat).min(PACE_MAX);
        Patience { min, max: (2 * min).min(PACE_MAX) }
    });
    check("--patience", min)?;
    check("--patience", max)?;
    if max < min {
        return Err(PaceError::Backwards { min, max });
    }
    if min < shown {
        return Err(PaceError::Heartbeat { patience: min, heartbeat, answer, need: shown });
    }
    if min < round {
        return Err(PaceError::Round { patience: min, nodes, answer, need: round });
    }
    Ok(Pace {
        heartbeat_every: heartbeat,
        patience_min: min,
        patience_max: max,
        answer_within: answer,
        // There is no lease here; the field belongs to an algorithm that is not played.
        ttl: max,
    })
}

fn show(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(duration)
}

fn check(flag: &'static str, given: Duration) -> Result<(), PaceError> {
    if (PACE_MIN..=PACE_MAX).contains(&given) {
        Ok(())
    } else {
        Err(PaceError::OutOfBounds { flag, given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn patience(min_ms: u64, max_ms: u64) -> Option<Patience> {
        Some(Patience { min: MS(min_ms), max: MS(max_ms) })
    }

    #[test]
    fn what_nobody_gave_fits_whatever_else_is_given() {
        for algorithm in Algorithm::ALL {
            for nodes in 2..=26 {
                for (heartbeat, answer) in
                    [(10, 10), (100, 100), (1000, 10), (10, 1000), (5000, 5000)]
                {
                    let wishes = Wishes {
                        heartbeat: Some(MS(heartbeat)),
                        answer: Some(MS(answer)),
                        patience: None,
                    };
                    let pace = settle(algorithm, nodes, &wishes).unwrap();
                    assert!(pace.patience_min >= 2 * pace.heartbeat_every + pace.answer_within);
                    assert!(pace.patience_min < pace.patience_max);
                }
            }
        }
        let pace = settle(Algorithm::Bully, 5, &Wishes::default()).unwrap();
        assert_eq!((pace.patience_min, pace.patience_max), (MS(400), MS(800)));
        let pace = settle(Algorithm::Ring, 11, &Wishes::default()).unwrap();
        assert_eq!((pace.patience_min, pace.patience_max), (MS(1000), MS(2000)));
    }

    #[test]
    fn paces_that_do_not_fit_are_refused_with_the_sum() {
        let refused = |algorithm, nodes, wishes: Wishes| {
            settle(algorithm, nodes, &wishes).unwrap_err().to_string()
        };
        let short = Wishes { patience: patience(250, 800), ..Wishes::default() };
        let text = refused(Algorithm::Bully, 3, short);
        assert!(text.contains("2 x 100ms + 100ms = 300ms"), "{text}");
        let short = Wishes { patience: patience(400, 800), ..Wishes::default() };
        assert!(settle(Algorithm::Bully, 6, &short).is_ok());
        assert!(settle(Algorithm::Ring, 5, &short).is_ok());
        let text = refused(Algorithm::ChangRoberts, 6, short);
        assert!(text.contains("a ring of 6 (5 x 100ms = 500ms)"), "{text}");
        let backwards = Wishes { patience: patience(800, 400), ..Wishes::default() };
        assert!(refused(Algorithm::Bully, 3, backwards).contains("ends before it begins"));
        let hasty = Wishes { heartbeat: Some(MS(1)), ..Wishes::default() };
        assert!(
            refused(Algorithm::Bully, 3, hasty).contains("--heartbeat 1ms is refused: 10ms to 10m")
        );
        let slow = Wishes { answer: Some(MS(3_600_000)), ..Wishes::default() };
        assert!(refused(Algorithm::Ring, 3, slow).contains("--answer 1h is refused"));
        // No patience that is allowed fits this, and the sum says so.
        let slow = Wishes { answer: Some(MS(600_000)), ..Wishes::default() };
        let text = refused(Algorithm::Ring, 3, slow);
        assert!(text.contains("2 x 100ms + 10m = 10m 200ms"), "{text}");
    }
}
