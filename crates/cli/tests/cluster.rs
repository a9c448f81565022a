//! Three real replicas, and what becomes of them: killed, restarted, wiped, added, removed.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use process::cluster::{Cluster, persist};
use process::{Room, fact, json, until};
use regent::fresh;
use regent::remote::Remote;
use regent_api::{CampaignRequest, Code, Consistency, TenureRequest};
use regent_election::{Group, Term};

/// What one client did: terms it was told it won, in order, and nothing it was not told.
struct Story {
    group: Group,
    won: Vec<Term>,
}

/// Wins and resigns until told to stop.
async fn work(remote: Remote, group: Group, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) -> Story {
    let mut won = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let session = fresh::session_id().unwrap();
        let request = CampaignRequest {
            session_id: Some(session),
            ttl_ms: Some(2_000),
            ..CampaignRequest::of("worker".parse().unwrap())
        };
        let answer = match persist(|| remote.campaign(&group, &request)).await {
            Ok(answer) => answer,
            // The first try was done and its answer lost for longer than a ttl.
            Err(error) if error.code() == Some(Code::SessionExpired) => continue,
            Err(error) => panic!("{error:?}"),
        };
        if answer.elected {
            let term = answer.office.term;
            won.push(term);
            done.fetch_add(1, Ordering::Relaxed);
            let resign = TenureRequest { session_id: session, term, request_id: None };
            // A refusal says that a repeat found the first try done, or that a ttl was over.
            let _ = persist(|| remote.resign(&group, &resign)).await;
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Story { group, won }
}

/// S2 and S6: terms told to a client rise, and what was acknowledged is known to every replica.
async fn check(cluster: &Cluster, stories: Vec<Story>) {
    for Story { group, won } in stories {
        assert!(won.is_sorted_by(|a, b| a < b), "terms of {group} do not rise: {won:?}");
        for id in cluster.running() {
            let remote = Remote::new(&cluster.server(id).url).unwrap();
            let leader = persist(|| remote.leader(&group, Consistency::Linearizable)).await;
            let term = leader.unwrap().office.term;
            assert!(Some(&term) >= won.last(), "{id} knows {group} at {term}: {won:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_leader_of_the_log_is_killed_under_load() {
    let mut cluster = Cluster::start(3);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let group = Group::new(&format!("g{number}")).unwrap();
            tokio::spawn(work(cluster.remote(), group, Arc::clone(&stop), Arc::clone(&done)))
        })
        .collect();
    let goes_on = |what: &str| {
        let wanted = done.load(Ordering::Relaxed) + 20;
        until(what, || done.load(Ordering::Relaxed) >= wanted);
    };
    goes_on("work before");
    let mut leaders = BTreeSet::new();
    for round in 0..3 {
        let leader = cluster.leader();
        leaders.insert(leader);
        cluster.kill(leader);
        assert_ne!(cluster.leader(), leader);
        goes_on(&format!("work without replica {leader}, round {round}"));
        cluster.run(leader);
        goes_on("work with all");
    }
    stop.store(true, Ordering::Relaxed);
    let mut stories = Vec::new();
    for worker in workers {
        stories.push(worker.await.unwrap());
    }
    assert!(leaders.len() > 1, "the lead moved");
    // Everything at once, as a power cut: what was acknowledged is on the disks.
    for id in cluster.running() {
        cluster.kill(id);
    }
    cluster.start_all();
    check(&cluster, stories).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_a_client_that_retries_nothing() {
    let mut cluster = Cluster::start(3);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let group = Group::new("billing").unwrap();
    let worker = tokio::spawn(work(cluster.remote(), group, Arc::clone(&stop), Arc::clone(&done)));
    let holder = cluster.room.text("holder.session");
    let arguments = ["campaign", "kept", "--node", "holder", "--session-file", &holder];
    let won = cluster.yes(&[&arguments[..], &["--ttl", "30s"]].concat());
    for id in 1..=3 {
        cluster.stop(id);
        assert_ne!(cluster.leader(), id);
        cluster.run(id);
        let wanted = done.load(Ordering::Relaxed) + 10;
        until("work goes on", || done.load(Ordering::Relaxed) >= wanted);
        // L3: no change of the log's leader deposes the leader of any group.
        let renewed = cluster.yes_soon(&["renew", "kept", "--session-file", &holder]);
        assert!(renewed.contains(&format!("term {}", fact(&won, "term"))), "{renewed}");
    }
    stop.store(true, Ordering::Relaxed);
    let story = worker.await.unwrap();
    check(&cluster, vec![story]).await;
}

#[test]
fn a_leader_that_ends_in_order_hands_the_lead_over() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let before = cluster.status_of(leader)["raft_term"].as_u64().unwrap();
    cluster.stop(leader);
    let next = cluster.leader();
    let after = cluster.status_of(next)["raft_term"].as_u64().unwrap();
    assert_eq!(after, before + 1, "one election, and nobody stood in vain");
}

#[test]
fn two_replicas_and_a_witness_survive_the_loss_of_one() {
    let mut cluster = Cluster::found(3, &["--witness", "3"], &[]);
    cluster.start_all();
    let session = cluster.room.text("a.session");
    let campaign = ["campaign", "billing", "--node", "a", "--session-file", &session];
    cluster.yes_soon(&[&campaign[..], &["--ttl", "30s"]].concat());
    let refused = cluster.server(3).ask(&cluster.room, &["leader", "billing"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("witness"), "{refused:?}");
    for lost in [1, 2] {
        cluster.kill(lost);
        assert_eq!(cluster.leader(), 3 - lost, "the other full replica leads");
        assert_eq!(cluster.yes_soon(&["leader", "billing"]), "a\n");
        cluster.yes_soon(&["renew", "billing", "--session-file", &session]);
        cluster.run(lost);
        until("it has caught up", || {
            let (one, other) = (cluster.status_of(1), cluster.status_of(2));
            one["applied_index"] == other["applied_index"]
        });
    }
    let members = &cluster.status_of(1)["members"];
    assert_eq!(members[2]["kind"], "witness");
}

/// S10: a replica that cannot prove for whom it voted does not vote.
#[test]
fn a_wiped_replica_does_not_vote_and_comes_back_only_as_a_learner() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a", "--ttl", "1m"]);
    let wiped = cluster.followers()[0];
    cluster.kill(wiped);
    std::fs::remove_dir_all(cluster.directory(wiped)).unwrap();
    let (directory, replica) = (cluster.directory(wiped), &cluster.replicas[&wiped]);
    let serve = ["serve", "--data-dir", &directory, "--listen", &replica.client];
    let ended = cluster.room.run(&[&serve[..], &["--peer-listen", &replica.peer]].concat());
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("must not vote again"), "{ended:?}");
    // Without a word about peers it is a cluster of its own, and the others do not speak to it.
    let alone = cluster.room.serve(&replica.client, &["--data-dir", &directory]);
    let own = json(&alone.get("/v1/cluster"));
    assert_ne!(own["cluster_id"].as_str().unwrap(), cluster.id);
    assert_eq!(own["voters"], 1);
    alone.kill();
    // It is removed, and joins under another number.
    let number = wiped.to_string();
    cluster.yes(&["cluster", "remove", &number, "--yes"]);
    cluster.join(4, &[]);
    let (peer, client) = (cluster.replicas[&4].peer.clone(), cluster.replicas[&4].client.clone());
    let early = cluster.ask(&["cluster", "promote", "4"]);
    assert_eq!(early.code, 77, "{early:?}");
    cluster.yes(&["cluster", "add", "--id", "4", "--peer", &peer, "--client", &client]);
    cluster.yes(&["cluster", "promote", "4", "--timeout", "30s"]);
    assert_eq!(cluster.server(4).yes(&cluster.room, &["leader", "billing"]), "a\n");
    let status = cluster.status_of(4);
    assert_eq!((&status["voters"], &status["quorum"]), (&3.into(), &2.into()));
    // It carries its share: with it, one of the others may go.
    let other = cluster.running().into_iter().find(|id| *id != 4).unwrap();
    cluster.kill(other);
    assert_eq!(cluster.yes_soon(&["leader", "billing"]), "a\n");
}

#[test]
fn members_are_changed_at_any_replica_and_wrong_changes_are_refused() {
    let mut cluster = Cluster::start(3);
    let follower = cluster.followers()[0];
    let leader = cluster.leader();
    let room = &cluster.room;
    let refuse = |arguments: &[&str], part: &str| {
        let ended = cluster.server(follower).ask(room, arguments);
        assert_eq!(ended.code, 77, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{arguments:?}: {ended:?}");
    };
    refuse(&["cluster", "promote", "9"], "replica 9 is no member");
    refuse(&["cluster", "promote", "1"], "is a voter already");
    refuse(&["cluster", "remove", "9", "--yes"], "replica 9 is no member");
    refuse(&["cluster", "transfer", "--to", "9"], "replica 9 is no member");
    let add = ["cluster", "add", "--peer", "h:1", "--client", "h:2", "--id"];
    refuse(&[&add[..], &["2"]].concat(), "is a member already");
    let (to, wanted) = (follower.to_string(), follower);
    cluster.server(follower).yes(room, &["cluster", "transfer", "--to", &to]);
    until("the lead has moved", || cluster.leader() == wanted);
    // The one that leads is asked to remove itself: it hands over first.
    cluster.server(leader).yes(room, &["cluster", "remove", &to, "--yes"]);
    cluster.stop(follower);
    let left = cluster.leader();
    let status = cluster.status_of(left);
    assert_eq!((&status["voters"], &status["failures_survived"]), (&2.into(), &0.into()));
    let told = cluster.ask(&["cluster", "status"]);
    assert!(told.stderr.contains("2 voters survive no failure, no more than 1 would"), "{told:?}");
    assert_eq!(fact(&told.stdout, "quorum"), "2 of 2", "{told:?}");
    assert_eq!(fact(&told.stdout, "health"), "2 of 2 heard, survives no failure", "{told:?}");
}

#[test]
fn a_minority_answers_nothing_but_that_it_cannot() {
    let mut cluster = Cluster::start(3);
    cluster.yes_soon(&["campaign", "billing", "--node", "a"]);
    for id in cluster.followers() {
        cluster.kill(id);
    }
    let left = cluster.running()[0];
    until("the last one has stepped down", || cluster.status_of(left)["leader"].is_null());
    for arguments in [
        &["leader", "billing"][..],
        &["campaign", "billing", "--node", "b"],
        &["group", "create", "more"],
    ] {
        let ended = cluster.server(left).ask(&cluster.room, arguments);
        assert_eq!(ended.code, 69, "{arguments:?}: {ended:?}");
    }
    let status = cluster.server(left).ask(&cluster.room, &["cluster", "status"]);
    assert_eq!(status.code, 1, "{status:?}");
    assert!(status.stderr.contains("no replica is known to lead"), "{status:?}");
    assert!(cluster.server(left).get("/metrics").contains("store_quorum_health 0"));
    assert!(cluster.server(left).get("/readyz").contains("STORE_UNAVAILABLE"));
}

#[test]
fn a_directory_that_holds_data_is_not_founded_again_and_lists_must_agree() {
    let room = Room::new();
    let list = "1=127.0.0.1:1/127.0.0.1:2,2=127.0.0.1:3/127.0.0.1:4";
    let data = room.text("data");
    let init = ["cluster", "init", "--members", list, "--data-dir", &data, "--id"];
    let first = room.run(&[&init[..], &["1"]].concat());
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.stderr.contains("2 voters survive no failure"), "{first:?}");
    let cluster = fact(&first.stdout, "cluster").to_owned();
    let again = room.run(&[&init[..], &["1"]].concat());
    assert_eq!(again.code, 78, "{again:?}");
    assert!(again.stderr.contains("holds a replica already"), "{again:?}");
    let other = room.text("other");
    let wrong = "1=127.0.0.1:1/127.0.0.1:2,2=127.0.0.1:3/127.0.0.1:5";
    let init = ["cluster", "init", "--id", "2", "--data-dir", &other, "--cluster-id", &cluster];
    for (list, more) in
        [(wrong, &[][..]), (list, &["--witness", "2"]), (list, &["--ttl-max", "2h"])]
    {
        let ended = room.run(&[&init[..], &["--members", list], more].concat());
        assert_eq!(ended.code, 77, "{ended:?}");
        assert!(ended.stderr.contains("nothing was written"), "{ended:?}");
        assert!(!room.path("other").exists());
    }
    let ended = room.run(&[&init[..], &["--members", list]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
}
