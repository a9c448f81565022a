//! Runs a program while this process leads, and not a moment longer: `regent run` as a library.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use regent_supervise::{Plan, Supervisor};
//!
//! let plan = Plan { restart: true, ..Plan::new("billing".parse()?) };
//! let supervisor = Supervisor::new(plan);
//! let handle = supervisor.handle(); // passes signals on, or asks the program to end
//! let at = regent::Regent::at("http://127.0.0.1:7400");
//! let ended = supervisor.run(at, ["./billing", "--port", "80"]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Three parts, none of which knows the others: the **election** keeps the lease, the **tether**
//! (`regent-tether`) holds the program and all it starts, and the supervisor's **machine** decides. The
//! runner carries what happens to the machine and does what it says.
//!
//! Whatever becomes of this process, the guard of the tether knows until when the lease is valid and
//! ends the tree before. So nothing here has to be in time for safety's sake; it has to be in time to
//! be graceful.
//!
//! The guard is a process: by default this same binary, whose `main` must begin with [`guard::entry`], or
//! the one that [`Plan::guard`] names.
#![cfg(target_os = "linux")]

mod election;
mod fence;
mod machine;
mod notify;
mod observer;
mod plan;
mod probe;
mod runner;
mod status;
mod supervisor;
mod view;
mod watchdog;

pub use observer::Observer;
pub use plan::{FencePrevious, Plan};
pub use probe::Probe;
pub use regent::NotElected;
pub use regent_tether::{Contain, guard};
pub use supervisor::{Ended, Handle, SuperviseError, Supervisor};
