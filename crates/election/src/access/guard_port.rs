//! The Store port of a guard: each method judges, and passes on what is allowed.

use std::future::Future;
use std::pin::Pin;

use async_trait::async_trait;

use super::guard::{Guarded, GuardedStore};
use super::guarded_watch::GuardedWatch;
use super::{Caller, Extent, Right};
use crate::command::Command;
use crate::name::{Group, RequestId, SessionId};
use crate::outcome::Refusal;
use crate::state::{Query, View};
use crate::store::{
    Consistency, Description, Done, HeartbeatView, Scope, Store, StoreError, StoreResult, Time,
    Watch,
};
use crate::term::{Cursor, Term};

/// The answer of a store, as it is awaited.
type Answering<'a, T> = Pin<Box<dyn Future<Output = StoreResult<T>> + Send + 'a>>;

/// Where a command needs its right.
fn extent(command: &Command) -> Extent<'_> {
    match (command.group(), command.right()) {
        (Some(group), _) => Extent::Group(group),
        (None, Right::Stand) => Extent::SomeGroup,
        (None, _) => Extent::Cluster,
    }
}

/// What is judged here before the store is asked, where the table that is shown does not tell.
impl GuardedStore {
    async fn submit_judged(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        // Giving up waits for nothing here: a campaign that is dropped polls this only once.
        if command.gives_up() {
            if self.is_over {
                self.check_own(command.session()).await?;
            }
        } else {
            let (extent, right) = (extent(&command), command.right());
            let now = self.guarded.access_now().await?;
            if self.guarded.caller.check(&now.table, right, extent).is_err() {
                self.check(right, extent).await?;
            }
        }
        self.submit_as_caller(command, request, then).await
    }

    fn submit_as_caller(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> Answering<'_, Done> {
        let Guarded { inner, caller: Caller { who, token, .. }, .. } = &*self.guarded;
        inner.submit(command.on_behalf_of(who.clone(), *token), request, then)
    }

    async fn read_judged(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        match &query {
            Query::Groups { prefix, after, count } => {
                let page = self.groups(prefix, after.clone(), *count, consistency).await?;
                return Ok(View::Groups(page));
            }
            // Like a list, it shows what may be seen.
            Query::Leaders(groups) => {
                let table = self.guarded.table().await?;
                let caller = &self.guarded.caller;
                caller.check(&table, Right::Observe, Extent::SomeGroup)?;
                let is_seen = |group: &&Group| caller.may_observe(&table, group);
                let seen = groups.iter().filter(is_seen).cloned().collect();
                return self.guarded.inner.read(Query::Leaders(seen), consistency).await;
            }
            Query::Session(session) | Query::Heartbeat(session) => {
                self.check_session(*session, None).await?;
            }
            // A campaign looks whether its session is promoted. One that is gone has nothing to hide.
            Query::Candidacy { group, session, .. } => {
                match self.check_session(*session, Some(group)).await {
                    Err(StoreError::Refused(Refusal::SessionUnknown)) => {
                        self.check(Right::Stand, Extent::Group(group)).await?;
                    }
                    other => other?,
                }
            }
            Query::Leader(group)
            | Query::Group(group)
            | Query::History(group)
            | Query::Fences { group, .. }
            | Query::Replay(group, _) => self.check(Right::Observe, Extent::Group(group)).await?,
            Query::Census => self.check(Right::Observe, Extent::SomeGroup).await?,
            Query::Offices(_) => self.check(Right::Observe, Extent::Cluster).await?,
            Query::Access(_) | Query::Shares => {
                self.check(Right::Administer, Extent::Cluster).await?
            }
        }
        self.guarded.inner.read(query, consistency).await
    }

    /// Whether a question may be asked by the table that is shown. A no is not the last word.
    fn is_question_allowed(&self, query: &Query) -> bool {
        match query {
            Query::Session(session) | Query::Heartbeat(session) => {
                self.guarded.is_session_allowed(*session, None)
            }
            Query::Candidacy { group, session, .. } => {
                self.guarded.is_session_allowed(*session, Some(group))
            }
            Query::Leader(group)
            | Query::Group(group)
            | Query::History(group)
            | Query::Fences { group, .. }
            | Query::Replay(group, _) => {
                self.guarded.is_allowed(Right::Observe, Extent::Group(group))
            }
            Query::Census => self.guarded.is_allowed(Right::Observe, Extent::SomeGroup),
            Query::Offices(_) => self.guarded.is_allowed(Right::Observe, Extent::Cluster),
            // Their answers are filtered.
            Query::Groups { .. } | Query::Leaders(_) => false,
            Query::Access(_) | Query::Shares => {
                self.guarded.is_allowed(Right::Administer, Extent::Cluster)
            }
        }
    }
}

#[async_trait]
impl Store for GuardedStore {
    fn describe(&self) -> Description {
        self.guarded.inner.describe()
    }

    fn time(&self) -> &dyn Time {
        self.guarded.inner.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.guarded.inner.ready().await
    }

    /// What is read after a command is about its own group or session, so whoever may have the command applied may
    /// read it: every role observes.
    ///
    /// This and the next two are not `async`, so that a request that is allowed at once costs no future of its own.
    fn submit<'life0, 'async_trait>(
        &'life0 self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> Answering<'async_trait, Done>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let is_judged = if command.gives_up() {
            !self.is_over
        } else {
            self.guarded.is_allowed(command.right(), extent(&command))
        };
        if is_judged {
            self.submit_as_caller(command, request, then)
        } else {
            Box::pin(self.submit_judged(command, request, then))
        }
    }

    fn count_heartbeat<'life0, 'async_trait>(
        &'life0 self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> Answering<'async_trait, HeartbeatView>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let inner = &self.guarded.inner;
        let group = proves.as_ref().map(|(group, _)| group);
        if self.guarded.is_session_allowed(session, group) {
            return inner.count_heartbeat(session, sequence, proves);
        }
        Box::pin(async move {
            self.check_session(session, proves.as_ref().map(|(group, _)| group)).await?;
            inner.count_heartbeat(session, sequence, proves).await
        })
    }

    fn read<'life0, 'async_trait>(
        &'life0 self,
        query: Query,
        consistency: Consistency,
    ) -> Answering<'async_trait, View>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        if self.is_question_allowed(&query) {
            self.guarded.inner.read(query, consistency)
        } else {
            Box::pin(self.read_judged(query, consistency))
        }
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let table = self.guarded.table().await?;
        self.guarded.caller.check_watch(&table, &scope)?;
        let inner = self.guarded.inner.watch(scope.clone(), cursor).await?;
        Ok(Box::new(GuardedWatch::new(inner, self.clone(), scope)))
    }

    /// Callers do not end stores.
    async fn shut_down(&self) {}
}
