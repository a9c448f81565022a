//! The Store port over a register.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::store::{
    Campaign, Campaigned, Census, Consistency, Description, FencesPage, GroupView, GroupsPage,
    Heard, Heartbeat, LeaderView, OfficeState, Open, Scope, SessionView, StepDown, SteppedDown,
    Store, StoreError, StoreResult, Watch,
};
use regent_election::{
    Answer, Change, Command, Cursor, Finding, Group, Node, Opening, Policy, Reason, Refusal,
    RequestId, Resource, SessionId, Step, Term,
};

use super::office::{Outcome, Own};
use super::record::GroupRecord;
use super::session::{self, digest};
use super::sight::Verdict;
use super::turn::{Asker, Wish};
use super::{LeaseStore, Shared, campaign, hearing, lock, watch};
use crate::register::{Key, Kind};

/// How long shutting down waits for campaigns to leave.
const LEAVE_FOR: Duration = Duration::from_secs(2);
/// Most sessions in one page of a listing.
const PAGE: usize = 512;

impl LeaseStore {
    /// A group as it is. An engine that finds less than this process has seen was restored or has lost a write:
    /// then the group is raised above that before anything is read from it.
    async fn present(&self, group: &Group) -> StoreResult<GroupRecord> {
        let seen = self.shared.desk.load(group).await?;
        if seen.record.state.last_term(group) >= self.shared.desk.seen_term(group) {
            return Ok(seen.record);
        }
        Ok(self.shared.run(group, None, &[], Own::Nothing).await?.record)
    }
}

#[async_trait]
impl Store for LeaseStore {
    fn describe(&self) -> Description {
        self.shared.desk.register.describe()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.shared.check_open()?;
        let loaded = self.shared.desk.register.load(&Key::setting("life")).await;
        loaded.map(|_| ()).map_err(super::desk::store_error)
    }

