//! Bounds, each with its reason.

use std::time::Duration;

/// Longest token that is read: one with hundreds of group claims is shorter.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Most bytes of the file of issuers.
pub const ISSUERS_BYTES_MAX: u64 = 64 << 10;
/// Most issuers: all of them are read again at intervals.
pub const ISSUERS_MAX: usize = 32;
/// Most bytes of a set of keys.
pub const KEYS_BYTES_MAX: usize = 1 << 20;
/// Most keys of one issuer: rotation needs two or three.
pub const KEYS_MAX: usize = 100;
/// Longest leeway for clocks that differ.
pub const LEEWAY_MAX: Duration = Duration::from_secs(60);
/// How often the keys of an issuer are read again.
pub const KEYS_READ_EVERY: Duration = Duration::from_secs(300);
/// How often at most a key that is not known makes them be read again: tokens of strangers name what they like.
pub const KEYS_READ_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How long an issuer has to send its keys.
pub const KEYS_FETCH_TIMEOUT: Duration = Duration::from_secs(10);
