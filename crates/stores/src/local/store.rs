//! The Store port over the local core: each verb enters the lock once and tells what it saw when
//! that is durable.

use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{
    Campaign, Campaigned, Census, Consistency, Description, FencesPage, GroupView, GroupsPage,
    Heard, Heartbeat, LeaderView, Level, OfficeState, Open, Scope, SessionView, StepDown,
    SteppedDown, Store, StoreError, StoreResult, Watch,
};
use regent_election::watch::Replay;
use regent_election::{
    Answer, Change, Command, Cursor, Event, Finding, Group, Incarnation, Metadata, Node, Policy,
    Reason, RequestId, Resource, SessionId, Step, Term,
};

use super::core::{Core, Phase};
use super::{LocalStore, campaign};

/// The ordinal of events that come from a group's own history.
const REPLAYED: u32 = Cursor::WHOLE - 1;

#[async_trait]
impl Store for LocalStore {
    fn describe(&self) -> Description {
        match &self.directory {
            None => Description {
                name: "memory",
                place: "this process".into(),
                level: Level::BestEffort,
                caveat: Some("nothing survives a restart, not even terms".into()),
            },
            Some(directory) => Description {
                name: "local",
                place: directory.display().to_string(),
                level: Level::Strict,
                caveat: Some(
                    "one server and one disk: a restart costs its outage plus one ttl before a lost leader is succeeded".into(),
                ),
            },
        }
    }

    async fn ready(&self) -> StoreResult<()> {
        self.shared
            .visit(|core| {
                core.check_open()?;
                if core.log.is_disk_full() {
                    let why = "the disk is full".into();
                    return Err(StoreError::Unavailable { why, retry_after: None });
                }
                Ok(())
            })
            .await
    }

