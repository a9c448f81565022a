//! The memory store where it goes beyond the contract: waiting, being dropped, shutting down.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::Arc;

use async_trait::async_trait;
use common::{bid, campaign, group, leader, memory, reign, secret, waiting, win};
use regent_election::access::{
    Binding, Caller, GuardedStore, Role, SecretDigest, TokenId, TokenLabel,
};
use regent_election::state::{Query, View};
use regent_election::store::{
    CampaignSession, Consistency, Description, Done, Heartbeat, HeartbeatView, Level, NewToken,
    Scope, StepDown, Store, StoreError, StoreResult, Time, Watch,
};
use regent_election::{
    Command, Cursor, Group, Policy, Reason, Refusal, RequestId, SessionId, Settings, Term,
};
use regent_stores::{MemoryError, MemoryOptions, MemoryStore, open_url};

/// A store in which an administrator ends a tenure just before a ttl is changed.
#[derive(Debug)]
struct Interrupted(Arc<dyn Store>);

#[async_trait]
impl Store for Interrupted {
    fn describe(&self) -> Description {
        self.0.describe()
    }

    fn time(&self) -> &dyn Time {
        self.0.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.0.ready().await
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        if matches!(command, Command::ChangeTtl { .. }) {
            let reason = Reason::new("maintenance").unwrap();
            let group = group("billing");
            let step_down = StepDown { group, reason, to: None, immediate: false, request: None };
            self.0.step_down(step_down).await.unwrap();
        }
        self.0.submit(command, request, then).await
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.0.count_heartbeat(session, sequence, proves).await
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        self.0.read(query, consistency).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.0.watch(scope, cursor).await
    }

    async fn shut_down(&self) {
        self.0.shut_down().await;
    }
}

/// S1, S4: the ending waits for the old ttl, so nobody may count on the new one.
#[tokio::test]
async fn a_renewal_with_a_longer_ttl_that_meets_a_step_down_is_refused() {
    let store: Arc<dyn Store> = Arc::new(Interrupted(memory()));
    let session = secret();
    let term = win(&*store, "alice", "billing", session).await;
    let renewed = store.renew(&group("billing"), session, term, Some(60_000)).await;
    let is_ending = |refusal: &Refusal| matches!(refusal, Refusal::TenureEnding { .. });
    assert!(matches!(&renewed, Err(StoreError::Refused(why)) if is_ending(why)), "{renewed:?}");
}

/// S14: what an older copy of a process declares lost is still held by the newer one.
#[tokio::test]
async fn a_heartbeat_with_an_old_number_resigns_nothing() {
    let store = memory();
    let session = secret();
    let term = win(&*store, "alice", "billing", session).await;
    let heartbeat =
        |number, disowned| Heartbeat { session, sequence: Some(number), disowned, beliefs: None };
    store.heartbeat(heartbeat(7, Vec::new())).await.unwrap();
    let late = store.heartbeat(heartbeat(3, vec![(group("billing"), term)])).await;
    let is_late = |refusal: &Refusal| matches!(refusal, Refusal::HeartbeatNotNewer { .. });
    assert!(matches!(&late, Err(StoreError::Refused(why)) if is_late(why)), "{late:?}");
    assert_eq!(leader(&*store, "billing").await.term, term);
    assert!(leader(&*store, "billing").await.leader.is_some());
}

#[tokio::test]
async fn shutting_down_ends_watches_and_waiting_campaigns_and_refuses_what_comes_later() {
    let store = memory();
    win(&*store, "alice", "billing", secret()).await;
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
        campaign(&*store, "bob", "billing", own).await.map(|_| ()),
        store.watch(Scope::Prefix(String::new()), None).await.map(|_| ()),
    ] {
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
    store.shut_down().await;
}

#[tokio::test]
async fn a_waiting_campaign_that_is_dropped_leaves_the_line_and_no_session() {
    let store = memory();
    win(&*store, "alice", "billing", secret()).await;
    let session = secret();
    let passing = waiting(bid("bob", "billing", CampaignSession::Passing(session), 60_000));
    let mut future = Box::pin(store.campaign(passing));
    // One poll applies the campaign, which then waits.
    let first = std::future::poll_fn(|context| {
        std::task::Poll::Ready(future.as_mut().poll(context).is_pending())
    });
    assert!(first.await);
    store.session(session).await.unwrap();
    drop(future);
    assert!(store.session(session).await.is_err());
    assert_eq!(store.group(&group("billing")).await.unwrap().standbys_count, 0);
}

