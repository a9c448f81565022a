//! One replica as a process: the real core and the real hub, with an inbox, an outbox, a disk and a
//! clock that the world controls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use raft::eraftpb::{Entry, EntryType, SnapshotMetadata};
use regent_election::mutant::{self, Mutant};
use regent_election::watch::{Bounds, Hub, HubWatch};
use regent_election::{Group, Moment, SessionId, Term};
use regent_replica::core::Refused;
use regent_replica::io::{Batch, SnapshotTask, Token};
use regent_replica::{Core, CoreConfig, ReplicaId, ReplicatedState};

use crate::fnv::print;

use super::World;
use super::disk::{Disk, Refused as RefusedDisk};
use super::net::Address;
use super::parcel::{Ask, Parcel};
use crate::clock::Clock;

/// A replica and its machine.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: u64,
    pub(super) clock: Clock,
    pub(super) disk: Disk,
    pub(super) running: Option<Box<Running>>,
    /// Strikes that keep it paused.
    pub(super) pauses: u32,
    /// How long its loop takes to come round.
    pub(super) lag_ns: u64,
    /// No sync ends before this instant.
    pub(super) stalled_until: u64,
    /// Its disk is lost: it never comes back.
    pub(super) is_retired: bool,
}

/// One run of a replica.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) core: Core,
    pub(super) hub: Hub,
    /// What has arrived and when, in true time.
    pub(super) inbox: VecDeque<(u64, InboxItem)>,
    pub(super) outbox: VecDeque<(Address, Parcel)>,
    pub(super) turn_at: Option<u64>,
    /// A slow loop does not come round before this instant.
    pub(super) busy_until: u64,
    pub(super) turned_at: Option<Moment>,
    pub(super) tokens: u64,
    pub(super) asked: BTreeMap<Token, Asked>,
    pub(super) watches: BTreeMap<u64, Served>,
    pub(super) log: Mirror,
    /// The last index whose application was noted.
    pub(super) noted: u64,
    pub(super) is_serving: bool,
    /// Whether its disk had room when it was last told.
    pub(super) has_room: bool,
    /// How much is known to be committed by each batch that is written and not yet synced, by its number.
    pub(super) commits: VecDeque<(u64, u64)>,
    /// How much it would know to be committed after a power cut.
    pub(super) kept_commit: u64,
    /// The last of Raft's terms in which it led.
    pub(super) led: u64,
    /// Prints of all entries up to the snapshots that have arrived, by index.
    pub(super) arriving: BTreeMap<u64, u64>,
    /// The snapshot that the next one is built on.
    base: Base,
    /// What the log says as far as this replica knows it to be committed, and up to which index: the world's own
    /// reading of it, whatever the core has applied.
    committed: Option<(u64, ReplicatedState)>,
}

#[derive(Clone, Debug)]
struct Base {
    index: u64,
    bytes: Arc<[u8]>,
}

/// What waits in an inbox.
#[derive(Debug)]
pub(super) enum InboxItem {
    Peer { from: u64, bytes: Arc<[u8]>, snapshot: Option<(Arc<[u8]>, u64)> },
    Ask { client: u32, call: u64, ask: Ask },
    Persisted { batch: u64 },
    SnapshotKept { place: SnapshotMetadata },
    SnapshotNotMade,
    SnapshotSent { to: ReplicaId, arrived: bool },
    Unreachable { replica: ReplicaId },
    Room { is_there: bool },
}

/// A request that the core has and that a client waits for.
#[derive(Debug)]
pub(super) enum Asked {
    /// Answered as it is.
    Plain { client: u32, call: u64 },
    /// One of the terms that a heartbeat gives up; the heartbeat itself comes last.
    Disown { client: u32, call: u64, rest: Ask },
}

/// A watch that is served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) client: u32,
    pub(super) watch: HubWatch,
    pub(super) number: u64,
    pub(super) marked_at: u64,
}

/// What a run is started with.
#[derive(Debug)]
pub(super) struct Birth {
    pub(super) id: ReplicaId,
    pub(super) seed: u64,
    pub(super) snapshot_every: u64,
    pub(super) ring_count: usize,
    pub(super) is_witness: bool,
}

impl Running {
    /// Starts from what the disk remembers; or says why that is refused.
    pub(super) fn start(birth: &Birth, disk: &mut Disk, now: Moment) -> Result<Self, RefusedDisk> {
        let (recovered, run, chain) = disk.recover()?;
        let mut config = CoreConfig::new(birth.id, run, birth.seed);
        config.snapshot_every = birth.snapshot_every;
        config.is_witness = birth.is_witness;
        let ring_count_min = birth.ring_count;
        let bounds = Bounds { ring_bytes_max: 0, ring_count_min, queue_max: 8 };
        let hub = Hub::new(config.incarnation, recovered.replicated.state.revision(), bounds);
        let index = recovered.place.index;
        let base = Base { index, bytes: recovered.replicated.encode().into() };
        let log = Mirror::new(index, chain, recovered.entries.clone());
        let kept_commit = recovered.hard_state.commit.max(index);
        let core = Core::new(config, recovered, now).expect("the library takes what the disk kept");
        Ok(Self {
            run,
            core,
            hub,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            turn_at: None,
            busy_until: 0,
            turned_at: None,
            tokens: 0,
            asked: BTreeMap::new(),
            watches: BTreeMap::new(),
            log,
            noted: index,
            is_serving: false,
            has_room: true,
            commits: VecDeque::new(),
            kept_commit,
            led: 0,
            arriving: BTreeMap::new(),
            base,
            committed: None,
        })
    }

