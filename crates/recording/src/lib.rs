//! The flight recorder: what a replica applied, in files beside its data, outside its state.
//!
//! A group's history in the state is eight changes long, and the ring that watches are served from is as
//! short as memory. Questions of the next morning need more. So every replica writes down what it
//! applies: deeds and changes, without secrets, in bounded files (`docs/formats.md` has every field).
//!
//! It is a witness and no part of the store: nothing waits for it, nothing is read back from it, and
//! losing it loses no promise. A `gap` marks what it could not keep.
//!
//! - `row`: one line, as it is written and read back.
//! - `line`: what a line says, in the types of the rules.
//! - `files`: which files there are, and how they are bounded.
//! - `recorder`: the queue and the thread between a replica and the files.
//! - `reader`: a recording read back, whole or by groups.
//!
//! What is not here: a simulation of a recording. The simulator has that (`crates/lab/src/trace`); it reads [`RecordedLine`]s.

mod files;
mod line;
mod reader;
mod recorder;
mod row;

pub use files::DIRECTORY;
pub use line::{LineContent, RecordedLine};
pub use reader::{ReadError, Recording, lines};
pub use recorder::{Owner, Recorder};
pub use row::{Begin, ChangeRow, DeedRow, EndRow, FORMAT, GapRow, RaftRow, Row};
