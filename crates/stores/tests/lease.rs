//! The contract of stores, kept by the lease over the register in memory: with sessions timed by those
//! who watch, and by the server. Two instances share the entries, as two processes would.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::contract::{Abilities, CaseResult, Harness, cases};
use regent_election::store::{Campaign, CampaignSession, Store};
use regent_election::{Group, Metadata, Moment, Node, SessionId};
use regent_stores::LeaseStore;
use regent_stores::register::memory::MemoryRegister;
use regent_stores::time::SystemTime;

struct Lease {
    stores: [Arc<LeaseStore>; 2],
    is_servers: bool,
}

impl Lease {
    fn over(register: &MemoryRegister, is_servers: bool) -> Self {
        let store = || Arc::new(LeaseStore::new(Arc::new(register.clone())));
        Self { stores: [store(), store()], is_servers }
    }
}

#[async_trait]
impl Harness for Lease {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.stores[0]) as Arc<dyn Store>
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::clone(&self.stores[1]) as Arc<dyn Store>
    }

    async fn sleep(&self, for_how_long: Duration) {
        tokio::time::sleep(for_how_long).await;
    }

    fn now(&self) -> Moment {
        regent_clock::now()
    }

    fn unique(&self) -> u128 {
        let half = || u128::from(getrandom::u64().expect("the system has random numbers"));
        half() << 64 | half()
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            ids_span_groups: false,
            orders_across_groups: false,
            knows_silence: !self.is_servers,
            ..Abilities::default()
        }
    }
}

/// A register keeps neither bindings nor tokens.
const ACCESS: &[&str] = &[
    "bindings_are_replaced_only_from_the_version_that_was_read",
    "a_token_is_kept_until_it_is_revoked_and_never_changes_hands",
    "a_principal_acts_only_where_it_is_bound_and_under_its_own_name",
    "a_session_serves_only_the_principal_that_opened_it",
    "a_principal_that_may_no_longer_stand_is_told_to_stop_and_can_still_resign",
    "what_needs_two_principals_is_done_when_another_one_asks_for_the_same",
    "lists_and_watches_show_only_groups_that_may_be_observed",
];

/// Runs all cases at once, and breaks with a table of those that do not hold or were skipped unasked.
async fn holds(harness: Lease, skipped: &[&str]) {
    let harness = Arc::new(harness);
    let running: Vec<_> = cases()
        .into_iter()
        .map(|case| {
            let harness = Arc::clone(&harness) as Arc<dyn Harness>;
            (case.name, tokio::spawn(async move { case.run(harness).await }))
        })
        .collect();
    let (mut broken, mut left_out) = (Vec::new(), Vec::new());
    for (name, verdict) in running {
        match verdict.await.expect("a case panicked") {
            CaseResult::Held => {}
            CaseResult::Skipped(_) => left_out.push(name),
            CaseResult::Broken(why) => broken.push(format!("{name}: {why}")),
        }
    }
    for store in &harness.stores {
        store.shut_down().await;
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    assert_eq!(left_out, skipped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_timed_by_those_who_watch_keeps_the_contract() {
    let register = MemoryRegister::new();
    let skipped = [&["a_request_id_serves_one_request"], ACCESS].concat();
    holds(Lease::over(&register, false), &skipped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_timed_by_the_server_keeps_the_contract() {
    let register = MemoryRegister::with_sessions(SystemTime::shared());
    let skipped = [
        "a_transfer_that_cannot_be_leaves_the_leader_in_office",
        "an_office_nobody_audible_stood_for_is_filled_when_one_is_heard",
        "every_office_that_waited_for_a_silent_standby_is_filled_when_it_is_heard",
        "a_change_of_policy_promotes_no_silent_standby",
        "a_request_id_serves_one_request",
    ];
    holds(Lease::over(&register, true), &[&skipped, ACCESS].concat()).await;
}

fn bid(node: &str, session: u128, ttl_ms: u64, wait: Option<Duration>) -> Campaign {
    Campaign {
        group: Group::new("billing").unwrap(),
        node: Node::new(node).unwrap(),
        session: CampaignSession::Own(SessionId::new(session).unwrap()),
        ttl_ms: Some(ttl_ms),
        wait,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

/// A session has a runtime of its own, which ends with it. What the store watches for others goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_watched_on_when_whoever_asked_for_it_first_has_gone() {
    let register = MemoryRegister::new();
    let store: Arc<dyn Store> = Arc::new(LeaseStore::new(Arc::new(register)));
    let elsewhere = Arc::clone(&store);
    let stood = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            elsewhere.campaign(bid("a", 1, 2_000, None)).await.unwrap();
            elsewhere.campaign(bid("b", 2, 60_000, None)).await.unwrap()
        })
    });
    assert_eq!(stood.await.unwrap().elected, None);
    // The leader falls silent, and only this process is left to notice.
    let won = bid("b", 2, 60_000, Some(Duration::from_secs(60)));
    let won = tokio::time::timeout(Duration::from_secs(60), store.campaign(won)).await;
    assert!(won.expect("somebody ends the silent leader").unwrap().elected.is_some());
    store.shut_down().await;
}
