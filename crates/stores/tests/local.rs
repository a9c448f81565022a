//! The local store where it goes beyond the contract: waiting, being dropped, shutting down.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use common::{bid, campaign, group, leader, reign, secret, waiting, win};
use regent_election::store::{CampaignSession, Heartbeat, Level, Scope, Store, StoreError};
use regent_election::{Policy, Settings, Term};
use regent_stores::{LocalError, LocalStore, Options, open_url};

#[tokio::test]
async fn shutting_down_ends_watches_and_waiting_campaigns_and_refuses_what_comes_later() {
    let store = Arc::new(LocalStore::memory().unwrap());
    win(&store, "alice", "billing", secret()).await;
    let mut watch = store.watch(Scope::Prefix(String::new()), None).await.unwrap();
    let own = secret();
    let bids = [CampaignSession::Own(own), CampaignSession::Passing(secret())];
    let waiters = bids.map(|session| {
        let store = Arc::clone(&store);
        let bid = waiting(bid("bob", "billing", session, 60_000));
        tokio::spawn(async move { store.campaign(bid).await })
    });
    while store.group(&group("billing")).await.unwrap().standbys_count < 2 {
        tokio::task::yield_now().await;
    }
    store.shut_down().await;
    for waiter in waiters {
        let answer = waiter.await.unwrap().unwrap();
        assert!(answer.elected.is_none(), "{answer:?}");
    }
    assert_eq!(watch.next().await, None);
    for refused in [
        store.ready().await,
        store.close(own).await,
        campaign(&store, "bob", "billing", own).await.map(|_| ()),
        store.watch(Scope::Prefix(String::new()), None).await.map(|_| ()),
    ] {
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
    store.shut_down().await;
}

#[tokio::test]
async fn a_dropped_campaign_that_had_won_unheard_gives_the_office_back() {
    let place = tempfile::tempdir().unwrap();
    let store = LocalStore::open(place.path()).unwrap();
    let passing = bid("alice", "billing", CampaignSession::Passing(secret()), 60_000);
    let mut future = store.campaign(passing);
    // One poll applies the campaign; its answer waits for the disk and is never taken.
    let first = std::future::poll_fn(|context| {
        std::task::Poll::Ready(future.as_mut().poll(context).is_ready())
    });
    let answered = first.await;
    drop(future);
    let office = leader(&store, "billing").await;
    assert_eq!(office.leader.is_some(), answered, "{office:?}");
}

#[tokio::test]
async fn a_passing_sessions_wait_ends_well_before_its_ttl() {
    let store = LocalStore::memory().unwrap();
    win(&store, "alice", "billing", secret()).await;
    let (ttl_ms, mark) = (3_000, secret());
    store.campaign(bid("mark", "other", CampaignSession::Own(mark), ttl_ms)).await.unwrap();
    let passing = waiting(bid("bob", "billing", CampaignSession::Passing(secret()), ttl_ms));
    let answer = store.campaign(passing).await.unwrap();
    assert!(answer.elected.is_none() && !answer.standing, "{answer:?}");
    // A session of the same ttl, opened before, has not even expired.
    store.session(mark).await.unwrap();
}

#[tokio::test]
async fn a_waiting_campaign_ends_when_it_can_no_longer_win() {
    let store = Arc::new(LocalStore::memory().unwrap());
    win(&store, "alice", "billing", secret()).await;
    let session = secret();
    let waiter = tokio::spawn({
        let store = Arc::clone(&store);
        let bid = waiting(bid("bob", "billing", CampaignSession::Own(session), 60_000));
        async move { store.campaign(bid).await }
    });
    while store.group(&group("billing")).await.unwrap().standbys_count == 0 {
        tokio::task::yield_now().await;
    }
    let only_alice = "alice".parse().unwrap();
    let policy = Policy { allow: vec![only_alice], ..Policy::default() };
    store.put_policy(&group("billing"), Some(policy), None).await.unwrap();
    let answer = waiter.await.unwrap().unwrap();
    assert!(answer.elected.is_none() && !answer.standing, "{answer:?}");
    assert_eq!(answer.session, Some(session), "its session is its own and lives on");
}

#[tokio::test]
async fn a_heartbeat_resigns_what_it_disowns_of_its_own_and_writes_nothing_for_the_rest() {
    let store = LocalStore::memory().unwrap();
    let (alice, bob) = (secret(), secret());
    let own = win(&store, "alice", "billing", alice).await;
    let others = win(&store, "bob", "search", bob).await;
    let later = Term::new(own.get() + 1).unwrap();
    let before = store.census().await.unwrap().revision;
    let foreign = [("search", others), ("nowhere", own), ("billing", later)];
    let disowned: Vec<_> =
        foreign.into_iter().cycle().take(300).map(|(name, term)| (group(name), term)).collect();
    let beat = |disowned| Heartbeat { session: alice, sequence: None, disowned, beliefs: None };
    store.heartbeat(beat(disowned)).await.unwrap();
    assert_eq!(store.census().await.unwrap().revision, before);
    assert_eq!(leader(&store, "search").await.term, others);
    store.heartbeat(beat(vec![(group("billing"), own)])).await.unwrap();
    assert_eq!(leader(&store, "billing").await.leader, None);
}

#[tokio::test]
async fn settings_hold_from_the_opening_on_and_impossible_ones_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings { auto_create: false, ..Settings::default() };
    let with = |settings| Options { settings: Some(settings), ..Options::default() };
    let store = LocalStore::open_with(place.path(), with(settings)).unwrap();
    let refused = campaign(&store, "alice", "billing", secret()).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    drop(store);
    // None leaves what holds.
    let store = LocalStore::open(place.path()).unwrap();
    assert!(campaign(&store, "alice", "billing", secret()).await.is_err());
    drop(store);
    let store = LocalStore::open_with(place.path(), with(Settings::default())).unwrap();
    win(&store, "alice", "billing", secret()).await;
    drop(store);
    let absurd = Settings { ttl_ms_ceiling: 1, ..Settings::default() };
    let error = LocalStore::open_with(place.path(), with(absurd)).unwrap_err();
    assert!(matches!(error, LocalError::Settings(_)), "{error}");
}

#[tokio::test]
async fn a_store_opened_by_url_says_what_it_is() {
    let place = tempfile::tempdir().unwrap();
    let memory = open_url("memory:").unwrap().describe();
    assert_eq!((memory.name, memory.level), ("memory", Level::BestEffort));
    let url = format!("local:{}", place.path().join("data").display());
    let local = open_url(&url).unwrap().describe();
    assert_eq!((local.name, local.level), ("local", Level::Strict));
    assert!(local.caveat.is_some_and(|caveat| caveat.contains("one ttl")));
    let url = format!("file://{}", place.path().join("entries").display());
    let file = open_url(&url).unwrap().describe();
    assert_eq!((file.name, file.level), ("file", Level::Strict));
    assert!(open_url("zebra://host").is_err());
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_an_error_and_not_a_panic() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let error = LocalStore::open(file.join("data")).unwrap_err().to_string();
    assert!(error.starts_with("cannot make"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_the_disk_and_all_are_answered() {
    let place = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(place.path()).unwrap());
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (name, session) = (format!("group-{number}"), secret());
                for _ in 0..10 {
                    reign(&store, &name, session).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.census().await.unwrap().revision.0, 64 * 20);
}
