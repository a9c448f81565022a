//! Whose sessions are, remembered so that a heartbeat does not ask the store for it.
//!
//! The owner of a session never changes, so what is remembered stays true while the session is open; whether it is
//! open, the store says when it is asked for what the caller wants. What is not remembered is asked for.
//!
//! **Two generations.** What was used since the last turn is young, the rest is old; when the young are half of all
//! there may be, the old are forgotten and the young become the old. So what is used stays known, whatever else
//! comes. The road not taken: to forget all of it when there is too much. Then every heartbeat of the next seconds
//! asks the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::SessionOwner;
use crate::limits::KNOWN_SESSIONS_MAX;
use crate::name::SessionId;

/// A bounded map that forgets what is not used.
#[derive(Debug)]
pub struct Generations<K, V> {
    young: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
    generation_max: usize,
}

impl<K: Ord, V> Generations<K, V> {
    /// Remembers `known_max` at most.
    #[must_use]
    pub fn new(known_max: usize) -> Self {
        let generation_max = (known_max / 2).max(1);
        Self { young: BTreeMap::new(), old: BTreeMap::new(), generation_max }
    }

    /// What is remembered under a key, which counts as a use of it.
    pub fn get(&mut self, key: K) -> Option<&V> {
        match self.old.remove_entry(&key) {
            Some((key, value)) => Some(&*self.insert_entry(key, value)),
            None => self.young.get(&key),
        }
    }

    /// Remembers a value, in place of another if there was one.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.insert_entry(key, value);
    }

    fn insert_entry(&mut self, key: K, value: V) -> &mut V {
        if self.young.len() >= self.generation_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).insert_entry(value).into_mut()
    }

    pub fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

/// Whose the sessions are that were asked about.
#[derive(Debug)]
pub struct KnownSessions(Mutex<Generations<SessionId, Arc<SessionOwner>>>);

impl Default for KnownSessions {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(KNOWN_SESSIONS_MAX)))
    }
}

impl KnownSessions {
    pub(super) fn get(&self, session: SessionId) -> Option<Arc<SessionOwner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    pub(super) fn insert(&self, session: SessionId, open: Arc<SessionOwner>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session, open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_known_whatever_else_comes() {
        let mut known = Generations::new(100);
        known.insert(1, "a");
        known.insert(2, "b");
        for number in 3..1000 {
            known.insert(number, "flood");
            assert_eq!(known.get(1), Some(&"a"), "after {number}");
            assert!(known.young.len() + known.old.len() <= 100);
        }
        assert_eq!(known.get(2), None, "it was not used for long");
        known.insert(1, "c");
        assert_eq!(known.get(1), Some(&"c"));
        known.remove(&1);
        assert_eq!(known.get(1), None);
    }

    #[test]
    fn a_value_in_place_of_another_forgets_nobody() {
        let mut known = Generations::new(4);
        (0..2).for_each(|number| known.insert(number, 0));
        (0..10).for_each(|time| known.insert(1, time));
        assert!(known.old.is_empty());
        assert_eq!(known.get(0), Some(&0));
    }
}
