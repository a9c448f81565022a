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

/// This moment for people, like `2026-11-18T10:00:00.123Z`.
pub(crate) fn stamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// Milliseconds since 1970 of a time like `2026-11-18T10:00:00Z`.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let refuse = |_| format!("{text:?} is no time; write it as 2026-11-18T10:00:00Z");
    let since = humantime::parse_rfc3339_weak(text).map_err(refuse)?.duration_since(UNIX_EPOCH);
    Ok(since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}
