//! What operators do to running elections, callable from Rust: `regent migrate`, `regent doctor` and others
//! print what these functions report.
//!
//! - [`access`]: who may do what: bindings from a file, and why somebody may or may not.
//! - [`migrate`]: a group moves to another store, with its leader and above its terms.
//! - [`split_brain`]: which nodes act as leaders, compared with the one that may.
//! - [`recovery`]: the way back from a split brain to one leader.
//! - [`campaign`]: a candidate that waits in line over HTTP.
//! - [`keep_line`]: what a candidate that keeps its office tells.
//! - [`login`]: a credential is tried on a server, and kept under a name.
//! - [`cluster_view`]: what the replicas of a cluster say of themselves, again and again.
//! - [`watch_lines`]: what a watch tells, in lines for people.
//! - [`show`], [`tables`]: how offices, sessions and policies look to people.
//! - [`status`]: what is wrong with a service, and what to do.
//! - [`unknown_group`]: a mistyped group, with the name that may have been meant.
//! - [`why`]: why a group is led as it is, from its last changes.
//! - [`way_out`]: the flag that helps after a refusal.
//! - [`retry`]: requests that are repeated until their outcome is known.
//! - [`examine`]: whether a deployment keeps what elections need.
//!
//! Nothing here prints, asks on a terminal or ends a process. Progress comes as events, and errors say what
//! the caller may do next.

pub mod access;
pub mod campaign;
pub mod cluster_view;
pub mod escape;
pub mod examine;
pub mod keep_line;
pub mod login;
pub mod migrate;
pub mod recovery;
pub mod retry;
mod saved_policy;
pub mod show;
pub mod split_brain;
pub mod status;
pub mod tables;
pub mod unknown_group;
pub mod watch_lines;
pub mod way_out;
pub mod why;
