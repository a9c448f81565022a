//! The access table as a store shows it: whoever admits requests looks at it without asking the store.
//!
//! A store that keeps bindings and tokens in this process gives one of these away with its first [`AccessView`], and shows
//! every table that it applies before it answers anybody about it. So a reader that was told of a change finds it here. What
//! a reader works out of a table it may keep for as long as [`LiveAccess::version`] stays the same.
//!
//! The road not taken: one more method of the Store port. Most engines keep no bindings.
//!
//! [`AccessView`]: super::AccessView

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::AccessTable;

/// The table of a store, always the last one that it has applied. Clones show the same.
#[derive(Clone, Debug)]
pub struct LiveAccess(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    /// Rises with every table that is shown. Written under the lock, read without it.
    version: AtomicU64,
    /// Whether everything is applied that was committed when the store started. It stays so.
    has_caught_up: AtomicBool,
    table: Mutex<Arc<AccessTable>>,
}

impl LiveAccess {
    /// Shows this table, which may be older than what was committed before the store started.
    #[must_use]
    pub fn new(table: Arc<AccessTable>) -> Self {
        let (version, has_caught_up) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Shown { version, has_caught_up, table: Mutex::new(table) }))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<AccessTable>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the table that was applied. To be called before anybody is answered about it.
    pub fn show(&self, table: &Arc<AccessTable>) {
        let mut shown = self.lock();
        if !Arc::ptr_eq(&shown, table) {
            *shown = Arc::clone(table);
            // The version after the table: who sees the new version finds no older table.
            self.0.version.fetch_add(1, Ordering::Release);
        }
    }

    /// From now on the table is not older than what was committed before the store started.
    pub fn catch_up(&self) {
        self.0.has_caught_up.store(true, Ordering::Release);
    }

    /// Whether the table is not older than what was committed before the store started: what was revoked before that is
    /// revoked here.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.0.has_caught_up.load(Ordering::Acquire)
    }

    /// The number of the table that is shown: a later one has a higher number.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// The table that is shown.
    #[must_use]
    pub fn table(&self) -> Arc<AccessTable> {
        Arc::clone(&self.lock())
    }

    /// The table that is shown, and its number.
    #[must_use]
    pub fn look(&self) -> (u64, Arc<AccessTable>) {
        let shown = self.lock();
        (self.version(), Arc::clone(&shown))
    }
}

/// Two are the same if they show the same store's table.
impl PartialEq for LiveAccess {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LiveAccess {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_table_has_another_number_and_the_same_one_has_not() {
        let table = Arc::<AccessTable>::default();
        let live = LiveAccess::new(Arc::clone(&table));
        let first = live.version();
        live.show(&table);
        assert_eq!(live.look(), (first, Arc::clone(&table)));
        let other = Arc::<AccessTable>::default();
        live.show(&other);
        let (number, shown) = live.look();
        assert!(number > first && Arc::ptr_eq(&shown, &other));
        assert_eq!(live.version(), number);
    }
}
