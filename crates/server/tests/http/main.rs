//! The service over real TCP, on the real in-memory store.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod access;
mod attacked;
mod browsers;
mod cluster;
mod document;
mod failing;
mod flood;
mod framing;
mod groups;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
#[cfg(feature = "jwt")]
mod jwt;
mod late;
mod leading;
mod memory;
mod metrics;
mod metrics_docs;
mod process;
mod rates;
mod restless;
mod sessions;
mod shares;
mod shutdown;
mod slow;
mod support;
mod watching;
