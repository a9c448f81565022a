//! Leaders whose process is killed: what they left is taken over by somebody else after a whole ttl and under
//! a higher term, on engines that time sessions themselves and on those that do not.
//!
//! The process is this very test binary, started again for one test that leads for as long as it lives. What
//! differs from a participant that only falls silent is that nothing of it is left: no connection, no task
//! that still renews, nothing that says goodbye.

#![allow(dead_code, reason = "each engine uses what it needs")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Heartbeat, Store};
use regent_election::timing::Drift;
use regent_election::{Group, Metadata, Node, SessionId};

use crate::judge::unique;
use regent_servers::{Server, or_skip, report};

/// The URL that a child is to lead on, the group, and the ttl in milliseconds.
const URL: &str = "REGENT_TEST_LEADS_ON";
const GROUP: &str = "REGENT_TEST_LEADS_GROUP";
const TTL: &str = "REGENT_TEST_LEADS_TTL";

/// The usual ttl.
const TTL_MS: u64 = 5000;
/// The ttl where a request may take seconds.
const TTL_MS_OBJECTS: u64 = 15_000;
/// Signs of life before the kill: more than fit into a ttl.
const HEARTBEATS: usize = 6;

/// A leader in a process of its own; dropped, it is killed.
struct Leader {
    child: Child,
}

impl Leader {
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.kill();
    }
}

fn campaign(group: &Group, node: &str, session: SessionId, ttl_ms: u64) -> Campaign {
    Campaign {
        group: group.clone(),
        node: Node::new(node).unwrap(),
        session: CampaignSession::Own(session),
        ttl_ms: Some(ttl_ms),
        wait: Some(Duration::from_millis(ttl_ms / 3)),
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

/// Campaigns until it leads; the term.
async fn lead(
    store: &dyn Store,
    group: &Group,
    node: &str,
    session: SessionId,
    ttl_ms: u64,
) -> u64 {
    loop {
        let asked = store.campaign(campaign(group, node, session, ttl_ms)).await;
        if let Some(term) = asked.expect("the server is up").elected {
            return term.get();
        }
    }
}

/// What the child is: no test unless it was started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leads_until_it_is_killed() {
    let (Ok(url), Ok(group)) = (std::env::var(URL), std::env::var(GROUP)) else { return };
    let ttl_ms: u64 = std::env::var(TTL).unwrap().parse().unwrap();
    let (store, group) = (regent_stores::open_url(&url).unwrap(), Group::new(&group).unwrap());
    let session = SessionId::new(unique()).unwrap();
    let term = lead(&*store, &group, "child", session, ttl_ms).await;
    loop {
        let sent_at = regent_clock::now();
        let heartbeat = Heartbeat { session, sequence: None, disowned: Vec::new(), beliefs: None };
        store.heartbeat(heartbeat).await.expect("a session that is heard lives");
        // Whoever reads this knows that the lease counts from no earlier than this.
        println!("\nleads {term} {}", sent_at.as_nanos());
        tokio::time::sleep(Duration::from_millis(ttl_ms / 5)).await;
    }
}

/// Kills a leader in a process of its own, and sees who leads next.
async fn is_succeeded(store: &str, server: &Server) {
    is_succeeded_within(TTL_MS, store, server).await;
}

/// The same with another ttl.
async fn is_succeeded_within(ttl_ms: u64, store: &str, server: &Server) {
    let group = Group::new(&format!("clients/{:032x}", unique())).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clients::leads_until_it_is_killed", "--nocapture"])
        .env(URL, &server.url)
        .env(GROUP, group.as_str())
        .env(TTL, ttl_ms.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut leader = Leader { child };
    let said = BufReader::new(leader.child.stdout.take().unwrap());
    let mut lines = said.lines().map_while(Result::ok).filter(|line| line.starts_with("leads "));
    let first = lines.next().expect("the child leads");
    let rival = regent_stores::open_url(&server.url).unwrap();
    let session = SessionId::new(unique()).unwrap();
    let standing = {
        let (rival, group) = (Arc::clone(&rival), group.clone());
        tokio::spawn(async move {
            let term = lead(&*rival, &group, "parent", session, ttl_ms).await;
            (term, regent_clock::now())
        })
    };
    // It goes on for longer than a ttl with somebody in line behind it.
    let mut last = first;
    for _ in 0..HEARTBEATS {
        last = lines.next().expect("the child goes on");
    }
    leader.kill();
    // What it said before it died is in the pipe.
    let last = lines.last().unwrap_or(last);
    let mut words = last.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap());
    let (term, heard_at) = (words.next().unwrap(), words.next().unwrap());
    let (next, elected_at) = standing.await.unwrap();
    assert!(next > term, "term {next} after {term}");
    let silent_ms = (elected_at.as_nanos() - heard_at) / 1_000_000;
    let valid_ms = Drift::default().valid_for_ms(ttl_ms);
    assert!(silent_ms >= valid_ms, "succeeded {silent_ms} ms after its last sign of life");
    rival.shut_down().await;
    let note = format!(
        "a killed leader was succeeded under term {next} after {term}, {:.1} s after its last sign of life \
         (ttl {} s)",
        f64::from(u32::try_from(silent_ms).unwrap()) / 1000.0,
        ttl_ms / 1000
    );
    report(store, &server.version, 1, 0, &note);
}

#[cfg(feature = "consul")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_consul_is_succeeded() {
    let Some(server) = or_skip("consul", regent_servers::consul::consul()) else { return };
    is_succeeded("consul", &server).await;
}

