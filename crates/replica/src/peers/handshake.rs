//! Opening and accepting connections: who is let in, by what it proves and by what it calls itself.
//!
//! In this order, within one time limit: the transport proves who is at the other end, if it can; the
//! greeting says who that is; both must agree, and it must be somebody who is listened to. Only then
//! does this replica greet back, and only then is anything of Raft sent or read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::frame::{Greeting, Kind, Purpose, put_frame};
use super::link::Connected;
use super::refusals::Refusals;
use super::roll::Standing;
use super::transport::{Channel, PeerName};
use super::{Identity, Shared, snapshot};
use crate::limits::{HANDSHAKE_WITHIN, REPLICAS_MAX, SNAPSHOTS_ARRIVING_MAX, UNPROVEN_MAX};
use crate::member::ReplicaId;

/// How soon it is tried again to listen, or to accept.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Where peers are listened to.
#[derive(Debug)]
pub enum PeerListener {
    /// On this socket, from the start.
    Bound(TcpListener),
    /// At this address, for as long as the replica is not the whole cluster.
    WhenNeeded(SocketAddr),
}

impl From<TcpListener> for PeerListener {
    fn from(listener: TcpListener) -> Self {
        Self::Bound(listener)
    }
}

impl Shared {
    fn greeting(&self, to: ReplicaId, purpose: Purpose) -> Greeting {
        let Identity { cluster, id, incarnation } = self.identity;
        Greeting { purpose, cluster, from: id, to, incarnation }
    }

    /// Why a greeting is not for us, or not from whom it says, or of a stranger.
    fn objection(&self, greeting: &Greeting, proven: Option<PeerName>) -> Option<String> {
        let mismatch = self.mismatch(greeting, proven);
        mismatch.or_else(|| {
            (self.standing(greeting.from) == Standing::Stranger).then(|| {
                format!("replica {} is no member; add it first (regent cluster add)", greeting.from)
            })
        })
    }

    /// Why a greeting is not for us, or not from whom it says.
    fn mismatch(&self, greeting: &Greeting, proven: Option<PeerName>) -> Option<String> {
        let Identity { cluster, id, .. } = self.identity;
        let said = PeerName { cluster: greeting.cluster, replica: greeting.from };
        if let Some(proven) = proven.filter(|proven| *proven != said) {
            return Some(format!(
                "it calls itself {said}, and its certificate is that of {proven}"
            ));
        }
        if greeting.cluster != cluster {
            return Some(format!(
                "it belongs to cluster {:032x}, we to {cluster:032x}",
                greeting.cluster
            ));
        }
        if greeting.to != id {
            return Some(format!("it wants replica {}, we are {id}", greeting.to));
        }
        if greeting.from == id {
            return Some(format!("it calls itself replica {id}, which we are"));
        }
        None
    }
}

/// Opens a connection to a peer and exchanges greetings.
pub(super) async fn dial(
    shared: &Shared,
    to: ReplicaId,
    purpose: Purpose,
) -> io::Result<(Channel, Greeting)> {
    let address = shared
        .address(to)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{to} is no member")))?;
    let greeted = timeout(HANDSHAKE_WITHIN, async {
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let mut channel = shared.transport.connect(stream).await?;
        let wanted = PeerName { cluster: shared.identity.cluster, replica: to };
        if let Some(proven) = channel.proven.filter(|proven| *proven != wanted) {
            return Err(io::Error::other(format!("its certificate is that of {proven}")));
        }
        shared.greeting(to, purpose).send(&mut channel.writer).await?;
        let answer = Greeting::receive(&mut channel.reader).await?;
        io::Result::Ok((channel, answer))
    });
    let (channel, answer) = greeted.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let fits = answer.from == to && answer.purpose == purpose;
    match shared.objection(&answer, channel.proven) {
        None if fits => Ok((channel, answer)),
        None => Err(io::Error::other(format!("{address} is replica {}, not {to}", answer.from))),
        Some(why) => Err(io::Error::other(format!("{address} does not fit: {why}"))),
    }
}

/// Listens to peers for ever, or whenever there may be any.
pub(super) async fn listen(shared: Arc<Shared>, listener: PeerListener) {
    let address = match listener {
        PeerListener::Bound(listener) => return accept(&shared, &listener).await,
        PeerListener::WhenNeeded(address) => address,
    };
    let own = shared.identity.id;
    let mut roll = shared.changes();
    // An error says that the replica is over.
    while roll.wait_for(|roll| !roll.is_alone(own)).await.is_ok() {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "listening to peers");
                tokio::select! {
                    () = accept(&shared, &listener) => {}
                    _ = roll.wait_for(|roll| roll.is_alone(own)) => {}
                }
            }
            Err(error) => {
                tracing::warn!(%address, %error, "cannot listen to peers; trying again");
                sleep(LISTEN_AGAIN_AFTER).await;
            }
        }
    }
}

/// Takes connections for ever; an error of one of them ends nothing.
async fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let unproven = Arc::new(Unproven::default());
    let arriving = Arc::new(Semaphore::new(SNAPSHOTS_ARRIVING_MAX));
    let refusals = Arc::new(Mutex::new(Refusals::default()));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a peer could not be accepted");
                sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let (shared, refusals) = (Arc::clone(shared), Arc::clone(&refusals));
        let arriving = Arc::clone(&arriving);
        let place = unproven.next();
        let among = Arc::clone(&unproven);
        let task = tokio::spawn(async move {
            let proved = prove(&shared, stream).await;
            among.leave(place);
            let welcomed = match proved {
                Ok((channel, greeting)) => welcome(&shared, channel, greeting, &arriving).await,
                Err(error) => Err(error),
            };
            let Err(error) = welcomed else { return };
            let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(others) = refusals.note(regent_clock::now()) {
                tracing::warn!(%from, %error, others, "a peer was not let in");
            }
        });
        unproven.enter(place, task.abort_handle());
    }
}

