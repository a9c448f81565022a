//! A process that others of its user can neither trace nor read.
//!
//! The program under `regent run` has the same user as its guard. Without this it could attach to the guard, as to any
//! process of its user, and make it forget the lease; or read the secret of the session from the wrapper's memory. A
//! process that is not *dumpable* can be traced and read only by whoever has `CAP_SYS_PTRACE` there, and leaves no core
//! file. The kernel makes a process dumpable again when it becomes another program: so a child that is started is
//! as its user expects it, with core files as its limits say, and nothing has to be restored for it.
//!
//! Its files in `/proc` belong to root from then on. Whoever has to write one of them for a process that was forked
//! off, such as the map of a user namespace, must wait until that process has made itself dumpable (`spawn.rs`).
//!
//! The road not taken: a core limit of zero. Children inherit it, a trace does not ask for it, and the kernel ignores
//! it if core files go to a program.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes this process untraceable for others of its user, and keeps its memory out of core files.
///
/// # Errors
/// If the kernel refuses, which it has no reason to.
pub fn keep_private() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