    async fn open(&self, open: Open) -> StoreResult<SessionView> {
        self.shared.check_open()?;
        hearing::check_ttl(open.ttl_ms)?;
        let opening = Opening { node: open.node, ttl_ms: Some(open.ttl_ms), passing: false };
        let session = digest(open.session.get());
        self.shared.touch(session, Some(&opening), None).await?;
        self.shared.session_view(open.session).await.map_err(half_done)
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<Heard> {
        self.shared.check_open()?;
        let id = known_as(heartbeat.session)?;
        let open = self.shared.beat(id.get(), heartbeat.sequence, None).await?;
        for (group, term) in heartbeat.disowned {
            let seen = self.shared.desk.load(&group).await.map_err(half_done)?;
            // What is over already, or another's, is not the caller's to resign.
            let is_held = seen.record.state.holder(&group).is_some_and(|holder| {
                holder.term == term && seen.record.state.find_session(id) == Some(holder.session)
            });
            if is_held {
                let command = Command::Resign { group: group.clone(), session: id, term };
                let wish = Wish { command, request: None, asker: None };
                let resigned = self.shared.run(&group, Some(wish), &[], Own::Nothing).await;
                resigned.map_err(half_done)?;
            }
        }
        Ok(self.shared.heard_view(&open))
    }

    async fn session(&self, session: SessionId) -> StoreResult<SessionView> {
        self.shared.check_open()?;
        self.shared.session_view(session).await
    }

    async fn close(&self, session: SessionId) -> StoreResult<()> {
        self.shared.check_open()?;
        let id = known_as(session)?;
        for group in self.shared.end(id.get()).await? {
            let wish = Wish { command: Command::Close { session: id }, request: None, asker: None };
            let closed = self.shared.run(&group, Some(wish), &[], Own::Nothing).await;
            closed.map_err(half_done)?;
        }
        Ok(())
    }

    async fn campaign(&self, campaign: Campaign) -> StoreResult<Campaigned> {
        self.shared.check_open()?;
        campaign::campaign(&self.shared, campaign).await
    }

    async fn withdraw(
        &self,
        group: &Group,
        session: SessionId,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let session = known_as(session)?;
        let command = Command::Withdraw { group: group.clone(), session };
        self.shared.ask(group, session, command, request).await?;
        Ok(())
    }

    async fn accept(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<Heard> {
        let session = known_as(session)?;
        let command = Command::Accept { group: group.clone(), session, term };
        self.shared.ask(group, session, command, request).await?;
        let open = self.shared.beat(session.get(), None, None).await.map_err(half_done)?;
        Ok(self.shared.heard_view(&open))
    }

    async fn renew(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<Heard> {
        self.shared.renew(group, known_as(session)?, term, extend_by_ms).await
    }

    async fn resign(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let session = known_as(session)?;
        let command = Command::Resign { group: group.clone(), session, term };
        self.shared.ask(group, session, command, request).await?;
        Ok(())
    }

    async fn offer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let session = known_as(session)?;
        let command = Command::Offer { group: group.clone(), session, term, to: to.clone() };
        self.shared.ask(group, session, command, request).await?;
        Ok(())
    }

    async fn warm(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let session = known_as(session)?;
        let command = Command::Warm { group: group.clone(), session, term };
        self.shared.ask(group, session, command, request).await?;
        Ok(())
    }

    async fn transfer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let session = known_as(session)?;
        let command = Command::Transfer { group: group.clone(), session, term, to: to.clone() };
        self.shared.ask(group, session, command, request).await?;
        Ok(())
    }

    /// A stale read costs nothing less here, so it is a linearizable one.
    async fn leader(&self, group: &Group, _consistency: Consistency) -> StoreResult<LeaderView> {
        self.shared.check_open()?;
        let record = self.present(group).await?;
        self.shared.view(group, &record).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.shared.check_open()?;
        watch::watch(&self.shared, scope, cursor).await
    }

    async fn step_down(&self, step_down: StepDown) -> StoreResult<SteppedDown> {
        let StepDown { group, reason, to, immediate, request } = step_down;
        let command = Command::StepDown { group: group.clone(), reason, to, immediate };
        let wish = Wish { command, request, asker: None };
        stepped_down(&self.shared.run(&group, Some(wish), &[], Own::Nothing).await?.answer)
    }

    async fn put_policy(
        &self,
        group: &Group,
        policy: Option<Policy>,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::PutPolicy { group: group.clone(), policy: policy.map(Box::new) };
        let wish = Wish { command, request, asker: None };
        let outcome = self.shared.run(group, Some(wish), &[], Own::Nothing).await?;
        self.shared.group_view(group, &outcome.record).await.map_err(half_done)
    }

    async fn move_group(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::Move { group: group.clone(), step };
        let wish = Wish { command, request, asker: None };
        let outcome = self.shared.run(group, Some(wish), &[], Own::Nothing).await?;
        // A step that was taken before may have been left alone with an ending that nobody times: all who
        // stood have gone where the group went.
        if outcome.record.state.waits().next().is_some() {
            self.shared.follow_chore(group);
        }
        self.shared.group_view(group, &outcome.record).await
    }

    async fn delete(&self, group: &Group, request: Option<RequestId>) -> StoreResult<SteppedDown> {
        let command = Command::Delete { group: group.clone() };
        let wish = Wish { command, request, asker: None };
        stepped_down(&self.shared.run(group, Some(wish), &[], Own::Nothing).await?.answer)
    }

    async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        self.shared.check_open()?;
        let seen = self.shared.desk.load(group).await?;
        let standbys: Vec<_> = seen.record.state.standbys(group).take(GROUPS_PAGE_MAX).collect();
        for id in standbys.into_iter().filter_map(|session| seen.record.state.id_of(session)) {
            self.shared.desk.look(id.get()).await?;
        }
        self.shared.group_view(group, &seen.record).await
    }

    async fn groups(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        self.shared.check_open()?;
        self.shared.page(prefix, after, count.clamp(1, GROUPS_PAGE_MAX)).await
    }

    async fn history(&self, group: &Group) -> StoreResult<Vec<Change>> {
        self.shared.check_open()?;
        let seen = self.shared.desk.load(group).await?;
        if !seen.record.state.knows(group) {
            return Err(Refusal::GroupUnknown { group: group.clone() }.into());
        }
        Ok(seen.record.state.history(group).to_vec())
    }

    async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let command = Command::Admit { group: group.clone(), resource: resource.clone(), term };
        let wish = Wish { command, request: None, asker: None };
        self.shared.run(group, Some(wish), &[], Own::Nothing).await.map(drop)
    }

    async fn forget_fence(&self, group: &Group, resource: &Resource) -> StoreResult<()> {
        let command = Command::ForgetFence { group: group.clone(), resource: resource.clone() };
        let wish = Wish { command, request: None, asker: None };
        self.shared.run(group, Some(wish), &[], Own::Nothing).await.map(drop)
    }

    async fn report(&self, group: &Group, finding: Finding, reason: Reason) -> StoreResult<()> {
        let command = Command::Report { group: group.clone(), finding, reason };
        let wish = Wish { command, request: None, asker: None };
        self.shared.run(group, Some(wish), &[], Own::Nothing).await.map(drop)
    }

    async fn relieve(
        &self,
        group: &Group,
        term: Term,
        to: &Node,
        reason: Reason,
    ) -> StoreResult<()> {
        let command = Command::Relieve { group: group.clone(), term, to: to.clone(), reason };
        let wish = Wish { command, request: None, asker: None };
        self.shared.run(group, Some(wish), &[], Own::Nothing).await.map(drop)
    }

    async fn fences(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> StoreResult<FencesPage> {
        self.shared.check_open()?;
        Ok(self.present(group).await?.state.fences_page(group, prefix, after, count))
    }

    async fn census(&self) -> StoreResult<Census> {
        self.shared.check_open()?;
        self.shared.census().await
    }

    async fn shut_down(&self) {
        self.shared.close_down();
        let given_up_at = self.shared.desk.now() + LEAVE_FOR;
        while self.shared.waiters.load(Ordering::Acquire) > 0
            && self.shared.desk.now() < given_up_at
        {
            self.shared.desk.time.sleep(Duration::from_millis(5)).await;
        }
        self.shared.desk.register.shut_down().await;
    }
}

