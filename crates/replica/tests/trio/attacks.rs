//! What breaks replicas of flesh and blood: lost disks, full disks, floods, and having been away.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use regent_election::access::{
    Binding, Caller, GuardedStore, Role as AccessRole, SecretDigest, TokenId, TokenLabel,
};
use regent_election::state::Query;
use regent_election::store::{Consistency, NewToken, Open, Store, StoreError};
use regent_election::{Group, Node as Label, Refusal, Settings};
use regent_replica::disk::files::{DirectoryLock, Files, OpenFile};
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, RealFiles};
use regent_replica::io::{Request, Response};
use regent_replica::{MemberChange, Node, NodeConfig, ReplicaId, ReplicaStore, Role};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::bench::{CLUSTER, Cluster, PATIENCE, bid, found, id, session, until_done};

fn open(number: u128) -> Open {
    Open { node: Label::new("a").unwrap(), ttl_ms: 60_000, session: session(number) }
}

/// S10: founded again under its old number, by the very command of the first time, a replica would
/// vote as if it had never promised anything. Those who have met it remember, also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_founded_again_under_its_number_is_not_listened_to() {
    let mut cluster = Cluster::start(3, 1000).await;
    let leader = cluster.leader().await;
    let others: Vec<ReplicaId> = (1..=3).map(id).filter(|other| *other != leader).collect();
    let (wiped, behind) = (others[0], others[1]);
    let store = cluster.store(leader);
    until_done(|| store.open(open(1))).await;
    // Everybody has met everybody.
    let read = cluster.store(behind);
    until_done(|| read.session(session(1))).await;
    while cluster.running[&behind].handle().round_trips().len() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    cluster.stop(behind).await;
    let won = until_done(|| store.campaign(bid(session(1), "billing"))).await;
    assert_eq!(won.elected.unwrap().get(), 1);
    drop(store);
    cluster.stop(leader).await;
    cluster.stop(wiped).await;

    std::fs::remove_dir_all(cluster.directory(wiped)).unwrap();
    let founding = Founding::cluster(Settings::default(), cluster.members.clone());
    let files = Arc::new(RealFiles::new(&cluster.directory(wiped)).unwrap());
    let opened = found(files, wiped, 77, &founding);
    let listener = TcpListener::bind(&cluster.members[&wiped].peer_address).await.unwrap();
    cluster.run(wiped, opened, listener);
    cluster.restart(behind).await;
    // Ten elections' worth of time in which the two could elect each other.
    for _ in 0..300 {
        for store in cluster.running.values() {
            assert_ne!(store.handle().status().role, Role::Leader, "a voter without memory voted");
        }
        sleep(Duration::from_millis(10)).await;
    }
    cluster.restart(leader).await;
    cluster.leader().await;
    let (store, group) = (cluster.store(behind), Group::new("billing").unwrap());
    let office = until_done(|| store.leader(&group, Consistency::Linearizable)).await;
    assert_eq!(office.term.get(), 1, "nothing acknowledged is lost (S6)");
    drop(store);
    cluster.end().await;
}

