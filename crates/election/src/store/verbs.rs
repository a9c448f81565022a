//! The verbs: what callers ask of a store, written once above the port.
//!
//! A verb is one command or one question, with the type of its answer. What takes more than one step
//! (a renewal by another length, terms that a heartbeat disowns, a campaign that waits) takes them here
//! and in the same order for every engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::campaign::{self, Campaign, Campaigned};
use super::port::{Consistency, Store, StoreError, StoreResult};
use super::views::{
    Census, FencesPage, GroupView, GroupsPage, HeartbeatView, LeaderView, OfficeState, OfficesView,
    SessionView, SharesView,
};
use crate::access::{AccessTable, Binding, Principal, SecretDigest, TokenId, TokenLabel};
use crate::belief::Beliefs;
use crate::command::{Command, Finding};
use crate::door::Step;
use crate::name::{Group, Node, Reason, RequestId, Resource, SessionId};
use crate::outcome::{Answer, Change};
use crate::policy::Policy;
use crate::state::Question;
use crate::term::Term;

/// A wish to open a session.
#[derive(Clone, Debug)]
pub struct Open {
    /// The participant's label.
    pub node: Node,
    /// How long the session lives unheard.
    pub ttl_ms: u64,
    /// The secret chosen by the caller, so that a lost reply is safe.
    pub session: SessionId,
}

/// A sign of life for all tenures of a session.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub session: SessionId,
    /// A rising number; a retry takes a new one. None is for callers that send no duplicates.
    pub sequence: Option<u64>,
    /// Terms the holder has declared lost: they are resigned (semantics 4).
    pub disowned: Vec<(Group, Term)>,
    /// What the node holds itself for: not for the store, but for whoever hears it on the way there.
    pub beliefs: Option<Box<Beliefs>>,
}

/// What became of an administrator's step-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteppedDown {
    /// The office is vacant or has its successor already.
    Over,
    /// The holder has been told and has at most this long.
    Ending(Duration),
    /// It was forced: the old holder may go on acting for this long; only fencing protects.
    Forced(Duration),
}

/// An administrator's step-down.
#[derive(Clone, Debug)]
pub struct StepDown {
    pub group: Group,
    /// Why, for the history.
    pub reason: Reason,
    /// Who shall follow, if anybody in particular.
    pub to: Option<Node>,
    /// Whether to skip the wait for the holder.
    pub immediate: bool,
    /// Makes a repeat take effect once.
    pub request: Option<RequestId>,
}

/// A token to be made known.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub token: TokenId,
    /// Of its secret.
    pub digest: SecretDigest,
    /// Whom its bearer is.
    pub principal: Principal,
    /// When servers begin to refuse it, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    pub label: TokenLabel,
}

/// What callers ask of a store.
impl dyn Store {
    /// Asks a typed question.
    pub async fn ask<V>(&self, question: Question<V>, consistency: Consistency) -> StoreResult<V> {
        let (query, typed) = question.parts();
        typed(self.read(query, consistency).await?)
    }

    /// Opens a session. Repeated with the same secret, node and ttl it answers the same session.
    pub async fn open(&self, open: Open) -> StoreResult<SessionView> {
        let Open { node, ttl_ms, session } = open;
        let command = Command::Open { session, node, ttl_ms };
        Ok(submit_and_read(self, command, None, Question::session(session)).await?.1)
    }

