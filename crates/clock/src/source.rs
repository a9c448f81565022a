//! Where the time comes from on each system.
//!
//! Linux and macOS are asked through `libc::clock_gettime` and not by a raw system call (as `rustix`
//! does): fault injection by `LD_PRELOAD` then reaches the lease clock as it reaches everything else.

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use linux::{IS_UNSLEWED_AND_COUNTS_SLEEP, coarse_nanos, lease_clock_nanos};
#[cfg(target_os = "macos")]
pub(crate) use macos::{
    IS_UNSLEWED_AND_COUNTS_SLEEP, lease_clock_nanos, lease_clock_nanos as coarse_nanos,
};
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
pub(crate) use other::{
    IS_UNSLEWED_AND_COUNTS_SLEEP, lease_clock_nanos, lease_clock_nanos as coarse_nanos,
};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use super::clock_nanos;
    use crate::composed::{self, Clock};

    pub(crate) const IS_UNSLEWED_AND_COUNTS_SLEEP: bool = true;

    pub(crate) fn coarse_nanos() -> u64 {
        clock_nanos(libc::CLOCK_MONOTONIC_COARSE)
    }

    pub(crate) fn lease_clock_nanos() -> u64 {
        composed::lease_clock_nanos(|clock| {
            clock_nanos(match clock {
                Clock::Raw => libc::CLOCK_MONOTONIC_RAW,
                Clock::Monotonic => libc::CLOCK_MONOTONIC,
                Clock::Boottime => libc::CLOCK_BOOTTIME,
            })
        })
    }
}

#[cfg(target_os = "macos")]
mod macos {
    use super::clock_nanos;

    /// On macOS `CLOCK_MONOTONIC_RAW` is neither slewed nor stopped by sleep.
    pub(crate) const IS_UNSLEWED_AND_COUNTS_SLEEP: bool = true;

    pub(crate) fn lease_clock_nanos() -> u64 {
        clock_nanos(libc::CLOCK_MONOTONIC_RAW)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
mod other {
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Nobody can say what `Instant` is here.
    pub(crate) const IS_UNSLEWED_AND_COUNTS_SLEEP: bool = false;

    pub(crate) fn lease_clock_nanos() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One clock of the system, in nanoseconds.
///
/// Panics if the system has no such clock: without its clock no lease can be kept, and to stop is
/// the safe thing a participant can do. Every kernel on which the standard library runs has these.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
#[allow(
    unsafe_code,
    reason = "std reads only CLOCK_MONOTONIC; a foreign call is the one way to the other clocks"
)]
fn clock_nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the length of the call, which keeps no
    // reference to it.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert!(
        status == 0,
        "clock {clock} cannot be read: {}; no lease can be kept without it",
        std::io::Error::last_os_error()
    );
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000)
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
