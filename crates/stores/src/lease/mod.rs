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
//!   counts from when it saw that heartbeat, so later, and replaces exactly what it watched (`observed`).
//! - **A session ends before its tenures do**: nobody expires it in a group before its own entry is ended, and no
//!   heartbeat that is sent after that is acknowledged. One that was sent before and is answered later came before
//!   the end in the order of writes. Where nobody heard the session for its ttl it makes the end fail, or it was
//!   written a whole ttl earlier; where its owner ended it the owner has given up what it held. What it extends
//!   counts from its send.
//! - **Whoever must stop is told before its time is counted**: its epoch rises in its own entry, and every
//!   heartbeat sent from then on carries it. One that was sent before may be acknowledged with the old epoch, and
//!   what it extends is over before the time that is counted from then on (`duty`, semantics 11).
//! - **A passing session ends with its last group**: whoever ends it replaces the entry in which a campaign lists
//!   its group before it may win there (`sessions`).
//! - **Every write has a nonce**, so a lost reply is settled by looking (`entries`).
//! - **Terms that were seen are never granted again**, even if the engine forgets (`turn`).
//!
//! An engine that times sessions itself is asked who is alive; everything else is the same. One that can wake
//! candidates one by one is told the line with every write (`wake_order`), and those who only wait for their turn
//! then watch the one before them instead of the group's entry.
//!
//! What decides is pure: `turn` (what is written to a group), `duty` (what time asks for), `observed` (who is
//! due), `wake_order` (who is woken), `record` and `session` (what entries hold). What acts is thin: `entries` (reads, writes, settling),
//! `sessions` (opening, heartbeats, ending), `office` (commands to groups), `keeper` (watching groups for the sessions
//! that are heard here), `watch`, `views` (reads), `store`. `reading` is for those who judge what was written.
//!
//! The road not taken: one record per lease with a holder and a term, as most libraries have it. It is
//! smaller, and every rule beyond it (standbys, endings, policies, repeats) would be written, and be wrong,
//! once more.

mod duty;
mod entries;
mod keeper;
pub mod mutant;
mod observed;
mod office;
pub mod reading;
mod record;
mod session;
mod sessions;
mod store;
/// Reads the bytes as what a store keeps of a group and of a session, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let group = Group::new("billing").expect("the name is short and plain");
    if let Ok(record) = record::GroupRecord::decode(&group, bytes) {
        let again = record.record(&group).value;
        let read =
            record::GroupRecord::decode(&group, &again).map(|read| read.record(&group).value);
        assert_eq!(read, Ok(again), "a group is not read as it was written");
    }
    if let Ok(record) = session::SessionRecord::decode(bytes) {
        let again = record.record().value;
        let read = session::SessionRecord::decode(&again).map(|read| read.record().value);
        assert_eq!(read, Ok(again), "a session is not read as it was written");
    }
}

#[cfg(test)]
mod tests;
mod turn;
mod views;
mod wake_order;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_election::Group;
use regent_election::store::{StoreError, StoreResult};

use crate::register::Register;
use crate::time::{SystemTime, Time};
use entries::Entries;
use keeper::Feed;
use sessions::Local;

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
    entries: Entries,
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
            entries: Entries::new(register, time),
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
        f.debug_struct("LeaseStore").field("register", &self.shared.entries.register).finish()
    }
}

impl Drop for LeaseStore {
    fn drop(&mut self) {
        self.shared.close_down();
    }
}