    async fn open(&self, open: Open) -> StoreResult<SessionView> {
        let Open { node, ttl_ms, session } = open;
        self.shared
            .visit(|core| {
                core.ask(Command::Open { session, node, ttl_ms }, None)?.answer?;
                core.hear_of(session);
                Ok(core.state.session_view(session)?)
            })
            .await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<Heard> {
        let Heartbeat { session: id, sequence, disowned, beliefs: _ } = heartbeat;
        self.shared
            .visit(|core| {
                core.check_open()?;
                let session = core.session(id)?;
                core.hear(session, sequence)?;
                for (group, term) in disowned {
                    // What is over already, or another's, is not the caller's to resign, and a
                    // heartbeat that only says so writes nothing.
                    let is_held = core
                        .state
                        .holder(&group)
                        .is_some_and(|holder| holder.session == session && holder.term == term);
                    if is_held {
                        core.ask(Command::Resign { group, session: id, term }, None)?.answer?;
                    }
                }
                core.heard(session)
            })
            .await
    }

    async fn session(&self, session: SessionId) -> StoreResult<SessionView> {
        self.read(|core| Ok(core.state.session_view(session)?)).await
    }

    async fn close(&self, session: SessionId) -> StoreResult<()> {
        self.do_it(Command::Close { session }, None).await
    }

    async fn campaign(&self, campaign: Campaign) -> StoreResult<Campaigned> {
        campaign::campaign(&self.shared, campaign).await
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
        self.shared
            .visit(|core| {
                core.ask(command, request)?.answer?;
                core.hear_of(session);
                core.heard(core.session(session)?)
            })
            .await
    }

    async fn renew(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<Heard> {
        self.shared.visit(|core| renew(core, group, session, term, extend_by_ms)).await
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
        to: &Node,
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
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let command = Command::Transfer { group: group.clone(), session, term, to: to.clone() };
        self.do_it(command, request).await
    }

    /// A stale read costs nothing less here, so it is a linearizable one.
    async fn leader(&self, group: &Group, _consistency: Consistency) -> StoreResult<LeaderView> {
        self.read(|core| Ok(core.office(group))).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        let incarnation = self.incarnation;
        let replay = self
            .read(|core| {
                Ok(match (&scope, cursor) {
                    (Scope::Group(group), Some(cursor)) => replay(core, group, cursor, incarnation),
                    (Scope::Group(_) | Scope::Groups(_) | Scope::Prefix(_), _) => None,
                })
            })
            .await?;
        Ok(Box::new(self.shared.hub.subscribe(scope, cursor, replay)))
    }

    async fn step_down(&self, step_down: StepDown) -> StoreResult<SteppedDown> {
        let StepDown { group, reason, to, immediate, request } = step_down;
        let command = Command::StepDown { group, reason, to, immediate };
        self.shared.visit(|core| Ok(stepped_down(core.ask(command, request)?.answer?))).await
    }

    async fn put_policy(
        &self,
        group: &Group,
        policy: Option<Policy>,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::PutPolicy { group: group.clone(), policy: policy.map(Box::new) };
        self.shared
            .visit(|core| {
                core.ask(command, request)?.answer?;
                self.view(core, group)
            })
            .await
    }

    async fn move_group(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::Move { group: group.clone(), step };
        self.shared
            .visit(|core| {
                core.ask(command, request)?.answer?;
                self.view(core, group)
            })
            .await
    }

    async fn delete(&self, group: &Group, request: Option<RequestId>) -> StoreResult<SteppedDown> {
        let command = Command::Delete { group: group.clone() };
        self.shared.visit(|core| Ok(stepped_down(core.ask(command, request)?.answer?))).await
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        self.read(|core| self.view(core, group)).await
    }

    async fn groups(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        self.read(|core| {
            let mut page = core.state.groups_page(prefix, after, count, self.incarnation);
            for office in &mut page.groups {
                core.add_hint(office);
            }
            Ok(page)
        })
        .await
    }

    async fn history(&self, group: &Group) -> StoreResult<Vec<Change>> {
        self.read(|core| {
            // Asking for the group first tells an unknown one from one without changes.
            self.view(core, group)?;
            Ok(core.state.history(group).to_vec())
        })
        .await
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let command = Command::Admit { group: group.clone(), resource: resource.clone(), term };
        self.shared.visit(|core| Ok(core.ask(command, None)?.answer.map(drop)?)).await
    }

    async fn forget_fence(&self, group: &Group, resource: &Resource) -> StoreResult<()> {
        let command = Command::ForgetFence { group: group.clone(), resource: resource.clone() };
        self.shared.visit(|core| Ok(core.ask(command, None)?.answer.map(drop)?)).await
    }

    async fn report(&self, group: &Group, finding: Finding, reason: Reason) -> StoreResult<()> {
        let command = Command::Report { group: group.clone(), finding, reason };
        self.shared.visit(|core| Ok(core.ask(command, None)?.answer.map(drop)?)).await
    }

    async fn relieve(
        &self,
        group: &Group,
        term: Term,
        to: &Node,
        reason: Reason,
    ) -> StoreResult<()> {
        let command = Command::Relieve { group: group.clone(), term, to: to.clone(), reason };
        self.shared.visit(|core| Ok(core.ask(command, None)?.answer.map(drop)?)).await
    }

    async fn fences(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> StoreResult<FencesPage> {
        self.read(|core| Ok(core.state.fences_page(group, prefix, after, count))).await
    }

    async fn census(&self) -> StoreResult<Census> {
        let watchers = self.shared.hub.watchers() as u64;
        self.read(|core| Ok(Census { watchers, ..core.state.census() })).await
    }

    async fn shut_down(&self) {
        let (_, ticket) = self.shared.enter(|core| {
            if core.phase == Phase::Open {
                core.phase = Phase::Closing;
                for session in core.waiting.passing() {
                    core.run(Command::Close { session }, None);
                }
                core.waiting.wake_all();
            }
            Ok(())
        });
        if let Err(error) = ticket.redeem().await {
            tracing::warn!(%error, "the store stopped while it was shutting down");
        }
        self.shared.hub.shut_down();
        self.shared.stop(true);
        let threads = self.take_threads();
        let joined = tokio::task::spawn_blocking(move || super::join(threads)).await;
        if let Err(error) = joined {
            tracing::error!(%error, "the store's threads were not awaited");
        }
    }
}

impl LocalStore {
    /// Applies a command whose only answer is that it is done.
    async fn do_it(&self, command: Command, request: Option<RequestId>) -> StoreResult<()> {
        self.shared
            .visit(|core| {
                core.ask(command, request)?.answer?;
                Ok(())
            })
            .await
    }

    async fn read<T>(&self, read: impl FnOnce(&Core) -> StoreResult<T>) -> StoreResult<T> {
        self.shared
            .visit(|core| {
                core.check_open()?;
                read(core)
            })
            .await
    }

    fn view(&self, core: &Core, group: &Group) -> StoreResult<GroupView> {
        let silent = core.deadlines.silent();
        let is_silent = |session| silent.contains(&session);
        let mut view = core.state.group_view(group, self.incarnation, is_silent)?;
        core.add_hint(&mut view.office);
        Ok(view)
    }
}

/// A heartbeat that proves a tenure. A refusal extends nothing: whoever must stop gets no time.
fn renew(
    core: &mut Core,
    group: &Group,
    id: SessionId,
    term: Term,
    extend_by_ms: Option<u64>,
) -> StoreResult<Heard> {
    core.check_open()?;
    let session = core.session(id)?;
    core.state.may_renew(group, session, term)?;
    if let Some(ttl_ms) = extend_by_ms
        && core.state.ttl_ms(session) != Some(ttl_ms)
    {
        core.ask(Command::ChangeTtl { session: id, ttl_ms }, None)?.answer?;
    }
    let is_promoted =
        core.state.holder(group).is_some_and(|holder| holder.state == OfficeState::Elected);
    if is_promoted {
        let command = Command::Accept { group: group.clone(), session: id, term };
        core.ask(command, None)?.answer?;
    }
    core.hear(session, None)?;
    core.heard(session)
}

fn stepped_down(answer: Answer) -> SteppedDown {
    match answer {
        Answer::Done => SteppedDown::Over,
        Answer::Ending { within_ms } => SteppedDown::Ending(Duration::from_millis(within_ms)),
        Answer::Forced { overlap_possible_ms } => {
            SteppedDown::Forced(Duration::from_millis(overlap_possible_ms))
        }
        Answer::Session { .. }
        | Answer::Elected { .. }
        | Answer::Standing { .. }
        | Answer::Lost
        | Answer::Overtaken => unreachable!("an end is never answered {answer:?}"),
    }
}

/// What a group itself remembers, for a watch from `cursor`.
///
/// A group's history names revisions but not ordinals, so it serves a cursor only if none of its
/// changes shares the cursor's revision, or the cursor stands after all of that revision. A group
/// changes at most once in an entry, so what is replayed may call itself the last of its revision. Of
/// leaders that have gone, the metadata is not remembered.
fn replay(core: &Core, group: &Group, cursor: Cursor, incarnation: Incarnation) -> Option<Replay> {
    let history = core.state.history(group);
    let oldest = history.first()?;
    let is_exact = cursor.ordinal >= REPLAYED
        || history.iter().all(|change| change.revision != cursor.revision);
    if !is_exact || cursor.revision < oldest.revision {
        return None;
    }
    let office = core.state.leader_view(group, incarnation);
    let events = history.iter().filter(|change| change.revision > cursor.revision).map(|change| {
        let is_in_office = change.term == office.term && change.leader.is_some();
        Event {
            group: group.clone(),
            revision: change.revision,
            ordinal: REPLAYED,
            term: change.term,
            leader: change.leader.clone(),
            metadata: if is_in_office { office.metadata.clone() } else { Metadata::NONE },
            cause: change.cause,
        }
    });
    let after = Cursor { incarnation, revision: oldest.revision, ordinal: REPLAYED };
    Some(Replay { after, up_to: core.state.revision(), events: events.collect() })
}
