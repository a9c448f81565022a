//! A binary of cargo-fuzz for each target of `crates/fuzz`: which one it is, its name says.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regent_fuzz::FuzzTarget;

static TARGET: LazyLock<&'static FuzzTarget> =
    LazyLock::new(|| FuzzTarget::find(env!("CARGO_BIN_NAME")).expect("the table has this target"));

fuzz_target!(|bytes: &[u8]| TARGET.feed(bytes));
