//! The replica's disk: what the core says to keep, kept.

pub mod files;
