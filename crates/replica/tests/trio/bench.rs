//! The bench: replicas on temporary directories and free ports, in one process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Store, StoreError};
use regent_election::{Group, Metadata, Node as Label, SessionId, Settings};
use regent_replica::disk::files::Files;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened, RealFiles};
use regent_replica::peers::{Plaintext, Transport};
use regent_replica::{Member, Members, Node, NodeConfig, ReplicaId, ReplicaStore, Role, Timing};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

pub(crate) const CLUSTER: u128 = 0xc1;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn id(number: u64) -> ReplicaId {
    ReplicaId::new(number).unwrap()
}

/// Replicas on temporary directories and free ports.
pub(crate) struct Cluster {
    pub(crate) place: tempfile::TempDir,
    pub(crate) members: Members,
    pub(crate) running: BTreeMap<ReplicaId, Arc<ReplicaStore>>,
    pub(crate) snapshot_every: u64,
    pub(crate) timing: Timing,
    /// What the links of each replica travel on.
    pub(crate) transports: Transports,
}

pub(crate) type Transports = Box<dyn Fn(ReplicaId) -> Arc<dyn Transport> + Send + Sync>;

impl Cluster {
    pub(crate) async fn start(count: u64, snapshot_every: u64) -> Self {
        Self::start_with(Timing::LAN, count, snapshot_every, plaintext()).await
    }

    /// One whose log keeps its leader though the machine is busy. A change of it costs what only the
    /// leader remembers, which the contract of a store at peace does not provide for: the number of a
    /// session's last heartbeat is counted afresh.
    pub(crate) async fn start_calm(count: u64, snapshot_every: u64) -> Self {
        Self::start_with(calm(), count, snapshot_every, plaintext()).await
    }

    pub(crate) async fn start_with(
        timing: Timing,
        count: u64,
        snapshot_every: u64,
        transports: Transports,
    ) -> Self {
        let mut listeners = BTreeMap::new();
        let mut members = Members::new();
        for number in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let member = Member {
                peer_address: listener.local_addr().unwrap().to_string(),
                client_address: String::new(),
                is_witness: false,
            };
            members.insert(id(number), member);
            listeners.insert(id(number), listener);
        }
        let place = tempfile::tempdir().unwrap();
        let running = BTreeMap::new();
        let mut cluster = Self { place, members, running, snapshot_every, timing, transports };
        let founding = Founding::cluster(Settings::default(), cluster.members.clone());
        for (replica, listener) in listeners {
            let files = Arc::new(RealFiles::new(&cluster.directory(replica)).unwrap());
            let opened = found(files, replica, replica.get() * 1000, &founding);
            cluster.run(replica, opened, listener);
        }
        cluster
    }

    /// A replica with an empty disk that is to join.
    pub(crate) async fn join(&mut self, replica: ReplicaId) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member {
            peer_address: listener.local_addr().unwrap().to_string(),
            client_address: String::new(),
            is_witness: false,
        };
        self.members.insert(replica, member);
        let files = Arc::new(RealFiles::new(&self.directory(replica)).unwrap());
        let opened = found(files, replica, replica.get() * 1000, &Founding::joining());
        self.run(replica, opened, listener);
    }

    pub(crate) fn directory(&self, replica: ReplicaId) -> PathBuf {
        self.place.path().join(replica.to_string())
    }

    pub(crate) fn run(&mut self, replica: ReplicaId, opened: Opened, listener: TcpListener) {
        let config = NodeConfig {
            snapshot_every: self.snapshot_every,
            timing: self.timing,
            transport: (self.transports)(replica),
            ..NodeConfig::default()
        };
        let node = Node::start(opened, listener, &config).unwrap();
        let place = self.directory(replica).display().to_string();
        let store = ReplicaStore::new(node.handle().clone(), node.hub().clone(), place);
        self.running.insert(replica, Arc::new(store));
    }

    pub(crate) async fn restart(&mut self, replica: ReplicaId) {
        self.stop(replica).await;
        let address = self.members[&replica].peer_address.clone();
        let listener = TcpListener::bind(&address).await.unwrap();
        let files = Arc::new(RealFiles::new(&self.directory(replica)).unwrap());
        let opened = Disk::open(files, DiskOptions::default()).unwrap();
        self.run(replica, opened, listener);
    }

    pub(crate) async fn stop(&mut self, replica: ReplicaId) {
        if let Some(store) = self.running.remove(&replica) {
            store.shut_down().await;
        }
    }

    pub(crate) async fn leader(&self) -> ReplicaId {
        let until = Instant::now() + PATIENCE;
        loop {
            for (replica, store) in &self.running {
                let status = store.handle().status();
                if status.role == Role::Leader && status.is_serving {
                    return *replica;
                }
            }
            assert!(Instant::now() < until, "nobody leads");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn store(&self, replica: ReplicaId) -> Arc<dyn Store> {
        Arc::clone(&self.running[&replica]) as Arc<dyn Store>
    }

    pub(crate) async fn end(mut self) {
        for replica in self.members.keys().copied().collect::<Vec<_>>() {
            self.stop(replica).await;
        }
    }
}

pub(crate) fn calm() -> Timing {
    Timing::new(3_000, 4_000, 100, 90).unwrap()
}

fn plaintext() -> Transports {
    Box::new(|_| Arc::new(Plaintext::Loopback))
}

pub(crate) fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

pub(crate) fn bid(session: SessionId, group: &str) -> Campaign {
    Campaign {
        group: Group::new(group).unwrap(),
        node: Label::new("a").unwrap(),
        session: CampaignSession::Own(session),
        ttl_ms: None,
        wait: None,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

/// Does something until it is done: what a client that retries does.
pub(crate) async fn until_done<T, F>(mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(StoreError::Unavailable { .. } | StoreError::Uncertain { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < until, "it was not done in time");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Founds a replica in one life of its disk.
pub(crate) fn found(
    files: Arc<dyn Files>,
    replica: ReplicaId,
    incarnation: u64,
    founding: &Founding,
) -> Opened {
    let identity = Identity { cluster: CLUSTER, replica, incarnation };
    Disk::found(files, DiskOptions::default(), identity, founding).unwrap()
}
