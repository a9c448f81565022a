//! The queue and the thread between a server and the files.
//!
//! A request puts its line into a bounded queue and goes on: no renewal waits for the audit log. A thread of its own
//! writes what has gathered, in one go. What finds the queue full, or what the disk refuses, is lost, but never silently: it is counted in a metric,
//! said in the log, and its number stands in the chain as a `gap`, as soon as a line can be written again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent_election::Moment;

use crate::chain::Head;
use crate::checkpoint::Checkpoint;
use crate::denials::Denials;
use crate::files::{Files, OpenError, Opened};
use crate::limits::{
    AGAIN_AFTER, BATCH_EVERY, CHECKPOINT_EVERY, CHECKPOINT_LINES, QUEUE_MAX, SYNC_EVERY,
    WRITER_POLL_EVERY,
};
use crate::line::{Act, Begin, Content, FORMAT, Line};

/// Signs a checkpoint with whatever key signs now; none if no key does.
pub type Sign = Box<dyn Fn(&Checkpoint) -> Option<String> + Send>;

/// What the metrics tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of the last line.
    pub sequence: u64,
    /// Lines that were lost since the start.
    pub lost: u64,
    /// Whether the disk refuses now.
    pub is_failing: bool,
}

#[derive(Debug)]
struct Queued {
    /// Lines that were lost right before this one.
    lost: u64,
    at_ms: u64,
    content: Content,
}

/// What requests and the writer share.
#[derive(Debug, Default)]
struct Shared {
    /// Lines that were lost and that nothing in the queue tells of yet.
    untold: AtomicU64,
    lost: AtomicU64,
    sequence: AtomicU64,
    is_failing: AtomicBool,
    denials: Mutex<Denials>,
}

