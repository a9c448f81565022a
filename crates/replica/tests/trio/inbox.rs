//! A member that sends faster than the core takes: what waits is bounded in bytes, and nothing of it is lost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use raft::eraftpb::{Entry, Message, MessageType};
use regent_election::{Command, Moment, SessionNo, Settings};
use regent_replica::core::{Core, CoreConfig};
use regent_replica::disk::{Founding, RealFiles};
use regent_replica::io::{Input, PeerMessage};
use regent_replica::limits::{PEER_INBOX_BYTES_MAX, PEER_MESSAGE_BYTES_MIN};
use regent_replica::peers::{Beginning, Deliver, Identity, InboxPlace, Peers, Plaintext};
use regent_replica::{Member, Members};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::bench::{CLUSTER, PATIENCE, found, id};
use crate::members::{GREETING_BYTES, MESSAGE, frame};
use crate::strangers::greeting;

const LARGE: usize = 4 << 20;
const LARGE_COUNT: usize = 20;

/// What the core was told and has not dealt with.
#[derive(Default)]
struct Told {
    waiting: Vec<Option<InboxPlace>>,
    all: usize,
}

/// Waits until so many messages have come in all.
async fn until_told(told: &Mutex<Told>, count: usize) {
    let waiting = async {
        while told.lock().unwrap().all < count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("what was sent does not come");
}

fn append(entries: usize, bytes: usize) -> Vec<u8> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgAppend);
    (message.from, message.to, message.term) = (2, 1, 1);
    let mut entry = Entry::default();
    entry.data = vec![7; bytes].into();
    message.set_entries(vec![entry; entries].into());
    let mut payload = Vec::new();
    PeerMessage::Raft(Box::new(message)).put(&mut payload);
    frame(MESSAGE, &payload)
}

/// Sends `message` so many times to a replica whose core takes nothing; how many are taken in, and after every one that
/// is dealt with, how many more.
async fn flood(message: Vec<u8>, count: usize, fit: usize) {
    let place = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer_address = listener.local_addr().unwrap().to_string();
    let member = |peer_address: &str| Member {
        peer_address: peer_address.to_owned(),
        client_address: String::new(),
        is_witness: false,
    };
    let members = Members::from([(id(1), member(&peer_address)), (id(2), member("127.0.0.1:1"))]);
    let founding = Founding::cluster(Settings::default(), members);
    let opened = found(Arc::new(RealFiles::new(place.path()).unwrap()), id(1), 1000, &founding);
    let recovered = opened.recovered.clone();
    let core = Core::new(CoreConfig::new(id(1), 1, 1), recovered, Moment::ZERO).unwrap();
    let told: Arc<Mutex<Told>> = Arc::default();
    let deliver: Deliver = {
        let told = Arc::clone(&told);
        Arc::new(move |input, place| {
            if matches!(input, Input::Message { .. }) {
                let mut told = told.lock().unwrap();
                told.waiting.push(place);
                told.all += 1;
            }
            true
        })
    };
    let status = core.status();
    let beginning = Beginning {
        identity: Identity { cluster: CLUSTER, id: id(1), incarnation: 1000 },
        status: &status,
        entries: &[],
        acquaintances: Arc::clone(opened.disk.acquaintances()),
        arrivals: opened.disk.arrivals(),
    };
    let peers = Peers::start(beginning, listener.into(), Arc::new(Plaintext::Loopback), deliver);

    let mut stream = TcpStream::connect(&peer_address).await.unwrap();
    stream.write_all(&greeting(2, id(1), 2000)).await.unwrap();
    let mut heard = [0; GREETING_BYTES];
    timeout(PATIENCE, stream.read_exact(&mut heard)).await.unwrap().unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sending = tokio::spawn(async move {
        for _ in 0..count {
            writer.write_all(&message).await.unwrap();
        }
        writer
    });
    let reading = tokio::spawn(async move { while reader.read_u8().await.is_ok() {} });

    until_told(&told, fit).await;
    // Long enough for more to come if they could; on a slow machine fewer do.
    sleep(Duration::from_millis(300)).await;
    assert_eq!(told.lock().unwrap().all, fit, "more than that waits");
    for dealt_with in 1..=count - fit {
        drop(told.lock().unwrap().waiting.remove(0));
        until_told(&told, fit + dealt_with).await;
    }
    let _writer = timeout(PATIENCE, sending).await.unwrap().unwrap();
    assert_eq!(told.lock().unwrap().all, count, "each of them has come");
    reading.abort();
    peers.close().await;
}

/// 65,536 messages of 8 MiB were half a terabyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_that_the_core_has_not_taken_are_bounded_and_none_is_lost() {
    // Each is a little longer than its entry.
    flood(append(1, LARGE), LARGE_COUNT, PEER_INBOX_BYTES_MAX / LARGE - 1).await;
}

/// An entry of a few bytes takes many times that in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_without_content_count_by_what_they_take() {
    let entries = 20_000;
    let bytes = append(entries, 0).len() + entries * 128;
    let places = bytes.div_ceil(PEER_MESSAGE_BYTES_MIN);
    flood(append(entries, 0), 20, PEER_INBOX_BYTES_MAX / PEER_MESSAGE_BYTES_MIN / places).await;
}

/// So does an element of a list in a command that a peer passes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_proposals_count_by_what_they_take() {
    let elements = 20_000;
    let command = Command::Expire { sessions: vec![SessionNo(1); elements] };
    let mut payload = Vec::new();
    PeerMessage::Propose { boot: 1, number: 1, command, request: None }.put(&mut payload);
    let bytes = payload.len() + elements * 128;
    let places = bytes.div_ceil(PEER_MESSAGE_BYTES_MIN);
    let fit = PEER_INBOX_BYTES_MAX / PEER_MESSAGE_BYTES_MIN / places;
    flood(frame(MESSAGE, &payload), 20, fit).await;
}
