//! The library: take part in elections from Rust.
