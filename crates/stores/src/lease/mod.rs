//! The lease: the whole Store port on any [`Register`].
//!
//! The entry of a group holds a whole small state machine that knows this group alone: the very rules
//! that our own replica applies, so policies, endings, offers, delays, history and repeated requests are
//! the same on every engine. A verb loads the entry, applies a command, and swaps the entry for the
//! result, if nobody else was faster.
//!
//! A session has one entry of its own, which its heartbeat replaces however many offices it holds:
//!
//! ```text
//!  sessions/3f…  node, ttl, epoch, nonce   ◄── heartbeat: one swap
//!                                          ◄── "look at your list": the epoch, by whoever ended a tenure
//!                                          ◄── ended, by whoever watched it unchanged for a whole ttl
//!  groups/billing  nonce, small state      ◄── campaign, resign, expire, …: one swap each
//! ```
//!
//! What makes it safe:
//! - **A holder counts from the send** of its last acknowledged heartbeat, and whoever ends its session
//!   counts from when it saw that heartbeat, so later, and replaces exactly what it watched (`sight`).
//! - **A session ends before its tenures do**: nobody expires it in a group before its own entry is ended,
//!   so no heartbeat is acknowledged after anybody could follow it.
//! - **Whoever must stop is told before its time is counted**: its epoch rises in its own entry, and every
//!   heartbeat acknowledged from then on carries it (`duty`, semantics 11).
//! - **Every write has a nonce**, so a lost reply is settled by looking (`desk`).
//! - **Terms that were seen are never granted again**, even if the engine forgets (`turn`).
//!
//! An engine that times sessions itself is asked who is alive; everything else is the same. One that can wake
//! candidates one by one is told the line with every write (`line`), and those who only wait for their turn
//! then watch the one before them instead of the group's entry.
//!
//! What decides is pure: `turn` (what is written to a group), `duty` (what time asks for), `sight` (who is
//! due), `line` (who is woken), `record` and `session` (what entries hold). What acts is thin: `desk` (reads, writes, settling),
//! `hearing` (sessions), `office` (verbs of groups), `campaign`, `keeper` (watching groups for the sessions
//! that are heard here), `watch`, `store`. `reading` is for those who judge what was written.
//!
//! The road not taken: one record per lease with a holder and a term, as most libraries have it. It is
//! smaller, and every rule beyond it (standbys, endings, policies, repeats) would be written, and be wrong,
//! once more.

mod campaign;
mod desk;
mod duty;
mod hearing;
mod keeper;
mod line;
pub mod mutant;
mod office;
pub mod reading;
mod record;
mod session;
mod sight;
mod store;
#[cfg(test)]
mod tests;
mod turn;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_election::Group;
use regent_election::store::{StoreError, StoreResult};

use crate::register::Register;
use crate::time::{SystemTime, Time};
use desk::Desk;
use hearing::Local;
use keeper::Feed;

/// Something behind a lock that is held for no I/O.
type Locked<T> = Mutex<T>;

fn lock<T>(locked: &Locked<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done under these locks, so a panic elsewhere spoils nothing.
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Elections kept in a register.
pub struct LeaseStore {
    shared: Arc<Shared>,
}

/// What the verbs and the keepers share.
#[derive(Debug)]
struct Shared {
    desk: Desk,
    /// Where keepers live: sessions come and go with runtimes of their own.
    runtime: Option<tokio::runtime::Handle>,
    /// The sessions that are heard through this process.
    locals: Locked<BTreeMap<u128, Local>>,
    /// The groups that this process follows.
    feeds: Locked<BTreeMap<Group, Arc<Feed>>>,
    /// Rings at every change made through this process, for those who watch many groups. Not a channel:
    /// those wake in an order that no seed repeats.
    stirred: tokio::sync::Notify,
    closing: tokio::sync::watch::Sender<bool>,
    watchers: AtomicUsize,
    waiters: AtomicUsize,
}

impl LeaseStore {
    /// Elections kept in this register. To be called within a runtime, whose tasks keep watch.
    #[must_use]
    pub fn new(register: Arc<dyn Register>) -> Self {
        Self::with_time(register, SystemTime::shared())
    }

    /// The same, in another time.
    #[must_use]
    pub fn with_time(register: Arc<dyn Register>, time: Arc<dyn Time>) -> Self {
        let shared = Shared {
            desk: Desk::new(register, time),
            runtime: tokio::runtime::Handle::try_current().ok(),
            locals: Locked::default(),
            feeds: Locked::default(),
            stirred: tokio::sync::Notify::new(),
            closing: tokio::sync::watch::Sender::new(false),
            watchers: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl Shared {
    fn check_open(&self) -> StoreResult<()> {
        if *self.closing.borrow() {
            let why = "it is shutting down".into();
            return Err(StoreError::Unavailable { why, retry_after: None });
        }
        Ok(())
    }

    /// Ends everything that runs in the background.
    fn close_down(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until this store closes down.
    async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives as long as this does.
        let _ = closing.wait_for(|is_closing| *is_closing).await;
    }
}

impl fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStore").field("register", &self.shared.desk.register).finish()
    }
}

impl Drop for LeaseStore {
    fn drop(&mut self) {
        self.shared.close_down();
    }
}
