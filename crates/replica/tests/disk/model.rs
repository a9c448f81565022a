//! What a disk should remember: every state it was ever asked to keep, batch by batch.

use std::sync::Arc;

use raft::eraftpb::{Entry, HardState, SnapshotMetadata};
use regent_election::{Command, Node, SessionId, Settings};
use regent_replica::disk::error::DataDirError;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened};
use regent_replica::io::{Batch, SnapshotTask};
use regent_replica::replicated::{Origin, encode_proposal};
use regent_replica::{Member, Members, Recovered, ReplicaId, ReplicatedState};

use super::sim::SimFiles;

pub(crate) const SEGMENT_BYTES: u64 = 4096;

pub(crate) fn options() -> DiskOptions {
    DiskOptions { segment_bytes: SEGMENT_BYTES, ..DiskOptions::default() }
}

pub(crate) fn identity() -> Identity {
    Identity { cluster: 0xc1, replica: ReplicaId::new(1).unwrap(), incarnation: 0x11fe }
}

pub(crate) fn founding() -> Founding {
    let member = Member {
        peer_address: "peer-1".into(),
        client_address: "client-1".into(),
        is_witness: false,
    };
    let members: Members = [(ReplicaId::new(1).unwrap(), member)].into();
    Founding::cluster(Settings::default(), members)
}

pub(crate) fn try_found(files: &SimFiles) -> Result<Opened, DataDirError> {
    Disk::found(Arc::new(files.clone()), options(), identity(), &founding())
}

pub(crate) fn found(files: &SimFiles) -> Opened {
    try_found(files).unwrap()
}

pub(crate) fn open(files: &SimFiles) -> Result<Opened, DataDirError> {
    Disk::open(Arc::new(files.clone()), options())
}

/// An entry that changes the state: it opens a session of its own.
pub(crate) fn entry(index: u64, term: u64, padding: usize) -> Entry {
    let origin = Origin { replica: ReplicaId::new(1).unwrap(), boot: 1, number: index };
    let command = Command::Open {
        session: SessionId::new(u128::from(index) << 32 | u128::from(term)).unwrap(),
        node: Node::new(&format!("n{}", "x".repeat(padding.min(60)))).unwrap(),
        ttl_ms: 10_000,
    };
    let proposal = regent_election::Entry { command, request: None, silent: vec![], wall_ms: 0 };
    let mut entry = Entry::default();
    (entry.index, entry.term) = (index, term);
    entry.data = encode_proposal(origin, &proposal).into();
    entry
}

/// One state that the disk was asked to keep.
#[derive(Clone, Debug)]
pub(crate) struct Snap {
    pub(crate) hard_state: HardState,
    /// Index and Raft term after which the log starts.
    pub(crate) before: (u64, u64),
    pub(crate) log: Vec<Entry>,
}

impl Snap {
    pub(crate) fn last(&self) -> (u64, u64) {
        self.log.last().map_or(self.before, |entry| (entry.index, entry.term))
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        let at = index.checked_sub(self.before.0 + 1);
        let held = at.and_then(|at| self.log.get(at as usize)).map(|entry| entry.term);
        if index == self.before.0 { Some(self.before.1) } else { held }
    }
}

/// All states, oldest first, and all snapshots.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) states: Vec<Snap>,
    pub(crate) snapshots: Vec<(SnapshotMetadata, ReplicatedState)>,
    /// The state that a power cut must not undo, and the one that a killed process must not.
    pub(crate) durable: usize,
    pub(crate) confirmed: usize,
    /// The snapshot that must be there.
    pub(crate) kept: usize,
    pub(crate) boot: u64,
    numbers: u64,
}

impl Model {
    pub(crate) fn new(opened: &Opened) -> Self {
        let Recovered { hard_state, place, replicated, .. } = opened.recovered.clone();
        let before = (place.index, place.term);
        Self {
            states: vec![Snap { hard_state, before, log: Vec::new() }],
            snapshots: vec![(place, replicated)],
            durable: 0,
            confirmed: 0,
            kept: 0,
            boot: opened.boot,
            numbers: 0,
        }
    }

    pub(crate) fn now(&self) -> &Snap {
        self.states.last().unwrap()
    }

    /// A batch that is asked for, and the state it makes.
    pub(crate) fn batch(&mut self, entries: Vec<Entry>, hard_state: Option<HardState>) -> Batch {
        let old = self.now();
        let must_sync = !entries.is_empty()
            || hard_state.as_ref().is_some_and(|new| {
                (new.term, new.vote) != (old.hard_state.term, old.hard_state.vote)
            });
        self.push(None, entries, hard_state, must_sync)
    }

    fn push(
        &mut self,
        snapshot: Option<(SnapshotMetadata, Arc<[u8]>)>,
        entries: Vec<Entry>,
        hard_state: Option<HardState>,
        must_sync: bool,
    ) -> Batch {
        let mut state = self.now().clone();
        if let Some((place, _)) = &snapshot {
            (state.before, state.log) = ((place.index, place.term), Vec::new());
        }
        if let Some(first) = entries.first() {
            state.log.retain(|entry| entry.index < first.index);
            state.log.extend(entries.iter().cloned());
        }
        if let Some(hard_state) = &hard_state {
            state.hard_state = hard_state.clone();
        }
        self.states.push(state);
        self.numbers += 1;
        Batch { number: self.numbers, snapshot, entries, hard_state, must_sync }
    }

