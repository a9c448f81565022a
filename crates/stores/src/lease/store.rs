//! The Store port over a register.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::state::{Query, View};
use regent_election::store::{
    Consistency, Description, Done, HeartbeatView, OfficeState, Scope, Store, StoreError,
    StoreResult, Time, Watch,
};
use regent_election::{
    Answer, Command, Cursor, Digests, Group, Opening, Refusal, RequestId, SessionId, SessionNo,
    Term,
};

use super::office::{CommandOutcome, Own};
use super::record::GroupRecord;
use super::session::{self, SessionRecord};
use super::sessions::{check_same, check_ttl};
use super::turn::{Asker, LeaseRequest};
use super::{LeaseStore, Shared, watch};
use crate::register::{Key, Version};

/// How long shutting down waits for campaigns to leave.
const LEAVE_FOR: Duration = Duration::from_secs(2);
/// A session has no number in a register, only in the groups that know it.
const NO_NUMBER: SessionNo = SessionNo(0);

#[async_trait]
impl Store for LeaseStore {
    fn describe(&self) -> Description {
        self.shared.entries.register.describe()
    }

    fn time(&self) -> &dyn Time {
        &*self.shared.entries.time
    }

    async fn ready(&self) -> StoreResult<()> {
        self.shared.check_open()?;
        let loaded = self.shared.entries.register.load(&Key::setting("life")).await;
        loaded.map(|_| ()).map_err(super::entries::store_error)
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        let shared = &self.shared;
        match command {
            // What changes the entry of a session.
            Command::Open { session, node, ttl_ms } => {
                shared.check_open()?;
                check_ttl(ttl_ms)?;
                let opening = Opening { node, ttl_ms: Some(ttl_ms), passing: false };
                shared.touch(session.digest().get(), &opening, None, None).await?;
                shared.done(Answer::Session { session: NO_NUMBER, ttl_ms }, None, then).await
            }
            Command::Close { session } => {
                shared.close(session.digest()).await?;
                shared.done(Answer::Done, None, then).await
            }
            Command::ChangeTtl { session, ttl_ms } => {
                shared.change_ttl(session.digest(), ttl_ms).await?;
                shared.done(Answer::Done, None, then).await
            }
            // Every group's entry would have to be judged by one entry of bindings, in the same write.
            Command::PutBindings { .. }
            | Command::CreateToken { .. }
            | Command::RevokeToken { .. }
            | Command::As { .. } => Err(super::views::no_access()),
            // What changes the entry of a group.
            command => {
                let (group, CommandOutcome { answer, record, .. }) =
                    shared.apply(command, request).await?;
                shared.done(answer, Some((&group, &record)), then).await
            }
        }
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.shared.check_open()?;
        let session = session.digest();
        if let Some((group, term)) = proves {
            self.shared.prove(&group, session, term).await?;
        }
        let open = self.shared.heartbeat(session.get(), sequence, None).await?;
        Ok(self.shared.heartbeat_view(&open))
    }

    /// A stale read costs nothing less here, so it is a linearizable one; except for a campaign that
    /// waits, which looks at what was read last on its behalf.
    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        self.shared.check_open()?;
        self.shared.read(query, consistency).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.shared.check_open()?;
        watch::watch(&self.shared, scope, cursor).await
    }

    async fn shut_down(&self) {
        self.shared.close_down();
        let given_up_at = self.shared.entries.now() + LEAVE_FOR;
        while self.shared.waiters.load(Ordering::Acquire) > 0
            && self.shared.entries.now() < given_up_at
        {
            self.shared.entries.time.sleep(Duration::from_millis(5)).await;
        }
        self.shared.entries.register.shut_down().await;
    }
}

/// The group that a command is about, and the session that asks, as the store knows it. What only
/// drivers may ask for has none.
fn addressed(command: Command) -> StoreResult<(Group, Option<SessionId>, Command)> {
    let Some(group) = command.group().filter(|_| !command.is_for_drivers()).cloned() else {
        let what = "do what only a driver of its own state may ask for";
        return Err(StoreError::Unsupported { store: "a register", what });
    };
    let command = command.with_digest(&mut Digests::default());
    let session = command.session();
    Ok((group, session, command))
}

/// How a session that campaigns is opened, or is open already by its entry, and its ttl.
fn introduce(
    entry: Option<&(SessionRecord, Version)>,
    told: Option<Opening>,
) -> Result<(Opening, u64), Refusal> {
    match entry.map(|(record, _)| record.as_open()) {
        None => {
            let told = told.ok_or(Refusal::SessionUnknown)?;
            let ttl_ms = told.ttl_ms.unwrap_or(TTL_MS_DEFAULT);
            check_ttl(ttl_ms)?;
            Ok((Opening { ttl_ms: Some(ttl_ms), ..told }, ttl_ms))
        }
        Some(None) => Err(Refusal::SessionUnknown),
        Some(Some(open)) => {
            check_same(open, told.as_ref())?;
            let (node, ttl_ms) = (open.node.clone(), open.ttl_ms);
            Ok((Opening { node, ttl_ms: Some(ttl_ms), passing: open.passing }, ttl_ms))
        }
    }
}

/// Counts something that shutting down waits for.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Shared>);

