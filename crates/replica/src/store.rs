//! The Store port over a replica: each verb is one or two requests to the replica's own core.
//!
//! Everything is answered by this process's replica, whoever leads the log: it has applied what it
//! answers from. Watches are served from what it has applied, too, and resume on any other replica.

use std::time::Duration;

use async_trait::async_trait;
use regent_election::state::{Query, View};
use regent_election::store::{
    Campaign, Campaigned, Census, Consistency, Description, FencesPage, GroupView, GroupsPage,
    Heard, Heartbeat, LeaderView, Level, Open, Scope, SessionView, StepDown, SteppedDown, Store,
    StoreError, StoreResult, Watch,
};
use regent_election::watch::Hub;
use regent_election::{
    Answer, Change, Command, Cursor, Finding, Group, Node as Label, Policy, Reason, RequestId,
    Resource, SessionId, Settings, Step, Term,
};

mod bid;

use bid::Bid;

use crate::handle::Handle;
use crate::io::{Request, Response};

/// A store served by one replica of a cluster.
#[derive(Clone, Debug)]
pub struct ReplicaStore {
    handle: Handle,
    hub: Hub,
    place: String,
}

/// What an applied change brought.
struct Done {
    answer: Answer,
    view: Option<View>,
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
        self.do_it(Command::PutSettings { settings: Box::new(settings) }, None).await
    }

    /// Asks the replica, unless it has no state to answer from.
    async fn ask(&self, request: Request) -> StoreResult<Response> {
        if self.handle.is_witness() {
            let why = "this replica is a witness: it votes and keeps no state; ask another".into();
            return Err(StoreError::Unavailable { why, retry_after: None });
        }
        self.handle.ask(request).await
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        query: Option<Query>,
    ) -> StoreResult<Done> {
        match self.ask(Request::Submit { command, request, query }).await? {
            Response::Applied { answer, view, .. } => {
                Ok(Done { answer: answer?, view: view.transpose()? })
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    async fn do_it(&self, command: Command, request: Option<RequestId>) -> StoreResult<()> {
        self.submit(command, request, None).await.map(|_| ())
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        let linearizable = consistency == Consistency::Linearizable;
        match self.ask(Request::Read { query, linearizable }).await? {
            Response::View { view, .. } => Ok(view),
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    async fn beat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        tenure: Option<(Group, Term)>,
    ) -> StoreResult<(Heard, bool)> {
        match self.ask(Request::Heartbeat { session, sequence, tenure }).await? {
            Response::Heard { ttl_ms, epoch, revision, must_accept } => {
                Ok((Heard { ttl_ms, epoch, revision }, must_accept))
            }
            Response::Error(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives back what the holder has declared lost.
    ///
    /// What is over already, or another's, is not the caller's to resign: a heartbeat that only says
    /// so writes nothing. This replica may be behind, so what the session holds is read anew.
    async fn resign_disowned(
        &self,
        session: SessionId,
        disowned: Vec<(Group, Term)>,
    ) -> StoreResult<()> {
        let held = self.session(session).await?.tenures;
        for (group, term) in disowned {
            if !held.iter().any(|tenure| tenure.group == group && tenure.term == term) {
                continue;
            }
            match self.do_it(Command::Resign { group, session, term }, None).await {
                // It may have ended since it was read.
                Ok(()) | Err(StoreError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn group_view(&self, group: &Group) -> StoreResult<GroupView> {
        match self.read(Query::Group(group.clone()), Consistency::Linearizable).await? {
            View::Group(view) => Ok(view),
            other => Err(misread(&other)),
        }
    }

    fn stepped_down(done: &Done) -> StoreResult<SteppedDown> {
        match done.answer {
            Answer::Done => Ok(SteppedDown::Over),
            Answer::Ending { within_ms } => {
                Ok(SteppedDown::Ending(Duration::from_millis(within_ms)))
            }
            Answer::Forced { overlap_possible_ms } => {
                Ok(SteppedDown::Forced(Duration::from_millis(overlap_possible_ms)))
            }
            Answer::Session { .. }
            | Answer::Elected { .. }
            | Answer::Standing { .. }
            | Answer::Lost
            | Answer::Overtaken => Err(StoreError::Corrupt(format!("{:?}", done.answer))),
        }
    }
}

fn unexpected(response: &Response) -> StoreError {
    StoreError::Corrupt(format!("the replica answered something else: {response:?}"))
}

fn misread(view: &View) -> StoreError {
    StoreError::Corrupt(format!("the replica read something else: {view:?}"))
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

    async fn ready(&self) -> StoreResult<()> {
        self.read(Query::Census, Consistency::Linearizable).await.map(|_| ())
    }

    async fn open(&self, open: Open) -> StoreResult<SessionView> {
        let Open { node, ttl_ms, session } = open;
        let command = Command::Open { session, node, ttl_ms };
        match self.submit(command, None, Some(Query::Session(session))).await?.view {
            Some(View::Session(view)) => Ok(view),
            other => Err(StoreError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<Heard> {
        let Heartbeat { session, sequence, disowned, beliefs: _ } = heartbeat;
        if !disowned.is_empty() {
            self.resign_disowned(session, disowned).await?;
        }
        Ok(self.beat(session, sequence, None).await?.0)
    }

    async fn session(&self, session: SessionId) -> StoreResult<SessionView> {
        match self.read(Query::Session(session), Consistency::Linearizable).await? {
            View::Session(view) => Ok(view),
            other => Err(misread(&other)),
        }
    }

    async fn close(&self, session: SessionId) -> StoreResult<()> {
        self.do_it(Command::Close { session }, None).await
    }

    async fn campaign(&self, campaign: Campaign) -> StoreResult<Campaigned> {
        Bid::run(self, campaign).await
    }

    async fn withdraw(
        &self,
        group: &Group,
        session: SessionId,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        self.do_it(Command::Withdraw { group: group.clone(), session }, request).await
    }

    async fn accept(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<Heard> {
        let command = Command::Accept { group: group.clone(), session, term };
        match self.submit(command, request, Some(Query::Heard(session))).await?.view {
            Some(View::Heard(heard)) => Ok(heard),
            other => Err(StoreError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn renew(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<Heard> {
        let (mut heard, must_accept) =
            self.beat(session, None, Some((group.clone(), term))).await?;
        if must_accept {
            heard = self.accept(group, session, term, None).await?;
        }
        if let Some(ttl_ms) = extend_by_ms
            && ttl_ms != heard.ttl_ms
        {
            self.do_it(Command::ChangeTtl { session, ttl_ms }, None).await?;
            heard.ttl_ms = ttl_ms;
        }
        Ok(heard)
    }

    async fn resign(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        self.do_it(Command::Resign { group: group.clone(), session, term }, request).await
    }

    async fn offer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Label,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let command = Command::Offer { group: group.clone(), session, term, to: to.clone() };
        self.do_it(command, request).await
    }

    async fn warm(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        self.do_it(Command::Warm { group: group.clone(), session, term }, request).await
    }

    async fn transfer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Label,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let command = Command::Transfer { group: group.clone(), session, term, to: to.clone() };
        self.do_it(command, request).await
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        match self.read(Query::Leader(group.clone()), consistency).await? {
            View::Leader(view) => Ok(view),
            other => Err(misread(&other)),
        }
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let replay = match (&scope, cursor) {
            (Scope::Group(group), Some(cursor)) => {
                let query = Query::Replay(group.clone(), cursor);
                match self.read(query, Consistency::Stale).await? {
                    View::Replay(replay) => replay,
                    other => return Err(misread(&other)),
                }
            }
            (Scope::Group(_) | Scope::Groups(_) | Scope::Prefix(_), _) => None,
        };
        Ok(Box::new(self.hub.subscribe(scope, cursor, replay)))
    }

    async fn step_down(&self, step_down: StepDown) -> StoreResult<SteppedDown> {
        let StepDown { group, reason, to, immediate, request } = step_down;
        let command = Command::StepDown { group, reason, to, immediate };
        Self::stepped_down(&self.submit(command, request, None).await?)
    }

    async fn put_policy(
        &self,
        group: &Group,
        policy: Option<Policy>,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::PutPolicy { group: group.clone(), policy: policy.map(Box::new) };
        match self.submit(command, request, Some(Query::Group(group.clone()))).await?.view {
            Some(View::Group(view)) => Ok(view),
            other => Err(StoreError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn move_group(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::Move { group: group.clone(), step };
        match self.submit(command, request, Some(Query::Group(group.clone()))).await?.view {
            Some(View::Group(view)) => Ok(view),
            other => Err(StoreError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn delete(&self, group: &Group, request: Option<RequestId>) -> StoreResult<SteppedDown> {
        let command = Command::Delete { group: group.clone() };
        Self::stepped_down(&self.submit(command, request, None).await?)
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        self.group_view(group).await
    }

    async fn groups(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        let query = Query::Groups { prefix: prefix.to_owned(), after: after.cloned(), count };
        match self.read(query, Consistency::Linearizable).await? {
            View::Groups(page) => Ok(page),
            other => Err(misread(&other)),
        }
    }

    async fn history(&self, group: &Group) -> StoreResult<Vec<Change>> {
        // Asking for the group first tells an unknown one from one without changes.
        self.group_view(group).await?;
        match self.read(Query::History(group.clone()), Consistency::Stale).await? {
            View::History(changes) => Ok(changes),
            other => Err(misread(&other)),
        }
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let command = Command::Admit { group: group.clone(), resource: resource.clone(), term };
        self.submit(command, None, None).await.map(drop)
    }

    async fn forget_fence(&self, group: &Group, resource: &Resource) -> StoreResult<()> {
        let command = Command::ForgetFence { group: group.clone(), resource: resource.clone() };
        self.submit(command, None, None).await.map(drop)
    }

    async fn report(&self, group: &Group, finding: Finding, reason: Reason) -> StoreResult<()> {
        let command = Command::Report { group: group.clone(), finding, reason };
        self.submit(command, None, None).await.map(drop)
    }

    async fn relieve(
        &self,
        group: &Group,
        term: Term,
        to: &Label,
        reason: Reason,
    ) -> StoreResult<()> {
        let command = Command::Relieve { group: group.clone(), term, to: to.clone(), reason };
        self.submit(command, None, None).await.map(drop)
    }

    async fn fences(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> StoreResult<FencesPage> {
        let (group, prefix, after) = (group.clone(), prefix.to_owned(), after.cloned());
        let query = Query::Fences { group, prefix, after, count };
        match self.read(query, Consistency::Linearizable).await? {
            View::Fences(page) => Ok(page),
            other => Err(misread(&other)),
        }
    }

    async fn census(&self) -> StoreResult<Census> {
        match self.read(Query::Census, Consistency::Stale).await? {
            View::Census(census) => Ok(Census { watchers: self.hub.watchers() as u64, ..census }),
            other => Err(misread(&other)),
        }
    }

    async fn shut_down(&self) {
        self.hub.shut_down();
        self.handle.shut_down().await;
    }
}
