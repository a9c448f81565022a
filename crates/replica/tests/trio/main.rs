//! Real replicas on real disks and sockets, three in one process: the contract, failover, restarts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod attacks;
mod bench;
mod inbox;
mod members;
mod secure;
mod strangers;
#[path = "../../../tls/tests/common/trusting.rs"]
mod trusting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::contract::{CaseResult, Harness, cases};
use regent_election::store::{
    Campaign, CampaignSession, Consistency, Heartbeat, OfficeState, Open, Scope, Store, StoreError,
    Watch, WatchItem,
};
use regent_election::{Cursor, Event, Group, Moment, Node as Label, Policy, Revision, Term};
use regent_replica::ReplicaId;
use tokio::time::{Instant, sleep};

use bench::{Cluster, PATIENCE, bid, id, session, until_done};

struct Suite {
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    names: AtomicU64,
}

#[async_trait]
impl Harness for Suite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::clone(&self.other)
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

async fn keeps_the_contract(store: Arc<dyn Store>, other: Arc<dyn Store>) {
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
            CaseResult::Held => {}
            CaseResult::Skipped(why) => wrong.push(format!("{name}: skipped: {why}")),
            CaseResult::Broken(why) => wrong.push(format!("{name}: {why}")),
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
    let cluster = Cluster::start_calm(3, 1000).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).map(id).find(|replica| *replica != leader).unwrap();
    keeps_the_contract(cluster.store(leader), cluster.store(follower)).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_followers_keep_the_contract() {
    // So rare that a follower on a busy machine is served from the log: a snapshot would give it a gap.
    let cluster = Cluster::start_calm(3, 300).await;
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
async fn leader_and_follower(cluster: &Cluster) -> (Arc<dyn Store>, Arc<dyn Store>) {
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
    let heartbeat = |disowned: Vec<(Group, Term)>| {
        let follower = Arc::clone(&follower);
        let heartbeat = Heartbeat { session: mine, sequence: None, disowned, beliefs: None };
        until_done(move || {
            let (follower, heartbeat) = (Arc::clone(&follower), heartbeat.clone());
            async move { follower.heartbeat(heartbeat).await }
        })
    };

    let before = heartbeat(Vec::new()).await;
    let strangers =
        vec![(group("other"), other), (group("kept"), kept.next().unwrap()), (group("none"), kept)];
    let after = heartbeat(strangers).await;
    assert_eq!(after.revision, before.revision, "what is not its own is not even proposed");

    let after = heartbeat(vec![(group("lost"), lost)]).await;
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

async fn elect(store: &dyn Store, group: &str) -> Term {
    until_done(|| store.campaign(bid(session(7), group))).await.elected.unwrap()
}

async fn resign(store: &dyn Store, group: &str, term: Term) {
    let group = Group::new(group).unwrap();
    until_done(|| store.resign(&group, session(7), term, None)).await;
}

/// Takes the next change, and where the watch stands after it.
async fn next_change(watch: &mut Box<dyn Watch>) -> Cursor {
    let item = tokio::time::timeout(PATIENCE, watch.next()).await.expect("never silence");
    assert!(matches!(item, Some(WatchItem::Changed(_))), "{item:?}");
    watch.cursor()
}

/// Resumes a watch and takes what comes first.
async fn first_of(store: &dyn Store, scope: Scope, cursor: Cursor) -> WatchItem {
    let mut watch = until_done(|| store.watch(scope.clone(), Some(cursor))).await;
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("never silence").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumed_after_a_restart_misses_nothing_or_is_told_so() {
    let all = || Scope::Prefix(String::new());
    let quiet = || Scope::Group(Group::new("quiet").unwrap());
    // Whether a snapshot has taken the place of what was forgotten.
    for (snapshot_every, is_forgotten) in [(100_000, false), (10, true)] {
        let mut cluster = Cluster::start(1, snapshot_every).await;
        cluster.leader().await;
        let store = cluster.store(id(1));
        let mut watch = store.watch(all(), None).await.unwrap();
        let term = elect(&*store, "quiet").await;
        let at_own_change = next_change(&mut watch).await;
        elect(&*store, "other").await;
        let cursor = next_change(&mut watch).await;
        resign(&*store, "quiet", term).await;
        for _ in 0..20 {
            let term = elect(&*store, "busy").await;
            resign(&*store, "busy", term).await;
        }
        if is_forgotten {
            let until = Instant::now() + PATIENCE;
            while cluster.running[&id(1)].handle().status().snapshot < 20 {
                assert!(Instant::now() < until, "no snapshot was made");
                sleep(Duration::from_millis(5)).await;
            }
        }
        drop((store, watch));
        cluster.restart(id(1)).await;
        cluster.leader().await;

        let store = cluster.store(id(1));
        // Of all groups only so much is remembered as was applied since the snapshot.
        match (first_of(&*store, all(), cursor).await, is_forgotten) {
            (WatchItem::Changed(next), false) => assert!(is_resigned(&next, term), "{next:?}"),
            (WatchItem::Gap { at, .. }, true) => assert!(at.revision > cursor.revision),
            (other, _) => panic!("{other:?}"),
        }
        // One group's own history outlives the snapshot, and serves every cursor that does not
        // stand amid a revision in which the group itself changed.
        match first_of(&*store, quiet(), cursor).await {
            WatchItem::Changed(next) => assert!(is_resigned(&next, term), "{next:?}"),
            gap @ WatchItem::Gap { .. } => panic!("{gap:?}"),
        }
        match (first_of(&*store, quiet(), at_own_change).await, is_forgotten) {
            (WatchItem::Changed(next), _) => assert!(is_resigned(&next, term), "{next:?}"),
            // It may stand amid that revision, or after all of it; either way nothing is missed.
            (WatchItem::Gap { .. }, true) => {}
            (gap @ WatchItem::Gap { .. }, false) => panic!("{gap:?}"),
        }
        // A place that this replica has not applied yet is waited for, not forgotten.
        let ahead = Cursor { revision: Revision(cursor.revision.0 + 1_000), ..cursor };
        let mut future = store.watch(all(), Some(ahead)).await.unwrap();
        assert!(futures_now(future.next()).await.is_none(), "nothing older than its cursor");
        drop(future);
        cluster.end().await;
    }
}

fn is_resigned(event: &Event, term: Term) -> bool {
    event.group.as_str() == "quiet" && event.leader.is_none() && event.term == term
}

/// What a future gives at once.
async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
