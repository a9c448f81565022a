//! Memory that a long-lived process no longer needs goes back to the system.
//!
//! The allocator gives freed memory back only while it is being used: a server that falls idle just
//! after a burst would keep the burst's memory for ever.

use std::thread;
use std::time::Duration;

/// How often what is free is given back.
const EVERY: Duration = Duration::from_secs(2);

/// Gives freed memory back now and then, for as long as the process lives.
pub(crate) fn give_back() {
    let tidier = thread::Builder::new().name("regent-memory".into());
    let started = tidier.spawn(|| {
        loop {
            thread::sleep(EVERY);
            #[allow(unsafe_code, reason = "the allocator is C; this call takes no pointer")]
            // SAFETY: it may be called by any thread at any time, and touches no memory in use.
            unsafe {
                libmimalloc_sys::mi_collect(true);
            }
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "no thread to give memory back; the process keeps what it once used");
    }
}
