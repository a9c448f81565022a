//! A running replica: the core on a thread of its own, its disk on another, peers on the runtime.
//!
//! ```text
//!  clients ──ask──►┌──────────┐──batches──►┌──────┐
//!  peers ──input──►│   core   │            │ disk │ one fdatasync for all that waits
//!                  │  thread  │◄─persisted─└──────┘
//!  watchers ◄──hub─└──────────┘──task─────►snapshots, beside both
//! ```
//! The core's thread does nothing but turn: no lock is held across a turn, no I/O happens in it. The
//! inbox is bounded; a client that finds it full is refused, a peer's message is dropped as a network
//! would drop it, and only the disk's word is never lost. A peer has a share of it in bytes (`peers::inbox`).
//!
//! An error of the disk ends the process: after a failed sync nobody knows what is on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use raft::eraftpb::MessageType;
use regent_election::access::LiveAccess;
use regent_election::limits::STATE_BYTES_MAX_DEFAULT;
use regent_election::watch::{Bounds, Hub};
use regent_election::{Incarnation, Moment, StateBudget};
use tokio::sync::oneshot;

use crate::core::{Core, CoreConfig, Status, removed};
use crate::disk::{Opened, Snapshots};
use crate::fitting::{Fitting, Tuned};
use crate::handle::{Handle, timing_warning};
use crate::io::{Input, Outputs, PeerMessage, Request, Response, Token};
use crate::keeper::{Job, SnapshotJob, keep, snapshot_worker};
use crate::measure::Measures;
use crate::member::ReplicaId;
use crate::peers::{
    Beginning, Deliver, Identity, InboxPlace, PeerListener, Peers, Plaintext, Transport,
};
use crate::tape::{LogLeader, Tape};
use crate::timing::Timing;
use crate::tuning::Tune;

/// What may wait for the core's thread.
const INBOX_MAX: usize = 65_536;
/// Inputs taken in one turn: beyond it, those already taken are served first.
const INPUTS_PER_TURN: usize = 8_192;
/// With at least this many clients waiting, what arrives is gathered before the next turn: waking this
/// thread for each input costs more than all the rest of a heartbeat, and gathered, one wake, one
/// round and one sync serve many. A client that is alone, or nearly, never waits for others.
const GATHER_FROM: usize = 16;
/// How long is gathered for each client that waits.
const GATHER_FOR_EACH: Duration = Duration::from_micros(6);
/// How long is gathered at most.
const GATHER_FOR_MAX: Duration = Duration::from_micros(1_000);
/// How often the status that others read is renewed when nothing happens.
const STATUS_EVERY: Duration = Duration::from_millis(50);

/// What the core's thread is told.
pub(crate) enum CoreMessage {
    Input(Input),
    /// What a peer says, and its place among what of that peer waits.
    Said(Input, InboxPlace),
    Ask(Request, Option<oneshot::Sender<Response>>),
}

/// What is needed to run a replica.
#[derive(Debug)]
pub struct NodeConfig {
    pub timing: Timing,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// How much is remembered for watchers.
    pub watch: Bounds,
    /// Whether a replica that joins, and does not know of itself yet, is a witness.
    pub is_witness: bool,
    /// What is done about timers that do not suit the network.
    pub tune: Tune,
    /// What connections between replicas travel on.
    pub transport: Arc<dyn Transport>,
    /// The most that the state may weigh, and a principal's part of it, before growth is refused.
    pub state_budget: StateBudget,
    /// Who is told what it applies, if anybody.
    pub tape: Option<Arc<dyn Tape>>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            timing: Timing::LAN,
            snapshot_every: crate::limits::LOG_ENTRIES_BETWEEN_SNAPSHOTS,
            watch: Bounds::default(),
            is_witness: false,
            tune: Tune::default(),
            transport: Arc::new(Plaintext::Loopback),
            state_budget: StateBudget::whole(STATE_BYTES_MAX_DEFAULT),
            tape: None,
        }
    }
}

/// A replica that runs until it is dropped or shut down.
#[derive(Debug)]
pub struct Node {
    handle: Handle,
    hub: Hub,
}

