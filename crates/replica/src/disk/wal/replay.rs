//! What the records of a log amount to, one after another.
//!
//! Pure: bytes have become records before they come here. What contradicts itself is refused, never
//! smoothed over; the core only ever asks to keep what goes on from what was kept.

use raft::eraftpb::{Entry, HardState, SnapshotMetadata};

use super::payload::{Kept, Summary};

/// No log gets this far: what says so makes no sense, and sums with it would overflow.
const INDEX_MAX: u64 = u64::MAX / 2;

/// A log as it is read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replay {
    pub(crate) hard_state: HardState,
    pub(crate) boot: u64,
    /// Index and Raft term just before the first entry held.
    before: (u64, u64),
    entries: Vec<Entry>,
}

/// What a log says after a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suffix {
    pub(crate) hard_state: HardState,
    pub(crate) entries: Vec<Entry>,
    /// The log did not go on from the snapshot, which came from the leader just before a power cut:
    /// it must be told that it starts after it.
    pub(crate) must_restart: bool,
}

impl Replay {
    /// A log whose earlier segments are gone.
    pub(crate) fn new(opening: Summary) -> Self {
        let Summary { hard_state, boot, last } = opening;
        Self { hard_state, boot, before: last, entries: Vec::new() }
    }

    /// Index and Raft term of the last entry.
    pub(crate) fn last(&self) -> (u64, u64) {
        self.entries.last().map_or(self.before, |entry| (entry.index, entry.term))
    }

    /// What a segment that opens here must say.
    pub(crate) fn summary(&self) -> Summary {
        Summary { hard_state: self.hard_state.clone(), boot: self.boot, last: self.last() }
    }

    /// A later run of this replica.
    pub(crate) fn boot(&mut self, boot: u64) -> Result<(), String> {
        if boot <= self.boot {
            return Err(format!("boot {boot} follows boot {}", self.boot));
        }
        self.boot = boot;
        Ok(())
    }

    /// Takes a batch, or says what it contradicts.
    pub(crate) fn batch(&mut self, kept: Kept) -> Result<(), String> {
        if let Some(place) = kept.restored {
            if place.0 > INDEX_MAX {
                return Err(format!("a snapshot at index {} makes no sense", place.0));
            }
            self.before = place;
            self.entries.clear();
            self.hard_state.commit = self.hard_state.commit.max(place.0);
        }
        self.append(kept.entries)?;
        if let Some(hard_state) = kept.hard_state {
            let old = &self.hard_state;
            let is_forgotten = old.term == hard_state.term && old.vote != 0;
            if hard_state.term < old.term || (is_forgotten && hard_state.vote != old.vote) {
                return Err(format!(
                    "Raft term {} and vote {} follow {} and {}",
                    hard_state.term, hard_state.vote, old.term, old.vote
                ));
            }
            self.hard_state = hard_state;
        }
        if self.hard_state.commit > self.last().0 {
            let (commit, last) = (self.hard_state.commit, self.last().0);
            return Err(format!("commit {commit} is beyond the last entry, {last}"));
        }
        Ok(())
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        let Some(first) = entries.first().map(|entry| entry.index) else { return Ok(()) };
        let last = self.last().0;
        if first == 0 || first > INDEX_MAX || first > last.saturating_add(1) {
            return Err(format!("entry {first} follows entry {last}"));
        }
        if let Some(odd) = (first..).zip(&entries).find(|(index, entry)| *index != entry.index) {
            return Err(format!("entry {} stands where {} belongs", odd.1.index, odd.0));
        }
        if first <= self.before.0 {
            // Reaches back behind what is held: possible only in the oldest segment, whose earlier
            // entries a snapshot covers. The term before is not known and not asked for.
            self.before = (first - 1, 0);
            self.entries = entries;
            return Ok(());
        }
        self.entries.truncate((first - self.before.0 - 1) as usize);
        self.entries.extend(entries);
        Ok(())
    }

