//! Checkers of elections that are kept in a register: the promises whose usual witness is a log.
//!
//! The others are the very same ones. S8 and L5 are about replicas, and there are none; S6 is part of S7
//! here, which holds every answer to what the engine had made durable before.

pub(super) mod l4;
pub(super) mod l6;
pub(super) mod living;
pub(super) mod s5;
pub(super) mod s7;
pub(super) mod s9;
