//! The audit log: who changed what, and who was denied what, in files that prove offline that nothing is missing.
//!
//! Every server with authentication writes its own log, of the requests that it answered itself: a denial never reaches
//! the replicated log, and one that did would let strangers fill it. All servers' logs together hold every change.
//!
//! A log is a chain of lines. Each line carries a number and the SHA-256 of the line before, so a line that is changed,
//! missing, doubled or moved breaks the chain where it stands. Who can write the files can write the whole chain anew,
//! so checkpoints are signed with the service's signing keys: what stands before a checkpoint cannot be changed without
//! the key. What stands behind the last checkpoint can be cut off unnoticed, unless a later head of the chain was kept
//! elsewhere (`regent audit verify` prints it, and takes one with `--head`).
//!
//! What the chain cannot know is what a server did not get to write: lines in memory when it was killed, and the last
//! second before a power cut. A start after such an end says so in the chain. What found no room in the queue, or no
//! disk, is counted, and its number stands in the chain as a `gap`.
//!
//! - `line`: what a line says.
//! - `chain`: heads and hashes; the verifier. Pure: no file, no clock.
//! - `checkpoint`: what is signed.
//! - `denials`: repeated denials become one line with a count. Pure.
//! - `files`: which files there are, how they are bounded, repaired and continued.
//! - `words`: a line for people, and which lines they want.
//! - `writer`: the queue and the thread between a server and the files.
//! - `reader`: a directory read back, for people and for the verifier.
//!
//! The roads not taken: one chain in the replicated state (strangers would write to the Raft log, and a follower that
//! denies would need a leader to say so), and waiting for the disk before a request is answered (renewals would wait
//! for the audit log).

mod chain;
mod checkpoint;
mod denials;
mod files;
pub mod limits;
mod line;
mod reader;
mod told;
mod words;
mod writer;

pub use chain::{Defect, Head, HeadError, Omission, Place, Report, Verifier};
pub use checkpoint::Checkpoint;
pub use files::{DIRECTORY, OpenError};
pub use line::{Act, Begin, Content, FORMAT, Line};
pub use reader::{ReadError, keys, lines, verify};
pub use words::Filter;
pub use writer::{Audit, Figures, Sign};
