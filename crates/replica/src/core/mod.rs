//! The core of a replica: one deterministic machine around Raft.
//!
//! Inputs are told with [`Core::on`]; [`Core::turn`] then does everything that follows and says what is
//! to be sent, written and answered. It reads no clock, rolls only its own seeded dice, and touches
//! no disk and no socket, so a server and the simulator drive the very same machine.
//!
//! One turn, in this order, because the order is what keeps the promises:
//! 1. tick, and campaign if the election timer is over (`timer`);
//! 2. the Raft leader's duties (`leases`): heartbeats have been counted on arrival, so expiries are
//!    computed after them (semantics 5);
//! 3. proposals, own and forwarded, in one batch (`proposals`);
//! 4. one round for all reads and heartbeats that wait (`rounds`);
//! 5. what Raft wants sent and written (`ready`);
//! 6. committed entries, in slices (`apply`);
//! 7. answers whose index is applied, and what has waited too long.
//!
//! Every answer is computed on the replica whose client asked, from its own state. A follower's
//! client gets its answer when the follower applies the entry; what travels back from the leader is
//! only "no" and "confirmed at this index".

mod admission;
mod apply;
mod disk;
mod growth;
mod hearing;
mod heartbeats;
mod leases;
mod patience;
mod proposals;
mod ready;
mod removal;
mod requests;
mod rounds;
mod status;
mod timer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Entry as LogEntry, HardState, SnapshotMetadata};
use raft::{RawNode, ReadOnlyOption, StateRole};
use regent_election::ledger::Ledger;
use regent_election::limits::STATE_BYTES_MAX_DEFAULT;
use regent_election::mutant::{self, Mutant};
use regent_election::store::StoreError;
use regent_election::{Incarnation, Moment, SessionNo, StateBudget};

use crate::io::{Outputs, PeerMessage, Response, Token};
use crate::limits::{
    APPEND_BYTES_MAX, APPENDS_INFLIGHT_MAX, COMMITTED_BYTES_PER_TURN,
    LOG_ENTRIES_BETWEEN_SNAPSHOTS, TICK_MS, UNCOMMITTED_BYTES_MAX,
};
use crate::log::Log;
use crate::member::{MemberChange, Members, ReplicaId};
use crate::replicated::{ReplicatedState, payload};
use crate::timing::Timing;

use apply::Applying;
use disk::SlowSyncs;
use growth::Growth;
use proposals::{Pending, Submission};
use requests::Waiter;
use rounds::Rounds;
use timer::ElectionTimer;

pub(crate) use admission::check_shape;
pub use admission::{Admission, LocalRaft, Refused, admit, admit_snapshot};
pub(crate) use proposals::hold_refusal;
pub use removal::removed;
pub use status::{Role, Status};

/// What a replica is told about itself.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Which one it is.
    pub id: ReplicaId,
    /// Which run of it: counted on its disk.
    pub boot: u64,
    pub timing: Timing,
    /// Seeds its random choices.
    pub seed: u64,
    /// The life of the store's numbering.
    pub incarnation: Incarnation,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// Whether it votes and keeps the log, but no state.
    pub is_witness: bool,
    /// Whether it tells a recorder what every entry did.
    pub is_taped: bool,
    /// The most that the state may weigh, and a principal's part of it, before this replica, leading, proposes no more
    /// growth.
    pub state_budget: StateBudget,
}

impl CoreConfig {
    /// The defaults of a data centre.
    #[must_use]
    pub const fn new(id: ReplicaId, boot: u64, seed: u64) -> Self {
        Self {
            id,
            boot,
            timing: Timing::LAN,
            seed,
            incarnation: Incarnation(1),
            snapshot_every: LOG_ENTRIES_BETWEEN_SNAPSHOTS,
            is_witness: false,
            is_taped: false,
            state_budget: StateBudget::whole(STATE_BYTES_MAX_DEFAULT),
        }
    }
}

/// What a disk remembers.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Term, vote and commit.
    pub hard_state: HardState,
    /// Where the newest snapshot stands.
    pub place: SnapshotMetadata,
    /// What it holds.
    pub replicated: ReplicatedState,
    /// The entries after it.
    pub entries: Vec<LogEntry>,
}

