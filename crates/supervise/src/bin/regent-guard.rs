//! The guard of a supervised program, for applications that cannot call `guard::entry` first in their own
//! `main`: name this binary in `Plan::guard`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    regent_supervise::guard::entry().unwrap_or_else(|| {
        eprintln!("regent-guard: only a supervisor starts this");
        ExitCode::from(64)
    })
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::from(69)
}