#[tokio::test]
async fn a_passing_sessions_wait_ends_well_before_its_ttl() {
    let store = memory();
    win(&*store, "alice", "billing", secret()).await;
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
    let store = memory();
    win(&*store, "alice", "billing", secret()).await;
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
    let store = memory();
    let (alice, bob) = (secret(), secret());
    let own = win(&*store, "alice", "billing", alice).await;
    let others = win(&*store, "bob", "search", bob).await;
    let later = Term::new(own.get() + 1).unwrap();
    let before = store.census().await.unwrap().revision;
    let foreign = [("search", others), ("nowhere", own), ("billing", later)];
    let disowned: Vec<_> =
        foreign.into_iter().cycle().take(300).map(|(name, term)| (group(name), term)).collect();
    let heartbeat =
        |disowned| Heartbeat { session: alice, sequence: None, disowned, beliefs: None };
    store.heartbeat(heartbeat(disowned)).await.unwrap();
    assert_eq!(store.census().await.unwrap().revision, before);
    assert_eq!(leader(&*store, "search").await.term, others);
    store.heartbeat(heartbeat(vec![(group("billing"), own)])).await.unwrap();
    assert_eq!(leader(&*store, "billing").await.leader, None);
}

#[tokio::test]
async fn settings_hold_from_the_beginning_and_impossible_ones_are_refused() {
    let with = |settings| MemoryOptions { settings: Some(settings), ..MemoryOptions::default() };
    let strict = Settings { auto_create: false, ..Settings::default() };
    let store = MemoryStore::with(with(strict)).unwrap();
    let refused = campaign(&store, "alice", "billing", secret()).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let absurd = Settings { ttl_ms_ceiling: 1, ..Settings::default() };
    let error = MemoryStore::with(with(absurd)).unwrap_err();
    assert!(matches!(error, MemoryError::Settings(_)), "{error}");
}

