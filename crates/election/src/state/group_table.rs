//! The table of groups: by name in order, and the same one again at once.
//!
//! A verb looks its group up a dozen times, a leader renews the same one for ever, and among a million names each
//! search is twenty comparisons far apart in memory. So a name leads to a slot, and the slot that a name like it
//! was found in last is looked at first. Slots lie in chunks: nothing is ever moved, so that no entry pays for the
//! growth of the whole.
//!
//! The table also knows what its groups weigh, and for whom. Before a group changes for the first time, what it weighs is
//! taken off its payers' accounts; [`GroupTable::weigh`] puts the changed group on them again.
//!
//! The road not taken is a hash table. It needs chance against names chosen to collide, and the
//! order of names would have to be kept beside it all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Index};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::accounts::{Accounts, Dues};
use super::group::GroupState;
use super::weight;
use crate::name::Group;

/// Slots in a chunk.
const CHUNK: usize = 256;

/// Groups by name.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    by_name: BTreeMap<Group, u32>,
    chunks: Vec<Vec<Slot>>,
    free: Vec<u32>,
    /// What all groups weighed when they were last looked at.
    bytes: u64,
    /// Slots whose groups may have changed since: they are on nobody's account, apart from their lines.
    touched: BTreeSet<u32>,
    /// What that has changed in accounts.
    dues: Dues,
    /// The slots found last, by a hash of the name: guesses, never trusted without the name. Relaxed, because any
    /// guess will do. As many as there are groups, up to a bound.
    guesses: Vec<AtomicU32>,
    /// The name that was looked for last in vain: whoever makes a group asks for it several times before.
    missing: Mutex<Option<Group>>,
}

/// Most guesses: with more groups in use at once than this, some are searched for each time. 64 KiB.
const GUESSES_MAX: usize = 16 << 10;
/// A guess that is none.
const NO_SLOT: u32 = u32::MAX;

fn guesses(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(NO_SLOT)).collect()
}

/// Spreads names over guesses by their ends, in which names of one kind differ. Names chosen to collide cost a search
/// each, which every name would cost without guesses.
fn hash(group: &Group) -> usize {
    let name = group.as_str().as_bytes();
    let mut end = [0; 16];
    let length = name.len().min(end.len());
    end[..length].copy_from_slice(&name[name.len() - length..]);
    let ends = u128::from_le_bytes(end);
    let (low, high) = (ends as u64 ^ name.len() as u64, (ends >> 64) as u64);
    let hash = low.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (hash >> 32) as usize
}

/// A group with its name, or a place for one.
type Slot = Option<(Group, GroupState)>;

impl Clone for GroupTable {
    fn clone(&self) -> Self {
        Self {
            by_name: self.by_name.clone(),
            chunks: self.chunks.clone(),
            free: self.free.clone(),
            bytes: self.bytes,
            touched: self.touched.clone(),
            dues: self.dues.clone(),
            guesses: guesses(self.guesses.len()),
            missing: Mutex::default(),
        }
    }
}

/// The same groups; where they lie does not matter.
impl PartialEq for GroupTable {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for GroupTable {}

impl Index<&Group> for GroupTable {
    type Output = GroupState;

    fn index(&self, group: &Group) -> &GroupState {
        self.get(group).expect("a group that is indexed is known")
    }
}

impl GroupTable {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn get(&self, group: &Group) -> Option<&GroupState> {
        self.at(self.find(group)?).map(|(_, state)| state)
    }

    pub(super) fn get_mut(&mut self, group: &Group) -> Option<&mut GroupState> {
        let slot = self.find(group)?;
        self.touch(slot);
        self.at_mut(slot)?.as_mut().map(|(_, state)| state)
    }

    /// The group, made first if it is not known.
    pub(super) fn get_or_insert(
        &mut self,
        group: &Group,
        make: impl FnOnce() -> GroupState,
    ) -> &mut GroupState {
        if self.find(group).is_none() {
            self.insert(group.clone(), make());
        }
        self.get_mut(group).expect("what is not known has just been made")
    }