    /// What is to be known after this snapshot, or why the log does not go with it.
    pub(crate) fn after(&self, place: &SnapshotMetadata) -> Result<Suffix, String> {
        let (first, last) = (self.before.0.saturating_add(1), self.last().0);
        if first > place.index.saturating_add(1) || place.index > INDEX_MAX {
            let index = place.index;
            return Err(format!("the log begins at entry {first}, the snapshot ends at {index}"));
        }
        let goes_on = if place.index == self.before.0 {
            // Zero is a term that is not known any more.
            [0, place.term].contains(&self.before.1)
        } else {
            let at = place.index - first;
            self.entries.get(at as usize).is_some_and(|entry| entry.term == place.term)
        };
        let mut hard_state = self.hard_state.clone();
        let entries = if goes_on {
            self.entries[(place.index + 1 - first) as usize..].to_vec()
        } else if hard_state.commit >= place.index {
            // A snapshot from the leader is taken only beyond what was committed here.
            let commit = hard_state.commit;
            return Err(format!(
                "the log ({first} to {last}, committed {commit}) contradicts the snapshot at {} of Raft term {}",
                place.index, place.term
            ));
        } else {
            Vec::new()
        };
        hard_state.commit = hard_state.commit.max(place.index);
        if hard_state.term < place.term {
            // Nobody was voted for in a Raft term that was not yet heard of.
            (hard_state.term, hard_state.vote) = (place.term, 0);
        }
        Ok(Suffix { hard_state, entries, must_restart: !goes_on })
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

    fn entries(indexes: std::ops::RangeInclusive<u64>, term: u64) -> Kept {
        Kept { entries: indexes.map(|index| entry(index, term)).collect(), ..Kept::default() }
    }

    fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.vote, hard_state.commit) = (term, vote, commit);
        hard_state
    }

    fn state(term: u64, vote: u64, commit: u64) -> Kept {
        Kept { hard_state: Some(hard_state(term, vote, commit)), ..Kept::default() }
    }

    fn place(index: u64, term: u64) -> SnapshotMetadata {
        let mut place = SnapshotMetadata::default();
        (place.index, place.term) = (index, term);
        place
    }

    fn replay(batches: impl IntoIterator<Item = Kept>) -> Result<Replay, String> {
        let mut replay = Replay::default();
        batches.into_iter().try_for_each(|batch| replay.batch(batch))?;
        Ok(replay)
    }

    #[test]
    fn a_later_record_with_a_lower_index_wins() {
        let log = replay([entries(1..=5, 1), entries(3..=3, 2)]).unwrap();
        assert_eq!(log.last(), (3, 2));
        let suffix = log.after(&place(2, 1)).unwrap();
        assert_eq!(suffix.entries, [entry(3, 2)]);
        assert!(!suffix.must_restart);
    }

    #[test]
    fn entries_behind_a_snapshots_place_are_not_needed() {
        // The oldest segment left says only how far the log was; a conflict may reach behind it.
        let opening = Summary { hard_state: hard_state(4, 0, 90), boot: 2, last: (120, 3) };
        let mut log = Replay::new(opening);
        log.batch(entries(95..=130, 4)).unwrap();
        assert_eq!(log.after(&place(129, 4)).unwrap().entries, [entry(130, 4)]);
        assert!(log.after(&place(93, 3)).unwrap_err().contains("begins at entry 95"));
        assert_eq!(log.after(&place(94, 3)).unwrap().entries.len(), 36);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let refused = |batches: Vec<Kept>| replay(batches).unwrap_err();
        assert!(refused(vec![entries(2..=2, 1)]).contains("entry 2 follows entry 0"));
        let odd = Kept { entries: vec![entry(1, 1), entry(3, 1)], ..Kept::default() };
        assert!(refused(vec![odd]).contains("entry 3 stands where 2 belongs"));
        assert!(refused(vec![state(3, 0, 0), state(2, 0, 0)]).contains("follow 3 and 0"));
        assert!(refused(vec![state(3, 1, 0), state(3, 2, 0)]).contains("vote 2 follow 3 and 1"));
        assert!(refused(vec![state(3, 1, 0), state(3, 0, 0)]).contains("vote 0"));
        assert!(refused(vec![state(1, 0, 1)]).contains("commit 1 is beyond"));
        let far = Kept { restored: Some((u64::MAX, 1)), ..Kept::default() };
        assert!(refused(vec![far]).contains("makes no sense"));
        let mut log = Replay::default();
        log.boot(3).unwrap();
        assert!(log.boot(3).is_err() && log.boot(4).is_ok());
    }

    #[test]
    fn a_snapshot_from_the_leader_starts_the_log_anew() {
        let restored = Kept { restored: Some((50, 4)), ..entries(51..=52, 4) };
        let log = replay([entries(1..=5, 1), restored]).unwrap();
        assert_eq!((log.last(), log.hard_state.commit), ((52, 4), 50));
        assert_eq!(log.after(&place(50, 4)).unwrap().entries.len(), 2);
        assert!(log.after(&place(3, 1)).is_err(), "the one before it leads nowhere");
    }

    #[test]
    fn a_snapshot_that_outran_the_log_is_believed_only_beyond_what_was_committed() {
        let log = replay([entries(1..=60, 3), state(3, 2, 40)]).unwrap();
        for (index, term) in [(50, 4), (70, 4)] {
            let suffix = log.after(&place(index, term)).unwrap();
            assert!(suffix.must_restart && suffix.entries.is_empty());
            assert_eq!(suffix.hard_state, hard_state(4, 0, index), "no vote in a term unheard of");
        }
        assert!(log.after(&place(40, 4)).unwrap_err().contains("contradicts"));
        assert_eq!(log.after(&place(50, 3)).unwrap().hard_state, hard_state(3, 2, 50));
    }
}
