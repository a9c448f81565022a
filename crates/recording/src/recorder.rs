//! The queue and the thread between a replica and the files.
//!
//! The core's thread puts it into a bounded queue and goes on; a thread of its own writes. If the queue is
//! full, or the disk refuses, what came is dropped, and the next entry that is kept is preceded by a `gap`:
//! whoever drops says so in what is queued next, so that the gap stands where something is missing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent_election::deed::DeedRecord;
use regent_election::{Moment, Revision};

use crate::files::Files;
use crate::row::{Begin, EndRow, FORMAT, GapRow, RaftRow, Row};

/// Entries that wait to be written.
const QUEUE_MAX: usize = 16_384;
/// Changes that wait to be written: one entry may have a hundred thousand.
const QUEUED_CHANGES_MAX: usize = 1_000_000;
/// How long a disk that refused is left alone.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// How long the thread leaves the queue alone once something has come: what comes meanwhile wakes no thread, and is
/// written with it. A killed process may lose as much of its recording. At the 16,384 that the queue holds, a replica
/// may apply 800,000 entries a second before one is dropped for it.
const GATHER_FOR: Duration = Duration::from_millis(20);

/// The replica that a recording is of.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The cluster's number.
    pub cluster: u128,
    /// The replica's number in it.
    pub replica: u64,
}

impl Owner {
    /// The cluster, as a line tells it.
    fn cluster(&self) -> String {
        format!("{:032x}", self.cluster)
    }
}

#[derive(Debug)]
enum News {
    Entry(DeedRecord),
    Leap(Revision),
    LogLeader(RaftRow),
}

/// News in the queue.
#[derive(Debug)]
struct Queued {
    /// Whether something before it was dropped.
    is_after_loss: bool,
    news: News,
}

/// A running recorder. Dropping it ends the recording in order.
#[derive(Debug)]
pub struct Recorder {
    queue: Option<SyncSender<Queued>>,
    /// Changes in the queue.
    changes: Arc<AtomicUsize>,
    /// Whether something was dropped that nothing in the queue tells of yet.
    is_lossy: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Records into this directory, at most so many bytes.
    ///
    /// # Errors
    /// If its files cannot be opened, or its thread not started.
    pub fn start(directory: &Path, bytes_max: u64, owner: Owner) -> io::Result<Self> {
        let (queue, news) = sync_channel(QUEUE_MAX);
        let changes = Arc::default();
        let writer = Writer::open(directory, bytes_max, owner, Arc::clone(&changes))?;
        let body = move || writer.run(&news);
        let thread = std::thread::Builder::new().name("regent-flight".into()).spawn(body)?;
        Ok(Self::over(queue, changes, Some(thread)))
    }

    fn over(
        queue: SyncSender<Queued>,
        changes: Arc<AtomicUsize>,
        thread: Option<JoinHandle<()>>,
    ) -> Self {
        let is_lossy = AtomicBool::new(false);
        Self { queue: Some(queue), changes, is_lossy, thread: Mutex::new(thread) }
    }

    /// Whether there was room for it.
    fn tell(&self, news: News) -> bool {
        let is_after_loss = self.is_lossy.swap(false, Ordering::Relaxed);
        let queued = Queued { is_after_loss, news };
        let is_kept = self.queue.as_ref().is_some_and(|queue| queue.try_send(queued).is_ok());
        if !is_kept {
            self.is_lossy.store(true, Ordering::Relaxed);
        }
        is_kept
    }
}

/// What a replica reports, in the order in which it applied it. None of these functions waits.
impl Recorder {
    /// An entry was applied and changed something. After a restart the last ones may come again.
    pub fn record(&self, record: DeedRecord) {
        let changes = record.events.len();
        // Counted before it is queued: whoever takes it out subtracts.
        if self.changes.fetch_add(changes, Ordering::Relaxed) > QUEUED_CHANGES_MAX {
            self.changes.fetch_sub(changes, Ordering::Relaxed);
            self.is_lossy.store(true, Ordering::Relaxed);
        } else if !self.tell(News::Entry(record)) {
            self.changes.fetch_sub(changes, Ordering::Relaxed);
        }
    }

    /// A snapshot took the place of everything up to this revision.
    pub fn leap(&self, to: Revision) {
        self.tell(News::Leap(to));
    }