    /// Adds a group, in place of one of the same name.
    pub(super) fn insert(&mut self, group: Group, state: GroupState) {
        let slot = match self.find(&group) {
            Some(slot) => slot,
            None => self.place(&group),
        };
        let was_touched = !self.touched.insert(slot);
        let state = GroupState { weight: 0, ..state };
        let before = self.at_mut(slot).and_then(|place| place.replace((group, state)));
        if let Some((name, before)) = before {
            self.has_gone(&name, &before, was_touched);
        }
    }

    pub(super) fn remove(&mut self, group: &Group) -> Option<GroupState> {
        let slot = self.by_name.remove(group)?;
        self.free.push(slot);
        let was_touched = self.touched.remove(&slot);
        let (name, state) = self.at_mut(slot)?.take()?;
        self.has_gone(&name, &state, was_touched);
        Some(state)
    }

    /// A group that is not in the table any more weighs nothing.
    fn has_gone(&mut self, name: &Group, state: &GroupState, was_touched: bool) {
        self.bytes -= state.weight;
        if !was_touched && state.has_payers() {
            weight::parts(name, state, |payer, bytes| self.dues.release(payer, bytes));
        }
        self.dues.append(&mut state.line_dues.clone());
        for standby in &state.line {
            self.dues.release(&standby.payer, weight::standby(standby));
        }
    }

    /// What all groups weigh, as of the last [`GroupTable::weigh`].
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Weighs every group that may have changed, and charges who pays for it. Whoever changes groups calls it before
    /// their weight is asked for, and after a bounded number of changes.
    pub(super) fn weigh(&mut self, accounts: &mut Accounts) {
        for slot in std::mem::take(&mut self.touched) {
            let chunk = self.chunks.get_mut(slot as usize / CHUNK);
            let place = chunk.and_then(|chunk| chunk.get_mut(slot as usize % CHUNK));
            if let Some(Some((name, state))) = place {
                let mut weight = state.line_bytes;
                weight::parts(name, state, |payer, bytes| {
                    weight += bytes;
                    self.dues.charge(payer, bytes);
                });
                self.dues.append(&mut state.line_dues);
                self.bytes = self.bytes + weight - state.weight;
                state.weight = weight;
            }
        }
        accounts.settle(std::mem::take(&mut self.dues));
    }

    /// Notes that the group in a slot may change.
    fn touch(&mut self, slot: u32) {
        if !self.touched.insert(slot) {
            return;
        }
        let chunk = self.chunks.get(slot as usize / CHUNK);
        let place = chunk.and_then(|chunk| chunk.get(slot as usize % CHUNK));
        if let Some(Some((name, state))) = place
            && state.has_payers()
        {
            weight::parts(name, state, |payer, bytes| self.dues.release(payer, bytes));
        }
    }

    /// In the order of names.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Group, &GroupState)> {
        self.by_name.values().filter_map(|slot| self.at(*slot)).map(|(name, state)| (name, state))
    }

