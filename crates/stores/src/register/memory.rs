//! A register in memory: several handles on one, for tests and for programs that try things out.
//!
//! It does what [`Register`] says and nothing else, so it is also the plainest example of one. With
//! [`MemoryRegister::with_sessions`] it times sessions itself, as etcd or a database would.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::store::{Description, Level};
use tokio::sync::{Mutex, MutexGuard, Notify};

use super::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, ServerSessions, Swapped,
    VALUE_BYTES_MAX, Version,
};
use crate::time::{SystemTime, Time};

/// One handle; clones are further handles on the same entries.
#[derive(Clone)]
pub struct MemoryRegister {
    shared: Arc<Shared>,
}

struct Shared {
    time: Arc<dyn Time>,
    times_sessions: bool,
    table: Mutex<Table>,
    /// Rings when anything changes, so that waits end.
    changes: Notify,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<Key, Found>,
    versions: u64,
    /// When each session ends unless it is heard; none if it has.
    sessions: BTreeMap<u128, Option<Moment>>,
}

impl MemoryRegister {
    /// An empty register whose sessions are timed by those who watch them.
    #[must_use]
    pub fn new() -> Self {
        Self::made(SystemTime::shared(), false)
    }

    /// An empty register that times sessions itself, by this time.
    #[must_use]
    pub fn with_sessions(time: Arc<dyn Time>) -> Self {
        Self::made(time, true)
    }

    /// The first, with waits counted by this time.
    #[must_use]
    pub fn with_time(time: Arc<dyn Time>) -> Self {
        Self::made(time, false)
    }

    fn made(time: Arc<dyn Time>, times_sessions: bool) -> Self {
        let (table, changes) = (Mutex::new(Table::default()), Notify::new());
        Self { shared: Arc::new(Shared { time, times_sessions, table, changes }) }
    }

    async fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().await
    }

    fn changed(&self) {
        self.shared.changes.notify_waiters();
    }

    /// Waits for any change after `is_over` was found false, at most for `patience`.
    async fn wait_until(
        &self,
        patience: Duration,
        is_over: impl Fn(&mut Table, Moment) -> bool + Send,
    ) {
        let mut given_up = self.shared.time.sleep(patience);
        loop {
            let mut changed = pin!(self.shared.changes.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if is_over(&mut *self.table().await, self.shared.time.now()) {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut given_up => return,
            }
        }
    }
}

impl Default for MemoryRegister {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handles = Arc::strong_count(&self.shared);
        f.debug_struct("MemoryRegister").field("handles", &handles).finish_non_exhaustive()
    }
}

impl Table {
    /// Whether a session is alive now; one whose time is over ends here.
    fn is_alive(&mut self, session: u128, now: Moment) -> bool {
        let Some(ends_at) = self.sessions.get_mut(&session) else { return false };
        if ends_at.is_some_and(|at| at <= now) {
            *ends_at = None;
        }
        ends_at.is_some()
    }
}

#[async_trait]
impl Register for MemoryRegister {
    fn describe(&self) -> Description {
        Description {
            name: "memory-register",
            place: "this process".into(),
            level: Level::BestEffort,
            caveat: Some("everything is gone with the process".into()),
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        Ok(vec!["everything is gone with the process".into()])
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        Ok(self.table().await.entries.get(key).cloned())
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        if record.value.len() > VALUE_BYTES_MAX {
            let bytes = record.value.len();
            return Err(RegisterError::unavailable(format!(
                "a value has at most {VALUE_BYTES_MAX} bytes; this one has {bytes}"
            )));
        }
        let mut table = self.table().await;
        if table.entries.get(key).map(|found| &found.version) != expected {
            return Ok(Swapped::Conflict);
        }
        table.versions += 1;
        let version = Version::from(table.versions);
        let found = Found { value: record.value, version: version.clone() };
        table.entries.insert(key.clone(), found);
        drop(table);
        self.changed();
        Ok(Swapped::Done(version))
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        self.wait_until(patience, |table, _| {
            table.entries.get(key).map(|found| &found.version) != seen
        })
        .await;
        Ok(())
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let table = self.table().await;
        let listed = table
            .entries
            .iter()
            .filter(|(key, _)| key.kind() == kind && key.name().starts_with(prefix))
            .filter(|(key, _)| after.is_none_or(|after| key.name() > after))
            .take(count)
            .map(|(key, found)| (key.clone(), found.clone()))
            .collect();
        Ok(listed)
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        self.shared.times_sessions.then_some(self)
    }
}

#[async_trait]
impl ServerSessions for MemoryRegister {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let now = self.shared.time.now();
        // One that ended stays so, and beating will say it.
        self.table().await.sessions.entry(session).or_insert(Some(now + ttl));
        self.heartbeat(session, ttl).await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let mut table = self.table().await;
        let now = self.shared.time.now();
        if !table.is_alive(session, now) {
            return Ok(false);
        }
        let ends_at = table.sessions.get(&session).copied().flatten().max(Some(now + ttl));
        table.sessions.insert(session, ends_at);
        Ok(true)
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        let now = self.shared.time.now();
        Ok(self.table().await.is_alive(session, now))
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        self.table().await.sessions.insert(session, None);
        self.changed();
        Ok(())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let now = self.shared.time.now();
        let ends_at = self.table().await.sessions.get(&session).copied().flatten();
        // Nobody announces that time has passed: the wait is no longer than the session may live.
        let left = ends_at.map_or(Duration::ZERO, |at| now.until(at));
        self.wait_until(patience.min(left), |table, now| !table.is_alive(session, now)).await;
        Ok(())
    }
}
