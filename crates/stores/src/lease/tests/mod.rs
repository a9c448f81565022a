//! Tests of the lease that need to see its insides.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod brim;
mod directed;
mod duties;
mod lines;
mod records;
mod sights;
