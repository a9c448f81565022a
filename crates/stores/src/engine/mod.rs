//! What engines across a network share: bounds, the bell, URLs of several servers, and the one
//! question after every failure: may it have happened?

#![cfg_attr(not(feature = "full"), allow(dead_code, reason = "each engine uses what it needs"))]

pub(crate) mod bell;
#[cfg(feature = "consul")]
pub(crate) mod http;
pub mod limits;
pub(crate) mod names;
pub(crate) mod place;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::register::{RegisterError, RegisterResult};

/// Why a URL names no engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct UrlError {
    /// What is wrong with it and how to write it; never the URL itself, which may hold a password.
    why: String,
}

impl UrlError {
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string() }
    }
}

/// What a request leaves behind if it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: a lost answer means that nothing happened.
    Reads,
    /// Something: once it was sent, only an answer tells.
    Writes,
}

impl Effect {
    /// The error of a request that was sent and not answered.
    pub(crate) fn unanswered(self, why: impl fmt::Display) -> RegisterError {
        match self {
            Self::Reads => RegisterError::unavailable(why),
            Self::Writes => RegisterError::uncertain(why),
        }
    }
}

/// Whether a request is on its way: up to then, giving up means that nothing happened.
#[derive(Debug, Default)]
pub(crate) struct Sent(AtomicBool);

impl Sent {
    /// To be called before the first byte leaves.
    pub(crate) fn leaves_now(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A request to a server, from connecting to the answer, within one time-out. The second value says that
/// it was too late: the connection it was sent on is of no more use.
pub(crate) async fn in_time<T>(
    request_for: Duration,
    effect: Effect,
    server: &str,
    request: impl AsyncFnOnce(&Sent) -> RegisterResult<T>,
) -> (RegisterResult<T>, bool) {
    let sent = Sent::default();
    if let Ok(answer) = tokio::time::timeout(request_for, request(&sent)).await {
        return (answer, false);
    }
    let error = if sent.0.load(Ordering::Acquire) {
        effect.unanswered(format_args!("no answer from {server} within {request_for:?}"))
    } else {
        RegisterError::unavailable(format_args!("no connection to {server} within {request_for:?}"))
    };
    (Err(error), true)
}

/// A number nobody else has drawn, for what must differ from everything before.
pub(crate) fn fresh() -> u64 {
    // Without random numbers nothing here is safe: a stopped process is a takeover.
    getrandom::u64().expect("the system has random numbers")
}

/// Whole milliseconds of a ttl, rounded up: a server never counts less than it was asked for.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_never_shortened_by_rounding() {
        assert_eq!(whole_ms(Duration::from_micros(1500)), 2);
        assert_eq!(whole_ms(Duration::from_secs(3)), 3000);
        assert_eq!(whole_ms(Duration::ZERO), 1);
    }

    #[tokio::test]
    async fn a_late_request_is_in_doubt_only_once_it_was_sent() {
        let asked = async |effect, is_sent: bool| {
            let request = async |sent: &Sent| {
                if is_sent {
                    sent.leaves_now();
                }
                std::future::pending::<RegisterResult<()>>().await
            };
            let (answer, is_late) =
                in_time(Duration::from_millis(1), effect, "a server", request).await;
            assert!(is_late);
            answer.unwrap_err()
        };
        assert!(matches!(asked(Effect::Writes, true).await, RegisterError::Uncertain { .. }));
        assert!(matches!(asked(Effect::Writes, false).await, RegisterError::Unavailable { .. }));
        assert!(matches!(asked(Effect::Reads, true).await, RegisterError::Unavailable { .. }));
    }

    #[test]
    fn a_lost_answer_leaves_a_doubt_only_about_what_writes() {
        assert!(matches!(Effect::Reads.unanswered("x"), RegisterError::Unavailable { .. }));
        assert!(matches!(Effect::Writes.unanswered("x"), RegisterError::Uncertain { .. }));
    }
}
