//! The wall clock, for dates that are read on other machines or by people.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::Exit;
use crate::failure::Failure;

/// Seconds since 1970: dates of keys, of certificates, and of a mark that an operator set.
pub(crate) fn wall_seconds() -> Result<u64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).map_err(|_| {
        Failure::new(Exit::Unavailable, "the clock of this machine stands before 1970")
    })
}
