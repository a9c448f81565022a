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
//! The transport is plain TCP behind `dial` and [`Peers::start`]'s listener: the two places where
//! TLS will go.

mod frame;
mod link;
mod snapshot;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::disk::Acquaintances;
use crate::io::{Input, PeerMessage};
use crate::limits::REPLICAS_MAX;
use crate::member::{Members, ReplicaId};
use frame::{Greeting, Purpose};
use link::Link;

/// Messages that wait for one peer; beyond it they are dropped, as a network would.
const QUEUE_MAX: usize = 16_384;
/// How soon it is tried again to say what must be said, where there was no room for it.
const SAY_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How long a peer has to connect and greet.
const GREETING_WITHIN: Duration = Duration::from_secs(2);

/// Who this replica is to its peers.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: u128,
    /// Which replica.
    pub id: ReplicaId,
    /// One life of its disk.
    pub incarnation: u64,
}

/// Where what peers say is delivered; called from many tasks. False if there was no room for it.
pub type Deliver = Arc<dyn Fn(Input) -> bool + Send + Sync>;

/// The connections of one replica.
pub struct Peers {
    shared: Arc<Shared>,
    members: watch::Sender<Members>,
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
    links: Mutex<BTreeMap<ReplicaId, Link>>,
    members: watch::Receiver<Members>,
}

impl Peers {
    /// Listens to peers and dials those it must. Needs a tokio runtime.
    #[must_use]
    pub fn start(
        identity: Identity,
        listener: TcpListener,
        members: Members,
        acquaintances: Arc<Acquaintances>,
        deliver: Deliver,
    ) -> Self {
        let (sender, receiver) = watch::channel(members);
        let shared = Arc::new(Shared {
            identity,
            deliver,
            acquaintances,
            links: Mutex::default(),
            members: receiver,
        });
        let accepting = tokio::spawn(accept(Arc::clone(&shared), listener));
        let peers = Self { shared, members: sender, tasks: Mutex::new(vec![accepting]) };
        peers.dial_members();
        peers
    }

    /// Follows a change of members.
    pub fn set_members(&self, members: Members) {
        if *self.members.borrow() != members {
            let _ = self.members.send(members);
            self.dial_members();
        }
    }

    /// Queues a message for a peer, or drops it.
    pub fn send(&self, to: ReplicaId, message: PeerMessage) {
        let links = self.shared.lock();
        if let Some(link) = links.get(&to) {
            let _ = link.queue.try_send(message);
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

    /// The last measured round trip to each peer that answers.
    #[must_use]
    pub fn round_trips(&self) -> BTreeMap<ReplicaId, Duration> {
        let links = self.shared.lock();
        links.iter().filter_map(|(id, link)| Some((*id, link.round_trip()?))).collect()
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
        let ids: Vec<ReplicaId> = self.members.borrow().keys().copied().collect();
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
        if let Some(link) = links.get(&id) {
            return Some(link.connected.clone());
        }
        if links.len() >= REPLICAS_MAX {
            // Those who were removed make room. Not sooner: in a joint configuration they still count.
            let members = self.members.borrow();
            let gone = links.extract_if(.., |id, _| !members.contains_key(id));
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

    /// Raft sends a peer nothing until it knows what became of its snapshot, so this must get through.
    async fn tell_of_snapshot(&self, to: ReplicaId, arrived: bool) {
        while !(self.deliver)(Input::SnapshotSent { to, arrived }) {
            sleep(SAY_AGAIN_AFTER).await;
        }
    }

    /// Whether a peer is the one that was met first under its number.
    async fn is_the_same(&self, id: ReplicaId, incarnation: u64) -> bool {
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

    /// Where a member is reached.
    fn address(&self, id: ReplicaId) -> Option<String> {
        self.members.borrow().get(&id).map(|member| member.peer_address.clone())
    }

    /// A receiver of changes of members, for a link whose peer may move.
    fn changes(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    fn greeting(&self, to: ReplicaId, purpose: Purpose) -> Greeting {
        let Identity { cluster, id, incarnation } = self.identity;
        Greeting { purpose, cluster, from: id, to, incarnation }
    }

    /// Why a greeting is not for us.
    fn objection(&self, greeting: &Greeting) -> Option<String> {
        let Identity { cluster, id, .. } = self.identity;
        if greeting.cluster != cluster {
            return Some(format!(
                "it belongs to cluster {:032x}, we to {cluster:032x}",
                greeting.cluster
            ));
        }
        if greeting.to != id {
            return Some(format!("it wants replica {}, we are {id}", greeting.to));
        }
        (greeting.from == id).then(|| format!("it calls itself replica {id}, which we are"))
    }
}

/// Opens a connection to a peer and exchanges greetings.
async fn dial(
    shared: &Shared,
    to: ReplicaId,
    purpose: Purpose,
) -> io::Result<(TcpStream, Greeting)> {
    let address = shared
        .address(to)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{to} is no member")))?;
    let greeted = timeout(GREETING_WITHIN, async {
        let mut stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        shared.greeting(to, purpose).send(&mut stream).await?;
        let answer = Greeting::receive(&mut stream).await?;
        io::Result::Ok((stream, answer))
    });
    let (stream, answer) = greeted.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let fits = answer.from == to && answer.purpose == purpose;
    match shared.objection(&answer) {
        None if fits => Ok((stream, answer)),
        None => Err(io::Error::other(format!("{address} is replica {}, not {to}", answer.from))),
        Some(why) => Err(io::Error::other(format!("{address} does not fit: {why}"))),
    }
}

/// Takes connections for ever; an error of one of them ends nothing.
async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let greeting_now = Arc::new(tokio::sync::Semaphore::new(4 * REPLICAS_MAX));
    loop {
        let permit = Arc::clone(&greeting_now).acquire_owned().await;
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a peer could not be accepted");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            if let Err(error) = welcome(&shared, stream).await {
                tracing::warn!(%from, %error, "a peer was not let in");
            }
            drop(permit);
        });
    }
}

async fn welcome(shared: &Arc<Shared>, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let greeted = timeout(GREETING_WITHIN, async {
        let greeting = Greeting::receive(&mut stream).await?;
        if let Some(why) = shared.objection(&greeting) {
            return Err(io::Error::other(why));
        }
        shared.greeting(greeting.from, greeting.purpose).send(&mut stream).await?;
        Ok(greeting)
    });
    let greeting = greeted.await.map_err(|_| io::ErrorKind::TimedOut)??;
    match greeting.purpose {
        Purpose::Snapshot => {
            if !shared.is_the_same(greeting.from, greeting.incarnation).await {
                return Err(io::Error::other("it is not the replica that was met before"));
            }
            snapshot::receive(shared, greeting.from, stream).await
        }
        Purpose::Messages => {
            let connected = shared
                .link(greeting.from)
                .ok_or_else(|| io::Error::other(format!("at most {REPLICAS_MAX} replicas")))?;
            let incarnation = greeting.incarnation;
            let _ = connected.try_send(link::Connected { stream, incarnation });
            Ok(())
        }
    }
}
