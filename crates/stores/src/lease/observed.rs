//! What this process has seen of sessions, and since when: the clock of a lease without a server's.
//!
//! A session whose entry shows no new sign of life for as long as it may live unheard is due. Only the time that
//! this process itself has watched counts, on its own clock: a newcomer must watch a whole ttl before
//! it may judge. Being due ends nobody: the watcher must still replace the very version it has seen,
//! which fails if the session was heard in the meantime, however long this process slept.

use std::collections::BTreeMap;
use std::time::Duration;

use regent_election::Moment;

use super::mutant::{self, Mutant};
use super::session::SessionRecord;
use crate::register::Version;

/// Most sessions watched at once; those not looked at for longest are forgotten, and watched anew.
const OBSERVED_MAX: usize = 65_536;

/// What is known of one session.
#[derive(Clone, Debug)]
struct Observation {
    version: Option<Version>,
    /// Its last sign of life; others change the entry too.
    heartbeat: Option<u128>,
    /// When this sign of life was first seen: read after the answer, so not before it was given.
    since: Moment,
    looked_at: Moment,
    /// None if it has ended.
    hold_ms: Option<u64>,
    /// The server says that it is not alive.
    is_gone: bool,
}

/// What this process thinks of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It has not been looked at, or only the server can tell and was not asked for too long.
    Unseen,
    /// It was heard lately enough. Silent at the first moment, due at the second, unless heard again.
    Audible { silent_at: Moment, due_at: Moment },
    /// Not heard for half its ttl.
    Silent { due_at: Moment },
    /// Not heard for its whole ttl: it may be ended, from exactly this version.
    Due { version: Version },
    /// Ended for good; or looked for just now by somebody who had read its name before, and not there at all.
    Ended,
}

/// All sessions that this process has looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedSessions {
    seen: BTreeMap<u128, Observation>,
    drift_ppm: u32,
    /// Whether the server times sessions, and entries do not change when they are heard.
    is_servers: bool,
}

impl ObservedSessions {
    /// Nothing seen yet, on a clock that may stray by so much.
    pub(super) fn new(drift_ppm: u32, is_servers: bool) -> Self {
        Self { seen: BTreeMap::new(), drift_ppm, is_servers }
    }

    /// Notes how a session was found, at a moment read after it was.
    pub(super) fn see(
        &mut self,
        session: u128,
        found: Option<(&SessionRecord, &Version)>,
        now: Moment,
    ) {
        if found.is_none() && !mutant::is(Mutant::AbsenceRemembered) {
            // Whoever is not there may come: only an end is for good.
            self.seen.remove(&session);
            return;
        }
        let version = found.map(|(_, version)| version.clone());
        let hold_ms = found.and_then(|(record, _)| record.as_open()).map(|open| open.hold_ms);
        let heartbeat = found.map(|(record, _)| record.heartbeat);
        let since = match self.seen.get(&session) {
            Some(observation) if observation.heartbeat == heartbeat => observation.since,
            Some(_) | None => now,
        };
        let observation =
            Observation { version, heartbeat, since, looked_at: now, hold_ms, is_gone: false };
        self.seen.insert(session, observation);
        if self.seen.len() > OBSERVED_MAX {
            self.forget_oldest();
        }
    }

    /// Notes that the server says that a session is not alive.
    pub(super) fn miss(&mut self, session: u128) {
        if let Some(observation) = self.seen.get_mut(&session) {
            observation.is_gone = true;
        }
    }

    /// What is thought of a session now.
    pub(super) fn verdict(&self, session: u128, now: Moment) -> Liveness {
        let Some(observation) = self.seen.get(&session) else { return Liveness::Unseen };
        let (Some(hold_ms), Some(version)) = (observation.hold_ms, &observation.version) else {
            return Liveness::Ended;
        };
        if self.is_servers {
            // Nobody but the server can tell, so it is asked again after a while. Counted from the last look
            // and not from now: a rest that something else always cuts short would never come to it.
            let ask_at = observation.looked_at + Duration::from_millis(hold_ms);
            return match observation.is_gone {
                true => Liveness::Due { version: version.clone() },
                false if ask_at <= now => Liveness::Unseen,
                false => Liveness::Audible { silent_at: ask_at, due_at: ask_at },
            };
        }
        let whole = self.lengthened(hold_ms);
        let (silent_at, due_at) = (observation.since + whole / 2, observation.since + whole);
        if due_at <= now || mutant::is(Mutant::StealsAtOnce) {
            Liveness::Due { version: version.clone() }
        } else if silent_at <= now {
            Liveness::Silent { due_at }
        } else {
            Liveness::Audible { silent_at, due_at }
        }
    }

    /// The version in which a session was seen.
    pub(super) fn version(&self, session: u128) -> Option<Version> {
        self.seen.get(&session)?.version.clone()
    }

    /// Whether a look at its entry would tell better how long a session lives: it was not seen yet, or may have been
    /// heard since. Of sessions that the engine keeps itself no look tells that.
    pub(super) fn is_outdated(&self, session: u128, now: Moment) -> bool {
        if self.is_servers {
            return false;
        }
        let Some(observation) = self.seen.get(&session) else { return true };
        let hold = Duration::from_millis(observation.hold_ms.unwrap_or_default());
        observation.since + hold / 2 <= now
    }

    /// How long a session lives if it is not heard again, as far as was seen.
    pub(super) fn remaining(&self, session: u128, now: Moment) -> Option<Duration> {
        let observation = self.seen.get(&session).filter(|_| !self.is_servers)?;
        Some(now.until(observation.since + Duration::from_millis(observation.hold_ms?)))
    }

    /// A time on this clock that is not over before `ms` have passed on any other within its bound.
    pub(super) fn lengthened(&self, ms: u64) -> Duration {
        let span = Duration::from_millis(ms);
        span + span * self.drift_ppm / 1_000_000
    }

    /// Forgets the quarter that was not looked at for longest, so that it is seldom done.
    fn forget_oldest(&mut self) {
        let mut looked: Vec<Moment> =
            self.seen.values().map(|observation| observation.looked_at).collect();
        let (_, quarter, _) = looked.select_nth_unstable(OBSERVED_MAX / 4);
        let quarter = *quarter;
        self.seen.retain(|_, observation| observation.looked_at > quarter);
    }
}
