//! A member's key in other hands, over mutual TLS: what no replica in order sends ends the link that brought it, and
//! nothing else. That a member gets through, in the same harness, is asserted on every link first.

use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Entry, Message, MessageType, Snapshot};
use regent_election::store::{Open, Store};
use regent_replica::ReplicaId;
use regent_replica::io::PeerMessage;
use regent_replica::limits::UNPROVEN_MAX;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::bench::{Cluster, PATIENCE, id, session, until_done};
use crate::secure::{Ca, cluster};
use crate::strangers::{connector, greeting, settle, state};

pub(crate) const MESSAGE: u8 = 1;
const PING: u8 = 2;
const PONG: u8 = 3;
const ANNOUNCEMENT: u8 = 4;
const CHUNK: u8 = 5;
pub(crate) const GREETING_BYTES: usize = 54;

/// A frame, by the format that the peers' frames describe.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let body = [&[kind], payload].concat();
    let mut out = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
    out.extend(&body);
    out.extend(crc32fast::hash(&body).to_le_bytes());
    out
}

/// Reads frames until one of this kind comes; none if the link ends first.
async fn await_frame(stream: &mut (impl AsyncRead + Unpin), wanted: u8) -> Option<Vec<u8>> {
    loop {
        let length = stream.read_u32_le().await.ok()? as usize;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        stream.read_u32_le().await.ok()?;
        if body[0] == wanted {
            return Some(body.split_off(1));
        }
    }
}

/// A connection for a snapshot, greeted as a member.
async fn snapshot_link(
    cluster: &Cluster,
    ca: &Ca,
    from: ReplicaId,
) -> impl AsyncRead + AsyncWrite + Unpin {
    let to = id(1);
    let stream = TcpStream::connect(&cluster.members[&to].peer_address).await.unwrap();
    let host = ServerName::try_from("replica.invalid").unwrap();
    let files = ca.of(from.get());
    let mut stream = connector(Some(&files)).connect(host, stream).await.unwrap();
    let mut greeting = greeting(from.get(), to, from.get() * 1000);
    // Its purpose, and the checksum of all that.
    greeting[9] = 2;
    let body = greeting.len() - 4;
    let sum = crc32fast::hash(&greeting[..body]);
    greeting[body..].copy_from_slice(&sum.to_le_bytes());
    stream.write_all(&greeting).await.unwrap();
    stream.flush().await.unwrap();
    let mut heard = [0; GREETING_BYTES];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    stream
}

/// The files of replica 1 in which snapshots are gathered.
fn arriving(cluster: &Cluster) -> usize {
    let names = std::fs::read_dir(cluster.directory(id(1))).unwrap();
    let is_arriving = |name: String| name.starts_with("arriving-") && name.ends_with(".tmp");
    names.filter(|it| is_arriving(it.as_ref().unwrap().file_name().into_string().unwrap())).count()
}