    /// Keeps a session and all its tenures alive. An expiring session is never revived.
    ///
    /// It is counted before anything is resigned: one whose number is refused must not give up what
    /// another process of the same session holds, and slow resignations must not keep it from counting.
    /// One that resigns is answered from after that.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<HeartbeatView> {
        let Heartbeat { session, sequence, disowned, beliefs: _ } = heartbeat;
        let heard = self.count_heartbeat(session, sequence, None).await?;
        if disowned.is_empty() {
            return Ok(heard);
        }
        // Boxed, because it is seldom and large: the future of every heartbeat would have room for it.
        let resigned = Box::pin(resign_disowned(self, session, disowned)).await;
        resigned.map_err(StoreError::half_done)?;
        self.count_heartbeat(session, None, None).await.map_err(StoreError::half_done)
    }

    /// What a session holds; processing it is what [`HeartbeatView::epoch`] asks for.
    pub async fn session(&self, session: SessionId) -> StoreResult<SessionView> {
        self.ask(Question::session(session), Consistency::Linearizable).await
    }

    /// Ends a session: its tenures end as resigned, its standbys are withdrawn. Ending one that is
    /// not open is done already.
    pub async fn close(&self, session: SessionId) -> StoreResult<()> {
        submit(self, Command::Close { session }, None).await
    }

    /// Campaigns; with `wait` it answers the moment the caller is elected, or when the wait is over.
    ///
    /// A future dropped before its answer leaves no standby behind unless the session is the
    /// caller's own.
    pub async fn campaign(&self, campaign: Campaign) -> StoreResult<Campaigned> {
        campaign::campaign(self, campaign).await
    }

    /// Leaves the line. Who leads is told to stop and confirms by resigning: a withdrawal names no
    /// term, so a late duplicate must not end a later office. Done already if the session is open
    /// and neither stands nor leads.
    pub async fn withdraw(
        &self,
        group: &Group,
        session: SessionId,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        submit(self, Command::Withdraw { group: group.clone(), session }, request).await
    }

    /// A promoted session accepts its office and may act once this is answered.
    pub async fn accept(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<HeartbeatView> {
        let command = Command::Accept { group: group.clone(), session, term };
        Ok(submit_and_read(self, command, request, Question::heartbeat(session)).await?.1)
    }

    /// A heartbeat that also proves the tenure of one group; a refusal extends nothing. `extend_by_ms`
    /// other than the session's ttl changes that ttl.
    pub async fn renew(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        extend_by_ms: Option<u64>,
    ) -> StoreResult<HeartbeatView> {
        match extend_by_ms {
            None => self.count_heartbeat(session, None, Some((group.clone(), term))).await,
            // Boxed, because it is seldom and large.
            Some(ttl_ms) => Box::pin(renew_for(self, group, session, term, ttl_ms)).await,
        }
    }

    /// Gives the office up; the caller has stopped before it asks.
    pub async fn resign(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        submit(self, Command::Resign { group: group.clone(), session, term }, request).await
    }

    /// First step of a hand-over: asks a standby to get warm while the caller goes on leading.
    pub async fn offer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let (group, to) = (group.clone(), to.clone());
        submit(self, Command::Offer { group, session, term, to }, request).await
    }

    /// The standby of an offer says that it is warm.
    pub async fn warm(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        submit(self, Command::Warm { group: group.clone(), session, term }, request).await
    }

    /// Hands the office to a named standby; the caller has stopped before it asks.
    pub async fn transfer(
        &self,
        group: &Group,
        session: SessionId,
        term: Term,
        to: &Node,
        request: Option<RequestId>,
    ) -> StoreResult<()> {
        let (group, to) = (group.clone(), to.clone());
        submit(self, Command::Transfer { group, session, term, to }, request).await
    }

    /// Who leads. A group that was never named has no leader and term 0.
    pub async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        self.ask(Question::leader(group.clone()), consistency).await
    }

    /// An administrator ends a tenure.
    pub async fn step_down(&self, step_down: StepDown) -> StoreResult<SteppedDown> {
        let StepDown { group, reason, to, immediate, request } = step_down;
        end(self, Command::StepDown { group, reason, to, immediate }, request).await
    }

    /// Creates a group or changes its policy; `None` returns it to the default policy.
    pub async fn put_policy(
        &self,
        group: &Group,
        policy: Option<Policy>,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::PutPolicy { group: group.clone(), policy: policy.map(Box::new) };
        let question = Question::group(group.clone());
        Ok(submit_and_read(self, command, request, question).await?.1)
    }

    /// One step of a group's move between two stores. Repeated, it changes nothing.
    pub async fn move_group(
        &self,
        group: &Group,
        step: Step,
        request: Option<RequestId>,
    ) -> StoreResult<GroupView> {
        let command = Command::Move { group: group.clone(), step };
        let question = Question::group(group.clone());
        Ok(submit_and_read(self, command, request, question).await?.1)
    }

    /// Deletes a group; its terms never come back. Answers how long the last tenure may still end.
    pub async fn delete(
        &self,
        group: &Group,
        request: Option<RequestId>,
    ) -> StoreResult<SteppedDown> {
        end(self, Command::Delete { group: group.clone() }, request).await
    }

    /// A group as an operator sees it.
    pub async fn group(&self, group: &Group) -> StoreResult<GroupView> {
        self.ask(Question::group(group.clone()), Consistency::Linearizable).await
    }

    /// Groups whose names open with `prefix`, after `after`, at most `count` of them.
    pub async fn groups(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
    ) -> StoreResult<GroupsPage> {
        let question = Question::groups(prefix.to_owned(), after.cloned(), count);
        self.ask(question, Consistency::Linearizable).await
    }

    /// The last changes of a group, oldest first.
    pub async fn history(&self, group: &Group) -> StoreResult<Vec<Change>> {
        self.ask(Question::history(group.clone()), Consistency::Linearizable).await
    }

    /// Admits a term at a resource and raises its fence, in one step: after it no lower term is admitted there.
    /// Repeated, it changes nothing.
    pub async fn admit(&self, group: &Group, resource: &Resource, term: Term) -> StoreResult<()> {
        let (group, resource) = (group.clone(), resource.clone());
        submit(self, Command::Admit { group, resource, term }, None).await
    }

    /// Forgets a fence. What it refused is refused for ever, there and at every other resource of the group.
    pub async fn forget_fence(&self, group: &Group, resource: &Resource) -> StoreResult<()> {
        let (group, resource) = (group.clone(), resource.clone());
        submit(self, Command::ForgetFence { group, resource }, None).await
    }

    /// Notes what was found out about a group: for its watchers and its history. The same finding is noted once a
    /// term; who leads does not change.
    pub async fn report(&self, group: &Group, finding: Finding, reason: Reason) -> StoreResult<()> {
        submit(self, Command::Report { group: group.clone(), finding, reason }, None).await
    }

    /// Asks the holder of a term to hand over to a standby, for a reason that watchers and the history are told. It
    /// leads on until the standby is warm and its own work has stopped. Nothing happens if its office is on offer already.
    pub async fn relieve(
        &self,
        group: &Group,
        term: Term,
        to: &Node,
        reason: Reason,
    ) -> StoreResult<()> {
        let (group, to) = (group.clone(), to.clone());
        submit(self, Command::Relieve { group, term, to, reason }, None).await
    }

    /// The fences of a group whose names open with `prefix`, after `after`, at most `count` of them.
    pub async fn fences(
        &self,
        group: &Group,
        prefix: &str,
        after: Option<&Resource>,
        count: usize,
    ) -> StoreResult<FencesPage> {
        let question = Question::fences(group.clone(), prefix.to_owned(), after.cloned(), count);
        self.ask(question, Consistency::Linearizable).await
    }

    /// The bindings and the tokens.
    pub async fn access(&self) -> StoreResult<Arc<AccessTable>> {
        Ok(self.ask(Question::access(None), Consistency::Linearizable).await?.table)
    }

    /// Replaces all bindings, if they are still at the version that they were read at.
    pub async fn put_bindings(
        &self,
        expected_version: u64,
        bindings: Vec<Binding>,
    ) -> StoreResult<Arc<AccessTable>> {
        let command = Command::PutBindings { expected_version, bindings };
        Ok(submit_and_read(self, command, None, Question::access(None)).await?.1.table)
    }

    /// Makes a token known. Repeated, it changes nothing.
    pub async fn create_token(&self, token: NewToken) -> StoreResult<Arc<AccessTable>> {
        let NewToken { token, digest, principal, expires_ms, label } = token;
        let digest = Box::new(digest);
        let command = Command::CreateToken { token, digest, principal, expires_ms, label };
        Ok(submit_and_read(self, command, None, Question::access(None)).await?.1.table)
    }

    /// Makes a token useless, but for giving up what its bearer holds. Repeated, it changes nothing.
    pub async fn revoke_token(&self, token: TokenId) -> StoreResult<()> {
        submit(self, Command::RevokeToken { token }, None).await
    }

    /// Who leads these groups, all of them read in one moment.
    pub async fn leaders(&self, groups: Vec<Group>) -> StoreResult<Vec<LeaderView>> {
        self.ask(Question::leaders(groups), Consistency::Linearizable).await
    }

    /// How these groups are led, and how long elections took, for metrics.
    pub async fn offices(&self, groups: Vec<Group>) -> StoreResult<OfficesView> {
        self.ask(Question::offices(groups), Consistency::Stale).await
    }

    /// Counts for metrics.
    pub async fn census(&self) -> StoreResult<Census> {
        self.ask(Question::census(), Consistency::Stale).await
    }

    /// Who takes most of the state.
    pub async fn shares(&self) -> StoreResult<SharesView> {
        self.ask(Question::shares(), Consistency::Stale).await
    }
}