/// What a secret is known by in the store.
fn known_as(secret: SessionId) -> StoreResult<SessionId> {
    SessionId::new(digest(secret.get())).map_err(|_| Refusal::SessionUnknown.into())
}

/// The error of a later step: what went before has happened.
pub(super) fn half_done(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { why, .. } => StoreError::Uncertain { why },
        other => other,
    }
}

fn stepped_down(answer: &Answer) -> StoreResult<SteppedDown> {
    match answer {
        Answer::Done => Ok(SteppedDown::Over),
        Answer::Ending { within_ms } => Ok(SteppedDown::Ending(Duration::from_millis(*within_ms))),
        Answer::Forced { overlap_possible_ms } => {
            Ok(SteppedDown::Forced(Duration::from_millis(*overlap_possible_ms)))
        }
        Answer::Session { .. }
        | Answer::Elected { .. }
        | Answer::Standing { .. }
        | Answer::Lost
        | Answer::Overtaken => Err(StoreError::Corrupt(format!("an end was answered {answer:?}"))),
    }
}

impl Shared {
    /// What a session asks for in a group. The session must be open.
    async fn ask(
        self: &Arc<Self>,
        group: &Group,
        session: SessionId,
        command: Command,
        request: Option<RequestId>,
    ) -> StoreResult<Outcome> {
        self.check_open()?;
        let open = self.opened(session).await?;
        let asker = Asker { session, node: open.node, ttl_ms: open.ttl_ms };
        let wish = Wish { command, request, asker: Some(asker) };
        self.run(group, Some(wish), &[], Own::Nothing).await
    }

    /// The entry of a session that is open.
    async fn opened(&self, session: SessionId) -> StoreResult<session::Open> {
        let (record, _) = self.desk.look(session.get()).await?;
        let open = record.as_ref().and_then(|record| record.as_open()).cloned();
        open.ok_or_else(|| Refusal::SessionUnknown.into())
    }