impl Shared {
    fn denials(&self) -> MutexGuard<'_, Denials> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running audit log. Dropping it ends it in order.
#[derive(Debug)]
pub struct Audit {
    queue: Option<SyncSender<Queued>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Audit {
    /// Writes into this directory, at most about so many bytes. `cluster` is a label for people.
    ///
    /// # Errors
    /// If the files cannot be opened, or the thread not started: a server that is to be audited must not serve then.
    pub fn start(
        directory: &Path,
        bytes_max: u64,
        cluster: &str,
        sign: Option<Sign>,
    ) -> Result<Self, OpenError> {
        let (queue, queued) = sync_channel(QUEUE_MAX);
        let shared = Arc::<Shared>::default();
        let writer = Writer::open(directory, bytes_max, cluster, sign, Arc::clone(&shared))?;
        let body = move || writer.run(&queued);
        let thread = std::thread::Builder::new()
            .name("regent-audit".into())
            .spawn(body)
            .map_err(|source| OpenError::Io { path: directory.to_owned(), source })?;
        Ok(Self { queue: Some(queue), shared, thread: Some(thread) })
    }

    /// Something was changed, or may have been.
    pub fn changed(&self, act: Act) {
        self.record(Content::Change(act));
    }

    /// An operator's request was refused by a rule.
    pub fn refused(&self, act: Act) {
        self.record(Content::Refused(act));
    }

    /// Somebody was denied. Repeated denials are counted into one line.
    pub fn denied(&self, act: Act) {
        let told = self.shared.denials().on(regent_clock::now(), wall_ms(), act);
        if let Some(act) = told {
            self.record(Content::Denied(act));
        }
    }

    fn record(&self, content: Content) {
        // Looked at first: a write would make all cores that serve requests take turns.
        let lost = match self.shared.untold.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.shared.untold.swap(0, Ordering::Relaxed),
        };
        let queued = Queued { lost, at_ms: wall_ms(), content };
        let is_kept = self.queue.as_ref().is_some_and(|queue| queue.try_send(queued).is_ok());
        if !is_kept {
            self.shared.untold.fetch_add(lost + 1, Ordering::Relaxed);
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the metrics tell.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            sequence: self.shared.sequence.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
            is_failing: self.shared.is_failing.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The chain that is written.
#[derive(Debug)]
struct Chain {
    files: Files,
    head: Head,
    id: String,
    /// The log says that the files before this one go, and they are still there.
    trims_to: Option<u64>,
}

/// The thread.
struct Writer {
    directory: PathBuf,
    bytes_max: u64,
    cluster: String,
    sign: Option<Sign>,
    shared: Arc<Shared>,
    /// None while the disk refuses.
    chain: Option<Chain>,
    refused_at: Moment,
    /// Lines that were lost and of which no line tells yet.
    lost: u64,
    why_lost: &'static str,
    /// The last line that a checkpoint covers, and when the first one after it was written.
    covered: u64,
    uncovered_since: Option<Moment>,
    unsynced_since: Option<Moment>,
}

const QUEUE_FULL: &str = "more came than could be written";
const DISK_REFUSED: &str = "the disk refused";

impl Writer {
    fn open(
        directory: &Path,
        bytes_max: u64,
        cluster: &str,
        sign: Option<Sign>,
        shared: Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let mut writer = Self {
            directory: directory.to_owned(),
            bytes_max,
            cluster: cluster.to_owned(),
            sign,
            shared,
            chain: None,
            refused_at: Moment::ZERO,
            lost: 0,
            why_lost: QUEUE_FULL,
            covered: 0,
            uncovered_since: None,
            unsynced_since: None,
        };
        writer.open_files()?;
        Ok(writer)
    }

    /// Opens the files and says in them how they were found. Also after the disk refused: what it has decides where
    /// the chain goes on.
    fn open_files(&mut self) -> Result<(), OpenError> {
        let failed = |source| OpenError::Io { path: self.directory.clone(), source };
        let Opened { files, continues, broken } = Files::open(&self.directory, self.bytes_max)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        if let Some(why) = &broken {
            tracing::error!(directory = %self.directory.display(), %why, "the audit log does not hold; it is left as it is, and another chain begins");
        }
        let mut lines = Vec::new();
        let chain = match continues {
            Some(found) => {
                if let Some((bytes, sha256)) = found.repaired {
                    lines.push(Content::Repaired { bytes, sha256 });
                }
                lines.push(Content::Start { clean: found.has_ended, version });
                Chain { files, head: found.head, id: found.chain, trims_to: None }
            }
            None => {
                let id = random_id().map_err(failed)?;
                let (format, cluster) = (FORMAT, self.cluster.clone());
                let chain = id.clone();
                lines.push(Content::Begin(Begin {
                    format,
                    chain,
                    cluster,
                    version,
                    after: broken,
                }));
                Chain { files, head: Head::none(), id, trims_to: None }
            }
        };
        self.covered = chain.head.seq;
        let mut chain = chain;
        let is_continued_file = chain.files.is_empty() && chain.head.seq > 0;
        if is_continued_file {
            let (id, file) = (chain.id.clone(), chain.files.number());
            append(&mut chain, wall_ms(), Content::File { chain: id, file }).map_err(failed)?;
        }
        for content in lines {
            append(&mut chain, wall_ms(), content).map_err(failed)?;
        }
        chain.files.sync().map_err(failed)?;
        self.shared.sequence.store(chain.head.seq, Ordering::Relaxed);
        self.uncovered_since = Some(regent_clock::now());
        self.chain = Some(chain);
        Ok(())
    }

    fn run(mut self, queued: &Receiver<Queued>) {
        let mut batch_at = None;
        loop {
            match queued.recv_timeout(WRITER_POLL_EVERY) {
                Ok(first) => {
                    batch_at = Some(regent_clock::now());
                    self.take(first);
                    // Not without end: signing and syncing must not wait for a pause.
                    queued.try_iter().take(QUEUE_MAX).for_each(|next| self.take(next));
                }
                Err(RecvTimeoutError::Timeout) => self.take_untold(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let due = self.shared.denials().due(regent_clock::now());
            due.into_iter().for_each(|act| self.add(wall_ms(), Content::Denied(act)));
            self.keep_up();
            if let Some(batch_at) = batch_at.take() {
                let passed = regent_clock::now().since(batch_at);
                std::thread::sleep(BATCH_EVERY.saturating_sub(passed));
            }
        }
        let counted = self.shared.denials().all();
        counted.into_iter().for_each(|act| self.add(wall_ms(), Content::Denied(act)));
        self.take_untold();
        self.flush();
        // A disk that refused is asked once more: the next start would otherwise call this end a kill.
        self.refused_at = Moment::ZERO;
        self.tell_gap();
        self.add(wall_ms(), Content::End);
        self.checkpoint();
        self.attempt(|chain| chain.files.sync());
    }

    fn take(&mut self, queued: Queued) {
        let Queued { lost, at_ms, content } = queued;
        self.lose(lost, QUEUE_FULL);
        self.add(at_ms, content);
    }

    /// What was lost while nothing came after it.
    fn take_untold(&mut self) {
        let untold = self.shared.untold.swap(0, Ordering::Relaxed);
        self.lose(untold, QUEUE_FULL);
        self.tell_gap();
    }

    fn lose(&mut self, lost: u64, why: &'static str) {
        if lost > 0 {
            if self.lost == 0 {
                tracing::error!(lost, why, "lines of the audit log are lost");
            }
            self.lost += lost;
            self.why_lost = why;
        }
    }

    /// Appends a line, after the gap before it. It is written with the next flush.
    fn add(&mut self, at_ms: u64, content: Content) {
        self.tell_gap();
        if !self.attempt(|chain| put(chain, at_ms, content)) {
            self.lose_to_disk(1);
        }
        self.trim();
    }

    /// Writes what was appended.
    fn flush(&mut self) {
        // Otherwise a log to which nothing is added would be synced and signed for ever.
        if self.chain.as_ref().is_some_and(|chain| chain.files.is_unwritten()) {
            self.attempt(|chain| chain.files.flush());
        }
    }

    fn lose_to_disk(&mut self, lost: u64) {
        self.shared.lost.fetch_add(lost, Ordering::Relaxed);
        self.lose(lost, DISK_REFUSED);
    }

    /// Removes the oldest files, if the log has said that they go. Who verifies with keys believes that word only when
    /// it is signed.
    fn trim(&mut self) {
        if self.chain.as_ref().is_some_and(|chain| chain.trims_to.is_some()) {
            self.checkpoint();
            self.attempt(|chain| match chain.trims_to.take() {
                Some(from) => chain.files.sync().and_then(|()| chain.files.remove_before(from)),
                None => Ok(()),
            });
        }
    }

    fn tell_gap(&mut self) {
        if self.lost == 0 {
            return;
        }
        // Written at once: until then the number is in no other place. If the flush fails, it becomes a larger one.
        self.flush();
        let (lost, why) = (self.lost, self.why_lost.to_owned());
        let told = |chain: &mut Chain| {
            put(chain, wall_ms(), Content::Gap { lost, why })?;
            chain.files.flush()
        };
        if self.attempt(told) {
            self.lost = 0;
        }
    }

    /// Does something with the files, and says whether it was done. A disk that refuses is left alone for a while.
    fn attempt(&mut self, what: impl FnOnce(&mut Chain) -> io::Result<()>) -> bool {
        if self.chain.is_none() {
            let now = regent_clock::now();
            if now.since(self.refused_at) >= AGAIN_AFTER {
                self.refused_at = now;
                if self.open_files().is_ok() {
                    self.shared.is_failing.store(false, Ordering::Relaxed);
                    tracing::info!(directory = %self.directory.display(), "the audit log is written again");
                }
            }
        }
        let Some(chain) = &mut self.chain else { return false };
        match what(chain) {
            Ok(()) => {
                self.shared.sequence.store(chain.head.seq, Ordering::Relaxed);
                // The clock is read once for many lines.
                self.unsynced_since.get_or_insert_with(regent_clock::now);
                self.uncovered_since.get_or_insert_with(regent_clock::now);
                true
            }
            Err(error) => {
                let lost = chain.files.unwritten_acts();
                tracing::error!(%error, directory = %self.directory.display(), "the audit log cannot be written; free some space, or requests go unrecorded");
                self.shared.is_failing.store(true, Ordering::Relaxed);
                (self.chain, self.refused_at) = (None, regent_clock::now());
                self.lose_to_disk(lost);
                false
            }
        }
    }

    /// Signs and syncs what has waited long enough, and begins another file when this one is full.
    fn keep_up(&mut self) {
        let now = regent_clock::now();
        let is_due = |since: Option<Moment>, after: Duration| {
            since.is_some_and(|since| now.since(since) >= after)
        };
        let seq = self.chain.as_ref().map_or(self.covered, |chain| chain.head.seq);
        let is_full = self.chain.as_ref().is_some_and(|chain| chain.files.is_full());
        let many = seq.saturating_sub(self.covered) >= CHECKPOINT_LINES;
        if is_full || many || is_due(self.uncovered_since, CHECKPOINT_EVERY) {
            self.checkpoint();
        }
        if is_full {
            self.attempt(turn_over);
        }
        self.trim();
        if is_due(self.unsynced_since, SYNC_EVERY) && self.attempt(|chain| chain.files.sync()) {
            self.unsynced_since = None;
        }
        self.flush();
    }

    /// Signs the chain up to here. Without keys there is nothing to do.
    fn checkpoint(&mut self) {
        let (Some(sign), Some(chain)) = (&self.sign, &self.chain) else {
            self.uncovered_since = None;
            return;
        };
        let Head { seq, hash } = chain.head.clone();
        let at_ms = wall_ms();
        let Some(signed) = sign(&Checkpoint { chain: chain.id.clone(), seq, hash, at_ms }) else {
            tracing::warn!("no key signs now: a checkpoint of the audit log is left out");
            self.uncovered_since = None;
            return;
        };
        if self.attempt(|chain| {
            append(chain, at_ms, Content::Checkpoint { signed })?;
            chain.files.sync()
        }) {
            self.covered = seq + 1;
            (self.uncovered_since, self.unsynced_since) = (None, None);
        }
    }
}

/// Appends a line, into another file if this one is full beyond what `keep_up` leaves.
fn put(chain: &mut Chain, at_ms: u64, content: Content) -> io::Result<()> {
    if chain.files.is_full() {
        turn_over(chain)?;
    }
    append(chain, at_ms, content)
}

fn append(chain: &mut Chain, at_ms: u64, content: Content) -> io::Result<()> {
    let seq = chain.head.seq + 1;
    let line = Line { seq, prev: chain.head.hash.clone(), at_ms, content };
    let text = serde_json::to_string(&line).map_err(io::Error::other)?;
    chain.files.append(&text);
    chain.head = Head::after(seq, text.as_bytes());
    Ok(())
}

/// Begins another file, and says which of the oldest go.
fn turn_over(chain: &mut Chain) -> io::Result<()> {
    chain.files.begin_next()?;
    let (id, file) = (chain.id.clone(), chain.files.number());
    append(chain, wall_ms(), Content::File { chain: id, file })?;
    if let Some(from) = chain.files.keeps_from()? {
        append(chain, wall_ms(), Content::Trimmed { file: from })?;
        chain.trims_to = Some(from);
    }
    Ok(())
}

fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// The wall clock, as a note for people.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
