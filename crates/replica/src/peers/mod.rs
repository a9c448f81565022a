//! Peers: one connection per pair of replicas, dialled by the one with the lower number.
//!
//! One that knows of a peer which does not dial dials itself after a while: a replica that was away
//! while all others were replaced knows none of those who know it.
//!
//! Messages may be lost and Raft lives with that, so a full queue drops and a broken connection is
//! simply dialled again. What must not happen is that one slow peer holds up another, or a snapshot a
//! heartbeat: every peer has its own queue and task, and a snapshot travels on a connection of its
//! own, at the pace its receiver reads.
//!
//! - `transport`: what a connection travels on, and what it proves; `encrypted`: the one by TLS.
//! - `handshake`: who is let in, by what it proves and by what it calls itself.
//! - `roll`: who is listened to.
//! - `link`, `snapshot`: what is said then.
//! - `inbox`: how much of it may wait.

#[cfg(feature = "tls")]
mod encrypted;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod inbox;
mod link;
mod refusals;
mod roll;
mod snapshot;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use raft::eraftpb::Entry;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::core::{Refused, Status};
use crate::disk::{Acquaintances, Arrivals};
use crate::io::{Input, PeerMessage};
use crate::limits::{LED_WITHIN, REPLICAS_MAX};
use crate::member::ReplicaId;
use link::Link;
use refusals::Refusals;
use roll::{Roll, Standing};

#[cfg(feature = "tls")]
pub use encrypted::Encrypted;
pub use handshake::PeerListener;
pub use inbox::InboxPlace;
pub use transport::{Channel, PeerName, Plaintext, Transport, beyond_loopback, is_loopback};

/// Messages that wait for one peer; beyond it they are dropped, as a network would.
const QUEUE_MAX: usize = 16_384;
/// How soon it is tried again to say what must be said, where there was no room for it.
const SAY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Who this replica is to its peers.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    pub cluster: u128,
    pub id: ReplicaId,
    /// One life of its disk.
    pub incarnation: u64,
}

/// Where what peers say is delivered; called from many tasks. False if there was no room for it. A message has a place
/// among those of its peer, which is to be dropped when the message was dealt with.
pub type Deliver = Arc<dyn Fn(Input, Option<InboxPlace>) -> bool + Send + Sync>;

/// The connections of one replica.
pub struct Peers {
    shared: Arc<Shared>,
    roll: watch::Sender<Roll>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("identity", &self.shared.identity).finish_non_exhaustive()
    }
}

struct Shared {
    identity: Identity,
    deliver: Deliver,
    acquaintances: Arc<Acquaintances>,
    transport: Arc<dyn Transport>,
    links: Mutex<BTreeMap<ReplicaId, Link>>,
    roll: watch::Receiver<Roll>,
    /// Who leads the log, as far as the core knows; zero is nobody.
    leader: AtomicU64,
    /// Messages that the core refused.
    refusals: Mutex<Refusals>,
    arrivals: Arrivals,
    /// Peers whose snapshots arrive: one of each at a time.
    receiving: Mutex<BTreeSet<ReplicaId>>,
    /// Held while a snapshot that has arrived is read, until the core has dealt with it: the memory has room for one.
    reading: Arc<Semaphore>,
}

/// What a replica's peers need to know of it when it starts.
#[derive(Debug)]
pub struct Beginning<'a> {
    /// Who it is.
    pub identity: Identity,
    /// What it is.
    pub status: &'a Status,
    /// What its log holds beyond that.
    pub entries: &'a [Entry],
    /// Which peers it has met.
    pub acquaintances: Arc<Acquaintances>,
    /// Where snapshots that arrive are gathered.
    pub arrivals: Arrivals,
}

