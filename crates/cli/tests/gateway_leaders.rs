//! Leaders of the library behind a real gateway: one that was paused, one that was superseded, one that proves its
//! term.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use process::upstream::{Upstream, put};
use process::{Room, Running};
use regent::fencing::http::{LeaderLayer, TOKEN_HEADER};
use regent::fencing::{WriteError, WriteResult};
use regent::{Leadership, Permit, Regent, Why};
use tower::{Layer, ServiceExt};

/// The ttl of a leader that is paused for ten of them, and of one that is not to be lost meanwhile.
const TTL: Duration = Duration::from_secs(2);
const LONG_TTL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);
/// What a test that is the leader in a process of its own is told: the service, and the gateway.
const SERVICE: &str = "REGENT_TEST_SERVICE";
const GATEWAY: &str = "REGENT_TEST_GATEWAY";
/// What its own lines open with.
const SAYS: &str = "the leader: ";

fn gateway(room: &Room, upstream: &Upstream, more: &[&str]) -> (Running, String) {
    let data = room.text("fence");
    let fixed = ["fence", "gateway", "--group", "billing", "--upstream", &upstream.url];
    let rest = ["--data", &data, "--listen", "127.0.0.1:0"];
    let running = room.start(&[&fixed[..], &rest[..], more].concat());
    let line = running.line_with("listens on");
    let address = line.split_once("http://").unwrap().1.to_owned();
    (running, address)
}

async fn elected(service: &str, node: &str, ttl: Duration) -> (Regent, Leadership) {
    let regent = Regent::at(service).node(node).ttl(ttl).connect().await.unwrap();
    let campaign = tokio::time::timeout(PATIENCE, regent.campaign("billing").into_future()).await;
    let leadership = campaign.expect("it is elected").unwrap();
    (regent, leadership)
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn request(gateway: &str) -> Request<Full<Bytes>> {
    Request::put(format!("http://{gateway}/row")).body("paid".into()).unwrap()
}

/// Writes under a permit that was given a while ago, by hand.
async fn write(gateway: &str, permit: &Permit) -> WriteResult<u16> {
    let mut request = request(gateway);
    permit.stamp(request.headers_mut());
    let answer = client().request(request).await.map_err(|it| WriteError::Uncertain(it.into()))?;
    let status = answer.status().as_u16();
    permit.heed(status, &answer.into_body().collect().await.unwrap().to_bytes())?;
    Ok(status)
}

/// Writes through the layer of a leader.
async fn layered(gateway: &str, layer: &LeaderLayer) -> WriteResult<u16> {
    let answer = layer.layer(client()).oneshot(request(gateway)).await?;
    let status = answer.status().as_u16();
    answer.into_body().collect().await.unwrap();
    Ok(status)
}

/// This test once more, as a leader in a process of its own.
struct Leader {
    child: Child,
    told: ChildStdin,
    lines: Receiver<String>,
}

impl Leader {
    fn start(name: &str, service: &str, gateway: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(SERVICE, service)
            .env(GATEWAY, gateway)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                // The harness may have left its own words before ours on the same line.
                if let Some((_, words)) = line.split_once(SAYS) {
                    let _ = sender.send(words.to_owned());
                }
            }
        });
        Self { child, told, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the leader says something")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// S3, by the letter: paused ten ttls between check and write, resumed, writes: refused, and it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_paused_ten_ttls_between_check_and_write_is_refused_and_loses_its_office() {
    if let (Ok(service), Ok(gateway)) = (env::var(SERVICE), env::var(GATEWAY)) {
        return paused(&service, &gateway).await;
    }
    let (room, upstream) = (Room::new(), Upstream::start());
    let server = room.server();
    let (_running, address) = gateway(&room, &upstream, &[]);
    let name = "a_leader_paused_ten_ttls_between_check_and_write_is_refused_and_loses_its_office";
    let mut old = Leader::start(name, &server.url, &address);
    assert_eq!(old.line(), "term 1, checked");
    old.signal("STOP");
    let paused_at = Instant::now();
    let (_regent, new) = elected(&server.url, "new", LONG_TTL).await;
    let layer = LeaderLayer::new(new.clone());
    assert_eq!(layered(&address, &layer).await.unwrap(), 200);
    tokio::time::sleep((10 * TTL).saturating_sub(paused_at.elapsed())).await;
    old.signal("CONT");
    old.told.write_all(b"go on\n").unwrap();
    assert_eq!(old.line(), "STALE_TERM: term 1 < current 2");
    assert_eq!(old.line(), "lost, and no check passes");
    assert!(layered(&address, &layer).await.is_ok(), "the new one leads on");
    assert_eq!(upstream.terms(), [1, 2, 2], "the late write is not among them");
}

async fn paused(service: &str, gateway: &str) {
    let (_regent, leadership) = elected(service, "old", TTL).await;
    let layer = LeaderLayer::new(leadership.clone());
    assert_eq!(layered(gateway, &layer).await.unwrap(), 200);
    let permit = leadership.check().unwrap();
    println!("{SAYS}term {}, checked", leadership.term());
    let told = || std::io::stdin().read_line(&mut String::new());
    tokio::task::spawn_blocking(told).await.unwrap().unwrap();
    // The check was long ago; the write is now.
    let refused = write(gateway, &permit).await.unwrap_err();
    println!("{SAYS}{refused}");
    leadership.lost().await;
    assert!(leadership.check().is_err() && layered(gateway, &layer).await.is_err());
    println!("{SAYS}lost, and no check passes");
}

