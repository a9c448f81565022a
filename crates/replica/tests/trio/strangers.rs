//! Attacks on the peer port: whoever does not prove to be a member changes nothing.
//!
//! Every attacker greets and at once sends what would make it the leader of the log if it were heard.
//! That it would is shown first, on links that prove nothing.

use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Message, MessageType};
use regent_replica::io::PeerMessage;
use regent_replica::{MemberChange, ReplicaId, Status};
use regent_tls::PeerFiles;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::attacks::change;
use crate::bench::{CLUSTER, Cluster, PATIENCE, id};
use crate::members::{GREETING_BYTES, MESSAGE, frame};
use crate::secure::{Ca, cluster, tls};
use crate::trusting::TrustsEverybody;

/// The term that the attacker claims to lead in.
const STOLEN_TERM: u64 = 1000;

/// A greeting, by the format that the peers' frames describe.
pub(crate) fn greeting(from: u64, to: ReplicaId, incarnation: u64) -> Vec<u8> {
    let mut out = b"RGNTPEER\x04\x01".to_vec();
    out.extend(CLUSTER.to_le_bytes());
    for number in [from, to.get(), incarnation] {
        out.extend(number.to_le_bytes());
    }
    out.extend(crc32fast::hash(&out).to_le_bytes());
    out
}

/// A heartbeat of somebody who leads in a later term than anybody.
fn forged(from: u64, to: ReplicaId) -> Vec<u8> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    (message.from, message.to, message.term) = (from, to.get(), STOLEN_TERM);
    let mut payload = vec![1];
    PeerMessage::Raft(Box::new(message)).put(&mut payload);
    let mut out = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    out.extend(&payload);
    out.extend(crc32fast::hash(&payload).to_le_bytes());
    out
}

/// Greets under a number, says that it leads, and hears what comes back until the connection ends.
async fn attack(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    from: u64,
    to: ReplicaId,
) -> Vec<u8> {
    let said = [greeting(from, to, from.wrapping_mul(1000)), forged(from, to)].concat();
    // The other end may be gone already.
    let _ = stream.write_all(&said).await;
    let _ = stream.flush().await;
    let mut heard = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
    assert!(ended.is_ok(), "the attacker is still connected");
    heard
}

