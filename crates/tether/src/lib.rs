//! A program on a tether: it and everything it starts are gone before the lease they run under is.
//!
//! ```text
//!   wrapper  ---- a stream of lines ----  guard  ------- starts -------  program
//!   (regent run)   lease, stop, signal    (this binary,                   and whatever
//!   keeps the lease                        own session)                   it starts
//! ```
//!
//! The **guard** is a second, small process. It is told on every renewal until when the lease is
//! valid, as a moment of this machine's lease clock, which all its processes share. It ends the tree
//! by itself when that moment comes close, or when the stream closes: so a wrapper that is stopped,
//! killed or stuck leaves no program behind. The wrapper in turn watches the guard: each lease is
//! acknowledged, and a guard that does not answer is killed, its tree with it.
//!
//! Where the kernel allows it the guard is the first process of a **pid namespace**. Then there is
//! no way out of the tree and no order of deaths that leaves any of it behind: when the guard ends,
//! however it ends, the kernel kills everything in the namespace, and only then can the guard be
//! waited for. So "the guard has been waited for" *is* "the tree is empty". Otherwise there is a
//! **cgroup** with `cgroup.kill`, and otherwise the **descendants** found in `/proc`, who cannot
//! hide from a guard that is their subreaper. [`Means`] says what each of them leaves open.
//!
//! | before `valid_until` | what happens |
//! |---|---|
//! | stop grace (a tenth of the ttl) | the wrapper asks for a stop; `SIGTERM` to the program's process group |
//! | three quarters of it | the guard does the same by itself if it has heard nothing |
//! | reserve (a twentieth of the ttl) | the guard sends `SIGKILL` to everything that is left, whatever was said |
//! | three quarters of it, then a quarter | the wrapper does the same through a guard that has not, then kills the guard |
//! | `valid_until` | nothing is left; the store frees the lease later still, by the margin for drift |
//!
//! Any of the processes may be stopped or killed: without the wrapper the guard acts, without the guard the
//! wrapper, without both the kernel, which kills a pid namespace with its first process and wakes a stopped
//! guard whose wrapper dies.
//!
//! Road not taken: a parent-death signal alone. It reaches only the direct child, is cleared by a
//! set-user-id program, and says nothing to a program whose wrapper is merely stopped.
//!
//! A crate of its own because it is the one place that makes processes by hand, with `unsafe`.
#![cfg(target_os = "linux")]

mod cgroup;
pub mod guard;
pub mod hook;
mod means;
mod private;
pub mod shell;
mod spawn;
mod tree;
mod watchdog;
mod words;
mod wrapper;

pub use means::{Contain, Means};
pub use private::keep_private;
pub use watchdog::Watchdog;
pub use words::{GuardReport, Status};
pub use wrapper::{Order, Tether, kill_group};
