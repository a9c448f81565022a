//! The engine: entries that are swapped as a whole, in one place and one after the other.
//!
//! It is what the register's contract says and nothing else: linearizable, durable, and fair to nobody.
//! What befalls a question on its way here, and an answer on its way back, is the world's affair.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regent_election::Moment;
use regent_stores::register::{
    Found, Key, KeyKind, RegisterError, RegisterResult, Swapped, Version,
};

use crate::clock::Clock;

/// What a process asks of the engine.
#[derive(Clone, Debug)]
pub(in crate::world) enum Question {
    Load { key: Key },
    Swap { key: Key, expected: Option<Version>, value: Vec<u8> },
    Wait { key: Key, seen: Option<Version>, patience: Duration },
    List { kind: KeyKind, prefix: String, after: Option<String>, count: usize },
    Begin { session: u128, ttl: Duration },
    Heartbeat { session: u128, ttl: Duration },
    IsAlive { session: u128 },
    End { session: u128 },
    WaitForEnd { session: u128, patience: Duration },
}

impl Question {
    /// Whether it changes something, so that without an answer nobody knows whether it did.
    pub(super) const fn is_write(&self) -> bool {
        match self {
            Self::Swap { .. } | Self::Begin { .. } | Self::Heartbeat { .. } | Self::End { .. } => {
                true
            }
            Self::Load { .. }
            | Self::Wait { .. }
            | Self::List { .. }
            | Self::IsAlive { .. }
            | Self::WaitForEnd { .. } => false,
        }
    }

    /// How long it waits, if it does.
    pub(super) const fn patience(&self) -> Option<Duration> {
        match self {
            Self::Wait { patience, .. } | Self::WaitForEnd { patience, .. } => Some(*patience),
            Self::Load { .. }
            | Self::Swap { .. }
            | Self::List { .. }
            | Self::Begin { .. }
            | Self::Heartbeat { .. }
            | Self::IsAlive { .. }
            | Self::End { .. } => None,
        }
    }
}

/// What the engine tells.
#[derive(Clone, Debug)]
pub(in crate::world) enum EngineAnswer {
    Found(Option<Found>),
    Swapped(Swapped),
    Listed(Vec<(Key, Found)>),
    Alive(bool),
    Done,
}

/// Who asked: a process, its run, and the number of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::world) struct Asker {
    pub(in crate::world) host: u64,
    pub(in crate::world) run: u64,
    pub(in crate::world) token: u64,
}

/// What comes of a question.
#[derive(Debug)]
pub(super) enum EngineOutcome {
    Answer(RegisterResult<EngineAnswer>),
    /// The answer comes later; at this moment of the engine's clock it must be thought about again.
    Later(Option<Moment>),
}

/// The engine and its entries.
#[derive(Debug)]
pub(in crate::world) struct Engine {
    pub(super) clock: Clock,
    /// Strikes that keep it away.
    pub(super) outages: u32,
    /// Strikes that leave it without room.
    pub(super) full: u32,
    /// Nothing is done before this instant.
    pub(super) stalled_until: u64,
    entries: BTreeMap<Key, Found>,
    versions: u64,
    /// When each session ends unless it is heard; none if it has ended.
    sessions: BTreeMap<u128, Option<Moment>>,
    waits: BTreeMap<Asker, (Key, Option<Version>)>,
    /// Questions that were answered: a copy that comes later is done, and not answered again.
    answered: BTreeSet<Asker>,
    /// Questions that were turned away: nothing of them will ever be done.
    refused: BTreeSet<Asker>,
}

