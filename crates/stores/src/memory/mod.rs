//! The memory store: the ledger and the lease clock behind one lock.
//!
//! It is the smallest correct implementation of the Store port, for tests, examples and trying things.
//! What must survive its process is kept by a replica, alone or in a cluster. The way of a command:
//!
//! ```text
//! caller -> core (lock: apply, time what follows) -> events -> answer
//! driver: what time has brought about -> core, like a caller
//! ```
//! Nothing is written, so what is applied is known: events are published before the lock is given
//! back, and every answer and every read follows them.
//!
//! The road not taken is a journal beside it, as `local:DIR` once had: a second write-ahead log for
//! what a single replica does with the one it has.

mod core;
mod driver;
mod shared;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use regent_election::limits::STATE_BYTES_MAX_DEFAULT;
use regent_election::state::State;
use regent_election::watch::{Bounds, Hub};
use regent_election::{Command, Incarnation, Settings, StateBudget};

use self::core::Core;
use shared::Shared;

/// How a memory store is to be.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// What shall hold for the whole store; none for the default.
    pub settings: Option<Settings>,
    /// How much is remembered for watchers.
    pub watch: Bounds,
    /// The most that the state may weigh, and a principal's part of it, before growth is refused.
    pub state_budget: StateBudget,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        let state_budget = StateBudget::whole(STATE_BYTES_MAX_DEFAULT);
        Self { settings: None, watch: Bounds::default(), state_budget }
    }
}

/// Why there is no memory store.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The settings contradict each other.
    #[error("the settings cannot be kept: {0}")]
    Settings(String),
    /// No thread or no random number could be had.
    #[error("the system gave no {what}: {why}")]
    System {
        /// What was asked for.
        what: &'static str,
        why: String,
    },
}

/// A store that lives and dies with this process.
///
/// Dropping it stops its thread; [`shut_down`](regent_election::store::Store::shut_down) also ends
/// watches and waiting campaigns.
pub struct MemoryStore {
    shared: Arc<Shared>,
    incarnation: Incarnation,
    driver: Mutex<Option<JoinHandle<()>>>,
}

impl MemoryStore {
    /// An empty store with the default settings.
    pub fn new() -> Result<Self, MemoryError> {
        Self::with(MemoryOptions::default())
    }

    /// An empty store, as `options` say.
    pub fn with(options: MemoryOptions) -> Result<Self, MemoryError> {
        let number = getrandom::u64().map_err(|why| system("random number", &why))?;
        let incarnation = Incarnation(number);
        let state = State::new(Settings::default());
        let hub = Hub::new(incarnation, state.revision(), options.watch);
        let now = regent_clock::now();
        let core = Core::new(state, incarnation, now, options.state_budget);
        let shared = Arc::new(Shared::new(core, hub));
        // From here on, dropping the store ends its thread, if there is one.
        let store = Self { shared: Arc::clone(&shared), incarnation, driver: Mutex::default() };
        let thread = std::thread::Builder::new()
            .name("regent-driver".into())
            .spawn(move || driver::drive(&shared))
            .map_err(|why| system("thread", &why))?;
        *store.driver.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        if let Some(settings) = options.settings {
            store.put_settings(settings)?;
        }
        Ok(store)
    }

    /// Makes the settings hold, unless they do already.
    fn put_settings(&self, settings: Settings) -> Result<(), MemoryError> {
        let answer = self.shared.enter(|core| {
            if *core.state().settings() == settings {
                return Ok(());
            }
            let applied = core.ask(Command::PutSettings { settings: Box::new(settings) }, None)?;
            applied.answer?;
            Ok(())
        });
        answer.map_err(|error| MemoryError::Settings(error.to_string()))
    }

    fn take_driver(&self) -> Option<JoinHandle<()>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.shared.stop();
        join(self.take_driver());
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

fn system(what: &'static str, why: &dyn fmt::Display) -> MemoryError {
    MemoryError::System { what, why: why.to_string() }
}

/// Waits until a driver that was told to end has done so.
fn join(driver: Option<JoinHandle<()>>) {
    if driver.is_some_and(|thread| thread.join().is_err()) {
        tracing::error!("the driver of the store panicked");
    }
}
