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
use super::record::GroupRecord;
use super::sight::{Sights, Verdict};

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
    /// Apply this.
    Run(Command),
    /// Nothing, until the group changes, or this session does, or this moment comes.
    Rest { watch: Option<u128>, until: Option<Moment> },
}

/// When the waits of a group began to count.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    begun: BTreeMap<(WaitKind, Revision), Moment>,
    /// The wait whose holder was looked at after everybody had been told.
    looked: Option<(WaitKind, Revision)>,
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
    pub(super) sights: &'a Sights,
    pub(super) now: Moment,
}

/// Names the next thing to do.
pub(super) fn duty(post: &Post<'_>, timers: &mut Timers) -> Duty {
    if !mutant::is(Mutant::NobodyIsTold)
        && let Some(session) = post.record.untold.iter().find(|one| !post.told.contains(one))
    {
        return Duty::Tell(*session);
    }
    let (watch, gone_at) = match post.watched() {
        None => (None, None),
        Some(session) => match post.sights.verdict(session, post.now) {
            Verdict::Unseen => return Duty::Look(session),
            Verdict::Ended => return Duty::Expire(session),
            Verdict::Due { .. } => return Duty::End(session),
            Verdict::Audible { due_at, .. } | Verdict::Silent { due_at } => {
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

    fn line(&self) -> impl Iterator<Item = u128> {
        self.record.state.standbys(self.group).filter_map(|session| self.id_of(session))
    }

    /// The first place in line that is this process's.
    fn place(&self) -> Option<usize> {
        self.line().position(|session| self.locals.contains(&session))
    }

    /// Whom this process watches: the one before it. Without a place of its own it watches the holder
    /// if nobody else does.
    fn watched(&self) -> Option<u128> {
        match self.place() {
            Some(0) => self.holder(),
            Some(place) => self.line().nth(place - 1),
            None if self.line().next().is_none() => self.holder(),
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
            if timers.looked.replace(key) != Some(key) {
                return Wait::Look(holder);
            }
            for_ms = for_ms.max(self.sights.hold_ms(holder).unwrap_or_default());
        }
        timers.begun.retain(|known, _| *known == key);
        let begun_at = *timers.begun.entry(key).or_insert(self.now);
        let places = match self.place() {
            Some(place) => u32::try_from(place).unwrap_or(PLACES_MAX).min(PLACES_MAX),
            None if self.line().next().is_none() => 0,
            None => PLACES_MAX,
        };
        let over_at = begun_at + self.sights.lengthened(for_ms) + PLACE_COSTS * places;
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
                        self.sights.verdict(id, self.now),
                        Verdict::Audible { .. } | Verdict::Unseen
                    )
            })
        })
    }
}