impl Node {
    /// Runs the replica whose disk was opened. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the library refuses what the disk remembers, or a thread cannot be had.
    pub fn start(
        opened: Opened,
        listener: impl Into<PeerListener>,
        config: &NodeConfig,
    ) -> Result<Self, StartError> {
        let Opened { disk, identity, recovered, boot, repairs } = opened;
        for repair in repairs {
            tracing::warn!(%repair, "the disk was set right");
        }
        let core_config = CoreConfig {
            id: identity.replica,
            boot,
            timing: config.timing,
            seed: getrandom::u64().map_err(|why| StartError::System(why.to_string()))?,
            incarnation: life_of(identity.cluster),
            snapshot_every: config.snapshot_every,
            is_witness: config.is_witness,
            is_taped: config.tape.is_some(),
            state_budget: config.state_budget,
        };
        let entries = recovered.entries.clone();
        let revision = recovered.replicated.state.revision();
        let hub = Hub::new(core_config.incarnation, revision, config.watch);
        let now = regent_clock::now();
        let core = Core::new(core_config, recovered, now)
            .map_err(|why| StartError::Raft(why.to_string()))?;

        let (inbox, told) = sync_channel(INBOX_MAX);
        let deliver: Deliver = {
            let inbox = inbox.clone();
            Arc::new(move |input, place| {
                let told = match place {
                    Some(place) => CoreMessage::Said(input, place),
                    None => CoreMessage::Input(input),
                };
                inbox.try_send(told).is_ok()
            })
        };
        let to_peers = Identity {
            cluster: identity.cluster,
            id: identity.replica,
            incarnation: identity.incarnation,
        };
        let status = core.status();
        let beginning = Beginning {
            identity: to_peers,
            status: &status,
            entries: &entries,
            acquaintances: Arc::clone(disk.acquaintances()),
            arrivals: disk.arrivals(),
        };
        let transport = Arc::clone(&config.transport);
        let peers = Arc::new(Peers::start(beginning, listener.into(), transport, deliver));
        let status = Arc::new(Mutex::new(status));
        let access = LiveAccess::new(Arc::clone(core.access()));
        let leader_changes = Arc::new(AtomicU64::new(0));
        let is_witness = Arc::new(AtomicBool::new(core.status().is_witness));
        let must_end = Arc::new(AtomicBool::new(false));
        let measures = Arc::new(Measures::default());
        let tuned = Arc::new(Tuned::new());
        let (to_disk, batches) = std::sync::mpsc::channel();
        let (to_side, snapshot_jobs) = std::sync::mpsc::channel();
        let snapshots = disk.snapshots().clone();
        let shown = snapshots.clone();
        let reserve = Arc::clone(disk.reserve());
        let worker_to_disk = to_disk.clone();
        let worker = Worker {
            core,
            told,
            must_end: Arc::clone(&must_end),
            asked: HashMap::new(),
            tokens: 0,
            to_disk,
            peers: Arc::clone(&peers),
            hub: hub.clone(),
            status: Arc::clone(&status),
            status_at: now,
            access: access.clone(),
            leader_changes: Arc::clone(&leader_changes),
            is_witness: Arc::clone(&is_witness),
            is_warned: false,
            fitting: Fitting::new(config.tune, config.timing, Arc::clone(&tuned), now),
            measures: Arc::clone(&measures),
            to_side: to_side.clone(),
            snapshots: snapshots.clone(),
            runtime: tokio::runtime::Handle::current(),
            tape: config.tape.clone(),
        };
        let threads = vec![
            spawn("regent-core", move || worker.run())?,
            spawn("regent-disk", {
                let (inbox, measures) = (inbox.clone(), Arc::clone(&measures));
                move || keep(disk, &batches, &to_side, &inbox, &measures.syncs)
            })?,
            spawn("regent-snapshots", {
                let inbox = inbox.clone();
                let to_disk = worker_to_disk;
                move || snapshot_worker(&snapshots, &reserve, &snapshot_jobs, &to_disk, &inbox)
            })?,
        ];
        let handle = Handle {
            inbox,
            status,
            access,
            peers,
            threads: Arc::new(Mutex::new(threads)),
            is_stopping: Arc::default(),
            must_end,
            whose: identity,
            snapshots: shown,
            is_witness,
            leader_changes,
            timing: config.timing,
            tune: config.tune,
            tuned,
            measures,
        };
        Ok(Self { handle, hub })
    }

    /// Speaks to it.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What it applies, for watchers.
    #[must_use]
    pub const fn hub(&self) -> &Hub {
        &self.hub
    }
}

/// Why a replica does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// The library refuses what the disk remembers.
    #[error("the replica cannot start from what its disk remembers: {0}")]
    Raft(String),
    /// The system refuses a thread or chance.
    #[error("the system refuses what a replica needs: {0}")]
    System(String),
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            let _guard = EndsAll;
            body();
        })
        .map_err(|why| StartError::System(why.to_string()))
}

