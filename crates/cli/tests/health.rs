//! What an operator is shown of three real replicas is true in the bad case: killed, stopped, removed, restored.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::time::{Duration, Instant};

use process::cluster::Cluster;
use process::{Ended, Server, fact, until};
use regent::remote::{Remote, Scope, Watched};
use regent_api::WatchEvent;
use serde_json::Value;

/// The status as one replica gives it.
fn status_at(cluster: &Cluster, id: u64) -> Ended {
    cluster.server(id).ask(&cluster.room, &["cluster", "status"])
}

fn state_of(cluster: &Value, id: u64) -> (Value, Value) {
    let members = cluster["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["id"] == id).unwrap();
    (member["heard"].clone(), member["connected"].clone())
}

fn quorum_health(server: &Server) -> bool {
    let metrics = server.get("/metrics");
    let line = metrics.lines().find(|line| line.starts_with("store_quorum_health ")).unwrap();
    line.ends_with(" 1")
}

#[test]
fn with_one_and_then_two_of_three_replicas_lost_the_status_says_what_is_left() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "1m"]);
    let leader = cluster.leader();
    until("all are heard", || {
        let status = status_at(&cluster, leader);
        status.code == 0 && fact(&status.stdout, "health") == "3 of 3 heard, survives 1 failure"
    });
    assert!(quorum_health(cluster.server(leader)));

    // One that stands still is as good as gone, though its connections are open.
    let [stopped, killed] = cluster.followers()[..] else { panic!("two followers") };
    cluster.server(stopped).signal("STOP");
    until("one is missed", || {
        let status = cluster.status_of(leader);
        state_of(&status, stopped) == (false.into(), false.into())
    });
    let status = status_at(&cluster, leader);
    assert_eq!(status.code, 0, "{status:?}");
    assert_eq!(fact(&status.stdout, "health"), "2 of 3 heard, survives no further failure");
    let row = |id: u64| {
        let mut rows = status.stdout.lines().map(str::trim_start);
        rows.find(|row| row.starts_with(&format!("{id} "))).unwrap().to_owned()
    };
    assert!(row(stopped).contains("silent"), "{status:?}");
    assert!(!row(killed).contains("silent") && !row(leader).contains("silent"), "{status:?}");
    assert_eq!(cluster.status_of(leader)["failures_survived"], 0);

    cluster.kill(killed);
    until("the quorum is missed", || !quorum_health(cluster.server(leader)));
    let status = status_at(&cluster, leader);
    assert_eq!(status.code, 1, "{status:?}");
    assert_eq!(fact(&status.stdout, "health"), "1 of 3 heard, no quorum");
    assert!(status.stderr.contains("nothing can be decided"), "{status:?}");

    cluster.server(stopped).signal("CONT");
    until("a quorum is back", || {
        let status = status_at(&cluster, leader);
        status.code == 0
            && fact(&status.stdout, "health") == "2 of 3 heard, survives no further failure"
    });
    assert!(quorum_health(cluster.server(leader)) && quorum_health(cluster.server(stopped)));
}

/// It was down while it was removed, so that it never received the entry.
#[test]
fn a_replica_that_was_removed_while_it_was_down_knows_it_when_it_is_back() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "1m"]);
    let removed = cluster.followers()[0];
    cluster.kill(removed);
    cluster.yes_soon(&["cluster", "remove", &removed.to_string(), "--yes"]);
    let left: Vec<u64> = cluster.running();
    cluster.run(removed);
    until("it knows", || cluster.status_of(removed)["removed"] == true);
    let status = cluster.status_of(removed);
    let members: Vec<u64> =
        status["members"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(members, left);
    let told = format!("replica {removed} was removed from this cluster");
    let server = cluster.server(removed);
    let ready = server.get("/readyz");
    assert!(ready.contains("STORE_UNAVAILABLE") && ready.contains(&told), "{ready}");
    for id in &left {
        assert!(ready.contains(&cluster.replicas[id].client), "{ready}");
    }
    assert!(!quorum_health(server));
    let line = format!("regent_replica::node: {told}");
    assert_eq!(server.log().matches(&line).count(), 1, "{}", server.log());
    let asked_at = Instant::now();
    let refused = server.get("/v1/groups/billing/leader");
    assert!(refused.contains(&told), "{refused}");
    assert!(asked_at.elapsed() < Duration::from_secs(1), "at once, not after a time-out");
    let status = status_at(&cluster, removed);
    assert_eq!((status.code, fact(&status.stdout, "health")), (1, told.as_str()), "{status:?}");
    assert!(!status.stdout.contains("silent"), "the others are not: {status:?}");
    // The others are not disturbed, and a client that knows them all is served.
    cluster.leader_among(&left);
    assert_eq!(cluster.yes(&["leader", "billing"]), "a\n");
}

/// It is up, and learns it within an election time-out: by the entry, or because it is told so.
#[test]
fn a_replica_that_runs_while_it_is_removed_knows_it() {
    let cluster = Cluster::start(3);
    let removed = cluster.followers()[1];
    cluster.yes_soon(&["cluster", "remove", &removed.to_string(), "--yes"]);
    until("it knows", || cluster.status_of(removed)["removed"] == true);
    let ready = cluster.server(removed).get("/readyz");
    assert!(ready.contains("was removed from this cluster"), "{ready}");
    assert!(!quorum_health(cluster.server(removed)));
}

/// A watch that is left on a replica without a quorum does not go on as if nothing could have happened elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_a_replica_without_a_quorum_says_that_it_is_stale() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "1m"]);
    let left = cluster.followers()[0];
    let remote = Remote::new(&cluster.server(left).url).unwrap();
    let mut watch = remote.watch(Scope::Prefix(String::new()), None);
    let Watched::Event(first) = watch.next().await.unwrap() else { panic!("no state") };
    assert!(matches!(*first, WatchEvent::State(_)), "{first:?}");
    for id in cluster.running().into_iter().filter(|id| *id != left) {
        cluster.kill(id);
    }
    let stale = async {
        loop {
            match watch.next().await.unwrap() {
                Watched::Interrupted { why, .. } => return why,
                Watched::Event(event) => {
                    assert!(!matches!(*event, WatchEvent::LeaderChanged(_)), "{event:?}");
                }
            }
        }
    };
    let why = tokio::time::timeout(Duration::from_secs(60), stale).await.unwrap();
    assert!(why.contains("no quorum for 1"), "{why}");
}

/// It is asked first, and never answers: another one leads by then, and takes the change.
#[test]
fn a_change_of_members_goes_on_elsewhere_when_the_leader_stands_still() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let mut urls = vec![cluster.server(leader).url.clone()];
    urls.extend(cluster.followers().iter().map(|id| cluster.server(*id).url.clone()));
    cluster.server(leader).signal("STOP");
    let add = ["cluster", "add", "--id", "4", "--peer", "127.0.0.1:1", "--client", "127.0.0.1:2"];
    let more = ["--timeout", "1m", "--server", &urls.join(",")];
    let added = cluster.room.run(&[&add[..], &more].concat());
    cluster.server(leader).signal("CONT");
    assert_eq!(added.code, 0, "{added:?}");
}