pub(crate) async fn change(cluster: &Cluster, change: MemberChange) {
    let until = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.leader().await;
        let asked = cluster.running[&leader].handle().ask(Request::Members(change.clone())).await;
        match asked {
            Ok(Response::Done) => return,
            other => assert!(Instant::now() < until, "{change:?}: {other:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// A replica that was away while all others were replaced knows none of those who know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_while_all_others_were_replaced_is_found_again() {
    // With one of four away, three are heard without the replica that is promoted: of three it would be refused.
    let mut cluster = Cluster::start(4, 1000).await;
    cluster.leader().await;
    cluster.stop(id(1)).await;
    for replica in [id(5), id(6)] {
        cluster.join(replica).await;
        let member = cluster.members[&replica].clone();
        change(&cluster, MemberChange::Add { id: replica, member }).await;
        change(&cluster, MemberChange::Promote { id: replica }).await;
    }
    let until = Instant::now() + PATIENCE;
    while cluster.leader().await != id(6) {
        let leader = cluster.leader().await;
        let _ = cluster.running[&leader].handle().ask(Request::Transfer { to: Some(id(6)) }).await;
        assert!(Instant::now() < until, "the lead was not handed over");
        sleep(Duration::from_millis(50)).await;
    }
    for replica in [id(2), id(3), id(4)] {
        change(&cluster, MemberChange::Remove { id: replica }).await;
        cluster.stop(replica).await;
    }
    cluster.restart(id(1)).await;
    let status = |replica: ReplicaId| cluster.running[&replica].handle().status();
    while status(id(1)).applied < status(id(6)).applied {
        assert!(Instant::now() < until + PATIENCE, "replica 1 is still not found");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(status(id(1)).voters.contains(&id(5)));
    cluster.end().await;
}

/// A disk that says when it is full.
#[derive(Debug)]
struct Full(RealFiles, Arc<AtomicBool>);

impl Files for Full {
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>> {
        self.0.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.0.read(name, bytes_max)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        if self.1.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        self.0.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }
}

async fn alone(files: Arc<dyn Files>) -> Arc<ReplicaStore> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let identity = Identity { cluster: CLUSTER, replica: id(1), incarnation: 1 };
    let member = regent_replica::Member {
        peer_address: listener.local_addr().unwrap().to_string(),
        client_address: String::new(),
        is_witness: false,
    };
    let founding = Founding::cluster(Settings::default(), [(id(1), member)].into());
    let options = DiskOptions { segment_bytes: 4096, ..DiskOptions::default() };
    let opened = Disk::found(files, options, identity, &founding).unwrap();
    let node = Node::start(opened, listener, &NodeConfig::default()).unwrap();
    Arc::new(ReplicaStore::new(node.handle().clone(), node.hub().clone(), String::new()))
}

/// L8, and semantics 29: a replica on a full disk can be ended, and goes on if there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_on_a_full_disk_goes_on_when_there_is_room_and_can_be_ended_when_there_is_none() {
    let place = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(false));
    let files = Full(RealFiles::new(place.path()).unwrap(), Arc::clone(&is_full));
    let replica = alone(Arc::new(files)).await;
    let store: &dyn Store = &*replica;
    until_done(|| store.open(open(1))).await;
    let until = Instant::now() + PATIENCE;
    for round in 0..2 {
        is_full.store(true, Ordering::SeqCst);
        let mut number = 2 + round * 1000;
        while store.open(open(number)).await.is_ok() {
            number += 1;
            assert!(number % 1000 < 900, "the disk is never full");
        }
        is_full.store(false, Ordering::SeqCst);
        while store.open(open(number)).await.is_err() {
            assert!(Instant::now() < until, "it does not notice that there is room again");
            sleep(Duration::from_millis(20)).await;
        }
    }
    is_full.store(true, Ordering::SeqCst);
    // What frees a session is taken for as long as anything fits: until nothing does.
    for number in 1..1000 {
        let close = regent_election::Command::Close { session: session(number) };
        replica.handle().post(Request::Submit { command: close, request: None, query: None });
        if number % 50 == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(timeout(PATIENCE, store.shut_down()).await.is_ok(), "it cannot be ended");
}

/// L8: whoever is flooded must still hear that it is to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooded_replica_ends_when_it_is_told_to() {
    let place = tempfile::tempdir().unwrap();
    let replica = alone(Arc::new(RealFiles::new(place.path()).unwrap())).await;
    let store: &dyn Store = &*replica;
    until_done(|| store.open(open(1))).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let (handle, is_over) = (replica.handle().clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let query = Query::Groups { prefix: String::new(), after: None, count: 1 };
                    handle.post(Request::Read { query, linearizable: false });
                }
            })
        })
        .collect();
    // Short: whatever else runs on this machine has its own times to keep.
    sleep(Duration::from_millis(50)).await;
    let ended = timeout(PATIENCE, store.shut_down()).await;
    is_over.store(true, Ordering::SeqCst);
    for flood in floods {
        flood.join().unwrap();
    }
    assert!(ended.is_ok(), "it did not hear that it is to end");
}