    /// Another replica leads the Raft log, or other replicas vote.
    pub fn log_leader(&self, leader: RaftRow) {
        self.tell(News::LogLeader(leader));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.queue.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The recorder's thread.
struct Writer {
    directory: PathBuf,
    bytes_max: u64,
    owner: Owner,
    /// None while the disk refuses.
    files: Option<Files>,
    refused_at: Option<Moment>,
    /// The last revision in the files.
    last: u64,
    /// Whether nothing has come yet since an earlier run recorded.
    is_first: bool,
    /// Why the next line does not follow the one before.
    gap: Option<&'static str>,
    /// Changes in the queue.
    changes: Arc<AtomicUsize>,
}

impl Writer {
    fn open(
        directory: &Path,
        bytes_max: u64,
        owner: Owner,
        changes: Arc<AtomicUsize>,
    ) -> io::Result<Self> {
        let (files, last) = Files::open(directory, bytes_max, &owner.cluster())?;
        let mut writer = Self {
            directory: directory.to_owned(),
            bytes_max,
            owner,
            files: Some(files),
            refused_at: None,
            last: last.unwrap_or(0),
            is_first: last.is_some(),
            gap: None,
            changes,
        };
        let begin = writer.begin();
        writer.write(&begin);
        Ok(writer)
    }

    fn run(mut self, news: &Receiver<Queued>) {
        while let Ok(first) = news.recv() {
            std::thread::sleep(GATHER_FOR);
            self.take(first);
            while let Ok(next) = news.try_recv() {
                self.take(next);
            }
            self.attempt(Files::flush);
        }
        let rev = self.last;
        self.write(&Row::End(EndRow { at_ms: wall_ms(), rev }));
        self.attempt(Files::flush);
    }

    fn take(&mut self, queued: Queued) {
        let Queued { is_after_loss, news } = queued;
        if is_after_loss {
            self.gap = Some("more came than could be written");
        }
        match news {
            News::Entry(record) => {
                self.changes.fetch_sub(record.events.len(), Ordering::Relaxed);
                self.entry(record);
            }
            News::Leap(to) if to.0 > self.last => {
                self.gap = Some("a snapshot took the place of what led there");
            }
            News::Leap(_) => {}
            News::LogLeader(row) => self.write(&Row::Raft(row)),
        }
    }

    /// After a restart the last entries of the log are applied once more: they are in the files already.
    fn entry(&mut self, record: DeedRecord) {
        let revision = record.revision.0;
        let is_fresh = revision > self.last;
        if std::mem::take(&mut self.is_first) && is_fresh && revision > self.last + 1 {
            self.gap.get_or_insert("nothing was recorded in between, or nothing happened");
        }
        if !is_fresh {
            return;
        }
        if let Some(why) = self.gap.take() {
            let (at_ms, to, why) = (record.wall_ms, revision, why.to_owned());
            self.write(&Row::Gap(GapRow { at_ms, to, why }));
        }
        for row in Row::of(record) {
            self.write(&row);
        }
        self.last = revision;
    }

    fn begin(&self) -> Row {
        Row::Begin(Begin {
            at_ms: wall_ms(),
            format: FORMAT,
            cluster: self.owner.cluster(),
            replica: self.owner.replica,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    /// Writes a line, into another file if this one is full.
    fn write(&mut self, row: &Row) {
        // Every file begins with its owner.
        let is_at_start = self.files.as_ref().is_none_or(|it| it.is_empty() || it.is_full());
        let begin = is_at_start.then(|| self.begin());
        self.attempt(|files| {
            if files.is_full() {
                files.turn_over()?;
            }
            if let Some(begin) = begin.filter(|_| files.is_empty() && !matches!(row, Row::Begin(_)))
            {
                files.append(&begin)?;
            }
            files.append(row)
        });
    }

    /// Does something with the files; a disk that refuses is left alone for a while.
    fn attempt(&mut self, what: impl FnOnce(&mut Files) -> io::Result<()>) {
        if self.files.is_none() {
            let now = regent_clock::now();
            if self.refused_at.is_none_or(|at| now.since(at) >= AGAIN_AFTER) {
                self.refused_at = Some(now);
                let opened = Files::open(&self.directory, self.bytes_max, &self.owner.cluster());
                self.files = opened.ok().map(|(files, _)| files);
            }
        }
        let Some(files) = &mut self.files else {
            self.gap = Some("the disk refused");
            return;
        };
        if let Err(error) = what(files) {
            tracing::warn!(%error, directory = %self.directory.display(), "the flight recorder cannot write");
            self.files = None;
            self.refused_at = Some(regent_clock::now());
            self.gap = Some("the disk refused");
        }
    }
}

/// The wall clock, as a note for people.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use regent_election::deed::{Deed, Party};
    use regent_election::{Cause, Event, Group, Metadata, Node, SessionNo, Term};

    use super::*;
    use crate::files::of_directory;

    fn record(revision: u64) -> DeedRecord {
        let node = Node::new("a").unwrap();
        DeedRecord {
            revision: Revision(revision),
            wall_ms: revision,
            deed: Deed { verb: "open", ..Deed::default() },
            parties: vec![Party { session: SessionNo(revision), node, ttl_ms: 1_000 }],
            events: Vec::new(),
        }
    }

    fn change(revision: u64) -> Event {
        Event {
            group: Group::new("g").unwrap(),
            revision: Revision(revision),
            ordinal: 0,
            term: Term::new(1).unwrap(),
            leader: None,
            metadata: Metadata::NONE,
            cause: Cause::Expired,
        }
    }

    fn run(directory: &Path, revisions: &[u64]) {
        run_in(1, directory, revisions);
    }

    fn run_in(cluster: u128, directory: &Path, revisions: &[u64]) {
        let owner = Owner { cluster, replica: 1 };
        let recorder = Recorder::start(directory, 1 << 20, owner).unwrap();
        revisions.iter().for_each(|revision| recorder.record(record(*revision)));
    }

    fn told(directory: &Path) -> Vec<String> {
        let files = of_directory(directory).unwrap();
        let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let rows = text.lines().map(|line| Row::parse(line).unwrap());
        rows.map(|row| match row {
            Row::Begin(_) => "begin".to_owned(),
            Row::Gap(gap) => format!("gap to {}", gap.to),
            Row::End(_) => "end".to_owned(),
            Row::Deed(_) | Row::Change(_) | Row::Raft(_) => row.revision().unwrap_or(0).to_string(),
        })
        .collect()
    }

    #[test]
    fn what_is_applied_again_after_a_restart_is_recorded_once() {
        let room = tempfile::tempdir().unwrap();
        run(room.path(), &[1, 2, 4]);
        run(room.path(), &[2, 4, 5]);
        let wanted = ["begin", "1", "2", "4", "end", "begin", "5", "end"];
        assert_eq!(told(room.path()), wanted);
    }

    #[test]
    fn what_may_be_missing_after_a_restart_is_told_as_a_gap() {
        let room = tempfile::tempdir().unwrap();
        run(room.path(), &[1, 2]);
        run(room.path(), &[7]);
        let wanted = ["begin", "1", "2", "end", "begin", "gap to 7", "7", "end"];
        assert_eq!(told(room.path()), wanted);
    }

    #[test]
    fn what_found_no_room_is_told_as_a_gap_where_it_is_missing() {
        let room = tempfile::tempdir().unwrap();
        let (queue, news) = sync_channel(2);
        let changes = Arc::default();
        let owner = Owner { cluster: 1, replica: 1 };
        let mut writer = Writer::open(room.path(), 1 << 20, owner, Arc::clone(&changes)).unwrap();
        let recorder = Recorder::over(queue, changes, None);
        [1, 2, 3].into_iter().for_each(|revision| recorder.record(record(revision)));
        news.try_iter().for_each(|queued| writer.take(queued));
        [4, 5].into_iter().for_each(|revision| recorder.record(record(revision)));
        drop(recorder);
        writer.run(&news);
        assert_eq!(told(room.path()), ["begin", "1", "2", "gap to 4", "4", "5", "end"]);
    }

    #[test]
    fn what_found_no_room_takes_none_from_what_comes_later() {
        let (queue, news) = sync_channel(1);
        let recorder = Recorder::over(queue, Arc::default(), None);
        for revision in 1..=3 {
            let events = vec![change(revision); 10];
            recorder.record(DeedRecord { events, ..record(revision) });
        }
        let queued = news.recv().unwrap();
        assert!(matches!(&queued.news, News::Entry(record) if record.revision.0 == 1));
        assert_eq!(recorder.changes.load(Ordering::Relaxed), 10, "only what is queued counts");
    }

    #[test]
    fn what_another_cluster_left_behind_hides_nothing() {
        let room = tempfile::tempdir().unwrap();
        run_in(1, room.path(), &[1, 2, 9]);
        run_in(2, room.path(), &[1, 2]);
        run_in(2, room.path(), &[2, 3]);
        let wanted = ["begin", "1", "2", "9", "end", "begin", "1", "2", "end", "begin", "3", "end"];
        assert_eq!(told(room.path()), wanted);
        assert_eq!(of_directory(room.path()).unwrap().len(), 2, "each has files of its own");
    }
}
