//! What the state machine asked its driver to time: at most one wait per group and kind, and one for each proposal
//! that waits for an approval.
//!
//! Of the first sort nothing is cancelled: a wait that was overtaken is told all the same, and the state machine finds
//! that its revision no longer fits. A proposal that is confirmed is dropped here, too: as many as two principals can
//! propose and confirm in ten minutes are too many to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::command::WaitKind;
use crate::moment::Moment;
use crate::name::Group;
use crate::term::Revision;

#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    known: BTreeMap<Key, Wait>,
    /// Every known wait, at a moment when it cannot be over any later than it is.
    queue: BTreeSet<(Moment, Key)>,
}

/// What a later wait takes the place of an earlier one by.
type Key = (Group, WaitKind, Option<Revision>);

const fn key(group: Group, kind: WaitKind, since: Revision) -> Key {
    let own = match kind {
        WaitKind::Approval => Some(since),
        WaitKind::LockDelay | WaitKind::Ending | WaitKind::Acceptance | WaitKind::MinimumTenure => {
            None
        }
    };
    (group, kind, own)
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Revision,
    began_at: Moment,
    for_ms: u64,
    queued_at: Moment,
}

impl Wait {
    /// When it is over; a promotion restarts it in full (semantics 13).
    fn over_at(&self, promoted_at: Option<Moment>) -> Moment {
        let began_at = promoted_at.map_or(self.began_at, |at| at.max(self.began_at));
        began_at + Duration::from_millis(self.for_ms)
    }
}

impl Waits {
    pub(super) fn begin(
        &mut self,
        group: Group,
        kind: WaitKind,
        since: Revision,
        for_ms: u64,
        now: Moment,
    ) {
        let key = key(group, kind, since);
        if let Some(known) = self.known.get(&key) {
            if known.since > since {
                return;
            }
            self.queue.remove(&(known.queued_at, key.clone()));
        }
        let mut wait = Wait { since, began_at: now, for_ms, queued_at: now };
        wait.queued_at = wait.over_at(None);
        self.queue.insert((wait.queued_at, key.clone()));
        self.known.insert(key, wait);
    }

    pub(super) fn drop_wait(&mut self, group: Group, kind: WaitKind, since: Revision) {
        let key = key(group, kind, since);
        if self.known.get(&key).is_some_and(|wait| wait.since == since)
            && let Some(wait) = self.known.remove(&key)
        {
            self.queue.remove(&(wait.queued_at, key));
        }
    }

    pub(super) fn elapsed(
        &mut self,
        now: Moment,
        promoted_at: Option<Moment>,
        waits_max: usize,
    ) -> Vec<(Group, WaitKind, Revision)> {
        let mut over = Vec::new();
        for _ in 0..waits_max {
            if self.next_at().is_none_or(|at| at > now) {
                break;
            }
            let Some((_, key)) = self.queue.pop_first() else { break };
            let Some(wait) = self.known.get_mut(&key) else { continue };
            let over_at = wait.over_at(promoted_at);
            if over_at > now {
                wait.queued_at = over_at;
                self.queue.insert((over_at, key));
                continue;
            }
            over.push((key.0.clone(), key.1, wait.since));
            self.known.remove(&key);
        }
        over
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        self.queue.first().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
