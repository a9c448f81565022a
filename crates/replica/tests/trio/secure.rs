//! Replicas whose links use mutual TLS: a CA on a temporary directory, and a cluster over it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use regent_replica::peers::{Channel, PeerName, Transport};
use regent_replica::{MemberChange, ReplicaId};
use regent_tls::authority::{Owner, Subject};
use regent_tls::{PeerFiles, PeerTls, ReplicaName, authority};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::attacks::change;
use crate::bench::{CLUSTER, Cluster, PATIENCE, Transports, bid, calm, id, session, until_done};

const DAY_S: u64 = 24 * 3600;

/// A CA that goes with the test.
pub(crate) struct Ca(tempfile::TempDir);

impl Ca {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        authority::init(place.path(), 100, now_s() - 10 * DAY_S).unwrap();
        Self(place)
    }

    pub(crate) fn issue(&self, cluster: u128, replica: u64) -> PeerFiles {
        let name = ReplicaName { cluster, replica };
        files(authority::issue(self.0.path(), &Subject::Replica(name), 30, now_s()).unwrap())
    }

    /// Replaces a replica's certificate by one that ended yesterday.
    pub(crate) fn expire(&self, replica: u64) -> PeerFiles {
        let made_at = now_s() - 2 * DAY_S;
        files(authority::renew(self.0.path(), &Owner::Replica(replica), 1, false, made_at).unwrap())
    }

    /// A replica's files, issued when they are first asked for.
    pub(crate) fn of(&self, replica: u64) -> PeerFiles {
        let file = |ending| self.0.path().join(format!("replica-{replica}.{ending}"));
        if !file("crt").exists() {
            return self.issue(CLUSTER, replica);
        }
        PeerFiles {
            certificate: file("crt"),
            key: file("key"),
            ca: self.0.path().join("ca.crt"),
            crl: None,
        }
    }
}

fn files(made: authority::Made) -> PeerFiles {
    PeerFiles { certificate: made.certificate, key: made.key, ca: made.ca, crl: None }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[derive(Debug)]
struct Tls(PeerTls);

fn channel(stream: tokio_rustls::TlsStream<TcpStream>, name: ReplicaName) -> io::Result<Channel> {
    let (reader, writer) = tokio::io::split(stream);
    let proven = PeerName { cluster: name.cluster, replica: id(name.replica) };
    Ok(Channel { reader: Box::new(reader), writer: Box::new(writer), proven: Some(proven) })
}

#[async_trait]
impl Transport for Tls {
    async fn connect(&self, stream: TcpStream) -> io::Result<Channel> {
        let (stream, name) = self.0.connect(stream).await?;
        channel(stream, name)
    }

    async fn accept(&self, stream: TcpStream) -> io::Result<Channel> {
        let (stream, name) = self.0.accept(stream).await?;
        channel(stream, name)
    }
}

/// A replica's end of its links.
pub(crate) fn tls(ca: &Ca, replica: u64) -> PeerTls {
    PeerTls::open(ReplicaName { cluster: CLUSTER, replica }, ca.of(replica)).unwrap()
}

fn transports(ca: &Arc<Ca>) -> Transports {
    let ca = Arc::clone(ca);
    Box::new(move |replica: ReplicaId| Arc::new(Tls(tls(&ca, replica.get()))))
}

/// A cluster over TLS whose log keeps its leader though the machine is busy.
pub(crate) async fn cluster(ca: &Arc<Ca>, count: u64) -> Cluster {
    Cluster::start_with(calm(), count, 1000, transports(ca)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_over_tls_elect_survive_a_kill_restart_and_take_a_fourth_in() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    let first = cluster.leader().await;
    let store = cluster.store(first);
    let won = until_done(|| store.campaign(bid(session(1), "billing"))).await;
    assert_eq!(won.elected.unwrap().get(), 1);
    drop(store);

    cluster.stop(first).await;
    let second = cluster.leader().await;
    assert_ne!(first, second);
    let store = cluster.store(second);
    let won = until_done(|| store.campaign(bid(session(2), "other"))).await;
    assert_eq!(won.elected.unwrap().get(), 1);
    drop(store);
    cluster.restart(first).await;

    cluster.join(id(4)).await;
    let member = cluster.members[&id(4)].clone();
    change(&cluster, MemberChange::Add { id: id(4), member }).await;
    change(&cluster, MemberChange::Promote { id: id(4) }).await;
    let until = Instant::now() + PATIENCE;
    let status = |replica| cluster.running[&replica].handle().status();
    while !(1..=4).all(|replica| status(id(replica)).voters.len() == 4) {
        assert!(Instant::now() < until, "not everybody knows the fourth");
        sleep(Duration::from_millis(20)).await;
    }
    cluster.end().await;
}