/// A replica of which one thread is gone would still be there for its peers and answer nobody. A
/// broken invariant ends the process: somebody else takes over.
struct EndsAll;

impl Drop for EndsAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// A client that waits for its answer.
struct Asked {
    answer: oneshot::Sender<Response>,
    /// When it asked for a change.
    changes_since: Option<Moment>,
}

/// The core's thread.
struct Worker {
    core: Core,
    told: Receiver<CoreMessage>,
    must_end: Arc<AtomicBool>,
    asked: HashMap<Token, Asked>,
    tokens: u64,
    to_disk: std::sync::mpsc::Sender<Job>,
    peers: Arc<Peers>,
    hub: Hub,
    status: Arc<Mutex<Status>>,
    status_at: Moment,
    access: LiveAccess,
    leader_changes: Arc<AtomicU64>,
    is_witness: Arc<AtomicBool>,
    /// Whether the log has been told that the network is too slow, and not that it no longer is.
    is_warned: bool,
    fitting: Fitting,
    measures: Arc<Measures>,
    to_side: std::sync::mpsc::Sender<SnapshotJob>,
    snapshots: Snapshots,
    runtime: tokio::runtime::Handle,
    tape: Option<Arc<dyn Tape>>,
}

impl Worker {
    fn run(mut self) {
        // A change of members makes links, which are tasks of the runtime.
        let runtime = self.runtime.clone();
        let _entered = runtime.enter();
        self.turn_until_told();
        // The disk's thread is kept awake by the one beside it, and that one by it.
        let _ = self.to_disk.send(Job::End);
    }