/// Submits a command whose only answer is that it is done.
async fn submit(
    store: &dyn Store,
    command: Command,
    request: Option<RequestId>,
) -> StoreResult<()> {
    store.submit(command, request, None).await.map(drop)
}

/// Submits a command and asks a question in the moment after it was applied.
pub(super) async fn submit_and_read<V>(
    store: &dyn Store,
    command: Command,
    request: Option<RequestId>,
    then: Question<V>,
) -> StoreResult<(Answer, V)> {
    let (query, typed) = then.parts();
    let done = store.submit(command, request, Some(query)).await?;
    let view = done.view.ok_or_else(|| odd("a question", &"nothing"))?;
    Ok((done.answer, typed(view)?))
}

/// Submits a command that may end a tenure.
async fn end(
    store: &dyn Store,
    command: Command,
    request: Option<RequestId>,
) -> StoreResult<SteppedDown> {
    match store.submit(command, request, None).await?.answer {
        Answer::Done => Ok(SteppedDown::Over),
        Answer::Ending { within_ms } => Ok(SteppedDown::Ending(Duration::from_millis(within_ms))),
        Answer::Forced { overlap_possible_ms } => {
            Ok(SteppedDown::Forced(Duration::from_millis(overlap_possible_ms)))
        }
        answer @ (Answer::Session { .. }
        | Answer::Elected { .. }
        | Answer::Standing { .. }
        | Answer::Lost
        | Answer::Overtaken) => Err(odd("the end of a tenure", &answer)),
    }
}

