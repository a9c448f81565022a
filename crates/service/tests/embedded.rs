//! Servers over replicas inside the test's own process: no binary, real files, real sockets.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::net::TcpListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regent::fresh;
use regent::remote::{Remote, RemoteError, RemoteResult};
use regent_api::{CampaignRequest, Consistency, RenewRequest, TenureRequest};
use regent_election::{Group, Node, SessionId, Settings, Term};
use regent_replica::disk::DiskOptions;
use regent_replica::{Member, Members, ReplicaId};
use regent_server::ServeError;
use regent_service::{ReplicaError, ReplicaOptions, ReplicaSettings, Service, bootstrap};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long anything here may take.
const WITHIN: Duration = Duration::from_secs(60);

/// A server that runs in this process.
struct Running {
    url: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    fn serve(service: Service, listener: TcpListener) -> Self {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let until = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(service.serve(vec![listener], until));
        Self { url, stop, ended }
    }

    /// Ends it in order.
    async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(WITHIN, self.ended).await.unwrap().unwrap().unwrap();
    }
}

/// Small files: these tests write little.
fn disk() -> DiskOptions {
    DiskOptions { segment_bytes: 1 << 20, ..DiskOptions::default() }
}

/// A cluster of one on free ports.
async fn alone(directory: &Path) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = ReplicaOptions {
        replica: ReplicaSettings { disk: disk(), ..ReplicaSettings::default() },
        ..ReplicaOptions::new(directory, listener.local_addr().unwrap())
    };
    Running::serve(Service::on_replica(options).await.unwrap(), listener)
}

fn billing() -> Group {
    Group::new("billing").unwrap()
}

fn bid(node: &str, session: SessionId) -> CampaignRequest {
    let node = Node::new(node).unwrap();
    CampaignRequest { session_id: Some(session), ..CampaignRequest::of(node) }
}

/// Asks again while a log has no leader yet.
async fn persist<T>(ask: impl AsyncFn() -> RemoteResult<T>) -> T {
    let asked = async {
        loop {
            match ask().await {
                Err(RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. }) => {
                    sleep(Duration::from_millis(20)).await;
                }
                answered => return answered.unwrap(),
            }
        }
    };
    timeout(WITHIN, asked).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_outlives_a_restart_of_an_embedded_server() {
    let place = tempfile::tempdir().unwrap();
    let (group, session) = (billing(), fresh::session_id().unwrap());

    let server = alone(place.path()).await;
    let remote = Remote::new(&server.url).unwrap();
    let won = remote.campaign(&group, &bid("a", session)).await.unwrap();
    assert!(won.elected);
    let term = won.office.term;
    let renewal = RenewRequest { session_id: session, term, extend_by_ms: None };
    remote.renew(&group, &renewal).await.unwrap();
    server.end().await;

    let server = alone(place.path()).await;
    let remote = Remote::new(&server.url).unwrap();
    remote.renew(&group, &renewal).await.unwrap();
    let cluster = remote.cluster().await.unwrap();
    assert_eq!((cluster.voters, cluster.leader), (1, Some(1)));
    let resign = TenureRequest { session_id: session, term, request_id: None };
    remote.resign(&group, &resign).await.unwrap();
    let next = fresh::session_id().unwrap();
    let won = remote.campaign(&group, &bid("b", next)).await.unwrap();
    assert!(won.elected);
    assert_eq!(won.office.term, Term::new(term.get() + 1).unwrap());
    server.end().await;
}

/// Three replicas, each in its own directory, bootstrapped as on three machines.
async fn three(place: &Path) -> Vec<Running> {
    let ids: Vec<ReplicaId> = (1..=3).map_while(ReplicaId::new).collect();
    let mut sockets = Vec::new();
    let mut members = Members::new();
    for id in &ids {
        let peers = StdListener::bind("127.0.0.1:0").unwrap();
        let clients = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member {
            peer_address: peers.local_addr().unwrap().to_string(),
            client_address: clients.local_addr().unwrap().to_string(),
            is_witness: false,
        };
        members.insert(*id, member);
        sockets.push((peers, clients));
    }
    let directory = |id: ReplicaId| -> PathBuf { place.join(format!("replica-{id}")) };
    let mut cluster = None;
    for id in &ids {
        let settings = Settings::default();
        let founded = bootstrap(&directory(*id), *id, &members, settings, cluster, disk()).unwrap();
        assert_eq!((founded.voters, founded.quorum, founded.failures_survived), (3, 2, 1));
        cluster = Some(regent_service::cluster_id(&founded.cluster_id).unwrap());
    }
    let mut running = Vec::new();
    for (id, (peers, clients)) in ids.into_iter().zip(sockets) {
        let options = ReplicaOptions {
            replica: ReplicaSettings { disk: disk(), ..ReplicaSettings::default() },
            peer_socket: Some(peers),
            ..ReplicaOptions::new(directory(id), clients.local_addr().unwrap())
        };
        running.push(Running::serve(Service::on_replica(options).await.unwrap(), clients));
    }
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn three_embedded_replicas_elect_and_go_on_without_the_one_that_led() {
    let place = tempfile::tempdir().unwrap();
    let mut servers = three(place.path()).await;
    let urls: Vec<String> = servers.iter().map(|server| server.url.clone()).collect();
    let all = Remote::new(&urls.join(",")).unwrap();
    let (group, session) = (billing(), fresh::session_id().unwrap());

    let won = persist(async || all.campaign(&group, &bid("a", session)).await).await;
    assert!(won.elected);
    let term = won.office.term;
    for url in &urls {
        let one = Remote::new(url).unwrap();
        let told = persist(async || one.leader(&group, Consistency::Linearizable).await).await;
        assert_eq!((told.office.leader, told.office.term), (Node::new("a").ok(), term));
    }

    // On a busy machine the log may change its leader at any time, and has none for a moment.
    let leader = loop {
        let cluster = persist(async || all.cluster_by_leader().await).await;
        assert_eq!((cluster.voters, cluster.quorum), (3, 2));
        if let Some(leader) = cluster.leader {
            break leader;
        }
        sleep(Duration::from_millis(20)).await;
    };
    servers.remove(usize::try_from(leader).unwrap() - 1).end().await;
    let renewal = RenewRequest { session_id: session, term, extend_by_ms: None };
    persist(async || all.renew(&group, &renewal).await).await;
    for server in servers {
        server.end().await;
    }
}

#[tokio::test]
async fn a_replica_with_peers_never_founds_a_cluster_of_one() {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let has_peers = Some("peer_listen".to_owned());
    let options = ReplicaOptions {
        replica: ReplicaSettings { has_peers, ..ReplicaSettings::default() },
        ..ReplicaOptions::new(place.path(), listener.local_addr().unwrap())
    };
    let refused = Service::on_replica(options).await.unwrap_err();
    assert!(matches!(refused, ReplicaError::NotPrepared { .. }), "{refused}");
}
