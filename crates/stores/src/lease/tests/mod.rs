//! Tests of the lease that need to see its insides.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod brim;
mod directed;
mod duties;
mod observed;
mod passed_on;
mod passing;
mod records;
mod wake_orders;