/// Renews a tenure, and makes this the ttl of its session.
async fn renew_for(
    store: &dyn Store,
    group: &Group,
    session: SessionId,
    term: Term,
    ttl_ms: u64,
) -> StoreResult<HeartbeatView> {
    let proves = Some((group.clone(), term));
    if !changes_ttl(store, group, session, term, ttl_ms).await? {
        // Nothing is to be changed, or this refuses it.
        let heard = store.count_heartbeat(session, None, proves.clone()).await?;
        if heard.ttl_ms == ttl_ms {
            return Ok(heard);
        }
    }
    // Before anything is counted: a length that is not allowed extends nothing.
    let changed = submit(store, Command::ChangeTtl { session, ttl_ms }, None).await;
    changed.map_err(StoreError::half_done)?;
    // The tenure may have begun to end in between, with a wait for the old ttl. Proved once more, it
    // ends after the new one or is refused here.
    store.count_heartbeat(session, None, proves).await.map_err(StoreError::half_done)
}

/// Whether a session holds this term and has another ttl. That it has this one already is looked up
/// wherever that costs least.
async fn changes_ttl(
    store: &dyn Store,
    group: &Group,
    session: SessionId,
    term: Term,
    ttl_ms: u64,
) -> StoreResult<bool> {
    let stale = store.ask(Question::session(session), Consistency::Stale).await;
    if stale.is_ok_and(|seen| seen.ttl_ms == ttl_ms) {
        return Ok(false);
    }
    let seen = store.session(session).await?;
    let holds = seen.tenures.iter().any(|tenure| {
        tenure.group == *group && tenure.term == term && tenure.state != OfficeState::Ending
    });
    Ok(holds && seen.ttl_ms != ttl_ms)
}

/// Gives back what the holder has declared lost.
///
/// What is over already, or another's, is not the caller's to resign: a heartbeat that only says so
/// writes nothing. So what the session holds is read first.
async fn resign_disowned(
    store: &dyn Store,
    session: SessionId,
    disowned: Vec<(Group, Term)>,
) -> StoreResult<()> {
    let held = store.session(session).await?.tenures;
    for (group, term) in disowned {
        if !held.iter().any(|tenure| tenure.group == group && tenure.term == term) {
            continue;
        }
        match submit(store, Command::Resign { group, session, term }, None).await {
            // It may have ended since it was read.
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error.half_done()),
        }
    }
    Ok(())
}

/// An answer that the rules never give to this.
pub(super) fn odd(what: &str, answer: &dyn fmt::Debug) -> StoreError {
    StoreError::Corrupt(format!("{what} was answered {answer:?}"))
}
