//! The gRPC face over real TCP, on the real in-memory store.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod access;
mod audited;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod late;
mod process;
mod session;
mod support;
mod verbs;
mod watching;
