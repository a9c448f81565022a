//! Locks: leadership for as long as a guard lives.
//!
//! A lock is a group. Its session is another one than that of the elections, with a longer ttl: a
//! lock is held for a piece of work, and a holder that is merely slow should keep it.
//!
//! Re-entrant within a session: whoever holds a lock may take it again anywhere in this process, under
//! the same term, and it is free when the last guard is gone. So a lock keeps *processes* apart; to
//! keep tasks of one process apart, use a mutex.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use regent_election::{Group, NameError, Term};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use crate::driver::Input;
use crate::error::{CampaignError, ConnectError, Lost, Untold};
use crate::fenced::Permit;
use crate::leadership::{Leadership, Stop};
use crate::limits::{LOCK_TTL, LOCK_WAIT};
use crate::regent::{Regent, ToGroup};
use crate::session::Session;
use crate::tenure::Tenure;

/// Why a lock was not acquired. Nothing is held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else held it all the time: try again, or wait longer.
    #[error("{name} was not free within {} ms; somebody else holds it, or the store does not answer", .waited.as_millis())]
    TimedOut { name: Group, waited: Duration },
    /// It can never be acquired like this.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
    /// There is no session to hold it under.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// The locks of one session, and that session.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    session: OnceCell<Regent>,
    entries: Mutex<BTreeMap<Group, Arc<Entry>>>,
}

/// One lock as this process knows it.
#[derive(Debug, Default)]
struct Entry {
    /// One at a time acquires; the others then find it held.
    gate: AsyncMutex<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    held: Weak<Held>,
    /// The term that this process held last. A campaign that began before its end is settled would
    /// let others go first.
    last: Option<Arc<Tenure>>,
}

#[derive(Debug)]
struct Held {
    leadership: Leadership,
}

impl Locks {
    /// The session of locks, if one was needed.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.get().map(Regent::session)
    }

    fn entry(&self, name: &Group) -> Arc<Entry> {
        let mut entries = self.entries();
        // Whatever nobody holds or waits for is forgotten.
        entries.retain(|other, entry| {
            let is_held = entry.gate.try_lock().map_or(true, |gate| gate.held.strong_count() > 0);
            other == name || is_held || Arc::strong_count(entry) > 1
        });
        Arc::clone(entries.entry(name.clone()).or_default())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Group, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Regent {
    /// The lock of this name; nothing is acquired yet.
    pub fn lock(&self, name: impl ToGroup) -> Result<Lock, NameError> {
        Ok(Lock { regent: self.clone(), name: name.to_group()?, wait: LOCK_WAIT })
    }

    /// The session of locks, opened when first needed.
    pub(crate) async fn for_locks(&self) -> Result<&Self, ConnectError> {
        let open = || async {
            // The same name: to the world it is the same process.
            let node = self.node().to_string();
            self.made().with_ttl(LOCK_TTL).node(node).connect().await
        };
        self.locks().session.get_or_try_init(open).await
    }
}

/// A lock. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Lock {
    regent: Regent,
    name: Group,
    wait: Duration,
}

impl Lock {
    /// The same lock, waited for so long; 10 s by default.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Which.
    #[must_use]
    pub const fn name(&self) -> &Group {
        &self.name
    }

    /// Acquires it, or finds it held by this session already: then it is renewed, and the term stays.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        match tokio::time::timeout(self.wait, self.acquire_in_time()).await {
            Ok(acquired) => acquired,
            Err(_) => Err(LockError::TimedOut { name: self.name.clone(), waited: self.wait }),
        }
    }

    async fn acquire_in_time(&self) -> Result<LockGuard, LockError> {
        let session = self.regent.for_locks().await?;
        let entry = self.regent.locks().entry(&self.name);
        let mut gate = entry.gate.lock().await;
        if let Some(held) = gate.held.upgrade().filter(|held| held.leadership.check().is_ok()) {
            session.session().tell(Input::Renew);
            return Ok(LockGuard { held, _entry: Arc::clone(&entry) });
        }
        if let Some(last) = gate.last.take() {
            let _ = last.watch().wait_for(|standing| standing.is_over).await;
        }
        let leadership = session.campaign(&self.name).await?;
        gate.last = Some(Arc::clone(leadership.tenure()));
        let held = Arc::new(Held { leadership });
        gate.held = Arc::downgrade(&held);
        Ok(LockGuard { held, _entry: Arc::clone(&entry) })
    }
}

/// A lock that is held. The last guard of this process that goes frees it, in the background.
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct LockGuard {
    held: Arc<Held>,
    _entry: Arc<Entry>,
}

impl LockGuard {
    /// The fencing token.
    #[must_use]
    pub fn term(&self) -> Term {
        self.held.leadership.term()
    }

    /// Whether the lock is held at this instant; see [`Leadership::check`].
    pub fn check(&self) -> Result<Permit, Lost> {
        self.held.leadership.check()
    }

    /// Waits until the lock must be given back; see [`Leadership::lost`].
    pub async fn lost(&self) -> Stop {
        self.held.leadership.lost().await
    }

    /// Gives the lock back and, if this was the last guard, waits until the store knows.
    pub async fn release(self) -> Result<(), Untold> {
        // Of several that are released at once, exactly one is the last.
        match Arc::into_inner(self.held) {
            Some(held) => held.leadership.resign().await,
            None => Ok(()),
        }
    }
}
