//! What engines across a network share: bounds, the feed of changes, URLs of several servers, and the one
//! question after every failure: may it have happened?

#![cfg_attr(not(feature = "full"), allow(dead_code, reason = "each engine uses what it needs"))]

pub(crate) mod address;
pub(crate) mod change_feed;
pub(crate) mod held;
#[cfg(feature = "consul")]
pub(crate) mod http;
pub mod limits;
pub(crate) mod names;
pub(crate) mod pages;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use regent_election::Moment;

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

/// Connections that are of no more use: a question on them was not answered in time, or was dropped by
/// whoever asked it after it had waited for long. They are numbered in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    /// All below this.
    below: AtomicU64,
}

impl Abandoned {
    /// A question leaves on this connection.
    pub(crate) fn asks(&self, number: u64, request_for: Duration) -> Question<'_> {
        // Whoever drops one that was just asked changed its mind, and knows nothing of the connection.
        let doubtful_at = regent_clock::now() + request_for / 8;
        Question { abandoned: self, number, doubtful_at, is_answered: false }
    }

    /// Whether this connection is one of them.
    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.below.load(Ordering::Acquire)
    }
}

/// A question that is under way.
#[must_use = "dropped, it is a question that was not answered"]
pub(crate) struct Question<'a> {
    abandoned: &'a Abandoned,
    number: u64,
    doubtful_at: Moment,
    is_answered: bool,
}

impl Question<'_> {
    /// There was an answer, of whatever kind.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if !self.is_answered && regent_clock::now() >= self.doubtful_at {
            self.abandoned.below.fetch_max(self.number + 1, Ordering::AcqRel);
        }
    }
}

/// A request to a server, from connecting to the answer, within one time-out.
pub(crate) async fn in_time<T>(
    request_for: Duration,
    effect: Effect,
    server: &str,
    request: impl AsyncFnOnce(&Sent) -> RegisterResult<T>,
) -> RegisterResult<T> {
    let sent = Sent::default();
    if let Ok(answer) = tokio::time::timeout(request_for, request(&sent)).await {
        return answer;
    }
    Err(if sent.0.load(Ordering::Acquire) {
        effect.unanswered(format_args!("no answer from {server} within {request_for:?}"))
    } else {
        RegisterError::unavailable(format_args!("no connection to {server} within {request_for:?}"))
    })
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

/// Reads a text as the URL of a store of several servers and as the spelling of a name, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(text: &str) {
    if let Ok(place) = address::StoreAddress::parse(text, 2379) {
        assert!(!place.servers.is_empty());
        assert!(place.servers.iter().all(|server| server.contains(':')));
        let _ = place.knows_only(&["mode"]);
    }
    for kept in [&b""[..], b"/"] {
        if let Some(name) = names::read(text, kept) {
            assert_eq!(names::spelled(&name, kept), text, "a name has one spelling");
        }
    }
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
            in_time(Duration::from_millis(1), effect, "a server", request).await.unwrap_err()
        };
        assert!(matches!(asked(Effect::Writes, true).await, RegisterError::Uncertain { .. }));
        assert!(matches!(asked(Effect::Writes, false).await, RegisterError::Unavailable { .. }));
        assert!(matches!(asked(Effect::Reads, true).await, RegisterError::Unavailable { .. }));
    }

    #[tokio::test]
    async fn a_connection_is_given_up_when_a_question_waited_on_it_in_vain() {
        let (abandoned, request_for) = (Abandoned::default(), Duration::from_millis(8));
        abandoned.asks(3, request_for).answered();
        drop(abandoned.asks(3, Duration::from_secs(1000)));
        assert!(!abandoned.has(3), "answered, and dropped at once");
        let waits = async {
            let _question = abandoned.asks(3, request_for);
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(request_for, waits).await.is_err());
        assert!(abandoned.has(3) && abandoned.has(2) && !abandoned.has(4));
    }

    #[test]
    fn a_lost_answer_leaves_a_doubt_only_about_what_writes() {
        assert!(matches!(Effect::Reads.unanswered("x"), RegisterError::Unavailable { .. }));
        assert!(matches!(Effect::Writes.unanswered("x"), RegisterError::Uncertain { .. }));
    }
}
