//! Bounds of the service that are no settings, each with its reason. Bounds of a session stream are in
//! `grpc/session/limits.rs`, bounds of the wire in `regent_api::limits`.

use std::time::Duration;

/// What a caller may ask at once after it was quiet: so much time's worth of its budget. A program that starts opens its
/// sessions and campaigns in all its groups.
pub(crate) const BURST: Duration = Duration::from_secs(2);
/// Callers whose budgets are remembered. Others share one, until budgets that are full again are forgotten.
pub(crate) const CALLERS_MAX: usize = 1 << 16;
/// How often those are looked for, at most: it takes a walk over all of them.
pub(crate) const FORGET_EVERY: Duration = Duration::from_secs(1);
/// Within which time those who were refused together come back.
pub(crate) const RETRY_SPREAD_MS: u64 = 200;