/// Connections whose other end has not proved who it is, by when they came. If there are too many, the one that came
/// first gives way: a flood of connections that say nothing must not keep out a member, which needs a few round trips.
#[derive(Debug, Default)]
struct Unproven {
    last: AtomicU64,
    waiting: Mutex<UnprovenTasks>,
}

#[derive(Debug, Default)]
struct UnprovenTasks {
    tasks: BTreeMap<u64, AbortHandle>,
    /// The place of the next one to enter: they enter in order.
    next: u64,
    /// Those that were over before they were entered.
    left: BTreeSet<u64>,
}

impl Unproven {
    /// The place of the next connection.
    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection has begun to prove who is at its other end.
    fn enter(&self, place: u64, task: AbortHandle) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.next = place + 1;
        if waiting.left.remove(&place) {
            return;
        }
        waiting.tasks.insert(place, task);
        if waiting.tasks.len() > UNPROVEN_MAX
            && let Some((_, oldest)) = waiting.tasks.pop_first()
        {
            oldest.abort();
        }
    }

    /// It has, or has not: from here on nothing ends it.
    fn leave(&self, place: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.tasks.remove(&place).is_none() && place >= waiting.next {
            waiting.left.insert(place);
        }
    }
}

/// Finds out who is at the other end, and greets it if it is listened to.
async fn prove(shared: &Shared, stream: TcpStream) -> io::Result<(Channel, Greeting)> {
    stream.set_nodelay(true)?;
    let greeted = timeout(HANDSHAKE_WITHIN, async {
        let mut channel = shared.transport.accept(stream).await?;
        let greeting = Greeting::receive(&mut channel.reader).await?;
        if let Some(why) = shared.objection(&greeting, channel.proven) {
            say_farewell(shared, &greeting, &mut channel).await?;
            return Err(io::Error::other(why));
        }
        shared.greeting(greeting.from, greeting.purpose).send(&mut channel.writer).await?;
        Ok((channel, greeting))
    });
    greeted.await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Tells a replica that was removed so, if it has proved that it is that one: it may have missed the entry that removed
/// it, and nobody else speaks to it.
async fn say_farewell(
    shared: &Shared,
    greeting: &Greeting,
    channel: &mut Channel,
) -> io::Result<()> {
    if greeting.purpose != Purpose::Messages || shared.mismatch(greeting, channel.proven).is_some()
    {
        return Ok(());
    }
    let Some(farewell) = shared.farewell(greeting.from) else { return Ok(()) };
    shared.greeting(greeting.from, greeting.purpose).send(&mut channel.writer).await?;
    let mut frame = Vec::new();
    put_frame(Kind::Message, &mut frame, |out| farewell.put(out));
    channel.writer.write_all(&frame).await?;
    channel.writer.flush().await?;
    // Closed at once, with a ping of the other side unread, the connection would be reset and the frame lost.
    channel.writer.shutdown().await?;
    let mut rest = [0; 256];
    while channel.reader.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Takes a peer's connection for what it is for.
async fn welcome(
    shared: &Arc<Shared>,
    channel: Channel,
    greeting: Greeting,
    arriving: &Semaphore,
) -> io::Result<()> {
    match greeting.purpose {
        Purpose::Snapshot => {
            let too_many = |_| io::Error::other("too many snapshots arrive here already");
            let _place = arriving.try_acquire().map_err(too_many)?;
            if !shared.is_the_same(greeting.from, greeting.incarnation).await {
                return Err(io::Error::other("it is not the replica that was met before"));
            }
            snapshot::receive(shared, greeting.from, channel).await
        }
        Purpose::Messages => {
            let connected = shared
                .link(greeting.from)
                .ok_or_else(|| io::Error::other(format!("at most {REPLICAS_MAX} replicas")))?;
            let incarnation = greeting.incarnation;
            let _ = connected.try_send(Connected { channel, incarnation });
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_unproven_connection_gives_way_and_a_proven_one_never_does() {
        let unproven = Unproven::default();
        let enter = || {
            let (place, task) = (unproven.next(), tokio::spawn(std::future::pending::<()>()));
            unproven.enter(place, task.abort_handle());
            (place, task)
        };
        let (proven_at, proven) = enter();
        unproven.leave(proven_at);
        let (first_at, first) = enter();
        let rest: Vec<_> = (1..UNPROVEN_MAX).map(|_| enter()).collect();
        tokio::task::yield_now().await;
        assert!(!first.is_finished(), "there is room for it");
        let (_, last) = enter();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        assert!(!proven.is_finished() && !last.is_finished());
        assert!(rest.iter().all(|(_, task)| !task.is_finished()));
        // One that was ended and one that is over at once leave nothing behind.
        unproven.leave(first_at);
        let over = unproven.next();
        unproven.leave(over);
        unproven.enter(over, last.abort_handle());
        let waiting = unproven.waiting.lock().unwrap();
        assert_eq!((waiting.tasks.len(), waiting.left.len()), (UNPROVEN_MAX, 0));
    }
}
