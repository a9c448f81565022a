//! Reads the lease clock: suspend-aware and not slewed. The one place that does.
//!
//! A lease must run out while a machine sleeps, and at the pace of real time. No clock of Linux does
//! both: `CLOCK_MONOTONIC` stands still in suspend, `CLOCK_BOOTTIME` counts it but is slewed by a
//! time daemon (by up to 8 %), `CLOCK_MONOTONIC_RAW` is not slewed but stands still. So the lease
//! clock is `RAW + (BOOTTIME - MONOTONIC)`: the raw pace plus the time slept, in which the slewing
//! of the other two cancels out.
//!
//! The road not taken is [`std::time::Instant`], which on Linux is `CLOCK_MONOTONIC`: a leader that
//! sleeps an hour would wake and believe that its lease still runs.
//!
//! This is a crate of its own so that Cargo forbids the rules to read it: `regent-election` cannot
//! depend on what depends on it.

#[cfg(any(target_os = "linux", target_os = "android", test))]
mod composed;
mod source;
#[cfg(feature = "timer")]
mod timer;

use std::sync::atomic::{AtomicU64, Ordering};

use regent_election::Moment;
#[cfg(feature = "timer")]
pub use timer::SystemTime;

/// The highest reading handed out by this process.
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// The present moment on this machine's lease clock.
///
/// The reading is true at some instant between the call and the return: what is sent after the
/// return was sent no earlier, and what happened before the call happened no later. Within one
/// process it never goes backwards.
#[must_use]
pub fn now() -> Moment {
    let read = source::lease_clock_nanos();
    let highest = HIGHEST.fetch_max(read, Ordering::AcqRel);
    Moment::from_nanos(read.max(highest))
}

/// A moment for rates and other limits that decide nothing of a lease: one cheap reading in place of four. It advances in
/// steps of a few milliseconds and stands still while the machine sleeps. Never compare it with [`now`].
#[must_use]
pub fn coarse() -> Moment {
    Moment::from_nanos(source::coarse_nanos())
}

/// How far this clock may stray from real time, in parts per million: the ρ of the margin.
///
/// 1 % is twenty times what a time daemon may slew; 10 % is assumed of a clock whose slewing and
/// sleeping are not known.
#[must_use]
pub const fn drift_ppm() -> u32 {
    if source::IS_UNSLEWED_AND_COUNTS_SLEEP { 10_000 } else { 100_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_backwards_on_any_thread() {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut last = now();
                    for _ in 0..20_000 {
                        let read = now();
                        assert!(read >= last, "{read:?} came after {last:?}");
                        last = read;
                    }
                    last
                })
            })
            .collect();
        let ends: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let last = now();
        assert!(ends.iter().all(|end| *end <= last));
    }

    #[test]
    fn the_coarse_clock_never_goes_backwards_and_moves() {
        let first = coarse();
        let mut last = first;
        while last == first {
            let read = coarse();
            assert!(read >= last, "{read:?} came after {last:?}");
            last = read;
        }
    }

    #[test]
    fn a_wait_is_seen_by_the_lease_clock() {
        let before = now();
        let other = std::time::Instant::now();
        while other.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        // `Instant` may be slewed by 8 % against the lease clock; nothing else separates them.
        assert!(now().since(before).as_millis() >= 18);
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn a_clock_that_counts_sleep_and_is_not_slewed_is_trusted_to_one_percent() {
        assert_eq!(drift_ppm(), 10_000);
    }
}