/// An attacker's TLS, with these files or without any certificate.
pub(crate) fn connector(files: Option<&PeerFiles>) -> TlsConnector {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsEverybody));
    let config = match files {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
            let chain = chain.collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// What an attacker hears over TLS; nothing if it does not even get that far.
async fn attack_over_tls(cluster: &Cluster, files: Option<&PeerFiles>, from: u64) -> Vec<u8> {
    let to = id(1);
    let stream = TcpStream::connect(&cluster.members[&to].peer_address).await.unwrap();
    let host = ServerName::try_from("replica.invalid").unwrap();
    match timeout(PATIENCE, connector(files).connect(host, stream)).await.unwrap() {
        Ok(stream) => attack(stream, from, to).await,
        Err(_) => Vec::new(),
    }
}

/// What no stranger may change: the term and the leader of the log, where it ends, and who is in it.
fn untouchable(status: Status) -> (u64, Option<ReplicaId>, u64, Vec<ReplicaId>) {
    (status.raft_term, status.leader, status.last, status.voters)
}

pub(crate) fn state(
    cluster: &Cluster,
    replica: ReplicaId,
) -> (u64, Option<ReplicaId>, u64, Vec<ReplicaId>) {
    untouchable(cluster.running[&replica].handle().status())
}

/// Waits until all replicas follow one leader and have met each other.
pub(crate) async fn settle(cluster: &Cluster) {
    let until = Instant::now() + PATIENCE;
    let others = cluster.running.len() - 1;
    loop {
        let leader = cluster.leader().await;
        let is_settled = cluster.running.values().all(|store| {
            let status = store.handle().status();
            let is_whole = status.applied == status.last && status.last > 0;
            status.leader == Some(leader)
                && is_whole
                && store.handle().round_trips().len() >= others
        });
        if is_settled {
            return;
        }
        assert!(Instant::now() < until, "the cluster does not settle");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The size of the file in which replica 1 remembers whom it has met.
fn remembered(cluster: &Cluster) -> u64 {
    std::fs::metadata(cluster.directory(id(1)).join("peers")).unwrap().len()
}

/// Without proof, whoever knows the number and the incarnation of a member leads the log. What the other
/// tests rely on: the forged bytes work where they are let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_links_that_prove_nothing_a_forged_greeting_deposes_the_leader() {
    let cluster = Cluster::start_calm(3, 1000).await;
    settle(&cluster).await;
    let stream = TcpStream::connect(&cluster.members[&id(1)].peer_address).await.unwrap();
    let attacking = tokio::spawn(attack(stream, 2, id(1)));
    let until = Instant::now() + PATIENCE;
    while state(&cluster, id(1)).0 < STOLEN_TERM {
        assert!(Instant::now() < until, "the forged heartbeat does not count");
        sleep(Duration::from_millis(10)).await;
    }
    attacking.abort();
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_without_a_members_certificate_changes_anything() {
    let ca = Arc::new(Ca::new());
    let cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    let (before, peers) = (state(&cluster, id(1)), remembered(&cluster));

    let elsewhere = Ca::new();
    let strange_ca = elsewhere.issue(CLUSTER, 2);
    let other_cluster = ca.issue(CLUSTER + 1, 12);
    let expired = ca.expire(2);
    let not_added = ca.issue(CLUSTER, 9);
    let third = ca.of(3);
    let attacks = [
        ("no certificate", None, 2),
        ("a certificate of another CA", Some(&strange_ca), 2),
        ("a certificate of another cluster", Some(&other_cluster), 12),
        ("a certificate of another cluster, greeting as a member", Some(&other_cluster), 2),
        ("a member's certificate that has expired", Some(&expired), 2),
        ("the certificate of another member", Some(&third), 2),
        ("a member's certificate, greeting as a stranger", Some(&third), 8),
        ("a certificate of a number that was not added", Some(&not_added), 9),
    ];
    for (what, files, from) in attacks {
        let heard = attack_over_tls(&cluster, files, from).await;
        assert!(heard.is_empty(), "{what}: greeted with {} bytes", heard.len());
        assert_eq!(state(&cluster, id(1)), before, "{what}");
    }
    let stream = TcpStream::connect(&cluster.members[&id(1)].peer_address).await.unwrap();
    let heard = attack(stream, 2, id(1)).await;
    assert!(!heard.starts_with(b"RGNTPEER"), "plaintext was greeted");
    assert_eq!(state(&cluster, id(1)), before, "plaintext");
    assert_eq!(remembered(&cluster), peers, "strangers are not remembered");
    cluster.end().await;
}

/// What a member said once, whole and well encrypted, says nothing a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_link_replays_into_nothing() {
    let ca = Arc::new(Ca::new());
    let cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    let before = state(&cluster, id(1));

    // Replica 2 says to somebody with replica 1's certificate what would depose the leader.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (dialling, dialled) = (tls(&ca, 2), tls(&ca, 1));
    let said = [greeting(2, id(1), 2000), forged(2, id(1))].concat();
    let expected = said.len();
    let hearing = tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let (mut link, _) = dialled.accept(near).await.unwrap();
        let mut heard = vec![0; expected];
        link.read_exact(&mut heard).await.unwrap();
        heard
    });
    let stream = Recording { stream: TcpStream::connect(address).await.unwrap(), sent: Vec::new() };
    let (mut link, _) = dialling.connect(stream).await.unwrap();
    link.write_all(&said).await.unwrap();
    link.flush().await.unwrap();
    assert_eq!(hearing.await.unwrap(), said, "the recording is good");
    let recorded = link.get_ref().0.sent.clone();

    let mut stream = TcpStream::connect(&cluster.members[&id(1)].peer_address).await.unwrap();
    let _ = stream.write_all(&recorded).await;
    let mut heard = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
    assert!(ended.is_ok(), "the replayed link is still open");
    assert_eq!(state(&cluster, id(1)), before);
    cluster.end().await;
}

/// A stream that remembers what was sent on it.
struct Recording {
    stream: TcpStream,
    sent: Vec<u8>,
}