async fn until_arriving(cluster: &Cluster, count: usize) {
    let waiting = async {
        while arriving(cluster) != count {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

/// Snapshots that are begun and held open take a file and no memory, and a peer has one of them at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_holds_snapshots_open_has_one_of_them_in_a_file() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    cluster.stop(id(3)).await;
    let (term, _, last, _) = state(&cluster, id(1));
    let mut announced = message(id(3), term, MessageType::MsgSnapshot);
    let mut snapshot = Snapshot::default();
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (last + 5, term);
    snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2, 3];
    announced.set_snapshot(snapshot);
    let mut payload = Vec::new();
    PeerMessage::Raft(Box::new(announced)).put(&mut payload);
    let begun = [frame(ANNOUNCEMENT, &payload), frame(CHUNK, &[7; 1000])].concat();

    let mut first = snapshot_link(&cluster, &ca, id(3)).await;
    first.write_all(&begun).await.unwrap();
    first.flush().await.unwrap();
    until_arriving(&cluster, 1).await;
    let mut second = snapshot_link(&cluster, &ca, id(3)).await;
    let _ = second.write_all(&begun).await;
    let _ = second.flush().await;
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, second.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a second one is taken");
    assert_eq!(arriving(&cluster), 1);
    drop((first, second));
    until_arriving(&cluster, 0).await;
    serves(&cluster).await;
    cluster.end().await;
}

/// A link to replica 1 with the certificate of a member, on which it has been shown that it is one.
async fn link(cluster: &Cluster, ca: &Ca, from: ReplicaId) -> impl AsyncRead + AsyncWrite + Unpin {
    let to = id(1);
    let stream = TcpStream::connect(&cluster.members[&to].peer_address).await.unwrap();
    let host = ServerName::try_from("replica.invalid").unwrap();
    let files = ca.of(from.get());
    let mut stream = connector(Some(&files)).connect(host, stream).await.unwrap();
    stream.write_all(&greeting(from.get(), to, from.get() * 1000)).await.unwrap();
    stream.flush().await.unwrap();
    let mut heard = [0; GREETING_BYTES];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert!(heard.starts_with(b"RGNTPEER"), "a member is not greeted");
    stream.write_all(&frame(PING, b"are you?")).await.unwrap();
    stream.flush().await.unwrap();
    let pong = timeout(PATIENCE, await_frame(&mut stream, PONG)).await.unwrap();
    assert_eq!(pong.as_deref(), Some(b"are you?".as_slice()), "a member does not get through");
    stream
}

fn message(from: ReplicaId, term: u64, kind: MessageType) -> Message {
    let mut message = Message::default();
    message.set_msg_type(kind);
    (message.from, message.to, message.term) = (from.get(), 1, term);
    message
}

fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term, entry.data) = (index, term, data.to_vec().into());
    entry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_sends_what_no_replica_sends_is_disconnected_and_nobody_ends() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    let leader = cluster.leader().await;
    // Replica 1 is attacked; the key is that of another one, and not the leader's, if that is not replica 1.
    let thief = [3, 2].map(id).into_iter().find(|replica| *replica != leader).unwrap();
    cluster.stop(thief).await;
    let (term, _, last, _) = state(&cluster, id(1));

    let mut beyond = message(thief, term, MessageType::MsgAppend);
    (beyond.index, beyond.commit) = (last + 10, last + 10);
    let transfer = message(thief, term, MessageType::MsgTransferLeader);
    let mut unread = message(thief, term, MessageType::MsgAppend);
    (unread.index, unread.log_term, unread.commit) = (last, term, last + 1);
    unread.set_entries(vec![entry(last + 1, term, b"nonsense")].into());
    let mut read = message(thief, 0, MessageType::MsgReadIndexResp);
    read.index = last + 10;
    read.set_entries(vec![entry(0, 0, &[7; 24])].into());
    let mut announced = message(thief, term, MessageType::MsgSnapshot);
    let mut snapshot = Snapshot::default();
    (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (last + 5, term);
    announced.set_snapshot(snapshot);
    let attacks = [
        ("an append beyond the log", beyond),
        ("a transfer of leadership", transfer),
        ("an entry that nobody can read", unread),
        ("an answer of no term", read),
        ("a snapshot among messages", announced),
    ];
    for (what, forged) in attacks {
        let mut stream = link(&cluster, &ca, thief).await;
        let mut payload = Vec::new();
        PeerMessage::Raft(Box::new(forged)).put(&mut payload);
        stream.write_all(&frame(MESSAGE, &payload)).await.unwrap();
        stream.flush().await.unwrap();
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{what}: still connected");
        assert_eq!(state(&cluster, id(1)).0, term, "{what}: the Raft term has changed");
    }
    serves(&cluster).await;
    // The replica whose key that was comes back, and is one of them again.
    cluster.restart(thief).await;
    settle(&cluster).await;
    cluster.end().await;
}

/// One message used to end all elections for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_elect_after_a_third_has_sent_the_last_of_all_terms() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    cluster.stop(id(3)).await;
    for term in [u64::MAX / 4, u64::MAX / 8] {
        let mut stream = link(&cluster, &ca, id(3)).await;
        let mut forged = message(id(3), term, MessageType::MsgRequestVote);
        (forged.log_term, forged.index) = (term, term);
        forged.context = b"CampaignTransfer".to_vec().into();
        let mut payload = Vec::new();
        PeerMessage::Raft(Box::new(forged)).put(&mut payload);
        stream.write_all(&frame(MESSAGE, &payload)).await.unwrap();
        stream.flush().await.unwrap();
        // It is no reason to end the link: one that was driven ahead must be heard.
        sleep(Duration::from_millis(200)).await;
    }
    serves(&cluster).await;
    assert!(state(&cluster, id(1)).0 < u64::MAX / 16);
    cluster.end().await;
}

/// Connections that say nothing take all the places there are, several times over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_that_say_nothing_keeps_no_member_out() {
    let ca = Arc::new(Ca::new());
    let mut cluster = cluster(&ca, 3).await;
    settle(&cluster).await;
    cluster.stop(id(3)).await;
    let mut flood = Vec::new();
    for _ in 0..3 * UNPROVEN_MAX {
        flood.push(TcpStream::connect(&cluster.members[&id(1)].peer_address).await.unwrap());
    }
    let is_linked = timeout(PATIENCE, link(&cluster, &ca, id(3))).await.is_ok();
    assert!(is_linked, "a member is kept out");
    drop(flood);
    cluster.end().await;
}

/// Somebody leads and takes a change.
async fn serves(cluster: &Cluster) {
    let leader = cluster.leader().await;
    let store: Arc<dyn Store> = cluster.store(leader);
    let node = regent_election::Node::new("a").unwrap();
    let open = || Open { node: node.clone(), ttl_ms: 60_000, session: session(77) };
    until_done(|| store.open(open())).await;
}