#[tokio::test]
async fn a_store_opened_by_url_says_what_it_is() {
    let place = tempfile::tempdir().unwrap();
    let memory = open_url("memory:").unwrap().describe();
    assert_eq!((memory.name, memory.level), ("memory", Level::BestEffort));
    let url = format!("file://{}", place.path().join("entries").display());
    let file = open_url(&url).unwrap().describe();
    assert_eq!((file.name, file.level), ("file", Level::Strict));
    assert!(open_url("zebra://host").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_are_all_answered() {
    let store = memory();
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (name, session) = (format!("group-{number}"), secret());
                for _ in 0..10 {
                    reign(&*store, &name, session).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.census().await.unwrap().revision.0, 64 * 20);
}

/// Nothing happens in its groups, so only time can find out that nobody may see it any more.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_ends_with_its_token_and_with_the_right_to_watch() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let token = TokenId(7);
    let new = NewToken {
        token,
        digest: SecretDigest([7; 32]),
        principal: "user:onlooker".parse().unwrap(),
        expires_ms: None,
        label: TokenLabel::new("").unwrap(),
    };
    store.create_token(new).await.unwrap();
    let bind = async |groups: &str, version| {
        let binding = Binding {
            who: "user:onlooker".parse().unwrap(),
            role: Role::Observer,
            groups: vec![groups.parse().unwrap()],
            nodes: Vec::new(),
        };
        store.put_bindings(version, vec![binding]).await.unwrap();
    };
    bind("billing", 0).await;
    let caller = |token| {
        let who = "user:onlooker".parse().unwrap();
        let caller = Caller { who, token, voucher: None, wall_ms: || 1 };
        GuardedStore::new(Arc::clone(&store), caller, Arc::default())
    };
    let scope = || Scope::Group(group("billing"));
    let mut by_token = caller(Some(token)).watch(scope(), None).await.unwrap();
    let mut by_other = caller(None).watch(scope(), None).await.unwrap();
    let hour = std::time::Duration::from_secs(3600);
    // A reader that asks anew all the time, as one that sends bookmarks does.
    for _ in 0..20 {
        let short = std::time::Duration::from_millis(900);
        let item = tokio::time::timeout(short, by_token.next()).await;
        assert!(item.is_err(), "it is open: {item:?}");
    }
    store.revoke_token(token).await.unwrap();
    assert_eq!(tokio::time::timeout(hour, by_token.next()).await, Ok(None));
    let item = tokio::time::timeout(hour, by_other.next()).await;
    assert!(item.is_err(), "another credential of the same principal: {item:?}");
    bind("orders", 1).await;
    assert_eq!(tokio::time::timeout(hour, by_other.next()).await, Ok(None));
}

/// What a guard works out of the table that the store shows ends with that table, however often it was right.
#[tokio::test]
async fn a_guard_that_was_right_a_hundred_times_follows_the_next_change() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let new = |number, name: &str| NewToken {
        token: TokenId(number),
        digest: SecretDigest([7; 32]),
        principal: name.parse().unwrap(),
        expires_ms: None,
        label: TokenLabel::new("").unwrap(),
    };
    store.create_token(new(1, "node:a")).await.unwrap();
    let bind = async |role: Role, groups: &str, version| {
        let binding = Binding {
            who: "node:a".parse().unwrap(),
            role,
            groups: vec![groups.parse().unwrap()],
            nodes: vec!["self".parse().unwrap()],
        };
        store.put_bindings(version, vec![binding]).await.unwrap();
    };
    bind(Role::Participant, "billing", 0).await;
    let caller = |token| {
        let who = "node:a".parse().unwrap();
        let caller = Caller { who, token, voucher: None, wall_ms: || 1 };
        let guard = GuardedStore::new(Arc::clone(&store), caller, Arc::default());
        Arc::new(guard) as Arc<dyn Store>
    };
    let (guarded, without_token) = (caller(Some(TokenId(1))), caller(None));
    let (billing, session) = (group("billing"), secret());
    let won = win(&*guarded, "a", "billing", session).await;
    let beat = || Heartbeat { session, sequence: None, disowned: Vec::new(), beliefs: None };
    let denied = |no: &StoreError| matches!(no, StoreError::Refused(Refusal::Denied { .. }));
    let over = |no: &StoreError| matches!(no, StoreError::Refused(Refusal::CredentialOver { .. }));
    for _ in 0..100 {
        guarded.heartbeat(beat()).await.unwrap();
        guarded.renew(&billing, session, won, None).await.unwrap();
        guarded.leader(&billing, Consistency::Linearizable).await.unwrap();
        guarded.session(session).await.unwrap();
        without_token.heartbeat(beat()).await.unwrap();
    }
    // Another token of others changes nothing for this one.
    store.create_token(new(2, "node:b")).await.unwrap();
    guarded.renew(&billing, session, won, None).await.unwrap();

    bind(Role::Observer, "billing", 1).await;
    guarded.leader(&billing, Consistency::Linearizable).await.unwrap();
    let renewal = guarded.renew(&billing, session, won, None).await.unwrap_err();
    assert!(denied(&renewal), "{renewal}");
    assert!(denied(&guarded.heartbeat(beat()).await.unwrap_err()));
    bind(Role::Participant, "orders", 2).await;
    let hidden = guarded.leader(&billing, Consistency::Linearizable).await.unwrap_err();
    assert!(denied(&hidden), "{hidden}");
    guarded.heartbeat(beat()).await.unwrap();

    bind(Role::Participant, "*", 3).await;
    guarded.heartbeat(beat()).await.unwrap();
    store.revoke_token(TokenId(1)).await.unwrap();
    for ended in [
        guarded.heartbeat(beat()).await.map(drop),
        guarded.leader(&billing, Consistency::Stale).await.map(drop),
        campaign(&*guarded, "a", "billing", session).await.map(drop),
        guarded.session(session).await.map(drop),
    ] {
        assert!(over(ended.as_ref().unwrap_err()), "{ended:?}");
    }
    without_token.heartbeat(beat()).await.unwrap();
}
