//! The in-memory store as a test wants it: shared by several servers, or changing after every read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use regent_election::state::{Query, View};
use regent_election::store::{
    Campaign, CampaignSession, Consistency, Description, Done, HeartbeatView, Open, Scope, Store,
    StoreResult, Time, Watch,
};
use regent_election::{Command, Cursor, Group, Metadata, Node, RequestId, SessionId, Term};
use regent_stores::MemoryStore;

/// A store that outlives the server over it.
#[derive(Debug)]
pub(crate) struct Restless {
    inner: Arc<MemoryStore>,
    /// How often the leader of group `b` was changed; none if it is left alone.
    changes: Option<AtomicU64>,
    /// Whether groups are read one after another, as over a register.
    one_by_one: bool,
}

impl Restless {
    /// The leader of group `b` changes after every read of a leader.
    pub(crate) fn new() -> Self {
        let inner = Arc::new(MemoryStore::new().unwrap());
        Self { inner, changes: Some(AtomicU64::new(0)), one_by_one: false }
    }

    /// The same, and it cannot read several groups at once.
    pub(crate) fn one_by_one() -> Self {
        Self { one_by_one: true, ..Self::new() }
    }

    /// Nothing changes by itself.
    pub(crate) const fn quiet(inner: Arc<MemoryStore>) -> Self {
        Self { inner, changes: None, one_by_one: false }
    }

    async fn change(&self, number: u64) {
        let session = |number: u64| SessionId::new(1000 + u128::from(number)).unwrap();
        let store: &dyn Store = &*self.inner;
        if number > 0 {
            store.close(session(number - 1)).await.unwrap();
        }
        let (node, session) = (Node::new("n").unwrap(), session(number));
        store.open(Open { node: node.clone(), ttl_ms: 60_000, session }).await.unwrap();
        let campaign = Campaign {
            group: Group::new("b").unwrap(),
            node,
            session: CampaignSession::Own(session),
            ttl_ms: None,
            wait: None,
            priority: 0,
            metadata: Metadata::NONE,
            request: None,
        };
        assert!(store.campaign(campaign).await.unwrap().elected.is_some());
    }
}

#[async_trait]
impl Store for Restless {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn time(&self) -> &dyn Time {
        self.inner.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        self.inner.submit(command, request, then).await
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.inner.count_heartbeat(session, sequence, proves).await
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        if let (true, Query::Leaders(groups)) = (self.one_by_one, &query) {
            let mut views = Vec::new();
            for group in groups {
                match Box::pin(self.read(Query::Leader(group.clone()), consistency)).await? {
                    View::Leader(view) => views.push(view),
                    other => panic!("{other:?}"),
                }
            }
            return Ok(View::Leaders(views));
        }
        let is_leader = matches!(query, Query::Leader(_) | Query::Leaders(_));
        let view = self.inner.read(query, consistency).await;
        if let Some(changes) = self.changes.as_ref().filter(|_| is_leader) {
            self.change(changes.fetch_add(1, Ordering::SeqCst)).await;
        }
        view
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.inner.watch(scope, cursor).await
    }

    /// The next server goes on with it.
    async fn shut_down(&self) {}
}