/// Carries bytes between replicas until it is frozen: what it carries then never arrives, and no
/// connection ends. Later connections are carried.
struct Relay {
    address: String,
    frozen: tokio::sync::watch::Sender<u64>,
}

impl Relay {
    async fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (frozen, watched) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (target, mut watched) = (target.clone(), watched.clone());
                watched.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = watched.changed() => std::future::pending::<()>().await,
                    }
                });
            }
        });
        Self { address, frozen }
    }

    fn freeze(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}

/// A network that swallows everything for a while leaves connections that are open and dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_carries_nothing_is_given_up_for_another() {
    let mut listeners = Vec::new();
    let mut members = regent_replica::Members::new();
    let mut relays = Vec::new();
    for number in 1..=2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::to(listener.local_addr().unwrap().to_string()).await;
        let member = regent_replica::Member {
            peer_address: relay.address.clone(),
            client_address: String::new(),
            is_witness: false,
        };
        members.insert(id(number), member);
        listeners.push((id(number), listener));
        relays.push(relay);
    }
    let place = tempfile::tempdir().unwrap();
    let founding = Founding::cluster(Settings::default(), members);
    let mut stores: Vec<Box<dyn Store>> = Vec::new();
    for (replica, listener) in listeners {
        let files = RealFiles::new(&place.path().join(replica.to_string())).unwrap();
        let opened = found(Arc::new(files), replica, 1, &founding);
        let node = Node::start(opened, listener, &NodeConfig::default()).unwrap();
        let (handle, hub) = (node.handle().clone(), node.hub().clone());
        stores.push(Box::new(ReplicaStore::new(handle, hub, String::new())));
    }
    until_done(|| stores[0].open(open(1))).await;
    for relay in &relays {
        relay.freeze();
    }
    until_done(|| stores[0].open(open(2))).await;
    for store in stores {
        store.shut_down().await;
    }
}

/// S11: a replica that starts shows what its last snapshot knew, and hears of its leader before it has what was
/// committed since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_revoked_is_not_good_again_after_a_restart() {
    let mut cluster = Cluster::start(3, 20).await;
    let leader = cluster.leader().await;
    let behind = (1..=3).map(id).find(|replica| *replica != leader).unwrap();
    let store = cluster.store(leader);
    let participant = Binding {
        who: "node:*".parse().unwrap(),
        role: AccessRole::Participant,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    };
    until_done(|| store.put_bindings(0, vec![participant.clone()])).await;
    let token = TokenId(1);
    let label = TokenLabel::new("x").unwrap();
    let (digest, principal) = (SecretDigest([0; 32]), "node:a".parse().unwrap());
    let new = NewToken { token, digest, principal, expires_ms: None, label };
    until_done(|| store.create_token(new.clone())).await;
    // So many that the snapshot of the one that falls behind knows the token, and that the rest takes a while.
    for number in 1..=60 {
        until_done(|| store.open(open(number))).await;
    }
    let read = cluster.store(behind);
    until_done(|| read.session(session(60))).await;
    drop(read);
    cluster.stop(behind).await;
    for number in 100..300 {
        until_done(|| store.open(open(number))).await;
    }
    until_done(|| store.revoke_token(token)).await;
    cluster.restart(behind).await;
    let who = "node:a".parse().unwrap();
    let caller = Caller { who, token: Some(token), voucher: None, wall_ms: || 1 };
    let guarded = GuardedStore::new(cluster.store(behind), caller, Arc::default());
    let guarded: &dyn Store = &guarded;
    let until = Instant::now() + PATIENCE;
    let opened = loop {
        match guarded.open(open(1000)).await {
            Err(StoreError::Unavailable { .. }) if Instant::now() < until => {
                tokio::task::yield_now().await;
            }
            ended => break ended,
        }
    };
    assert!(
        matches!(opened, Err(StoreError::Refused(Refusal::CredentialOver { .. }))),
        "{opened:?}"
    );
    cluster.end().await;
}