#[cfg(feature = "consul")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_sessions_of_consul_is_succeeded() {
    let server = regent_servers::starting(regent_servers::consul::with_short_sessions);
    let Some(mut server) = or_skip("consul, sessions", server) else { return };
    server.url += "?mode=session";
    is_succeeded("consul, sessions", &server).await;
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_etcd_is_succeeded() {
    let Some(server) = or_skip("etcd", regent_servers::etcd::etcd()) else { return };
    is_succeeded("etcd", &server).await;
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_nats_is_succeeded() {
    let Some(server) = or_skip("nats", regent_servers::nats::nats()) else { return };
    is_succeeded("nats", &server).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_postgres_is_succeeded() {
    let Some(server) = or_skip("postgres", regent_servers::postgres::postgres()) else { return };
    is_succeeded("postgres", &server).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_redis_is_succeeded() {
    let Some(server) = or_skip("redis", regent_servers::redis::redis()) else { return };
    is_succeeded("redis", &server).await;
}

#[cfg(feature = "zookeeper")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_zookeeper_is_succeeded() {
    let Some(server) = or_skip("zookeeper", regent_servers::zookeeper::zookeeper()) else { return };
    is_succeeded("zookeeper", &server).await;
}

#[cfg(feature = "zookeeper")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_sessions_of_zookeeper_is_succeeded() {
    let server = regent_servers::starting(|| regent_servers::zookeeper::own(1));
    let Some(mut server) = or_skip("zookeeper, sessions", server) else { return };
    server.url += "?mode=session";
    is_succeeded("zookeeper, sessions", &server).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_mysql_is_succeeded() {
    let Some(server) = or_skip("mysql", regent_servers::mysql::mysql()) else { return };
    is_succeeded("mysql", &server).await;
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_dynamodb_is_succeeded() {
    let Some(server) = or_skip("dynamodb", regent_servers::dynamodb::dynamodb()) else { return };
    is_succeeded("dynamodb", &server).await;
}

#[cfg(feature = "redlock")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_redlock_is_succeeded() {
    let Some(server) = or_skip("redlock", crate::redlock::five()) else { return };
    is_succeeded("redlock", &server).await;
}

#[cfg(feature = "kubernetes")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_kubernetes_is_succeeded() {
    let (server, _alive) = crate::kubernetes::kubernetes();
    is_succeeded("kubernetes", &server).await;
}

#[cfg(feature = "object")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_s3_is_succeeded() {
    let Some(server) = or_skip("s3", regent_servers::object::s3()) else { return };
    is_succeeded_within(TTL_MS_OBJECTS, "s3", &server).await;
}

#[cfg(feature = "object")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_on_az_is_succeeded() {
    let server = or_skip("az", regent_servers::object::az());
    let Some(server) = crate::object::with_container(server).await else { return };
    is_succeeded_within(TTL_MS_OBJECTS, "az", &server).await;
}