impl Peers {
    /// Listens to peers and dials those it must. Needs a tokio runtime.
    #[must_use]
    pub fn start(
        beginning: Beginning<'_>,
        listener: PeerListener,
        transport: Arc<dyn Transport>,
        deliver: Deliver,
    ) -> Self {
        let Beginning { identity, status, entries, acquaintances, arrivals } = beginning;
        let (sender, receiver) = watch::channel(Roll::new(status, entries));
        let shared = Arc::new(Shared {
            identity,
            deliver,
            acquaintances,
            transport,
            links: Mutex::default(),
            roll: receiver,
            leader: AtomicU64::new(0),
            refusals: Mutex::default(),
            arrivals,
            receiving: Mutex::default(),
            reading: Arc::new(Semaphore::new(1)),
        });
        let accepting = tokio::spawn(handshake::listen(Arc::clone(&shared), listener));
        let peers = Self { shared, roll: sender, tasks: Mutex::new(vec![accepting]) };
        peers.dial_members();
        peers
    }

    /// Follows a change of members, or of who leads.
    pub fn follow(&self, status: &Status) {
        self.shared.leader.store(status.leader.map_or(0, ReplicaId::get), Ordering::Relaxed);
        let has_changed = self.roll.send_if_modified(|roll| {
            let before = roll.clone();
            roll.follow(status);
            *roll != before
        });
        if has_changed {
            self.dial_members();
        }
    }

    /// Queues a message for a peer, or drops it.
    pub fn send(&self, to: ReplicaId, message: PeerMessage) {
        let links = self.shared.lock();
        if let Some(link) = links.get(&to) {
            link.send(message);
        }
    }

    /// Ends the connection of a peer that sent what no honest replica sends.
    pub fn refuse(&self, from: ReplicaId, why: Refused) {
        let mut refusals = self.shared.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = refusals.note(regent_clock::now()) {
            tracing::error!(
                replica = %from,
                %why,
                others,
                "a peer sent what no replica in order sends, and was disconnected: it is broken, of another build, or in other hands"
            );
        }
        drop(refusals);
        if let Some(link) = self.shared.lock().get(&from) {
            link.cut();
        }
    }

