//! The local store: the state machine, its deadlines and the lease clock behind one lock, in memory
//! or on one disk.
//!
//! It is the shortest correct implementation of the Store port, and what a single server runs on.
//! The way of a command:
//!
//! ```text
//! caller -> core (lock: apply, hand to the log, time what follows) -> ticket
//!                       |                                              ^
//!                       v                                              |
//!             syncer: one write + fdatasync for all that waits -> events -> answers
//! driver: what time has brought about -> core, like a caller
//! ```
//! Nothing leaves before it is durable: neither an answer, nor a read, nor an event. In memory,
//! durable means applied.
//!
//! Heartbeats write nothing. After a restart every session has a full ttl from the opening, and
//! every wait begins again: whatever was acknowledged by a heartbeat is honoured, at the price of one
//! ttl during which a leader that died with the store cannot be succeeded.
//!
//! On disk there are numbered journals and snapshots (formats in `frame`, order in `recovery`), and a
//! lock file so that two processes never share a directory.
//!
//! The road not taken is an embedded database. It would give the bytes, but not the one thing that
//! matters here: to know which bytes may be missing after a crash, and which may not.

mod campaign;
mod core;
mod driver;
mod files;
mod frame;
mod journal;
mod log;
mod recovery;
mod shared;
mod snapshot;
mod store;
mod syncer;
mod waiting;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use regent_election::state::State;
use regent_election::watch::{Bounds, EventRing, Hub};
use regent_election::{Command, Incarnation, Revision, Settings};

use self::core::Core;
use files::{Directory, LocalResult, Trying, open_existing};
use frame::FileKind;
use journal::Journal;
use log::Log;
use recovery::{Recovered, recover};
use shared::Shared;
use syncer::Syncer;

pub use files::LocalError;

/// A journal longer than this is replaced by a snapshot: it bounds how long an opening takes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// At a clean end a shorter journal is left as it is: it is read in no time, and watchers that come
/// back find in it what they missed.
const LEFTOVER_BYTES_MAX: u64 = 8 << 20;

/// How a local store is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// What shall hold for the whole store; none leaves what it holds, or the default.
    pub settings: Option<Settings>,
    /// A journal longer than this is replaced by a snapshot.
    pub journal_bytes_max: u64,
    /// A journal left by a clean end that is longer than this is, too.
    pub leftover_bytes_max: u64,
    /// How much is remembered for watchers.
    pub watch: Bounds,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: None,
            journal_bytes_max: JOURNAL_BYTES_MAX,
            leftover_bytes_max: LEFTOVER_BYTES_MAX,
            watch: Bounds::default(),
        }
    }
}

/// A store in this process, in memory or in a directory.
///
/// Dropping it stops its threads after everything applied is written;
/// [`shut_down`](regent_election::store::Store::shut_down) also ends watches and leaves the directory
/// quick to open.
pub struct LocalStore {
    shared: Arc<Shared>,
    directory: Option<PathBuf>,
    incarnation: Incarnation,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl LocalStore {
    /// A store that lives and dies with this process.
    pub fn memory() -> LocalResult<Self> {
        Self::memory_with(Options::default())
    }

    /// The same, as `options` say.
    pub fn memory_with(options: Options) -> LocalResult<Self> {
        let incarnation = random_incarnation()?;
        let state = State::new(Settings::default());
        let ring = EventRing::new(incarnation, state.revision(), options.watch);
        let log = Log::new(state.revision(), None);
        let core = Core::new(state, incarnation, log, regent_clock::now());
        let shared = Arc::new(Shared::new(core, Hub::resuming(ring)));
        Self::start(shared, None, incarnation, None, options.settings)
    }

    /// The store in `directory`, which is made if it is not there.
    pub fn open(directory: impl AsRef<Path>) -> LocalResult<Self> {
        Self::open_with(directory, Options::default())
    }

    /// The same, as `options` say.
    pub fn open_with(directory: impl AsRef<Path>, options: Options) -> LocalResult<Self> {
        let path = directory.as_ref().to_owned();
        let directory = Directory::open(&path)?;
        let (journal, state, ring) = match recover(&directory, options.watch)? {
            None => found(&directory, options.watch)?,
            Some(recovered) => resume(&directory, recovered)?,
        };
        directory.remove_leftovers()?;
        let incarnation = journal.incarnation();
        let log = Log::new(state.revision(), Some(journal.room()));
        let core = Core::new(state, incarnation, log, regent_clock::now());
        let shared = Arc::new(Shared::new(core, Hub::resuming(ring)));
        let syncer = Syncer {
            shared: Arc::clone(&shared),
            directory: Arc::new(directory),
            journal,
            rotate_at: options.journal_bytes_max,
            journal_bytes_max: options.journal_bytes_max,
            leftover_bytes_max: options.leftover_bytes_max,
            compactor: None,
        };
        Self::start(shared, Some(path), incarnation, Some(syncer), options.settings)
    }

    fn start(
        shared: Arc<Shared>,
        directory: Option<PathBuf>,
        incarnation: Incarnation,
        syncer: Option<Syncer>,
        settings: Option<Settings>,
    ) -> LocalResult<Self> {
        // From here on, dropping the store ends whatever threads there are.
        let store =
            Self { shared: Arc::clone(&shared), directory, incarnation, threads: Mutex::default() };
        if let Some(syncer) = syncer {
            store.spawn("regent-syncer", move || syncer.run())?;
        }
        store.spawn("regent-driver", move || driver::drive(&shared))?;
        if let Some(settings) = settings {
            store.put_settings(settings)?;
        }
        Ok(store)
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> LocalResult<()> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .map_err(|why| LocalError::System { what: "thread", why: why.to_string() })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Makes the settings hold, unless they do already.
    fn put_settings(&self, settings: Settings) -> LocalResult<()> {
        let (answer, _ticket) = self.shared.enter(|core| {
            if *core.state.settings() == settings {
                return Ok(());
            }
            let applied = core.ask(Command::PutSettings { settings: Box::new(settings) }, None)?;
            applied.answer?;
            Ok(())
        });
        answer.map_err(|error| LocalError::Settings(error.to_string()))
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.shared.stop(false);
        join(self.take_threads());
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Waits until threads that were told to end have done so.
fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
}

/// Begins a store in a directory that has none.
fn found(directory: &Directory, bounds: Bounds) -> LocalResult<(Journal, State, EventRing)> {
    let incarnation = random_incarnation()?;
    let journal = Journal::create(directory, 0, incarnation, Revision(0))?;
    let state = State::new(Settings::default());
    let ring = EventRing::new(incarnation, state.revision(), bounds);
    Ok((journal, state, ring))
}

/// Goes on with what a directory holds.
fn resume(directory: &Directory, recovered: Recovered) -> LocalResult<(Journal, State, EventRing)> {
    let Recovered { state, incarnation, journal: number, end, ring, torn_bytes } = recovered;
    let path = directory.path_of(FileKind::Journal, number);
    if torn_bytes > 0 {
        tracing::warn!(
            file = %path.display(), at_byte = end, torn_bytes,
            "the last write was cut short before it was acknowledged; it is cut off"
        );
    }
    let file = open_existing(&path)?;
    let journal = Journal::resume(file, number, incarnation, end, torn_bytes > 0)
        .trying("go on with", &path)?;
    tracing::info!(revision = state.revision().0, journal = number, "the store was found");
    Ok((journal, state, ring))
}

fn random_incarnation() -> LocalResult<Incarnation> {
    let number = getrandom::u64()
        .map_err(|why| LocalError::System { what: "random number", why: why.to_string() })?;
    Ok(Incarnation(number))
}
