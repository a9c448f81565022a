//! A Raft leader whose disk is no disk to lead on, and snapshots that a full disk refuses.
//!
//! A leader without room hands over, so that client writes go on where there is some (semantics 29), and so does one whose
//! disk stands still: its followers hear it and are content, but it can apply and answer nothing, for as long as the disk
//! likes. To the next in a circle, and not at once again: nobody knows who is better off, and if nobody is, somebody must
//! lead all the same.
//!
//! One whose disk is only slow commits by the others' confirmations and still makes every client wait: it answers what
//! it has applied, and applies what its own disk has. Here it is known who is better off: a voter that confirms what
//! this leader sent it before the leader's own disk does.

use std::time::Duration;

use regent_election::Moment;

use super::{Core, Role};
use crate::io::HandOverCause;
use crate::limits::{
    SLOW_HAND_OVER_EVERY, SLOW_SYNC_FROM, SLOW_SYNCS, SNAPSHOT_AGAIN_AFTER,
    SNAPSHOT_AGAIN_AFTER_MAX,
};
use crate::member::ReplicaId;

/// A disk that confirms nothing for this long is no disk to lead on.
const DISK_STUCK_AFTER: Duration = Duration::from_secs(5);

/// Syncs of this Raft leader's log that took long while another voter's did not, in a row.
#[derive(Debug, Default)]
pub(super) struct SlowSyncs {
    count: u32,
    /// What the last of them took.
    took: Duration,
    /// When leadership was last handed over for that.
    handed_over_at: Option<Moment>,
}

impl Core {
    /// The disk has confirmed a batch that began to wait then, up to this index of the log.
    pub(super) fn note_sync(&mut self, since: Moment, last: u64) {
        let took = self.now.since(since);
        let is_faster = |(matched, _): (u64, u64)| matched >= last;
        let is_slow =
            self.role == Role::Leader && took >= SLOW_SYNC_FROM && self.successors().any(is_faster);
        self.slow_syncs.count = if is_slow { self.slow_syncs.count + 1 } else { 0 };
        self.slow_syncs.took = took;
    }

    /// See the head of this module.
    pub(super) fn hand_over_if_disk_fails(&mut self) {
        if self.config.is_witness {
            return;
        }
        let waits_since = self.unconfirmed.front().map(|batch| batch.since);
        let is_stuck = waits_since.is_some_and(|since| self.now.since(since) >= DISK_STUCK_AFTER);
        let is_failing = is_stuck || !self.has_room;
        if !is_failing {
            self.given_away = 0;
        }
        if self.role != Role::Leader || self.node.raft.lead_transferee.is_some() {
            self.burdened_since = None;
            return;
        }
        let is_early = self.handed_over_at.is_some_and(|at| self.now.since(at) < self.respite());
        if !is_failing || is_early {
            self.burdened_since = None;
            self.hand_over_if_disk_is_slow();
            return;
        }
        let own = self.config.id.get();
        let next = self.successors().map(|(_, id)| (id < own, id)).min();
        match next {
            Some((_, target)) => {
                self.burdened_since = None;
                self.handed_over_at = Some(self.now);
                self.node.transfer_leader(target);
                let cause =
                    if self.has_room { HandOverCause::DiskStuck } else { HandOverCause::DiskFull };
                self.say_hand_over(target, cause);
            }
            None => self.give_to_witness(),
        }
    }

    /// To the voter that has confirmed most, and not again for a while: if its disk is no better, moving leadership
    /// back and forth would only cost elections.
    fn hand_over_if_disk_is_slow(&mut self) {
        let SlowSyncs { count, took, handed_over_at } = self.slow_syncs;
        let is_early = handed_over_at.is_some_and(|at| self.now.since(at) < SLOW_HAND_OVER_EVERY);
        if count < SLOW_SYNCS || is_early {
            return;
        }
        let Some((_, target)) = self.successors().max() else { return };
        self.slow_syncs = SlowSyncs { handed_over_at: Some(self.now), ..SlowSyncs::default() };
        self.node.transfer_leader(target);
        self.say_hand_over(target, HandOverCause::DiskSlow { syncs: count, took });
    }

    fn say_hand_over(&mut self, target: u64, cause: HandOverCause) {
        self.out.hands_over = ReplicaId::new(target).map(|target| (target, cause));
    }

    /// A snapshot could not be made, and is tried again later and later: the disk is full for as long as it is.
    pub(super) fn put_snapshot_off(&mut self) {
        let doubled = self.snapshot_pause.map_or(SNAPSHOT_AGAIN_AFTER, |pause| pause * 2);
        let pause = doubled.min(SNAPSHOT_AGAIN_AFTER_MAX);
        self.snapshot_pause = Some(pause);
        self.snapshot_again_at = self.now + pause;
    }

    /// A snapshot was made, or a client asks for one: it is tried at once.
    pub(super) const fn try_snapshots_again(&mut self) {
        self.snapshot_pause = None;
        self.snapshot_again_at = self.now;
    }
}