    /// In no particular order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut GroupState> {
        for slot in self.by_name.values().copied().collect::<Vec<_>>() {
            self.touch(slot);
        }
        self.chunks.iter_mut().flatten().flatten().map(|(_, state)| state)
    }

    /// Names from `start` on, in order.
    pub(super) fn names_from(&self, start: Bound<&str>) -> impl Iterator<Item = &Group> {
        self.by_name.range::<str, _>((start, Bound::Unbounded)).map(|(name, _)| name)
    }

    /// The last name in order.
    pub(super) fn last_name(&self) -> Option<&Group> {
        self.by_name.last_key_value().map(|(name, _)| name)
    }

    /// The slot of a group.
    fn find(&self, group: &Group) -> Option<u32> {
        let guess = self.guesses.get(hash(group) % self.guesses.len().max(1));
        let guessed = guess.map_or(NO_SLOT, |guess| guess.load(Ordering::Relaxed));
        if self.at(guessed).is_some_and(|(name, _)| name == group) {
            return Some(guessed);
        }
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.as_ref() == Some(group) {
            return None;
        }
        let Some(slot) = self.by_name.get(group).copied() else {
            *missing = Some(group.clone());
            return None;
        };
        if let Some(guess) = guess {
            guess.store(slot, Ordering::Relaxed);
        }
        Some(slot)
    }

    /// A slot for a group that has none.
    fn place(&mut self, group: &Group) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            let chunks = self.chunks.len();
            let chunk = self.chunks.last_mut().expect("there is a chunk with room");
            chunk.push(None);
            u32::try_from((chunks - 1) * CHUNK + chunk.len() - 1)
                .expect("a store has far fewer groups than slots can be numbered")
        });
        self.by_name.insert(group.clone(), slot);
        if self.by_name.len() > self.guesses.len() && self.guesses.len() < GUESSES_MAX {
            self.guesses = guesses(self.by_name.len().next_power_of_two());
        }
        if let Some(guess) = self.guesses.get(hash(group) % self.guesses.len().max(1)) {
            guess.store(slot, Ordering::Relaxed);
        }
        *self.missing.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        slot
    }

    fn at(&self, slot: u32) -> Option<&(Group, GroupState)> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
    }

    fn at_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::term::Term;

    fn named(number: u8) -> Group {
        Group::new(&format!("g{number}")).unwrap()
    }

    fn state(term: u64) -> GroupState {
        GroupState::new(Term::new(term).unwrap(), None)
    }

    proptest! {
        #[test]
        fn it_is_a_map_in_the_order_of_names(
            steps in prop::collection::vec((0_u8..4, any::<u8>()), 0..2_000),
        ) {
            let mut roll = GroupTable::default();
            let mut model = BTreeMap::new();
            for (term, (verb, number)) in (1..).zip(steps) {
                let name = named(number);
                match verb {
                    0 => {
                        roll.insert(name.clone(), state(term));
                        model.insert(name, state(term));
                    }
                    1 => prop_assert_eq!(roll.remove(&name), model.remove(&name)),
                    2 => {
                        let made = roll.get_or_insert(&name, || state(term)).clone();
                        prop_assert_eq!(&made, model.entry(name).or_insert_with(|| state(term)));
                    }
                    _ => prop_assert_eq!(roll.get_mut(&name), model.get_mut(&name)),
                }
                prop_assert_eq!(roll.len(), model.len());
            }
            prop_assert!(roll.iter().eq(model.iter()));
            prop_assert!(roll.iter().rev().eq(model.iter().rev()));
            prop_assert_eq!(roll.values_mut().count(), model.len());
            prop_assert_eq!(roll.last_name(), model.keys().next_back());
            let mut other = GroupTable::default();
            for (name, state) in model.into_iter().rev() {
                other.insert(name, state);
            }
            prop_assert_eq!(roll, other, "whatever way it was made");
        }
    }

    #[test]
    fn more_than_a_chunk_fits_and_places_are_used_again() {
        let mut roll = GroupTable::default();
        let many: Vec<Group> =
            (0..3 * CHUNK + 1).map(|number| Group::new(&format!("x{number}")).unwrap()).collect();
        for group in &many {
            roll.insert(group.clone(), state(7));
        }
        assert!(many.iter().all(|group| roll.get(group).is_some()));
        assert_eq!(roll.chunks.len(), 4);
        for group in &many {
            assert!(roll.remove(group).is_some());
            assert_eq!(roll.get(group), None, "not even by the guess");
        }
        for group in &many {
            roll.insert(group.clone(), state(8));
        }
        assert_eq!(roll.chunks.len(), 4);
    }
}
