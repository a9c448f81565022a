//! Short words for tests of the memory store.
#![allow(clippy::unwrap_used, dead_code, reason = "shared by tests, which may")]

use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Consistency, LeaderView, Store, StoreResult,
};
use regent_election::{Group, Metadata, Node, SessionId, Term};
use regent_stores::MemoryStore;

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new().unwrap())
}

pub(crate) fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

pub(crate) fn secret() -> SessionId {
    SessionId::new(u128::from(getrandom::u64().unwrap()) << 64 | 1).unwrap()
}

pub(crate) fn bid(node: &str, name: &str, session: CampaignSession, ttl_ms: u64) -> Campaign {
    Campaign {
        group: group(name),
        node: Node::new(node).unwrap(),
        session,
        ttl_ms: Some(ttl_ms),
        wait: None,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

pub(crate) fn waiting(campaign: Campaign) -> Campaign {
    Campaign { wait: Some(Duration::from_secs(30)), ..campaign }
}

pub(crate) async fn campaign(
    store: &dyn Store,
    node: &str,
    name: &str,
    session: SessionId,
) -> StoreResult<Campaigned> {
    store.campaign(bid(node, name, CampaignSession::Own(session), 10_000)).await
}

pub(crate) async fn win(store: &dyn Store, node: &str, name: &str, session: SessionId) -> Term {
    campaign(store, node, name, session).await.unwrap().elected.unwrap()
}

/// Wins and resigns: two entries, one term.
pub(crate) async fn reign(store: &dyn Store, name: &str, session: SessionId) -> Term {
    let term = win(store, "alice", name, session).await;
    store.resign(&group(name), session, term, None).await.unwrap();
    term
}

pub(crate) async fn leader(store: &dyn Store, name: &str) -> LeaderView {
    store.leader(&group(name), Consistency::Linearizable).await.unwrap()
}