    pub(super) fn token(&mut self, asked: Asked) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.asked.insert(token, asked);
        token
    }

    /// The print of all entries up to the snapshot that a batch carries, if it carries one.
    pub(super) fn arriving_chain(&self, batch: &Batch) -> u64 {
        let index = batch.snapshot.as_ref().map(|(place, _)| place.index);
        index.and_then(|index| self.arriving.get(&index).copied()).unwrap_or(0)
    }

    /// Takes what the core wants written into the mirror of its log.
    pub(super) fn mirror(&mut self, batch: &Batch, chain: u64) {
        if let Some((place, bytes)) = &batch.snapshot {
            self.log = Mirror::new(place.index, chain, Vec::new());
            self.base = Base { index: place.index, bytes: Arc::clone(bytes) };
            self.committed = None;
            self.noted = self.noted.max(place.index);
        }
        self.log.append(&batch.entries);
    }

    /// Whether a heartbeat of this session proves this tenure, by everything that this replica knows to be committed.
    /// Decided from the log alone: the core is what is judged by it.
    pub(super) fn is_proved(&mut self, session: SessionId, (group, term): &(Group, Term)) -> bool {
        let (at, replicated) = self.committed.get_or_insert_with(|| {
            let replicated = ReplicatedState::decode(&self.base.bytes);
            (self.base.index, replicated.expect("a snapshot of one's own can be read"))
        });
        let committed = self.core.status().committed;
        while *at < committed {
            // What was appended since the last turn is not in the mirror: it came from another leader.
            let Some(entry) = self.log.entry(*at + 1) else { return false };
            replicated.replay(entry).expect("what is committed can be applied");
            *at += 1;
        }
        let state = &replicated.state;
        state.find_session(session).is_some_and(|no| state.may_renew(group, no, *term).is_ok())
    }

    /// Makes the snapshot that the core asks for: the last one, plus the entries since.
    pub(super) fn make_snapshot(&mut self, task: &SnapshotTask) -> (Arc<[u8]>, u64) {
        let mut replicated =
            ReplicatedState::decode(&self.base.bytes).expect("a snapshot of one's own can be read");
        let base = self.base.index;
        // A witness keeps the members and nothing else.
        let is_kept =
            |entry: &&Entry| !task.has_no_state || entry.entry_type != EntryType::EntryNormal;
        let since = task.entries.iter().filter(|entry| entry.index > base);
        for entry in since.filter(is_kept) {
            replicated.replay(entry).expect("an applied entry can be applied again");
        }
        let bytes: Arc<[u8]> = replicated.encode().into();
        self.base = Base { index: task.place.index, bytes: Arc::clone(&bytes) };
        (bytes, self.log.chain_at(task.place.index))
    }
}

impl World {
    /// Here every replica is in order, whatever befalls it, unless a mistake was planted. So whatever one sends, the others
    /// must take for what a replica in order sends.
    pub(super) fn refuses_nobody(&self, id: u64, refused: &[(ReplicaId, Refused)]) {
        let is_planted = self.plan.sabotage.is_some() || Mutant::ALL.into_iter().any(mutant::is);
        if let [(from, why), ..] = refused
            && !is_planted
        {
            panic!("replica {id} refused replica {from}, which is in order: {why}");
        }
    }
}

/// A copy of a core's log, for the history: the core itself shows no entries.
#[derive(Debug)]
pub(super) struct Mirror {
    base: u64,
    entries: Vec<Entry>,
    /// Prints of all entries up to `base`, `base + 1`, …
    chains: Vec<u64>,
}

impl Mirror {
    fn new(base: u64, chain: u64, entries: Vec<Entry>) -> Self {
        let mut mirror = Self { base, entries: Vec::new(), chains: vec![chain] };
        mirror.append(&entries);
        mirror
    }

    fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let kept = first.index.saturating_sub(self.base + 1) as usize;
        self.entries.truncate(kept);
        self.chains.truncate(kept + 1);
        for entry in entries.iter().filter(|entry| entry.index > self.base) {
            let before = self.chains.last().copied().unwrap_or(0);
            self.chains.push(link(before, entry));
            self.entries.push(entry.clone());
        }
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        self.entries.get(index.checked_sub(self.base + 1)? as usize)
    }

    pub(super) fn chain_at(&self, index: u64) -> u64 {
        let at = index.saturating_sub(self.base) as usize;
        self.chains.get(at).copied().unwrap_or(0)
    }
}

/// The print of a log that ends with `entry`.
fn link(before: u64, entry: &Entry) -> u64 {
    let kind = match entry.entry_type {
        EntryType::EntryNormal => 0_u64,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    };
    let numbers = [before, entry.index, entry.term, kind];
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    print(bytes.chain(entry.data.iter().copied()).chain(entry.context.iter().copied()))
}
