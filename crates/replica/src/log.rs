//! The log in memory, as Raft reads it. What is durable is the disk's affair.
//!
//! Entries are handed to the disk and put here in the same step; Raft itself counts which of them
//! the disk has confirmed.

use std::cell::Cell;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot, SnapshotMetadata};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

/// Entries after the last snapshot's place, the hard state, and that place.
#[derive(Clone, Debug)]
pub struct Log {
    hard_state: HardState,
    /// Index and Raft term of the entry just before the first one kept.
    before: (u64, u64),
    entries: Vec<Entry>,
    bytes: usize,
    /// The newest snapshot on disk, which a follower too far behind is sent.
    snapshot: SnapshotMetadata,
    /// The members as of what was applied.
    members: ConfState,
    /// Somebody needs a snapshot later than the newest one.
    is_wanted: Cell<bool>,
    /// A witness has no state to send.
    has_state: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self::new(HardState::default(), SnapshotMetadata::default(), Vec::new())
    }
}

impl Log {
    /// A log as a disk remembers it.
    #[must_use]
    pub fn new(hard_state: HardState, snapshot: SnapshotMetadata, entries: Vec<Entry>) -> Self {
        let bytes = entries.iter().map(weight).sum();
        let before = (snapshot.index, snapshot.term);
        let members = snapshot.get_conf_state().clone();
        Self {
            hard_state,
            before,
            entries,
            bytes,
            snapshot,
            members,
            is_wanted: Cell::new(false),
            has_state: true,
        }
    }

    /// The first entry kept.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.before.0 + 1
    }

    /// The last entry, or the snapshot's place.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    /// How many bytes the entries take.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest snapshot.
    #[must_use]
    pub const fn snapshot_place(&self) -> &SnapshotMetadata {
        &self.snapshot
    }

    /// The hard state.
    #[must_use]
    pub const fn hard_state(&self) -> &HardState {
        &self.hard_state
    }

    /// The members as of what was applied.
    #[must_use]
    pub const fn members(&self) -> &ConfState {
        &self.members
    }

    /// Takes a hard state that was handed to the disk.
    pub fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    /// Takes the members that an applied change brought.
    pub fn set_members(&mut self, members: ConfState) {
        self.members = members;
    }

    /// Takes entries that were handed to the disk; those from the first one's index on give way.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            self.first() <= first.index && first.index <= self.last() + 1,
            "entries from {} leave a gap after {}..={}",
            first.index,
            self.first(),
            self.last()
        );
        let kept = (first.index - self.first()) as usize;
        self.bytes -= self.entries[kept..].iter().map(weight).sum::<usize>();
        self.entries.truncate(kept);
        self.bytes += entries.iter().map(weight).sum::<usize>();
        self.entries.extend_from_slice(entries);
    }

    /// A snapshot came from the leader: the log starts after it.
    pub fn restore(&mut self, snapshot: SnapshotMetadata) {
        self.before = (snapshot.index, snapshot.term);
        self.entries = Vec::new();
        self.bytes = 0;
        self.members = snapshot.get_conf_state().clone();
        self.hard_state.commit = self.hard_state.commit.max(snapshot.index);
        self.snapshot = snapshot;
    }

    /// Before which index the log may go when a snapshot stands at `index`, if at most so many entries
    /// and bytes before it are kept.
    #[must_use]
    pub fn keep_after(&self, index: u64, entries: u64, bytes: usize) -> u64 {
        let lowest = index.saturating_sub(entries);
        let mut kept = 0;
        let tail = self.slice(lowest + 1, index.saturating_add(1)).iter().rev();
        let fits = tail.take_while(|entry| {
            kept += weight(entry);
            kept <= bytes
        });
        index - fits.count() as u64
    }

    /// An own snapshot is on disk: entries up to `keep_after` may go.
    pub fn compact(&mut self, snapshot: SnapshotMetadata, keep_after: u64) {
        let keep_after = keep_after.min(snapshot.index);
        if snapshot.index > self.snapshot.index {
            self.snapshot = snapshot;
        }
        if keep_after < self.first() || keep_after > self.last() {
            return;
        }
        let dropped = (keep_after - self.before.0) as usize;
        let term = self.entries[dropped - 1].term;
        self.bytes -= self.entries[..dropped].iter().map(weight).sum::<usize>();
        self.entries.drain(..dropped);
        self.before = (keep_after, term);
    }

    /// Whether this log's snapshots hold state: if not, nobody may be sent one.
    pub const fn may_send_snapshots(&mut self, has_state: bool) {
        self.has_state = has_state;
    }

    /// Asks for a later snapshot than the newest one.
    pub fn want_snapshot(&self) {
        self.is_wanted.set(true);
    }

    /// Whether somebody has asked for a later snapshot than the newest one; asked once.
    pub fn take_wanted(&self) -> bool {
        self.is_wanted.take()
    }

    /// The Raft term of an entry, if it is known.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.before.0 {
            return Some(self.before.1);
        }
        let at = index.checked_sub(self.first())?;
        self.entries.get(at as usize).map(|entry| entry.term)
    }

    /// The entries from `low` to just before `high`, as far as they are kept.
    #[must_use]
    pub fn slice(&self, low: u64, high: u64) -> &[Entry] {
        let low = low.max(self.first());
        let high = high.min(self.last() + 1);
        if low >= high {
            return &[];
        }
        &self.entries[(low - self.first()) as usize..(high - self.first()) as usize]
    }
}