impl Waiting {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.waiters.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Applies a command to the group that it is about.
    async fn apply(
        self: &Arc<Self>,
        command: Command,
        request: Option<RequestId>,
    ) -> StoreResult<(Group, CommandOutcome)> {
        self.check_open()?;
        let (group, session, mut command) = addressed(command)?;
        let Some(session) = session else {
            let is_move = matches!(command, Command::Move { .. });
            let wish = LeaseRequest { command, request, asker: None };
            let outcome = self.run(&group, Some(wish), &[], Own::Nothing).await?;
            // A step that was taken before may have been left alone with an ending that nobody times: all
            // who stood have gone where the group went.
            if is_move && outcome.record.state.waits().next().is_some() {
                self.follow_chore(&group);
            }
            return Ok((group, outcome));
        };
        let (node, ttl_ms, own) = if let Command::Campaign { opening, .. } = &mut command {
            // Not a look: whether the session is alive is found out when it is heard.
            let entry = self.entries.read_session(session.get()).await?;
            let (introduced, ttl_ms) = introduce(entry.as_ref(), opening.take())?;
            *opening = Some(introduced.clone());
            let node = introduced.node.clone();
            let entry = Box::new(entry);
            (node, ttl_ms, Own::Touch { session: session.get(), opening: introduced, entry })
        } else {
            let session::Open { node, ttl_ms, .. } = self.opened(session).await?;
            (node, ttl_ms, Own::Nothing)
        };
        let asker = Asker { session, node, ttl_ms };
        let wish = LeaseRequest { command, request, asker: Some(asker) };
        let outcome = self.run(&group, Some(wish), &[], own).await?;
        if matches!(outcome.answer, Answer::Standing { .. }) {
            self.follow_for(&group, session.get());
        }
        Ok((group, outcome))
    }

    /// The answer of a command, with what was asked to be read after it: from the entry as it was
    /// written, where the question is about its group.
    async fn done(
        self: &Arc<Self>,
        answer: Answer,
        written: Option<(&Group, &GroupRecord)>,
        then: Option<Query>,
    ) -> StoreResult<Done> {
        let Some(query) = then else {
            return Ok(Done { answer, view: None, revision: None });
        };
        let view = match (query, written) {
            (Query::Heartbeat(session), _) => {
                let beaten = self.heartbeat(session.digest().get(), None, None).await;
                beaten.map(|open| View::Heartbeat(self.heartbeat_view(&open)))
            }
            (query, Some((group, record))) if query.group() == Some(group) => {
                self.read_from(record, query, matches!(answer, Answer::Lost)).await
            }
            (query, _) => self.read(query, Consistency::Linearizable).await,
        };
        Ok(Done { answer, view: Some(view.map_err(StoreError::half_done)?), revision: None })
    }

    /// Ends a session, and takes it out of its groups. A task of its own does it: it takes its way even
    /// if the caller does not wait for it, and while the store is shutting down.
    async fn close(self: &Arc<Self>, session: SessionId) -> StoreResult<()> {
        let (shared, waiting) = (Arc::clone(self), Waiting::new(self));
        let closing = async move {
            let _waiting = waiting;
            for group in shared.end(session.get()).await? {
                let wish = LeaseRequest {
                    command: Command::Close { session },
                    request: None,
                    asker: None,
                };
                let closed = shared.run(&group, Some(wish), &[], Own::Nothing).await;
                closed.map_err(StoreError::half_done)?;
            }
            Ok(())
        };
        let runtime = self.runtime.clone().or_else(|| tokio::runtime::Handle::try_current().ok());
        // Outside of a runtime nothing can be written; the session then expires by itself.
        let Some(runtime) = runtime else { return closing.await };
        runtime.spawn(closing).await.unwrap_or_else(|_| {
            Err(StoreError::Uncertain { why: "the store's runtime has stopped".into() })
        })
    }

    /// Changes a session's ttl, with a sign of life.
    async fn change_ttl(self: &Arc<Self>, session: SessionId, ttl_ms: u64) -> StoreResult<()> {
        self.check_open()?;
        check_ttl(ttl_ms)?;
        let open = self.opened(session).await?;
        if open.ttl_ms != ttl_ms {
            self.check_policies(&open, session, ttl_ms).await?;
        }
        self.heartbeat(session.get(), None, Some(ttl_ms)).await.map(drop)
    }

    /// Whether every group that concerns a session allows this ttl.
    async fn check_policies(
        &self,
        open: &session::Open,
        session: SessionId,
        ttl_ms: u64,
    ) -> StoreResult<()> {
        for group in open.groups.keys() {
            let seen = self.entries.load(group).await?;
            let is_concerned = seen
                .record
                .state
                .session_summary(session)
                .is_some_and(|summary| summary.is_concerned);
            let policy = seen.record.state.policy(group);
            if is_concerned && !policy.fits(ttl_ms) {
                let (min, max) = (policy.ttl_ms_min, policy.ttl_ms_max);
                let group = Some(group.clone());
                return Err(Refusal::TtlOutOfBounds { group, ttl_ms, min, max }.into());
            }
        }
        Ok(())
    }

    /// Proves a tenure, and accepts an office to which the session was promoted.
    async fn prove(
        self: &Arc<Self>,
        group: &Group,
        session: SessionId,
        term: Term,
    ) -> StoreResult<()> {
        let open = self.opened(session).await?;
        let seen = self.entries.load(group).await?;
        let state = &seen.record.state;
        let is_holder = state.holder(group).is_some_and(|holder| {
            holder.term == term
                && holder.state == OfficeState::Leading
                && state.find_session(session) == Some(holder.session)
        });
        if is_holder {
            return Ok(());
        }
        // Accepts an office, or says what is wrong.
        let command = Command::Accept { group: group.clone(), session, term };
        let asker = Asker { session, node: open.node, ttl_ms: open.ttl_ms };
        let wish = LeaseRequest { command, request: None, asker: Some(asker) };
        self.run(group, Some(wish), &[], Own::Nothing).await.map(drop)
    }
}
