//! What the state machine asked its driver to time: at most one wait per group and kind.
//!
//! Nothing is cancelled: a wait that was overtaken is told all the same, and the state machine finds
//! that its revision no longer fits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::command::WaitKind;
use crate::moment::Moment;
use crate::name::Group;
use crate::term::Revision;

#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    known: BTreeMap<(Group, WaitKind), Wait>,
    /// Every known wait, at a moment when it cannot be over any later than it is.
    queue: BTreeSet<(Moment, Group, WaitKind)>,
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
        let key = (group, kind);
        if let Some(known) = self.known.get(&key) {
            if known.since > since {
                return;
            }
            self.queue.remove(&(known.queued_at, key.0.clone(), kind));
        }
        let mut wait = Wait { since, began_at: now, for_ms, queued_at: now };
        wait.queued_at = wait.over_at(None);
        self.queue.insert((wait.queued_at, key.0.clone(), kind));
        self.known.insert(key, wait);
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
            let Some((_, group, kind)) = self.queue.pop_first() else { break };
            let key = (group, kind);
            let Some(wait) = self.known.get_mut(&key) else { continue };
            let over_at = wait.over_at(promoted_at);
            if over_at > now {
                wait.queued_at = over_at;
                self.queue.insert((over_at, key.0, kind));
                continue;
            }
            over.push((key.0.clone(), kind, wait.since));
            self.known.remove(&key);
        }
        over
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        self.queue.first().map(|(at, _, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
