//! The wall clock, for the stamp of a backup and for how far terms leap when one is restored.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock in seconds, for the stamp of a backup.
pub(crate) fn wall_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