    fn turn_until_told(&mut self) {
        // A turn comes at least with every tick, so the end is noticed soon.
        while !self.must_end.load(Ordering::SeqCst) {
            self.gather();
            let now = regent_clock::now();
            let wanted_at = self.core.next_at();
            let first = match self.told.recv_timeout(now.until(wanted_at)) {
                Ok(told) => Some(told),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = regent_clock::now();
            self.fitting.woke(now, wanted_at);
            let more = std::iter::from_fn(|| self.told.try_recv().ok()).take(INPUTS_PER_TURN);
            let told: Vec<CoreMessage> = first.into_iter().chain(more).collect();
            // What was said counts as waiting until the turn has made something of it.
            let mut places = Vec::new();
            for told in told {
                places.extend(self.tell(now, told));
            }
            self.core.note_wall_clock(wall_ms());
            let outputs = self.core.turn(now);
            drop(places);
            // Whoever is told of a change, or reads what came after it, finds it in the status.
            let is_done = |(_, answer): &(Token, Response)| *answer == Response::Done;
            let must_show = outputs.members_changed
                || outputs.installed.is_some()
                || outputs.answers.iter().any(is_done);
            self.renew_status(now, must_show);
            // Before anybody is told of a change of it.
            self.access.show(self.core.access());
            self.act(outputs);
        }
    }

    /// Lets more arrive before the next turn, the longer the more clients wait anyway.
    fn gather(&self) {
        let waiting = self.asked.len();
        if waiting >= GATHER_FROM && self.core.next_at() > self.core.now() {
            let each = u32::try_from(waiting).unwrap_or(u32::MAX);
            std::thread::sleep(GATHER_FOR_EACH.saturating_mul(each).min(GATHER_FOR_MAX));
        }
    }

    fn tell(&mut self, now: Moment, told: CoreMessage) -> Option<InboxPlace> {
        match told {
            CoreMessage::Input(input) => self.core.on(now, input),
            CoreMessage::Said(input, place) => {
                self.core.on(now, input);
                return Some(place);
            }
            CoreMessage::Ask(request, answer) => {
                self.tokens += 1;
                let token = Token(self.tokens);
                if let Some(answer) = answer {
                    let changes_since = matches!(request, Request::Submit { .. }).then_some(now);
                    self.asked.insert(token, Asked { answer, changes_since });
                }
                self.core.on(now, Input::Request { token, request });
            }
        }
        None
    }

    fn act(&mut self, outputs: Outputs) {
        let Outputs { sends, batches, answers, events, taped, snapshot, installed, .. } = outputs;
        for (from, why) in outputs.refused {
            self.peers.refuse(from, why);
        }
        if let Some((to, cause)) = outputs.hands_over {
            tracing::warn!(%to, %cause, "this replica hands Raft leadership over");
        }
        if let Some(tape) = &self.tape {
            if let Some(revision) = installed {
                tape.leap(revision);
            }
            taped.into_iter().for_each(|record| tape.record(record));
        }
        if !batches.is_empty() {
            let _ = self.to_disk.send(Job::Batches(batches));
        }
        for (to, message) in sends {
            self.send(to, message);
        }
        if let Some(revision) = installed {
            self.hub.leap(revision);
        }
        for (revision, events) in events {
            self.hub.publish(revision, &events);
        }
        for (token, response) in answers {
            let Some(Asked { answer, changes_since }) = self.asked.remove(&token) else { continue };
            if let (Response::Applied { .. }, Some(since)) = (&response, changes_since) {
                self.measures.commits.note(regent_clock::now().since(since));
            }
            let _ = answer.send(response);
        }
        if let Some(task) = snapshot {
            let _ = self.to_side.send(SnapshotJob::Snapshot(task));
        }
    }

    fn send(&self, to: ReplicaId, message: PeerMessage) {
        let is_snapshot = matches!(
            &message,
            PeerMessage::Raft(message) if message.msg_type == MessageType::MsgSnapshot
        );
        if !is_snapshot {
            self.peers.send(to, message);
            return;
        }
        let PeerMessage::Raft(mut announcement) = message else { return };
        let (snapshots, peers) = (self.snapshots.clone(), Arc::clone(&self.peers));
        self.runtime.spawn_blocking(move || match snapshots.newest() {
            Ok((place, bytes)) => {
                // A later one than Raft knew of does as well, or better.
                announcement.mut_snapshot().set_metadata(place);
                peers.send_snapshot(to, PeerMessage::Raft(announcement), bytes);
            }
            Err(error) => {
                tracing::error!(replica = %to, %error, "there is no snapshot to be sent");
                peers.failed_snapshot(to);
            }
        });
    }

    /// Tells the log once when the network gets too slow for the timers, and once when it is not.
    fn warn_of_slow_network(&mut self) {
        let timing = self.fitting.timing();
        match (self.is_warned, timing_warning(timing, &self.peers)) {
            (false, Some(warning)) => tracing::warn!("{warning}"),
            (true, None) => tracing::info!("round trips between replicas fit the timers again"),
            (true, Some(_)) | (false, None) => return,
        }
        self.is_warned = !self.is_warned;
    }

    /// Takes the patience that suits the network, where that is allowed.
    fn fit(&mut self, now: Moment, status: &Status) {
        let Some((percent, advice)) = self.fitting.turn(now, status, &self.peers) else { return };
        let timing = self.core.set_patience(percent);
        tracing::info!(
            percent,
            before = advice.percent,
            election_ms_min = timing.election_ms_min(),
            election_ms_max = timing.election_ms_max(),
            why = %advice.why,
            "election time-outs follow the network"
        );
    }

    fn renew_status(&mut self, now: Moment, at_once: bool) {
        if now.since(self.status_at) < STATUS_EVERY && !at_once {
            return;
        }
        self.status_at = now;
        let status = self.core.status();
        self.peers.follow(&status);
        self.warn_of_slow_network();
        self.fit(now, &status);
        let mut shared = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if (shared.role, shared.leader, shared.raft_term)
            != (status.role, status.leader, status.raft_term)
        {
            tracing::info!(
                role = ?status.role,
                leader = status.leader.map(ReplicaId::get),
                raft_term = status.raft_term,
                "the replica's role changed"
            );
        }
        if let Some(members) = &status.removed_from
            && shared.removed_from.is_none()
        {
            tracing::warn!("{}", removed(status.id, members));
        }
        if status.leader.is_some() && shared.leader != status.leader {
            self.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(tape) = &self.tape
            && (shared.leader != status.leader || shared.voters != status.voters)
        {
            let (leader, raft_term) = (status.leader, status.raft_term);
            let voters = status.voters.clone();
            tape.log_leader(LogLeader { wall_ms: wall_ms(), leader, raft_term, voters });
        }
        self.is_witness.store(status.is_witness, Ordering::Relaxed);
        *shared = status;
    }
}

/// The life of the store's numbering: one per cluster, and a restored cluster is another.
const fn life_of(cluster: u128) -> Incarnation {
    Incarnation((cluster as u64) ^ ((cluster >> 64) as u64))
}

/// The wall clock, as a note for people.
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
