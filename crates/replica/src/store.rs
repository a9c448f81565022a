//! The Store port over a replica: each method is one request to the replica's own core.
//!
//! Everything is answered by this process's replica, whoever leads the log: it has applied what it
//! answers from. Watches are served from what it has applied, too, and resume on any other replica.
//!
//! Secrets of sessions end here: the core, its log, its snapshots and the other replicas know a session by a
//! digest of its secret, so that neither a disk, a backup nor a peer gives one away.

use async_trait::async_trait;
use regent_clock::SystemTime;
use regent_election::access::AccessView;
use regent_election::state::{Query, Question, View};
use regent_election::store::{
    Census, Consistency, Description, Done, HeartbeatView, Level, Scope, Store, StoreError,
    StoreResult, Time, Watch,
};
use regent_election::watch::Hub;
use regent_election::{Command, Cursor, Digests, Group, RequestId, SessionId, Settings, Term};

use crate::core::{Role, hold_refusal, removed};
use crate::handle::Handle;
use crate::io::{Request, Response};

/// A store served by one replica of a cluster.
#[derive(Clone, Debug)]
pub struct ReplicaStore {
    handle: Handle,
    hub: Hub,
    place: String,
}

impl ReplicaStore {
    /// The store behind a running replica.
    #[must_use]
    pub const fn new(handle: Handle, hub: Hub, place: String) -> Self {
        Self { handle, hub, place }
    }

    /// The replica itself, for operators.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes these hold for the whole store.
    ///
    /// # Errors
    /// If the rules refuse them, or nobody leads.
    pub async fn put_settings(&self, settings: Settings) -> StoreResult<()> {
        let command = Command::PutSettings { settings: Box::new(settings) };
        self.submit(command, None, None).await.map(drop)
    }

    /// Waits until everything is applied that was committed when this replica started, and says whether it is. A replica
    /// begins with its last snapshot: who may do what may have changed since.
    async fn catch_up(&self) -> bool {
        let query = Query::Access(None);
        let read = self.handle.ask(Request::Read { query, linearizable: true }).await;
        let is_current = matches!(read, Ok(Response::View { .. }));
        if is_current {
            self.handle.access().catch_up();
        }
        is_current
    }
}

fn unexpected(response: &Response) -> StoreError {
    StoreError::Corrupt(format!("the replica answered something else: {response:?}"))
}

#[async_trait]
impl Store for ReplicaStore {
    fn describe(&self) -> Description {
        let voters = self.handle.status().voters.len();
        Description {
            name: "replica",
            place: self.place.clone(),
            level: Level::Strict,
            caveat: match (self.handle.is_witness(), voters) {
                (true, _) => Some("a witness: it votes, keeps no state and serves no clients".into()),
                (false, 0) => Some("not yet a member of its cluster: add it with `regent cluster add`".into()),
                (false, 1) => Some("one replica and one disk: a restart costs its outage plus one ttl before a lost leader is succeeded".into()),
                (false, _) => None,
            },
        }
    }

    fn time(&self) -> &dyn Time {
        &SystemTime
    }

    async fn ready(&self) -> StoreResult<()> {
        self.read(Query::Census, Consistency::Linearizable).await?;
        let status = self.handle.status();
        if let Some(left) = status.grants_paused_for {
            return Err(hold_refusal(left));
        }
        if status.role == Role::Leader && !status.has_room {
            let why = "the disk of the Raft leader is full: clients' changes are refused".into();
            return Err(StoreError::Unavailable { why, retry_after: None });
        }
        Ok(())
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        // A command and its question name the same session, which is digested once.
        let mut digests = Digests::default();
        let command = command.with_digest(&mut digests);
        let query = then.map(|query| query.with_digest(&mut digests));
        match self.handle.ask(Request::Submit { command, request, query }).await? {
            Response::Applied { answer, view, revision } => {
                let revision = Some(revision);
                Ok(Done { answer: answer?, view: view.transpose()?, revision })
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        let (known, tenure) = (session.digest(), proves.clone());
        match self.handle.ask(Request::Heartbeat { session: known, sequence, tenure }).await? {
            Response::Heartbeat { ttl_ms, epoch, revision, must_accept } => match proves {
                Some((group, term)) if must_accept => {
                    let store: &dyn Store = self;
                    store.accept(&group, session, term, None).await
                }
                Some(_) | None => Ok(HeartbeatView { ttl_ms, epoch, revision }),
            },
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        let linearizable = consistency == Consistency::Linearizable;
        // Asked with every request, also of those who may do nothing.
        if query == Query::Access(None) && !linearizable && !self.handle.is_witness() {
            let live = self.handle.access();
            let may_be_old = !(live.has_caught_up() || Box::pin(self.catch_up()).await);
            let (table, live) = (live.table(), Some(live.clone()));
            return Ok(View::Access(AccessView { table, session: None, may_be_old, live }));
        }
        let query = query.with_digest(&mut Digests::default());
        match self.handle.ask(Request::Read { query, linearizable }).await? {
            // The core serves no watches, so it does not know how many there are.
            Response::View { view: View::Census(census), .. } => {
                Ok(View::Census(Census { watchers: self.hub.watchers() as u64, ..census }))
            }
            Response::View { view, .. } => Ok(view),
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let status = self.handle.status();
        if let Some(members) = &status.removed_from {
            let why = removed(status.id, members);
            return Err(StoreError::Unavailable { why, retry_after: None });
        }
        let replay = match (&scope, cursor) {
            (Scope::Group(group), Some(cursor)) => {
                let store: &dyn Store = self;
                store.ask(Question::replay(group.clone(), cursor), Consistency::Stale).await?
            }
            (Scope::Group(_) | Scope::Groups(_) | Scope::Prefix(_) | Scope::Turn(_), _) => None,
        };
        Ok(Box::new(self.hub.subscribe(scope, cursor, replay)))
    }

    async fn shut_down(&self) {
        self.hub.shut_down();
        self.handle.shut_down().await;
    }
}
