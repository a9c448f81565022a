//! Reads the lease clock: suspend-aware and not slewed. The one place that does.