    /// A snapshot from the leader, beyond what is committed here.
    pub(crate) fn install(&mut self, ahead: u64, term: u64) -> Batch {
        let mut place = self.snapshots.last().unwrap().0.clone();
        place.index = self.now().hard_state.commit + 1 + ahead;
        place.term = term.max(self.now().hard_state.term);
        if self.now().term_of(place.index) == Some(place.term) {
            // Raft takes no snapshot that its log agrees with.
            place.term += 1;
        }
        let mut replicated = founding().replicated;
        replicated.replay(&entry(place.index, place.term, 3)).unwrap();
        let bytes: Arc<[u8]> = replicated.encode().into();
        self.snapshots.push((place.clone(), replicated));
        let mut hard_state = self.now().hard_state.clone();
        if hard_state.term < place.term {
            (hard_state.term, hard_state.vote) = (place.term, 0);
        }
        hard_state.commit = place.index;
        self.push(Some((place, bytes)), Vec::new(), Some(hard_state), true)
    }

    /// A snapshot of everything committed, if there is something since the last.
    pub(crate) fn task(&mut self) -> Option<SnapshotTask> {
        let state = self.now().clone();
        let (last, mut replicated) = self.snapshots.last().unwrap().clone();
        let index = state.hard_state.commit;
        if index <= last.index {
            return None;
        }
        let since = |entry: &&Entry| entry.index > last.index && entry.index <= index;
        let entries: Vec<Entry> = state.log.iter().filter(since).cloned().collect();
        for entry in &entries {
            replicated.replay(entry).unwrap();
        }
        let mut place = last;
        (place.index, place.term) = (index, state.term_of(index).unwrap());
        self.snapshots.push((place.clone(), replicated));
        Some(SnapshotTask { place, entries, has_no_state: false })
    }

    /// Which state was found again; panics if it is none of those that may be.
    pub(crate) fn check(&mut self, opened: &Opened, oldest_allowed: usize) -> usize {
        assert!(opened.boot > self.boot, "boots rise");
        self.boot = opened.boot;
        let found = &opened.recovered;
        let kept = self.snapshots.iter().rposition(|(place, _)| *place == found.place);
        let kept = kept.unwrap_or_else(|| panic!("an unknown snapshot: {:?}", found.place));
        assert!(kept >= self.kept, "the snapshot went back: {kept} after {}", self.kept);
        assert_eq!(self.snapshots[kept].1, found.replicated, "the snapshot's whole");
        let allowed = oldest_allowed..self.states.len();
        let state = allowed.clone().rev().find(|at| matches(&self.states[*at], found));
        let Some(state) = state else {
            panic!("none of {allowed:?}: {:?}\n{:#?}", brief(found), &self.states[oldest_allowed..])
        };
        state
    }

    /// Goes on from the state that was found.
    pub(crate) fn resume(&mut self, opened: &Opened, state: usize) {
        let Recovered { hard_state, place, entries, .. } = opened.recovered.clone();
        let mut found = self.states[state].clone();
        found.hard_state = hard_state;
        if found.term_of(place.index) != Some(place.term) || found.last().0 < place.index {
            (found.before, found.log) = ((place.index, place.term), entries);
        }
        self.states = vec![found];
        (self.durable, self.confirmed) = (0, 0);
        let kept = self.snapshots.iter().rposition(|(known, _)| *known == place).unwrap();
        self.snapshots.truncate(kept + 1);
        self.kept = kept;
    }
}

/// Whether what was found is this state, seen from the snapshot that was found.
fn matches(state: &Snap, found: &Recovered) -> bool {
    let place = &found.place;
    let mut hard_state = state.hard_state.clone();
    hard_state.commit = hard_state.commit.max(place.index);
    let goes_on = state.term_of(place.index) == Some(place.term);
    let is_covered = place.index < state.before.0;
    let entries: Vec<Entry> = if goes_on {
        state.log.iter().filter(|entry| entry.index > place.index).cloned().collect()
    } else {
        Vec::new()
    };
    if !goes_on && hard_state.term < place.term {
        (hard_state.term, hard_state.vote) = (place.term, 0);
    }
    !is_covered && hard_state == found.hard_state && entries == found.entries
}

/// Everything that a recovered replica knows, whichever snapshot it starts from.
pub(crate) fn digest(found: &Recovered) -> (HardState, u64, Vec<u8>) {
    let mut replicated = found.replicated.clone();
    found.entries.iter().for_each(|entry| replicated.replay(entry).unwrap());
    let last = found.entries.last().map_or(found.place.index, |entry| entry.index);
    (found.hard_state.clone(), last, replicated.encode())
}

fn brief(found: &Recovered) -> String {
    let last = found.entries.last().map(|entry| (entry.index, entry.term));
    format!("{:?} after {:?}, last {last:?}", found.hard_state, found.place)
}