impl AsyncRead for Recording {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Recording {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        let written = std::pin::Pin::new(&mut self.stream).poll_write(context, bytes);
        if let std::task::Poll::Ready(Ok(count)) = &written {
            self.sent.extend(&bytes[..*count]);
        }
        written
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// What a removed member heard: a greeting and one frame, which says that it is none any more, and who is. Nothing of
/// Raft, and nothing after it.
fn assert_farewell(cluster: &Cluster, heard: &[u8], removed: ReplicaId) {
    let (head, rest) = heard.split_at_checked(GREETING_BYTES).expect("a greeting");
    assert_eq!(&head[..8], b"RGNTPEER");
    let farewell = PeerMessage::Removed {
        members: cluster
            .members
            .iter()
            .filter(|(id, _)| **id != removed)
            .map(|(id, member)| (*id, member.clone()))
            .collect(),
    };
    let mut payload = Vec::new();
    farewell.put(&mut payload);
    assert_eq!(rest, frame(MESSAGE, &payload), "one frame and no other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_of_a_removed_member_opens_nothing() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    cluster.stop(id(3)).await;
    change(&cluster, MemberChange::Remove { id: id(3) }).await;
    let until = Instant::now() + PATIENCE;
    while cluster.running[&id(1)].handle().status().is_joint
        || cluster.running[&id(1)].handle().status().voters.len() != 2
    {
        assert!(Instant::now() < until, "replica 1 does not learn of the removal");
        sleep(Duration::from_millis(10)).await;
    }
    let before = state(&cluster, id(1));
    let heard = attack_over_tls(&cluster, Some(&ca.of(3)), 3).await;
    assert_farewell(&cluster, &heard, id(3));
    assert_eq!(state(&cluster, id(1)), before);
    // Under another number, or without a certificate, nothing is said at all.
    assert!(attack_over_tls(&cluster, None, 3).await.is_empty());
    assert!(attack_over_tls(&cluster, Some(&ca.of(2)), 3).await.is_empty());
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_removed_while_it_runs_is_cut_off() {
    let ca = Arc::new(Ca::new());
    let cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    let leader = cluster.leader().await;
    let removed = (1..=3).map(id).find(|replica| *replica != leader).unwrap();
    change(&cluster, MemberChange::Remove { id: removed }).await;
    let stay: Vec<ReplicaId> = (1..=3).map(id).filter(|replica| *replica != removed).collect();
    let until = Instant::now() + PATIENCE;
    let is_linked = |replica: &ReplicaId| {
        cluster.running[replica].handle().round_trips().contains_key(&removed)
    };
    while stay.iter().any(is_linked) {
        assert!(Instant::now() < until, "the removed replica is still connected");
        sleep(Duration::from_millis(10)).await;
    }
    let from = removed.get();
    let to = stay[0];
    let before = state(&cluster, to);
    let stream = TcpStream::connect(&cluster.members[&to].peer_address).await.unwrap();
    let host = ServerName::try_from("replica.invalid").unwrap();
    let files = ca.of(from);
    let stream = connector(Some(&files)).connect(host, stream).await.unwrap();
    assert_farewell(&cluster, &attack(stream, from, to).await, removed);
    assert_eq!(state(&cluster, to), before);
    // It knows it itself, by then.
    let status = cluster.running[&removed].handle().status();
    assert!(status.removed_from.is_some_and(|members| !members.contains_key(&removed)));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plaintext_replicas_hear_neither_tls_nor_numbers_that_are_no_members() {
    let ca = Ca::new();
    let cluster = Cluster::start_calm(3, 1000).await;
    settle(&cluster).await;
    let (before, peers) = (state(&cluster, id(1)), remembered(&cluster));
    let heard = attack_over_tls(&cluster, Some(&ca.of(2)), 2).await;
    assert!(heard.is_empty());
    for number in (4..100).chain([u64::MAX]) {
        let stream = TcpStream::connect(&cluster.members[&id(1)].peer_address).await.unwrap();
        assert!(attack(stream, number, id(1)).await.is_empty(), "{number} was greeted");
    }
    assert_eq!(state(&cluster, id(1)), before);
    assert_eq!(remembered(&cluster), peers, "strangers are not remembered");
    cluster.end().await;
}