/// The lease still runs, and nobody but the gateway knows of the higher term: its word is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_by_the_gateway_is_the_loss_of_an_office_whose_lease_still_runs() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let server = room.server();
    let (_running, address) = gateway(&room, &upstream, &[]);
    for by_layer in [true, false] {
        let (_regent, leadership) = elected(&server.url, "a", LONG_TTL).await;
        let term = leadership.term().get();
        let layer = LeaderLayer::new(leadership.clone());
        let work = leadership.spawn(std::future::pending::<()>());
        assert_eq!(layered(&address, &layer).await.unwrap(), 200);
        let permit = leadership.check().unwrap();
        assert_eq!(put(&address, "/row", Some(term + 1)).status, 200);
        let refused = match by_layer {
            true => layered(&address, &layer).await.unwrap_err(),
            false => write(&address, &permit).await.unwrap_err(),
        };
        let words = format!("STALE_TERM: term {term} < current {}", term + 1);
        assert_eq!(refused.to_string(), words);
        // At once: nothing was awaited since.
        assert_eq!(leadership.check().unwrap_err().why, Why::FenceRefused);
        assert_eq!(leadership.lost().await.why, Why::FenceRefused);
        assert_eq!(work.await.unwrap(), None, "the work was stopped");
        let unsent = layered(&address, &layer).await.unwrap_err();
        assert!(matches!(unsent, WriteError::Failed(_)), "{unsent}");
    }
    // Another term than ours was refused: that is no word about us.
    let (_regent, leadership) = elected(&server.url, "a", LONG_TTL).await;
    let permit = leadership.check().unwrap();
    let other = put(&address, "/row", Some(1));
    assert_eq!(other.status, 409);
    permit.heed(409, other.body.as_bytes()).unwrap();
    assert!(leadership.check().is_ok());
}

/// From the campaign to the storage without a number that anybody believes: the gateway fetches the service's
/// keys, and the leader its own token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_proves_its_term_to_a_gateway_that_knows_the_keys_of_its_service() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let keys = room.text("keys");
    room.run(&["fence", "keys", "new", &keys]);
    let server = room.serve("127.0.0.1:0", &["--store", "memory:", "--signing-keys", &keys]);
    let published = format!("{}/.well-known/regent-keys", server.url);
    let believes = ["--require-signed", "--keys", &published];
    let (_running, address) = gateway(&room, &upstream, &believes);
    let (_first, old) = elected(&server.url, "old", LONG_TTL).await;
    assert_eq!(layered(&address, &LeaderLayer::new(old.clone())).await.unwrap(), 428);
    assert_eq!(put(&address, "/row", Some(9)).status, 428, "a number is no token");
    let proving = LeaderLayer::signed(old.clone());
    for _ in 0..3 {
        assert_eq!(layered(&address, &proving).await.unwrap(), 200);
    }
    let token = old.check().unwrap().token().await.unwrap().expect("it is signed");
    drop(proving);
    old.resign().await.unwrap();
    let (_second, new) = elected(&server.url, "new", LONG_TTL).await;
    assert_eq!(layered(&address, &LeaderLayer::signed(new.clone())).await.unwrap(), 200);
    let shown = async |token: &HeaderValue| {
        let mut request = request(&address);
        request.headers_mut().insert(TOKEN_HEADER, token.clone());
        client().request(request).await.unwrap().status().as_u16()
    };
    assert_eq!(shown(&token).await, 409, "it was good and is stale");
    // Rotated: a token by a key that is not known is reason to ask for keys again, though not at once.
    room.run(&["fence", "keys", "rotate", &keys, "--sign-from", "0s"]);
    let since = Instant::now();
    loop {
        let fresh = new.check().unwrap().token().await.unwrap().expect("it is signed");
        let (is_rotated, status) = (head(&fresh) != head(&token), shown(&fresh).await);
        if is_rotated && status == 200 {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "the new key is not known: {is_rotated}, {status}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(upstream.applied().len() >= 5, "{:?}", upstream.applied());
}

/// What a token says of its key, as it stands there.
fn head(token: &HeaderValue) -> String {
    token.to_str().unwrap().split('.').next().unwrap().to_owned()
}

/// Keys that cannot be had are no reason to go on without.
#[test]
fn a_gateway_without_the_keys_it_was_promised_does_not_start() {
    let (room, upstream) = (Room::new(), Upstream::start());
    let data = room.text("fence");
    let start = |keys: &str| {
        let fixed = ["fence", "gateway", "--group", "billing", "--upstream", &upstream.url];
        let rest = ["--data", &data, "--listen", "127.0.0.1:0", "--require-signed", "--keys", keys];
        room.run(&[&fixed[..], &rest[..]].concat())
    };
    let nobody = format!("127.0.0.1:{}", process::cluster::free_port("127.0.0.1"));
    let refused = start(&format!("http://{nobody}"));
    assert_eq!(refused.code, 69, "{refused:?}");
    let refused = start("http://user@there/keys");
    assert_eq!(refused.code, 64, "{refused:?}");
    let server = room.server();
    let refused = start(&server.url);
    assert_eq!(refused.code, 74, "a service without keys: {refused:?}");
    assert!(refused.stderr.contains("holds no public keys"), "{refused:?}");
}
