//! How long to wait before a broken stream is opened again: full jitter under a doubling ceiling.
//!
//! Without jitter, all watchers of a server that restarts come back in the same instant, again and
//! again. The dice are an argument, so that the arithmetic can be tested.

use std::time::Duration;

use crate::limits::{RECONNECT_MAX, RECONNECT_MIN};

/// Counts failures in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It works again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure. What the server asked for comes first, plus up to
    /// a quarter of it, since it told everybody the same.
    pub(crate) fn pause(&mut self, asked: Option<Duration>, random: u64) -> Duration {
        let ceiling = RECONNECT_MIN.saturating_mul(1 << self.failures.min(16)).min(RECONNECT_MAX);
        self.failures = self.failures.saturating_add(1);
        match asked {
            Some(asked) => {
                let asked = asked.min(RECONNECT_MAX);
                asked + within(asked / 4, random)
            }
            None => (RECONNECT_MIN / 2 + within(ceiling, random)).min(RECONNECT_MAX),
        }
    }
}

fn within(ceiling: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random % nanos.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_ceiling_and_never_reach_zero() {
        let mut backoff = Backoff::default();
        for failure in 0..100_u64 {
            for random in [0, 1, u64::MAX / 3, u64::MAX] {
                let pause = backoff.clone().pause(None, random);
                assert!(
                    pause >= RECONNECT_MIN / 2 && pause <= RECONNECT_MAX,
                    "{failure} {pause:?}"
                );
            }
            backoff.pause(None, failure);
        }
        let longest = (0..1000).map(|n| backoff.clone().pause(None, n * 7_919_777)).max().unwrap();
        assert!(longest > RECONNECT_MAX / 2, "{longest:?}");
    }

    #[test]
    fn success_starts_again_from_the_shortest_pause() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.pause(None, 1);
        }
        backoff.reset();
        assert!(backoff.pause(None, u64::MAX) <= RECONNECT_MIN * 3 / 2);
    }

    #[test]
    fn what_the_server_asked_for_wins_within_reason() {
        let mut backoff = Backoff::default();
        let asked = Duration::from_secs(2);
        let pause = backoff.pause(Some(asked), u64::MAX);
        assert!(pause >= asked && pause <= asked * 5 / 4, "{pause:?}");
        assert!(backoff.pause(Some(Duration::MAX), 0) <= RECONNECT_MAX * 5 / 4);
    }
}
