//! Real replicas on real disks and sockets, three in one process: the contract, failover, restarts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod attacks;
mod bench;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::contract::{Harness, Verdict, cases};
use regent_election::store::{
    Campaign, CampaignSession, Consistency, Heartbeat, OfficeState, Open, Store, StoreError,
};
use regent_election::{Group, Moment, Node as Label, Policy, Term};
use regent_replica::{ReplicaId, ReplicaStore};
use tokio::time::sleep;

use bench::{Cluster, bid, id, session, until_done};

struct Suite {
    store: Arc<ReplicaStore>,
    other: Arc<ReplicaStore>,
    names: AtomicU64,
}

#[async_trait]
impl Harness for Suite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::clone(&self.other) as Arc<dyn Store>
    }

    async fn sleep(&self, for_how_long: Duration) {
        sleep(for_how_long).await;
    }

    fn now(&self) -> Moment {
        regent_clock::now()
    }

    fn unique(&self) -> u128 {
        u128::from(self.names.fetch_add(1, Ordering::Relaxed)) << 8
    }
}

async fn keeps_the_contract(store: Arc<ReplicaStore>, other: Arc<ReplicaStore>) {
    let suite = Arc::new(Suite { store, other, names: AtomicU64::new(1) });
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&suite) as Arc<dyn Harness>;
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let mut wrong = Vec::new();
    for (name, verdict) in running {
        match verdict.await.unwrap() {
            Verdict::Held => {}
            Verdict::Skipped(why) => wrong.push(format!("{name}: skipped: {why}")),
            Verdict::Broken(why) => wrong.push(format!("{name}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_keeps_the_contract() {
    let cluster = Cluster::start(1, 1000).await;
    let leader = cluster.leader().await;
    keeps_the_contract(cluster.store(leader), cluster.store(leader)).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_and_a_follower_keep_the_contract() {
    let cluster = Cluster::start(3, 1000).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).map(id).find(|replica| *replica != leader).unwrap();
    keeps_the_contract(cluster.store(leader), cluster.store(follower)).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_followers_keep_the_contract() {
    // So rare that a follower on a busy machine is served from the log: a snapshot would give it a gap.
    let cluster = Cluster::start(3, 300).await;
    let leader = cluster.leader().await;
    let followers: Vec<ReplicaId> = (1..=3).map(id).filter(|replica| *replica != leader).collect();
    keeps_the_contract(cluster.store(followers[0]), cluster.store(followers[1])).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_replicas_are_restarted_one_by_one() {
    let mut cluster = Cluster::start(3, 40).await;
    cluster.leader().await;
    let owner = session(7);
    let open = || Open { node: Label::new("a").unwrap(), ttl_ms: 30_000, session: owner };
    until_done(|| {
        let store = cluster.store(id(1));
        async move { store.open(open()).await }
    })
    .await;
    let mut last = 0;
    for round in 0..6 {
        let replica = id(round % 3 + 1);
        for step in 0..10 {
            let via = cluster.store(id((round + step) % 3 + 1));
            let won = until_done(|| via.campaign(bid(owner, "billing"))).await;
            let term = won.elected.unwrap();
            assert!(term.get() > last, "terms rise (S2)");
            last = term.get();
            let group = Group::new("billing").unwrap();
            // A retried resignation may find that it was done.
            match via.resign(&group, owner, term, None).await {
                Ok(()) | Err(StoreError::Uncertain { .. } | StoreError::Refused(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        cluster.restart(replica).await;
        cluster.leader().await;
    }
    for number in 1..=3 {
        let store = cluster.store(id(number));
        let group = Group::new("billing").unwrap();
        let office = until_done(|| store.leader(&group, Consistency::Linearizable)).await;
        assert!(office.term.get() >= last, "everybody knows the last term");
        assert!(matches!(office.state, OfficeState::Vacant | OfficeState::Leading));
    }
    cluster.end().await;
}

/// A leader of the log and one that follows it.
async fn leader_and_follower(cluster: &Cluster) -> (Arc<ReplicaStore>, Arc<ReplicaStore>) {
    let leader = cluster.leader().await;
    let follower = (1..=3).map(id).find(|replica| *replica != leader).unwrap();
    (cluster.store(leader), cluster.store(follower))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_gives_back_what_it_disowns_and_nothing_else() {
    let cluster = Cluster::start(3, 1000).await;
    let (leader, follower) = leader_and_follower(&cluster).await;
    let (mine, theirs) = (session(7), session(8));
    let win = async |session, group: &str| {
        let long = || Campaign { ttl_ms: Some(600_000), ..bid(session, group) };
        until_done(|| leader.campaign(long())).await.elected.unwrap()
    };
    let (kept, lost) = (win(mine, "kept").await, win(mine, "lost").await);
    let other = win(theirs, "other").await;
    let group = |name: &str| Group::new(name).unwrap();
    let beat = |disowned: Vec<(Group, Term)>| {
        let follower = Arc::clone(&follower);
        let heartbeat = Heartbeat { session: mine, sequence: None, disowned };
        until_done(move || {
            let (follower, heartbeat) = (Arc::clone(&follower), heartbeat.clone());
            async move { follower.heartbeat(heartbeat).await }
        })
    };

    let before = beat(Vec::new()).await;
    let strangers =
        vec![(group("other"), other), (group("kept"), kept.next().unwrap()), (group("none"), kept)];
    let after = beat(strangers).await;
    assert_eq!(after.revision, before.revision, "what is not its own is not even proposed");

    let after = beat(vec![(group("lost"), lost)]).await;
    assert!(after.revision > before.revision);
    let held = until_done(|| leader.session(mine)).await.tenures;
    let held: Vec<_> = held.iter().map(|tenure| tenure.group.as_str()).collect();
    assert_eq!(held, ["kept"]);
    let foreign = group("other");
    let office = until_done(|| follower.leader(&foreign, Consistency::Linearizable)).await;
    assert_eq!((office.state, office.term), (OfficeState::Leading, other));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loser_is_told_to_come_back_within_the_bounds_of_its_group() {
    let cluster = Cluster::start(3, 1000).await;
    let (leader, follower) = leader_and_follower(&cluster).await;
    let group = Group::new("billing").unwrap();
    let policy = Policy { retry_ms_min: 77_001, retry_ms_max: Some(77_009), ..Policy::default() };
    until_done(|| leader.put_policy(&group, Some(policy.clone()), None)).await;
    until_done(|| leader.campaign(bid(session(7), "billing"))).await.elected.unwrap();
    for store in [&leader, &follower] {
        for number in 10..20 {
            let session = CampaignSession::Passing(session(number));
            let lost = until_done(|| {
                store.campaign(Campaign { session, ..bid(self::session(1), "billing") })
            })
            .await;
            assert_eq!(lost.elected, None);
            let pause = lost.retry_after.unwrap().as_millis();
            assert!((77_001..=77_009).contains(&pause), "{pause} ms");
        }
    }
    cluster.end().await;
}