    /// Sends a snapshot on a connection of its own; how it ended is delivered as an input.
    pub fn send_snapshot(&self, to: ReplicaId, announcement: PeerMessage, bytes: Arc<[u8]>) {
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move {
            let arrived = match snapshot::send(&shared, to, &announcement, &bytes).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(replica = %to, %error, "a snapshot did not arrive");
                    false
                }
            };
            shared.tell_of_snapshot(to, arrived).await;
        });
        self.keep(task);
    }

    /// Tells the core that a snapshot could not even be begun.
    pub fn failed_snapshot(&self, to: ReplicaId) {
        let shared = Arc::clone(&self.shared);
        self.keep(tokio::spawn(async move { shared.tell_of_snapshot(to, false).await }));
    }

    /// Remembers a task, to end it with the rest.
    fn keep(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// When this replica's proof of who it is ends, in seconds since 1970, if it has one.
    #[must_use]
    pub fn expires_at_s(&self) -> Option<u64> {
        self.shared.transport.expires_at_s()
    }

    /// How often another proof could not be used.
    #[must_use]
    pub fn reload_failures(&self) -> u64 {
        self.shared.transport.reload_failures()
    }

    /// The last measured round trip to each peer that answers.
    #[must_use]
    pub fn round_trips(&self) -> BTreeMap<ReplicaId, Duration> {
        let links = self.shared.lock();
        links.iter().filter_map(|(id, link)| Some((*id, link.round_trip()?))).collect()
    }

    /// Whose link brought something lately, if only an answer to a ping.
    #[must_use]
    pub fn connected(&self) -> BTreeSet<ReplicaId> {
        let links = self.shared.lock();
        links.iter().filter(|(_, link)| link.is_alive()).map(|(id, _)| *id).collect()
    }

    /// The round trips of the last minutes to each of these, none where there were none: up to how many
    /// microseconds, and how many.
    #[must_use]
    pub fn recent_trips(&self, of: &[ReplicaId]) -> Vec<Vec<(u64, u64)>> {
        let links = self.shared.lock();
        of.iter().map(|id| links.get(id).map(Link::recent_trips).unwrap_or_default()).collect()
    }

    /// Ends all connections and stops listening; when this returns the address is free.
    pub async fn close(&self) {
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.extend(std::mem::take(&mut *self.shared.lock()).into_values().map(|link| link.task));
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            let _ = task.await;
        }
    }

    /// Makes sure that every member has a link; the dialling itself is the link's affair.
    fn dial_members(&self) {
        let own = self.shared.identity.id;
        let ids: Vec<ReplicaId> = self.roll.borrow().members.keys().copied().collect();
        for id in ids.into_iter().filter(|id| *id != own) {
            self.shared.link(id);
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        for (_, link) in std::mem::take(&mut *self.shared.lock()) {
            link.task.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ReplicaId, Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way into the link to a peer, which is made if it is not there; none if there are too many.
    fn link(self: &Arc<Self>, id: ReplicaId) -> Option<mpsc::Sender<link::Connected>> {
        let mut links = self.lock();
        if let Some(link) = links.get(&id).filter(|link| !link.task.is_finished()) {
            return Some(link.connected.clone());
        }
        links.retain(|_, link| !link.task.is_finished());
        if links.len() >= REPLICAS_MAX {
            let roll = self.roll.borrow();
            let gone = links.extract_if(.., |id, _| !roll.is_member(*id));
            gone.for_each(|(_, link)| link.task.abort());
        }
        if links.len() >= REPLICAS_MAX {
            return None;
        }
        let link = Link::start(Arc::clone(self), id, QUEUE_MAX);
        let connected = link.connected.clone();
        links.insert(id, link);
        Some(connected)
    }

    /// What a peer is to this replica.
    fn standing(&self, id: ReplicaId) -> Standing {
        if self.roll.borrow().is_member(id) {
            return Standing::Member;
        }
        let (led_by, has_met) = (self.led_by(), self.acquaintances.first_met(id).is_some());
        self.roll.borrow().standing(id, led_by, has_met)
    }

    /// Who leads the log, if that was shown lately.
    fn led_by(&self) -> Option<ReplicaId> {
        let leader = ReplicaId::new(self.leader.load(Ordering::Relaxed))?;
        let is_heard =
            || self.lock().get(&leader).is_some_and(|link| link.spoke_within(LED_WITHIN));
        (leader == self.identity.id || is_heard()).then_some(leader)
    }

    /// Raft sends a peer nothing until it knows what became of its snapshot, so this must get through.
    async fn tell_of_snapshot(&self, to: ReplicaId, arrived: bool) {
        while !(self.deliver)(Input::SnapshotSent { to, arrived }, None) {
            sleep(SAY_AGAIN_AFTER).await;
        }
    }

    /// Whether a peer is listened to: it is the one that was met first under its number, and no
    /// stranger. A member is written down before it is listened to; one on trial counts for nothing
    /// and is not, so that no stranger can fill the file.
    async fn is_the_same(&self, id: ReplicaId, incarnation: u64) -> bool {
        match self.standing(id) {
            Standing::Member => {}
            Standing::OnTrial => {
                return self.acquaintances.first_met(id).is_none_or(|first| first == incarnation);
            }
            Standing::Stranger => return false,
        }
        let acquaintances = Arc::clone(&self.acquaintances);
        let looked = spawn_blocking(move || acquaintances.is_the_same(id, incarnation)).await;
        match looked {
            Ok(Ok(true)) => true,
            Ok(Ok(false)) => {
                tracing::error!(
                    replica = %id,
                    "this replica came back with another disk and is not listened to: a replica whose disk was lost must be removed and added again under a new number"
                );
                false
            }
            Ok(Err(error)) => {
                tracing::error!(replica = %id, %error, "a peer cannot be remembered, and is not listened to before it is");
                false
            }
            Err(error) => {
                tracing::error!(replica = %id, %error, "a peer cannot be looked up");
                false
            }
        }
    }

    /// What a replica is told that was removed; none for any other.
    fn farewell(&self, id: ReplicaId) -> Option<PeerMessage> {
        let roll = self.roll.borrow();
        roll.has_removed(id).then(|| PeerMessage::Removed { members: roll.members.clone() })
    }

    /// Where a member is reached.
    fn address(&self, id: ReplicaId) -> Option<String> {
        self.roll.borrow().members.get(&id).map(|member| member.peer_address.clone())
    }

    /// A receiver of changes of members, for a link whose peer may move.
    fn changes(&self) -> watch::Receiver<Roll> {
        self.roll.clone()
    }
}
