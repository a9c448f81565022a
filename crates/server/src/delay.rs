//! How late this server's tasks run, and which requests it refuses for that.
//!
//! If the processors are the bottleneck, requests do not wait where they are counted. They wait in sockets and in the
//! runtime's queue before their first byte is read, and renewals wait among them. So the delay itself is measured: a probe
//! task is woken by another thread, as every request is when the store answers, and notes how long it took until it ran.
//!
//! After each probe that was later than `queue_delay_max` one more class is refused, the least important first; after each
//! that took less than half of it, one class fewer. So one late probe, after a pause of the whole process, costs watches a
//! moment, and only a queue that stands reaches reads and campaigns. Renewals are never refused for this.
//!
//! A request is refused by its head: before its body is read and before its caller is identified. The refusal is held
//! back for a moment ([`REFUSAL_HELD_FOR_MS`]) and its connection does nothing else meanwhile (over HTTP/1.1): a client
//! that is refused at once asks again at once, and refusals without end are a load, too.
//!
//! The road not taken: to move connections that renew to a thread of their own. They are ordinary connections until they
//! renew, and a socket does not move between runtimes without ending what reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use regent_election::Moment;

use crate::admission::Class;
use crate::app::App;
use crate::limits::{PROBE_EVERY, REFUSAL_HELD_FOR_MAX, REFUSAL_HELD_FOR_MS};

/// The classes that a delay refuses, in the order in which it does.
const REFUSED: [Class; 6] =
    [Class::Watch, Class::Read, Class::Admin, Class::Campaign, Class::Validate, Class::Release];

/// How many classes are refused at this moment: the first so many of [`REFUSED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level(u8);

impl Level {
    /// The level after a probe that took this long.
    fn after(self, delay: Duration, delay_max: Duration) -> Self {
        if delay > delay_max {
            Self((self.0 + 1).min(REFUSED.len() as u8))
        } else if delay < delay_max / 2 {
            Self(self.0.saturating_sub(1))
        } else {
            self
        }
    }

    fn refuses(self, class: Class) -> bool {
        REFUSED.iter().take(usize::from(self.0)).any(|refused| *refused == class)
    }
}

/// The delay as measured last, and what follows from it.
#[derive(Debug)]
pub(crate) struct QueueDelay {
    level: AtomicU8,
    nanos: AtomicU64,
    delay_max: Duration,
}

impl QueueDelay {
    pub(crate) fn new(delay_max: Duration) -> Self {
        Self { level: AtomicU8::new(0), nanos: AtomicU64::new(0), delay_max }
    }

    /// Whether requests of this class are refused at this moment.
    pub(crate) fn refuses(&self, class: Class) -> bool {
        Level(self.level.load(Ordering::Relaxed)).refuses(class)
    }

    /// What the last probe measured.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// A probe ran this long after it was woken. Only the task of [`probe`] says so.
    fn note(&self, delay: Duration) {
        self.nanos.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let level = Level(self.level.load(Ordering::Relaxed));
        let next = level.after(delay, self.delay_max);
        self.level.store(next.0, Ordering::Relaxed);
        if (level == Level(0)) != (next == Level(0)) {
            let delay_ms = delay.as_millis();
            tracing::debug!(delay_ms, is_refusing = next != Level(0), "the queue's delay");
        }
    }
}

/// Measures the delay until the server ends.
pub(crate) async fn probe(app: Arc<App>) {
    loop {
        // Woken by a thread of the runtime itself it would run before the others that wait.
        let woken_at = tokio::task::spawn_blocking(regent_clock::now).await;
        // Without a thread there is nothing to measure by.
        if let Ok(woken_at) = woken_at {
            app.queue_delay.note(regent_clock::now().since(woken_at));
        }
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

/// When the next refusal of a connection is told: each of them has its turn, so that one connection with many requests is
/// not told more of them at once.
pub(crate) fn told_at(last_at: Moment, now: Moment, dice: u64) -> Moment {
    let held =
        REFUSAL_HELD_FOR_MS.start + dice % (REFUSAL_HELD_FOR_MS.end - REFUSAL_HELD_FOR_MS.start);
    (last_at.max(now) + Duration::from_millis(held)).min(now + REFUSAL_HELD_FOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_millis(100);

    fn refused(delay: &QueueDelay) -> Vec<Class> {
        Class::ALL.into_iter().rev().filter(|class| delay.refuses(*class)).collect()
    }

    /// L7: a queue that stands refuses one class after the other, and renewals never.
    #[test]
    fn a_standing_delay_refuses_watches_first_then_reads_then_campaigns_and_never_renewals() {
        let delay = QueueDelay::new(MAX);
        assert_eq!(refused(&delay), []);
        for count in 1..=20 {
            delay.note(MAX * 3);
            assert_eq!(refused(&delay), REFUSED[..REFUSED.len().min(count)]);
        }
        assert!(!delay.refuses(Class::Renew));
        assert_eq!(delay.now(), MAX * 3);
    }

    #[test]
    fn a_queue_that_is_short_again_admits_one_class_after_the_other() {
        let delay = QueueDelay::new(MAX);
        (0..3).for_each(|_| delay.note(MAX * 2));
        delay.note(MAX / 2);
        assert_eq!(refused(&delay), [Class::Watch, Class::Read, Class::Admin], "it is not short");
        delay.note(MAX / 4);
        assert_eq!(refused(&delay), [Class::Watch, Class::Read]);
        (0..5).for_each(|_| delay.note(MAX / 4));
        assert_eq!(refused(&delay), []);
    }

    /// A process that was stopped for a minute finds one late probe, and no queue.
    #[test]
    fn one_pause_however_long_refuses_watches_only() {
        let delay = QueueDelay::new(MAX);
        delay.note(MAX * 1000);
        assert_eq!(refused(&delay), [Class::Watch]);
        delay.note(Duration::ZERO);
        assert_eq!(refused(&delay), []);
    }

    /// The order is the one in which places run out, too.
    #[test]
    fn both_ways_of_shedding_have_one_order() {
        assert!(REFUSED.windows(2).all(|two| two[0] > two[1]));
        assert_eq!(REFUSED.len() + 1, Class::ALL.len());
    }

    #[test]
    fn refusals_of_one_connection_are_told_one_after_the_other_and_none_too_late() {
        let now = Moment::from_millis(10_000);
        let first = told_at(Moment::ZERO, now, 0);
        assert_eq!(first, now + Duration::from_millis(REFUSAL_HELD_FOR_MS.start));
        let second = told_at(first, now, u64::MAX);
        assert!(second > first);
        let many = (0..1000).fold(second, |last, dice| told_at(last, now, dice));
        assert_eq!(many, now + REFUSAL_HELD_FOR_MAX);
    }
}