/// What an entry counts for: its bytes, and about what is around them in memory and on the wire.
pub(crate) fn weight(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + 64
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.members.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let most = max_size.into().unwrap_or(u64::MAX);
        let mut total = 0u64;
        let fits = self.slice(low, high).iter().take_while(|entry| {
            let is_first = total == 0;
            total = total.saturating_add(weight(entry) as u64);
            is_first || total <= most
        });
        Ok(fits.cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if let Some(term) = self.term_of(index) {
            return Ok(term);
        }
        if index < self.first() {
            return Err(StorageError::Compacted.into());
        }
        Err(StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// A replica refuses a snapshot taken before it was a member, so such a one is as good as none.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        if !self.has_state {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let members = self.snapshot.get_conf_state();
        let knows = members.voters.contains(&to)
            || members.learners.contains(&to)
            || members.voters_outgoing.contains(&to);
        if self.snapshot.index == 0 || self.snapshot.index < request_index || !knows {
            self.is_wanted.set(true);
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let mut snapshot = Snapshot::default();
        snapshot.set_metadata(self.snapshot.clone());
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (index, term);
        entry
    }

    fn place(index: u64, term: u64) -> SnapshotMetadata {
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (index, term);
        place
    }

    #[test]
    fn a_conflicting_suffix_gives_way() {
        let mut log = Log::default();
        log.append(&[entry(1, 1), entry(2, 1), entry(3, 1)]);
        log.append(&[entry(2, 2)]);
        assert_eq!((log.last(), log.term_of(2), log.term_of(3)), (2, Some(2), None));
        assert_eq!(log.bytes(), 2 * 64);
    }

    #[test]
    fn compaction_keeps_a_tail_for_those_slightly_behind() {
        let mut log = Log::default();
        log.append(&(1..=10).map(|index| entry(index, 1)).collect::<Vec<_>>());
        log.compact(place(8, 1), 5);
        assert_eq!((log.first(), log.last(), log.term_of(5)), (6, 10, Some(1)));
        assert_eq!(log.snapshot_place().index, 8);
        assert!(log.entries(5, 7, None, GetEntriesContext::empty(false)).is_err());
        log.compact(place(20, 1), 20);
        assert_eq!(log.last(), 10, "what is not in the log is not dropped");
    }

    #[test]
    fn what_is_kept_before_a_snapshot_is_bounded_in_entries_and_in_bytes() {
        let mut log = Log::default();
        log.append(&(1..=10).map(|index| entry(index, 1)).collect::<Vec<_>>());
        assert_eq!(log.keep_after(8, 3, usize::MAX), 5);
        assert_eq!(log.keep_after(8, 100, 2 * 64), 6);
        assert_eq!(log.keep_after(8, 100, usize::MAX), 0);
        assert_eq!(log.keep_after(8, 0, 0), 8);
    }

    #[test]
    fn a_snapshot_from_the_leader_replaces_everything() {
        let mut log = Log::default();
        log.append(&[entry(1, 1)]);
        log.restore(place(50, 4));
        assert_eq!((log.first(), log.last(), log.term_of(50)), (51, 50, Some(4)));
        log.append(&[entry(51, 4)]);
        assert_eq!(log.last(), 51);
    }
}
