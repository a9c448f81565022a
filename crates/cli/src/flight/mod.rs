//! The flight recorder: what a replica applied, in files beside its data, outside its state.
//!
//! A group's history in the state is eight changes long, and the ring that watches are served from is as
//! short as memory. Whoever asks the morning after needs more. So every replica writes down what it
//! applies: deeds and changes, without secrets, in bounded files (`docs/formats.md` has every field).
//!
//! It is a witness and no part of the store: nothing waits for it, nothing is read back from it, and
//! losing it loses no promise. What it could not keep is told by a `gap`.
//!
//! - `row`: one line, as it is written and read back.
//! - `files`: which files there are, how they are bounded, and how they are read.
//! - `recorder`: what the replica tells it, on its way to the files.

mod files;
mod recorder;
mod row;

pub(crate) use files::{DIRECTORY, each_line, of_directory};
pub(crate) use recorder::{Recorder, Whose};
pub(crate) use row::Row;