/// One replica without its I/O.
pub struct Core {
    config: CoreConfig,
    node: RawNode<Log>,
    /// Everything replicated, and the time of its sessions. It serves while this replica leads and has
    /// applied its first entry.
    ledger: Ledger<ReplicatedState>,
    timer: ElectionTimer,
    now: Moment,
    /// The timers that hold: those of the configuration, with the patience of [`Core::set_patience`].
    timing: Timing,
    /// That patience, in per cent.
    patience_percent: u64,
    /// Time since the library's last tick, in hundredths of milliseconds.
    untold: u64,
    /// Milliseconds since a patient leader last showed itself.
    unshown_ms: u64,
    ticked_at: Option<Moment>,
    /// When a Raft leader was last heard of; for stale reads.
    contact_at: Option<Moment>,
    /// When a quorum stood behind this replica last.
    confirmed_at: Option<Moment>,
    /// Who leads this replica, zero if nobody does, and since when.
    led_by: (u64, Moment),
    /// When a member said that this replica is none, and who the members are (`removal`).
    told_removed: Option<(Moment, Members)>,
    /// When each other member last answered this replica as its Raft leader: so both ways are open.
    answered_at: BTreeMap<ReplicaId, Moment>,
    role: Role,

    applied: u64,
    committed: VecDeque<LogEntry>,
    /// The entry that is being applied in slices.
    applying: Option<Applying>,

    /// No expiry before a round above this number is confirmed (semantics 8).
    expiry_gate: Option<u64>,
    /// When the hold after a restore is over, while this replica leads and there is one.
    released_at: Option<Moment>,
    /// Heartbeats that met a proposed expiry and wait for its outcome.
    held: BTreeMap<SessionNo, Vec<Waiter>>,
    /// When heartbeats arrived that still have to prove their tenure.
    unproven: BTreeMap<SessionNo, Vec<Moment>>,

    numbers: u64,
    submissions: VecDeque<Submission>,
    pending: BTreeMap<u64, Pending>,
    growth: Growth,
    /// The last proposal of each other replica that was appended or declined here: its boot and number.
    taken: BTreeMap<ReplicaId, (u64, u64)>,
    rounds: Rounds<Waiter>,
    /// Heartbeats and looks on their way to the Raft leader, by number.
    away: BTreeMap<u64, Away>,
    member_change: Option<(Option<Token>, MemberChange)>,

    unconfirmed: VecDeque<Unconfirmed>,
    /// The last batch with another Raft term or vote, while the disk may still forget it.
    unkept_vote: Option<u64>,
    arriving: Option<(u64, Arc<[u8]>, Box<ReplicatedState>)>,
    /// A snapshot that was installed and is not durable yet: its batch and its index. Raft counts it
    /// as applied only when it is durable, and until then looks in vain for what it replaced.
    installing: Option<(u64, u64)>,
    /// Since when Raft terms that peers bring are counted, and what the term was then.
    term_since: (Moment, u64),
    snapshot_task: Option<u64>,
    /// No snapshot is begun before that, and how long the last pause was: the disk refused one.
    snapshot_again_at: Moment,
    snapshot_pause: Option<Duration>,
    /// Who waits for a snapshot at or beyond an index.
    snapshot_waiters: Vec<(u64, Token)>,
    has_room: bool,
    /// When leadership was last handed over because the disk fails.
    handed_over_at: Option<Moment>,
    slow_syncs: SlowSyncs,
    /// Since when it leads and should not: its disk fails, or it is a witness; and nobody takes over.
    burdened_since: Option<Moment>,
    /// How often in a row it gave leadership away for that, and nobody else had it in between.
    given_away: u32,
    /// When a witness laid leadership down.
    laid_down_at: Option<Moment>,
    /// Since when it leads.
    led_since: Moment,
    /// Who led before this one, or to whom a witness last tried to hand over: the last to be handed it.
    least_wanted: u64,
    /// When something was applied last.
    applied_at: Moment,
    /// The wall clock as last told: a note for people, read by no rule.
    wall_ms: u64,
    out: Outputs,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.config.id)
            .field("role", &self.role)
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}

/// A batch that the disk has not confirmed.
#[derive(Debug)]
struct Unconfirmed {
    number: u64,
    /// What Raft is told is durable when it has: the batch, and what came after it and was empty.
    ready: u64,
    since: Moment,
    /// Whether entries or a snapshot are in it.
    holds_log: bool,
    /// The last of the entries in it; zero if there are none.
    last: u64,
    /// What is said when it has.
    messages: Vec<(ReplicaId, PeerMessage)>,
}

