//! Servers whose replicas prove to each other who they are: real files, real sockets, one process.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::net::{SocketAddr, TcpListener as StdListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use regent::fresh;
use regent::remote::{Remote, RemoteError, RemoteResult};
use regent_api::{AddMemberRequest, CampaignRequest, Code, MemberKind};
use regent_election::{Group, Node, Settings};
use regent_replica::disk::DiskOptions;
use regent_replica::{Member, Members, ReplicaId};
use regent_server::ServeError;
use regent_service::{
    PeerCertificates, ReplicaError, ReplicaOptions, ReplicaSettings, Service, bootstrap,
    prepare_to_join,
};
use regent_tls::authority::{Owner, Subject};
use regent_tls::{PeerFiles, PeerTls, ReplicaName, TlsError, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long anything here may take.
const WITHIN: Duration = Duration::from_secs(60);

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn id(number: u64) -> ReplicaId {
    ReplicaId::new(number).unwrap()
}

fn disk() -> DiskOptions {
    DiskOptions { segment_bytes: 1 << 20, ..DiskOptions::default() }
}

/// A replica's addresses, on sockets that listen already.
struct Sockets {
    peers: StdListener,
    clients: TcpListener,
}

impl Sockets {
    async fn new() -> Self {
        let peers = StdListener::bind("127.0.0.1:0").unwrap();
        Self { peers, clients: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    fn member(&self) -> Member {
        Member {
            peer_address: self.peers.local_addr().unwrap().to_string(),
            client_address: self.clients.local_addr().unwrap().to_string(),
            is_witness: false,
        }
    }
}

struct Running {
    url: String,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), ServeError>>,
    reload: Arc<Notify>,
}

impl Running {
    async fn end(self) {
        self.stop.send(()).unwrap();
        timeout(WITHIN, self.ended).await.unwrap().unwrap().unwrap();
    }
}

/// Starts a replica.
async fn serve(directory: PathBuf, sockets: Sockets, certificates: PeerCertificates) -> Running {
    let Sockets { peers, clients } = sockets;
    let reload = Arc::new(Notify::new());
    let certificates = Some(certificates);
    let options = ReplicaOptions {
        replica: ReplicaSettings { disk: disk(), certificates, ..ReplicaSettings::default() },
        peer_socket: Some(peers),
        reload: Arc::clone(&reload),
        ..ReplicaOptions::new(directory, clients.local_addr().unwrap())
    };
    let url = format!("http://{}", clients.local_addr().unwrap());
    let service = Service::on_replica(options).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let until = async {
        let _ = stopped.await;
    };
    let ended = tokio::spawn(service.serve(vec![clients], until));
    Running { url, stop, ended, reload }
}

/// The files of a replica, made by the CA in a directory.
fn issue(ca: &Path, cluster: u128, replica: u64) -> PeerCertificates {
    let made =
        authority::issue(ca, &Subject::Replica(ReplicaName { cluster, replica }), 90, now_s())
            .unwrap();
    let (certificate, key, ca) = (made.certificate, made.key, made.ca);
    PeerCertificates { certificate, key, ca, crl: None, accepts_plaintext: false }
}

/// Asks again while a log has no leader yet, or another one than a moment ago.
async fn persist<T>(ask: impl AsyncFn() -> RemoteResult<T>) -> T {
    let asked = async {
        loop {
            match ask().await {
                Err(RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. }) => {}
                Err(RemoteError::Refused(problem)) if problem.code == Code::OtherReplicaLeads => {}
                answered => return answered.unwrap(),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WITHIN, asked).await.unwrap()
}

async fn is_elected(remote: &Remote, group: &str) -> bool {
    let (group, node) = (Group::new(group).unwrap(), Node::new("a").unwrap());
    let session_id = Some(fresh::session_id().unwrap());
    let bid = CampaignRequest { session_id, ..CampaignRequest::of(node) };
    persist(async || remote.campaign(&group, &bid).await).await.elected
}

/// For how many days the certificate of peer links is good, as the metrics tell.
async fn days_left(url: &str) -> i64 {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(WITHIN, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let mut lines = answer.lines();
    let shown =
        lines.find_map(|line| line.strip_prefix("regent_tls_expires_seconds{what=\"peer\"} "));
    let seconds =
        shown.unwrap_or_else(|| panic!("it is not told: {answer}")).parse::<i64>().unwrap();
    seconds / (24 * 3600)
}

/// Whoever leads the log.
async fn leader(all: &Remote) -> Remote {
    persist(async || {
        let address = all.cluster_by_leader().await?.leader_address;
        let why = "no leader is known".to_owned();
        let none = || RemoteError::Unavailable { why, problem: None, retry_after: None };
        Ok(Remote::new(&format!("http://{}", address.ok_or_else(none)?)).unwrap())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_over_tls_elect_lose_their_leader_and_take_a_fourth_in() {
    let place = tempfile::tempdir().unwrap();
    let ca = place.path().join("ca");
    authority::init(&ca, 3650, now_s()).unwrap();
    let directory = |number: u64| place.path().join(format!("replica-{number}"));
    let mut sockets = Vec::new();
    for _ in 1..=4 {
        sockets.push(Sockets::new().await);
    }
    let joining = sockets.pop().unwrap();
    let members: Members =
        (1..).map(id).zip(&sockets).map(|(id, sockets)| (id, sockets.member())).collect();
    let mut cluster = None;
    for id in members.keys() {
        let settings = Settings::default();
        let at = directory(id.get());
        let founded = bootstrap(&at, *id, &members, settings, cluster, disk()).unwrap();
        cluster = Some(regent_service::cluster_id(&founded.cluster_id).unwrap());
    }
    let cluster = cluster.unwrap();
    let mut running = Vec::new();
    for (number, sockets) in (1..).zip(sockets) {
        running.push(serve(directory(number), sockets, issue(&ca, cluster, number)).await);
    }
    let urls: Vec<String> = running.iter().map(|server| server.url.clone()).collect();
    let all = Remote::new(&urls.join(",")).unwrap();
    assert!(is_elected(&all, "billing").await);

    prepare_to_join(&directory(4), cluster, id(4), disk()).unwrap();
    let Member { peer_address, client_address, .. } = joining.member();
    let fourth = serve(directory(4), joining, issue(&ca, cluster, 4)).await;
    let request = AddMemberRequest { id: 4, peer_address, client_address, witness: false };
    persist(async || leader(&all).await.add_member(&request).await).await;
    persist(async || leader(&all).await.promote_member(4).await).await;
    running.push(fourth);

    let leads = persist(async || all.cluster_by_leader().await).await.replica;
    running.remove(usize::try_from(leads).unwrap() - 1).end().await;
    let left: Vec<String> = running.iter().map(|server| server.url.clone()).collect();
    let left = Remote::new(&left.join(",")).unwrap();
    assert!(is_elected(&left, "other").await);
    let known = persist(async || left.cluster_by_leader().await).await;
    assert!(known.members.iter().any(|it| it.id == 4 && it.kind == MemberKind::Voter));
    for server in running {
        server.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_replaced_is_used_without_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (ca, data) = (place.path().join("ca"), place.path().join("data"));
    authority::init(&ca, 3650, now_s()).unwrap();
    let sockets = Sockets::new().await;
    let address = sockets.peers.local_addr().unwrap();
    let members = Members::from([(id(1), sockets.member())]);
    let founded = bootstrap(&data, id(1), &members, Settings::default(), None, disk()).unwrap();
    let cluster = regent_service::cluster_id(&founded.cluster_id).unwrap();
    let server = serve(data, sockets, issue(&ca, cluster, 1)).await;
    let PeerCertificates { certificate, key, ca: believed, .. } = issue(&ca, cluster, 2);
    let files = PeerFiles { certificate, key, ca: believed, crl: None };
    let second = PeerTls::open(ReplicaName { cluster, replica: 2 }, files).unwrap();
    let shown = async || {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (link, who) = second.connect(stream).await.unwrap();
        assert_eq!(who, ReplicaName { cluster, replica: 1 });
        link.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown().await;
    assert!((89..=90).contains(&days_left(&server.url).await));
    authority::renew(&ca, &Owner::Replica(1), 30, true, now_s()).unwrap();
    server.reload.notify_one();
    let replaced = async {
        while shown().await == before {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WITHIN, replaced).await.unwrap();
    assert!((29..=30).contains(&days_left(&server.url).await));
    server.end().await;
}

/// A replica on an empty directory, with these settings.
async fn start(directory: &Path, replica: ReplicaSettings) -> Result<Service, ReplicaError> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Service::on_replica(ReplicaOptions { replica, ..ReplicaOptions::new(directory, listen) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_without_tls_stay_on_this_machine() {
    let place = tempfile::tempdir().unwrap();
    let directory = |name: &str| place.path().join(name);
    let base = || ReplicaSettings { disk: disk(), ..ReplicaSettings::default() };
    let far = || ReplicaSettings { peer_listen: "0.0.0.0:0".parse().unwrap(), ..base() };
    let refused = start(&directory("a"), far()).await.unwrap_err();
    assert!(matches!(refused, ReplicaError::PlaintextPeers { .. }), "{refused}");
    let advertised = Some("db-1:7401".to_owned());
    let named = ReplicaSettings { peer_advertise: advertised, ..base() };
    let refused = start(&directory("b"), named).await.unwrap_err();
    let address = match &refused {
        ReplicaError::PlaintextPeers { address } => address.as_str(),
        other => panic!("{other}"),
    };
    assert_eq!(address, "db-1:7401");
    let insecure = ReplicaSettings { is_insecure: true, ..far() };
    drop(start(&directory("c"), insecure).await.unwrap());
    let missing = PeerCertificates {
        certificate: directory("1.crt"),
        key: directory("1.key"),
        ca: directory("ca.crt"),
        crl: None,
        accepts_plaintext: false,
    };
    let certified = ReplicaSettings { certificates: Some(missing), ..far() };
    let refused = start(&directory("d"), certified).await.unwrap_err();
    assert!(
        matches!(&refused, ReplicaError::Tls(TlsError::Unfit(error)) if error.is_missing()),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_one_listens_to_peers_only_when_it_has_some() {
    let place = tempfile::tempdir().unwrap();
    let free = StdListener::bind("127.0.0.1:0").unwrap();
    let peer_listen = free.local_addr().unwrap();
    drop(free);
    let clients = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", clients.local_addr().unwrap());
    let options = ReplicaOptions {
        replica: ReplicaSettings { disk: disk(), peer_listen, ..ReplicaSettings::default() },
        ..ReplicaOptions::new(place.path(), clients.local_addr().unwrap())
    };
    let service = Service::on_replica(options).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let until = async {
        let _ = stopped.await;
    };
    let ended = tokio::spawn(service.serve(vec![clients], until));
    let alone = Remote::new(&url).unwrap();
    assert!(is_elected(&alone, "billing").await);
    assert!(TcpStream::connect(peer_listen).is_err(), "it listens to peers it cannot have");

    let add = |peer: &str| AddMemberRequest {
        id: 2,
        peer_address: peer.to_owned(),
        client_address: "127.0.0.1:2".to_owned(),
        witness: false,
    };
    let refused = alone.add_member(&add("10.0.0.2:7401")).await.unwrap_err();
    assert!(refused.to_string().contains("is another machine"), "{refused}");
    persist(async || alone.add_member(&add("127.0.0.1:1")).await).await;
    let listens = async {
        while TcpStream::connect(peer_listen).is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WITHIN, listens).await.expect("it does not listen to the peer it has");
    persist(async || alone.remove_member(2).await).await;
    let deaf = async {
        while TcpStream::connect(peer_listen).is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(WITHIN, deaf).await.expect("it still listens to peers");
    stop.send(()).unwrap();
    timeout(WITHIN, ended).await.unwrap().unwrap().unwrap();
}
