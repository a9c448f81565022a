//! What a process has to do in a group that concerns it, because time has passed or somebody is gone.
//!
//! Pure: given what was read and seen, it names the next thing to do, or what to watch and for how long.
//! There is no herd. Whoever stands first in line watches the holder; everybody else watches the one
//! before it. Waits are measured by all, but those further back give the first one time to act.
//!
//! A wait begins to count when everybody concerned has been told of it, and not before: whoever must
//! stop may have been heard until that very moment (semantics 11).

use std::collections::BTreeMap;
use std::time::Duration;

use regent_election::{Command, Group, Moment, Revision, SessionNo, WaitKind};

use super::mutant::{self, Mutant};
use super::observed::{Liveness, ObservedSessions};
use super::record::GroupRecord;

/// How much later a process acts for each place that it stands further back.
const PLACE_COSTS: Duration = Duration::from_millis(400);
/// Places beyond this cost no more.
const PLACES_MAX: u32 = 8;

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// Make sure that this session's own entry tells what happened to it here.
    Tell(u128),
    /// Look at this session.
    Look(u128),
    /// End this session, unless it is heard; then expire it here.
    End(u128),
    /// Expire this session here: it has ended.
    Expire(u128),
    Run(Command),
    /// Nothing, until the group changes, or this session does, or this moment comes.
    Rest {
        watch: Option<u128>,
        until: Option<Moment>,
    },
}

/// A wait of a group, and no other one before or after it.
type WaitKey = (WaitKind, Revision);

/// When the waits of a group began to count.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    begun: BTreeMap<WaitKey, Moment>,
    /// The wait for which the last duty was a look.
    asked: Option<WaitKey>,
    /// The wait whose holder was looked at after everybody had been told, and how long watchers gave it then. Only
    /// that look counts: what else was seen of the holder may be older, and be noted later.
    looked: Option<(WaitKey, u64)>,
}

impl Timers {
    /// The look that was the last duty has succeeded: watchers give that session so long.
    pub(super) fn looked(&mut self, hold_ms: u64) {
        if let Some(key) = self.asked.take() {
            self.looked = Some((key, hold_ms));
        }
    }
}

/// What is known of a group by one who has a duty there.
#[derive(Debug)]
pub(super) struct Post<'a> {
    pub(super) group: &'a Group,
    pub(super) record: &'a GroupRecord,
    /// The sessions that were heard through this process lately.
    pub(super) locals: &'a [u128],
    /// Those of the untold who are known to have been told.
    pub(super) told: &'a [u128],
    pub(super) observed: &'a ObservedSessions,
    pub(super) now: Moment,
}

/// Names the next thing to do.
pub(super) fn duty(post: &Post<'_>, timers: &mut Timers) -> Duty {
    timers.asked = None;
    if !mutant::is(Mutant::NobodyIsTold)
        && let Some(session) = post.record.untold.iter().find(|one| !post.told.contains(one))
    {
        return Duty::Tell(*session);
    }
    let (watch, gone_at) = match post.watched() {
        None => (None, None),
        Some(session) => match post.observed.verdict(session, post.now) {
            Liveness::Unseen => return Duty::Look(session),
            Liveness::Ended => return Duty::Expire(session),
            Liveness::Due { .. } => return Duty::End(session),
            Liveness::Audible { due_at, .. } | Liveness::Silent { due_at } => {
                (Some(session), Some(due_at))
            }
        },
    };
    let over_at = match post.wait(timers) {
        Wait::None => None,
        Wait::Look(session) => return Duty::Look(session),
        Wait::Over(command) => return Duty::Run(command),
        Wait::Until(at) => Some(at),
    };
    if let Some(session) = post.stranded() {
        return Duty::Run(Command::Refill { session });
    }
    Duty::Rest { watch, until: [gone_at, over_at].into_iter().flatten().min() }
}

/// How a group's wait stands.
enum Wait {
    None,
    /// How long it lasts depends on this session.
    Look(u128),
    Until(Moment),
    Over(Command),
}

impl Post<'_> {
    fn id_of(&self, session: SessionNo) -> Option<u128> {
        self.record.state.id_of(session).map(regent_election::SessionId::get)
    }

    fn holder(&self) -> Option<u128> {
        self.id_of(self.record.state.holder(self.group)?.session)
    }

    fn wake_order(&self) -> impl Iterator<Item = u128> {
        self.record.state.standbys(self.group).filter_map(|session| self.id_of(session))
    }

    /// The first place in line that is this process's.
    fn place(&self) -> Option<usize> {
        self.wake_order().position(|session| self.locals.contains(&session))
    }

    /// Whom this process watches: the one before it. Without a place of its own it watches the holder
    /// if nobody else does.
    fn watched(&self) -> Option<u128> {
        match self.place() {
            Some(0) => self.holder(),
            Some(place) => self.wake_order().nth(place - 1),
            None if self.wake_order().next().is_none() => self.holder(),
            None => None,
        }
    }

    /// How long the wait under way has still to last.
    fn wait(&self, timers: &mut Timers) -> Wait {
        let Some(wait) = self.record.state.waits().next() else {
            timers.begun.clear();
            return Wait::None;
        };
        let key = (wait.kind, wait.since);
        let mut for_ms = wait.for_ms;
        if wait.kind == WaitKind::Ending
            && let Some(holder) = self.holder()
        {
            // The group may know a shorter ttl than the session had when it was told.
            match timers.looked {
                Some((known, hold_ms)) if known == key => for_ms = for_ms.max(hold_ms),
                Some(_) | None => {
                    timers.asked = Some(key);
                    return Wait::Look(holder);
                }
            }
        }
        timers.begun.retain(|known, _| *known == key);
        let begun_at = *timers.begun.entry(key).or_insert(self.now);
        let places = match self.place() {
            Some(place) => u32::try_from(place).unwrap_or(PLACES_MAX).min(PLACES_MAX),
            None if self.wake_order().next().is_none() => 0,
            None => PLACES_MAX,
        };
        let over_at = begun_at + self.observed.lengthened(for_ms) + PLACE_COSTS * places;
        if over_at > self.now {
            return Wait::Until(over_at);
        }
        let group = self.group.clone();
        Wait::Over(Command::Elapsed { group, kind: wait.kind, since: wait.since })
    }

    /// A session of this process that stands for a vacant office and can be heard.
    fn stranded(&self) -> Option<SessionNo> {
        let state = &self.record.state;
        state.stranded().next()?;
        state.standbys(self.group).find(|session| {
            let id = self.id_of(*session);
            id.is_some_and(|id| {
                self.locals.contains(&id)
                    && matches!(
                        self.observed.verdict(id, self.now),
                        Liveness::Audible { .. } | Liveness::Unseen
                    )
            })
        })
    }
}
