//! Every bound of the audit log, and its reason.

use std::time::Duration;

/// Files that are kept: when another begins, the oldest goes, so an eighth of the log is dropped at a time.
pub const FILES_MAX: u64 = 8;
/// Longest line that is read. A checkpoint with a hybrid signature has less than 6 KiB, other lines less than 3 KiB.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Fewest bytes that may be kept: every file must hold some lines.
pub const BYTES_MIN: u64 = 64 << 10;
/// Lines that wait to be written: a second of changes of a busy server. Beyond it lines are lost, and counted.
pub const QUEUE_MAX: usize = 16_384;
/// Lines between two checkpoints: a signature is cheap beside so many lines.
pub const CHECKPOINT_LINES: u64 = 256;
/// How old a line gets before a checkpoint covers it.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// How much a power cut may take: the files are synced this often while lines are written.
pub const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often the writer looks for what is due when nothing comes.
pub const WRITER_POLL_EVERY: Duration = Duration::from_millis(250);
/// Batches of lines begin at least so far apart. What comes meanwhile is written together, so a busy server wakes the
/// writer 200 times a second and not for every line; a kill takes at most so much that was answered. A line that comes after
/// a pause is written at once.
pub const BATCH_EVERY: Duration = Duration::from_millis(5);
/// How long a disk that refused is left alone.
pub const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long denials of one kind are counted into one line.
pub const DENIALS_PER: Duration = Duration::from_secs(60);
/// Kinds of denials that are told apart at a time; those beyond share one line. With 60 s for each, denials cause at
/// most some 75 KiB a minute.
pub const DENIAL_KINDS_MAX: usize = 256;
/// The same of one principal, or of all strangers together: nobody hides others' denials among its own. 5 KiB a minute.
pub const DENIAL_KINDS_OF_ONE_MAX: usize = 16;
/// Longest detail of a line, in characters.
pub const DETAIL_CHARS_MAX: usize = 240;
/// Defects that a report lists; more are counted.
pub const DEFECTS_LISTED_MAX: usize = 100;
/// Largest file of public keys that is read.
pub const KEYS_BYTES_MAX: u64 = 1 << 20;