    /// A heartbeat that proves a tenure. A refusal extends nothing: whoever must stop gets no time.
    async fn renew(
        self: &Arc<Self>,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<Heard> {
        self.check_open()?;
        let open = self.opened(session).await?;
        let seen = self.desk.load(group).await?;
        let state = &seen.record.state;
        let is_holder = state.holder(group).is_some_and(|holder| {
            holder.term == term
                && holder.state == OfficeState::Leading
                && state.find_session(session) == Some(holder.session)
        });
        if !is_holder {
            // Accepts an office, or says what is wrong.
            let command = Command::Accept { group: group.clone(), session, term };
            let asker = Asker { session, node: open.node.clone(), ttl_ms: open.ttl_ms };
            let wish = Wish { command, request: None, asker: Some(asker) };
            self.run(group, Some(wish), &[], Own::Nothing).await?;
        }
        let ttl_ms = extend_by_ms.filter(|ttl_ms| *ttl_ms != open.ttl_ms);
        if let Some(ttl_ms) = ttl_ms {
            hearing::check_ttl(ttl_ms)?;
            self.check_policies(&open, session, ttl_ms).await?;
        }
        let open = self.beat(session.get(), None, ttl_ms).await?;
        Ok(self.heard_view(&open))
    }

    /// Whether every group that concerns a session allows this ttl.
    async fn check_policies(
        &self,
        open: &session::Open,
        session: SessionId,
        ttl_ms: u64,
    ) -> StoreResult<()> {
        for group in open.groups.keys() {
            let seen = self.desk.load(group).await?;
            let is_concerned =
                seen.record.state.person(session).is_some_and(|person| person.is_concerned);
            let policy = seen.record.state.policy(group);
            if is_concerned && !policy.fits(ttl_ms) {
                let (min, max) = (policy.ttl_ms_min, policy.ttl_ms_max);
                let group = Some(group.clone());
                return Err(Refusal::TtlOutOfBounds { group, ttl_ms, min, max }.into());
            }
        }
        Ok(())
    }

    fn heard_view(&self, open: &session::Open) -> Heard {
        Heard { ttl_ms: open.ttl_ms, epoch: open.epoch, revision: self.desk.highest() }
    }

    /// What a session holds. Its epoch is read first: what happens later raises it once more.
    async fn session_view(&self, secret: SessionId) -> StoreResult<SessionView> {
        let id = known_as(secret)?;
        let open = self.opened(id).await?;
        let (mut tenures, mut standing, mut offers) = (Vec::new(), Vec::new(), Vec::new());
        let mut strange = Vec::new();
        for group in open.groups.keys() {
            let seen = self.desk.load(group).await?;
            let Ok(view) = seen.record.state.session_view(id) else {
                strange.push(group.clone());
                continue;
            };
            if view.tenures.is_empty() && view.standing.is_empty() {
                strange.push(group.clone());
            }
            tenures.extend(view.tenures);
            standing.extend(view.standing);
            offers.extend(view.offers);
        }
        if open.passing && tenures.is_empty() && standing.is_empty() && !open.groups.is_empty() {
            self.end(id.get()).await?;
            return Err(Refusal::SessionUnknown.into());
        }
        if strange.len() > STRANGE_MAX {
            self.unlist(id.get(), &strange).await;
        }
        let revision = self.desk.highest();
        let (node, ttl_ms, epoch) = (open.node, open.ttl_ms, open.epoch);
        Ok(SessionView { node, ttl_ms, epoch, tenures, standing, offers, revision })
    }

    /// Who leads, with the hint how long.
    pub(super) async fn view(
        &self,
        group: &Group,
        record: &GroupRecord,
    ) -> StoreResult<LeaderView> {
        let life = self.desk.life().await?;
        let mut view = record.state.leader_view(group, life);
        view.valid_for = record
            .state
            .holder(group)
            .and_then(|holder| record.state.id_of(holder.session))
            .and_then(|id| lock(&self.desk.sights).remaining(id.get(), self.desk.now()));
        Ok(view)
    }

    async fn group_view(&self, group: &Group, record: &GroupRecord) -> StoreResult<GroupView> {
        let life = self.desk.life().await?;
        let is_silent = |session| {
            record.state.id_of(session).is_some_and(|id| match self.desk.verdict(id.get()) {
                Verdict::Silent { .. } | Verdict::Due { .. } | Verdict::Ended => true,
                Verdict::Unseen | Verdict::Audible { .. } => false,
            })
        };
        let mut view = record.state.group_view(group, life, is_silent)?;
        view.office = self.view(group, record).await?;
        Ok(view)
    }

    async fn page(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        let mut groups = Vec::new();
        let mut from = after.map(|after| after.as_str().to_owned());
        loop {
            let register = &self.desk.register;
            let listed = register.list(Kind::Group, prefix, from.as_deref(), count + 1).await;
            let listed = listed.map_err(super::desk::store_error)?;
            let is_last = listed.len() <= count;
            from = listed.last().map(|(key, _)| key.name().to_owned());
            for (key, found) in listed {
                let Ok(group) = Group::new(key.name()) else { continue };
                let seen = self.desk.listed(&group, found)?;
                // Of a deleted group only its terms are left.
                if seen.record.state.knows(&group) {
                    groups.push(self.view(&group, &seen.record).await?);
                }
            }
            if is_last || groups.len() > count {
                break;
            }
        }
        let has_more = groups.len() > count;
        groups.truncate(count);
        let next = groups.last().filter(|_| has_more).map(|last| last.group.clone());
        Ok(GroupsPage { groups, next, revision: self.desk.highest() })
    }

    async fn census(&self) -> StoreResult<Census> {
        let mut census = Census { watchers: self.watchers(), ..Census::default() };
        self.each(Kind::Group, "", |_, record| {
            let one = record.state.census();
            census.groups += one.groups;
            census.led += one.led;
            census.contended += one.contended;
        })
        .await?;
        let mut after: Option<String> = None;
        loop {
            let listed = self.desk.register.list(Kind::Session, "", after.as_deref(), PAGE).await;
            let listed = listed.map_err(super::desk::store_error)?;
            let Some((last, _)) = listed.last() else { break };
            after = Some(last.name().to_owned());
            for (_, found) in &listed {
                let record = session::SessionRecord::decode(&found.value);
                census.sessions += u64::from(record.is_ok_and(|record| record.as_open().is_some()));
            }
        }
        Ok(Census { revision: self.desk.highest(), ..census })
    }
}

/// Groups of the past that a session's list may name before it is tidied.
const STRANGE_MAX: usize = 16;
