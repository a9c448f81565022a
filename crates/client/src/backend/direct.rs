//! A store in this process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::participant::{Reply, Request};
use regent_election::store::{
    Consistency, GroupView, LeaderView, Scope, Store, StoreError, StoreResult, WatchItem,
};
use regent_election::{Group, Resource, Term};

use super::{Backend, ObservedLeader, ObservedLeaders};
use crate::limits::{RECONNECT_MAX, RECONNECT_MIN};

/// A store used without a service in between.
#[derive(Debug)]
pub struct DirectBackend {
    store: Arc<dyn Store>,
    request_timeout: Duration,
}

impl DirectBackend {
    /// This store, waiting so long for an answer.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, request_timeout: Duration) -> Self {
        Self { store, request_timeout }
    }

    /// The answer, or what it means that none came in time.
    async fn in_time<T>(
        &self,
        asked: impl Future<Output = StoreResult<T>>,
        late: impl FnOnce(String) -> StoreError,
    ) -> StoreResult<T> {
        tokio::time::timeout(self.request_timeout, asked).await.unwrap_or_else(|_| {
            let waited_ms = self.request_timeout.as_millis();
            Err(late(format!("the store did not answer within {waited_ms} ms")))
        })
    }

    /// The present state of what is watched.
    async fn present(&self, scope: &Scope) -> StoreResult<Vec<LeaderView>> {
        match scope {
            Scope::Group(group) | Scope::Turn(group) => {
                Ok(vec![self.leader(group, Consistency::Stale).await?])
            }
            Scope::Groups(groups) => {
                let mut views = Vec::with_capacity(groups.len());
                for group in groups {
                    views.push(self.leader(group, Consistency::Stale).await?);
                }
                Ok(views)
            }
            Scope::Prefix(prefix) => {
                let page = self.store.groups(prefix, None, GROUPS_PAGE_MAX).await?;
                Ok(page.groups)
            }
        }
    }

    /// One watch until it breaks. True means that nobody listens any more.
    async fn watch_once(&self, scope: &Scope, sights: &ObservedLeaders) -> StoreResult<bool> {
        // Watch first, read then: what happens between the two is told twice rather than never.
        let mut watch = self.store.watch(scope.clone(), None).await?;
        let mut is_to_read = true;
        loop {
            if is_to_read {
                let present = self.present(scope).await?;
                if !present.into_iter().all(|view| sights.tell(view.into())) {
                    return Ok(true);
                }
            }
            is_to_read = match watch.next().await {
                Some(WatchItem::Changed(event)) => {
                    let sight = ObservedLeader {
                        group: event.group,
                        leader: event.leader,
                        term: event.term,
                        metadata: event.metadata,
                        revision: event.revision,
                    };
                    if !sights.tell(sight) {
                        return Ok(true);
                    }
                    false
                }
                Some(WatchItem::Gap { .. }) => true,
                None => return Ok(false),
            };
        }
    }
}

#[async_trait]
impl Backend for DirectBackend {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        let asked = request.perform(&*self.store);
        self.in_time(asked, |why| StoreError::Uncertain { why }).await
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        let read = self.store.leader(group, consistency);
        self.in_time(read, |why| StoreError::Unavailable { why, retry_after: None }).await
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        let read = self.store.group(group);
        self.in_time(read, |why| StoreError::Unavailable { why, retry_after: None }).await
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let admitted = self.store.admit(group, resource, term);
        self.in_time(admitted, |why| StoreError::Uncertain { why }).await
    }

    async fn watch(&self, scope: Scope, sights: ObservedLeaders) {
        let mut pause = RECONNECT_MIN;
        loop {
            match self.watch_once(&scope, &sights).await {
                Ok(true) => return,
                Ok(false) => pause = RECONNECT_MIN,
                Err(error) => {
                    tracing::debug!(%error, "the watch broke and is opened again");
                    pause = (pause * 2).min(RECONNECT_MAX);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }
}