impl Engine {
    pub(super) const fn new(clock: Clock) -> Self {
        Self {
            clock,
            outages: 0,
            full: 0,
            stalled_until: 0,
            entries: BTreeMap::new(),
            versions: 0,
            sessions: BTreeMap::new(),
            waits: BTreeMap::new(),
            answered: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// What lies under a key.
    pub(super) fn entry(&self, key: &Key) -> Option<&Found> {
        self.entries.get(key)
    }

    /// Turns a question away for good. False if a copy of it was answered already.
    pub(super) fn refuse(&mut self, asker: Asker) -> bool {
        !self.answered.contains(&asker) && self.refused.insert(asker)
    }

    /// Whether this one is to be answered, now that it is done; copies are not.
    pub(super) fn is_first(&mut self, asker: Asker) -> bool {
        self.answered.insert(asker)
    }

    /// Whether nothing of this question may be done.
    pub(super) fn is_refused(&self, asker: Asker) -> bool {
        self.refused.contains(&asker)
    }

    /// It dies: those who wait are forgotten, everything else is there when it is back.
    pub(super) fn forget_waits(&mut self) {
        self.waits.clear();
    }

    /// Does what is asked.
    pub(super) fn work(&mut self, now: Moment, asker: Asker, question: &Question) -> EngineOutcome {
        let told = match question {
            Question::Load { key } => EngineAnswer::Found(self.entries.get(key).cloned()),
            Question::Swap { key, expected, value } => {
                if self.full > 0 {
                    self.refuse(asker);
                    return EngineOutcome::Answer(Err(RegisterError::unavailable(
                        "there is no room",
                    )));
                }
                EngineAnswer::Swapped(self.swap(key, expected.as_ref(), value))
            }
            Question::Wait { key, seen, .. } => {
                if self.entries.get(key).map(|found| &found.version) == seen.as_ref() {
                    self.waits.insert(asker, (key.clone(), seen.clone()));
                    return EngineOutcome::Later(None);
                }
                EngineAnswer::Done
            }
            Question::List { kind, prefix, after, count } => {
                let is_meant = |key: &Key| {
                    key.kind() == *kind
                        && key.name().starts_with(prefix.as_str())
                        && after.as_ref().is_none_or(|after| key.name() > after.as_str())
                };
                let listed = self.entries.iter().filter(|(key, _)| is_meant(key)).take(*count);
                EngineAnswer::Listed(
                    listed.map(|(key, found)| (key.clone(), found.clone())).collect(),
                )
            }
            Question::Begin { session, ttl } => {
                self.sessions.entry(*session).or_insert(Some(now + *ttl));
                EngineAnswer::Alive(self.heartbeat(now, *session, *ttl))
            }
            Question::Heartbeat { session, ttl } => {
                EngineAnswer::Alive(self.heartbeat(now, *session, *ttl))
            }
            Question::IsAlive { session } => EngineAnswer::Alive(self.is_alive(now, *session)),
            Question::End { session } => {
                self.sessions.insert(*session, None);
                EngineAnswer::Done
            }
            Question::WaitForEnd { session, .. } => {
                if self.is_alive(now, *session) {
                    return EngineOutcome::Later(self.sessions.get(session).copied().flatten());
                }
                EngineAnswer::Done
            }
        };
        EngineOutcome::Answer(Ok(told))
    }

    fn swap(&mut self, key: &Key, expected: Option<&Version>, value: &[u8]) -> Swapped {
        if self.entries.get(key).map(|found| &found.version) != expected {
            return Swapped::Conflict;
        }
        self.versions += 1;
        let version = Version::from(self.versions);
        let found = Found { value: value.to_vec(), version: version.clone() };
        self.entries.insert(key.clone(), found);
        Swapped::Done(version)
    }

    fn is_alive(&mut self, now: Moment, session: u128) -> bool {
        let Some(ends_at) = self.sessions.get_mut(&session) else { return false };
        if ends_at.is_some_and(|at| at <= now) {
            *ends_at = None;
        }
        ends_at.is_some()
    }

    fn heartbeat(&mut self, now: Moment, session: u128, ttl: Duration) -> bool {
        if !self.is_alive(now, session) {
            return false;
        }
        let ends_at = self.sessions.get(&session).copied().flatten().max(Some(now + ttl));
        self.sessions.insert(session, ends_at);
        true
    }

    /// Those whose wait for this entry is over.
    pub(super) fn stirred(&mut self, key: &Key) -> Vec<Asker> {
        let version = self.entries.get(key).map(|found| found.version.clone());
        let is_over = |waits: &(Key, Option<Version>)| waits.0 == *key && waits.1 != version;
        let over: Vec<Asker> =
            self.waits.iter().filter(|(_, waits)| is_over(waits)).map(|(who, _)| *who).collect();
        for asker in &over {
            self.waits.remove(asker);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_election::Group;

    fn asker(token: u64) -> Asker {
        Asker { host: 1, run: 1, token }
    }

    fn swap(expected: Option<u64>, value: &[u8]) -> Question {
        let key = Key::group(&Group::new("g").unwrap());
        Question::Swap { key, expected: expected.map(Version::from), value: value.to_vec() }
    }

    #[test]
    fn a_swap_of_another_version_changes_nothing() {
        let mut engine = Engine::new(Clock::new(0, 0, 0));
        let mut work =
            |token, question: &Question| match engine.work(Moment::ZERO, asker(token), question) {
                EngineOutcome::Answer(answer) => answer.unwrap(),
                EngineOutcome::Later(_) => panic!("nobody waits"),
            };
        let done = work(1, &swap(None, b"a"));
        assert!(matches!(done, EngineAnswer::Swapped(Swapped::Done(_))), "{done:?}");
        for (token, expected) in [(2, None), (3, Some(7))] {
            let told = work(token, &swap(expected, b"b"));
            assert!(matches!(told, EngineAnswer::Swapped(Swapped::Conflict)), "{told:?}");
        }
        let EngineAnswer::Found(Some(found)) =
            work(4, &Question::Load { key: Key::group(&Group::new("g").unwrap()) })
        else {
            panic!("it is there")
        };
        assert_eq!(found.value, b"a");
    }

    #[test]
    fn what_was_turned_away_is_never_done_and_what_was_answered_is_not_turned_away() {
        let mut engine = Engine::new(Clock::new(0, 0, 0));
        assert!(engine.refuse(asker(1)));
        assert!(engine.is_refused(asker(1)));
        assert!(engine.is_first(asker(2)));
        assert!(!engine.is_first(asker(2)));
        assert!(!engine.refuse(asker(2)));
        assert!(!engine.is_refused(asker(2)));
    }
}