/// Somebody who waits for an answer of the Raft leader.
#[derive(Debug)]
struct Away {
    sent_at: Moment,
    /// Who was asked, and alone may answer.
    to: ReplicaId,
    waiter: Waiter,
}

/// Why a replica cannot start from what its disk remembers.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The library refuses it.
    #[error(transparent)]
    Raft(#[from] raft::Error),
    /// An entry makes no sense: another build wrote it, or something else did.
    #[error("entry {index} of the log cannot be read: {why}; start the build that wrote it")]
    Entry { index: u64, why: regent_election::codec::CodecError },
    /// The members make no sense.
    #[error("the members of the snapshot cannot be: {0}")]
    Members(Refused),
}

/// Ticks the library counts before it would campaign by itself: it never does.
const NEVER: usize = 1 << 40;

impl Core {
    /// A replica as its disk remembers it.
    ///
    /// # Errors
    /// If what the disk remembers makes no sense, or the library refuses it.
    pub fn new(mut config: CoreConfig, disk: Recovered, now: Moment) -> Result<Self, RecoverError> {
        let Recovered { hard_state, place, replicated, entries } = disk;
        for entry in &entries {
            let index = entry.index;
            payload(entry).map_err(|why| RecoverError::Entry { index, why })?;
        }
        if place.index > 0 {
            admission::check_members(place.get_conf_state()).map_err(RecoverError::Members)?;
        }
        let term_since = (now, hard_state.term);
        config.is_witness = replicated.makes_witness(config.id, config.is_witness);
        let applied = place.index;
        let ticks = |ms: u64| usize::try_from(ms / TICK_MS).unwrap_or(NEVER);
        let raft_config = raft::Config {
            id: config.id.get(),
            election_tick: ticks(config.timing.election_ms_min()),
            heartbeat_tick: ticks(config.timing.heartbeat_ms()).max(1),
            applied,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: APPENDS_INFLIGHT_MAX,
            check_quorum: !mutant::is(Mutant::NoCheckQuorum),
            pre_vote: !mutant::is(Mutant::NoPreVote),
            min_election_tick: NEVER,
            max_election_tick: NEVER + 1,
            read_only_option: ReadOnlyOption::Safe,
            skip_bcast_commit: false,
            batch_append: true,
            priority: if mutant::is(Mutant::UnequalPriorities) {
                config.id.get() as i64
            } else {
                0
            },
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_PER_TURN,
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut log = Log::new(hard_state, place, entries);
        log.may_send_snapshots(!config.is_witness);
        let node = RawNode::new(&raft_config, log, &logger)?;
        let patience = Duration::from_millis(config.timing.election_ms_max());
        Ok(Self {
            timer: ElectionTimer::new(config.timing, config.seed),
            rounds: Rounds::new(config.id.get(), config.boot, patience),
            node,
            ledger: Ledger::new(replicated, config.incarnation, now)
                .with_budget(config.state_budget),
            now,
            timing: config.timing,
            patience_percent: 100,
            untold: 0,
            unshown_ms: 0,
            ticked_at: None,
            contact_at: None,
            confirmed_at: None,
            led_by: (0, now),
            told_removed: None,
            answered_at: BTreeMap::new(),
            role: Role::Follower,
            applied,
            committed: VecDeque::new(),
            applying: None,
            expiry_gate: None,
            released_at: None,
            held: BTreeMap::new(),
            unproven: BTreeMap::new(),
            numbers: 0,
            submissions: VecDeque::new(),
            pending: BTreeMap::new(),
            growth: Growth::default(),
            taken: BTreeMap::new(),
            away: BTreeMap::new(),
            member_change: None,
            unconfirmed: VecDeque::new(),
            unkept_vote: None,
            arriving: None,
            installing: None,
            term_since,
            snapshot_task: None,
            snapshot_again_at: now,
            snapshot_pause: None,
            snapshot_waiters: Vec::new(),
            has_room: true,
            handed_over_at: None,
            slow_syncs: SlowSyncs::default(),
            burdened_since: None,
            given_away: 0,
            laid_down_at: None,
            led_since: now,
            least_wanted: 0,
            applied_at: now,
            wall_ms: 0,
            out: Outputs::default(),
            config,
        })
    }

    /// Does everything that follows from what was told and from the time.
    pub fn turn(&mut self, now: Moment) -> Outputs {
        self.now = self.now.max(now);
        self.tick();
        self.notice_role();
        self.notice_removal();
        self.note_quorum();
        self.hand_over_if_witness();
        self.hand_over_if_disk_fails();
        self.do_duties();
        self.propose();
        self.begin_round();
        self.handle_ready();
        self.apply();
        self.handle_ready();
        self.notice_role();
        self.settle();
        self.time_out();
        std::mem::take(&mut self.out)
    }

    /// When the next turn is needed if nothing is told before.
    #[must_use]
    pub fn next_at(&self) -> Moment {
        if !self.committed.is_empty() || self.applying.is_some() {
            return self.now;
        }
        let tick_at = self.ticked_at.map_or(self.now, |at| at + Duration::from_millis(TICK_MS));
        let left = Duration::from_millis(self.timer.left_ms(self.silent_ms()));
        let is_not_to = self.role == Role::Leader || self.makes_way();
        let campaign_at = if is_not_to { tick_at } else { self.now + left };
        tick_at.min(campaign_at.max(self.now + Duration::from_millis(1)))
    }

    /// How long no Raft leader was heard of, as the library counts it, to the millisecond.
    fn silent_ms(&self) -> u64 {
        let since_tick = self.ticked_at.map_or(Duration::ZERO, |at| self.now.since(at));
        let ticks = self.node.raft.election_elapsed as u64;
        let told_ms = (ticks * TICK_MS * self.patience_percent + self.untold) / 100;
        told_ms + (since_tick.as_millis() as u64).min(TICK_MS)
    }

    /// At most one tick a turn: a loop that stood still must hear its messages before it judges.
    fn tick(&mut self) {
        let tick = Duration::from_millis(TICK_MS);
        match self.ticked_at {
            None => self.ticked_at = Some(self.now),
            Some(at) if self.now.since(at) >= tick => {
                self.ticked_at =
                    Some(if self.now.since(at) < tick * 2 { at + tick } else { self.now });
                self.count_tick();
            }
            Some(_) => {}
        }
        let may_campaign = self.node.raft.state != StateRole::Leader
            && self.node.raft.promotable()
            && !self.makes_way()
            && self.installing.is_none()
            && self.is_log_durable();
        if may_campaign && self.timer.is_over(self.silent_ms() / self.patience()) {
            self.node.raft.election_elapsed = 0;
            self.timer.campaigned();
            // The only error is "there is a change of members to apply first": the timer goes on.
            let _ = self.node.campaign();
        }
    }

    /// A witness leads only if nobody else can: it waits three times as long.
    const fn patience(&self) -> u64 {
        if self.config.is_witness { 3 } else { 1 }
    }

    /// Follows the library's role, and ends what depended on the old one.
    fn notice_role(&mut self) {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        if raft.leader_id != 0 {
            self.timer.settled();
        }
        if raft.leader_id != self.led_by.0 {
            self.led_by = (raft.leader_id, self.now);
        }
        if self.is_led_by_another() {
            (self.given_away, self.laid_down_at) = (0, None);
        }
        if role != Role::Leader && ![0, raft.id].contains(&raft.leader_id) {
            self.least_wanted = raft.leader_id;
        }
        if self.role == Role::Leader && role != Role::Leader {
            self.stop_serving();
            self.growth.forget();
        }
        if self.role != role {
            (self.burdened_since, self.led_since) = (None, self.now);
        }
        self.role = role;
        let may_serve = role == Role::Leader && !self.config.is_witness;
        if may_serve && !self.ledger.is_serving() && self.node.raft.apply_to_current_term() {
            self.start_serving();
        }
    }

    /// Who leads, as far as this replica knows.
    #[must_use]
    pub fn leader(&self) -> Option<ReplicaId> {
        ReplicaId::new(self.node.raft.leader_id)
    }

    fn answer(&mut self, token: Token, response: Response) {
        self.out.answers.push((token, response));
    }

    fn refuse(&mut self, token: Token, error: StoreError) {
        self.answer(token, Response::Error(error));
    }
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable { why: why.into(), retry_after: None }
}
