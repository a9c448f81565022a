//! The way back from a split brain to one leader: stop the group, compare, reconcile, elect again, resume.
//!
//! The group's door is closed first (`regent_election::door`): its leader is told to stop and has its ttl for
//! that, no node is elected, and neither another policy nor a restart opens the door. A node that acts all the
//! same is named, to be ended by hand. The stop is part of the group's state, so an interrupted recovery goes
//! on where it stopped, from any machine.
//!
//! The road not taken: a policy under which no node may lead. A changed policy would have opened the door, and
//! the policy that held before had to be kept in a file. `saved_policy` heals groups that were stopped so.

use std::path::PathBuf;
use std::time::Duration;

use regent::fresh;
use regent::remote::{RemoteError, RemoteResult};
use regent_api::{DoorBody, GroupResponse, MoveGroupRequest, PutGroupRequest};
use regent_election::{Group, RequestId, Revision, Step};

use crate::saved_policy::{SavedPolicy, is_stopping};
use crate::split_brain::{CombinedView, Seen, Servers};

pub use crate::saved_policy::SavedPolicyError;

/// How often servers are asked while something is waited for.
const RECOVERY_POLL_EVERY: Duration = Duration::from_millis(250);
/// How often a request whose outcome is uncertain is repeated: each of them may be.
const REPEATS_MAX: usize = 3;

/// One of the five steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// The leader stops, and no node is elected.
    Stop,
    /// What the terms did.
    Compare,
    /// What was done twice or differently is put in order.
    Reconcile,
    /// Candidates may lead again.
    Elect,
    /// One leads, and no other node acts.
    Resume,
}

impl RecoveryStep {
    /// The word for people and programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Compare => "compare",
            Self::Reconcile => "reconcile",
            Self::Elect => "elect",
            Self::Resume => "resume",
        }
    }

    /// What happens in it, in a clause.
    #[must_use]
    pub const fn about(self, goes_on: bool) -> &'static str {
        match self {
            Self::Stop if goes_on => "continues an earlier recovery; the group is stopped already",
            Self::Stop => {
                "the current leader is asked to stop, and no leader is elected until step 4"
            }
            Self::Compare => "what the leaders of each term did, as far as the servers know",
            Self::Reconcile => "conflicting writes are merged or undone",
            Self::Elect => "candidates may be elected again, under the group's policy",
            Self::Resume => "one leader, and no other node acts",
        }
    }
}

/// What happens on the way.
#[derive(Debug)]
pub enum RecoveryProgress<'a> {
    /// A step begins.
    Began {
        step: RecoveryStep,
        /// Whether an earlier recovery has stopped the group already.
        goes_on: bool,
    },
    /// No node leads, and no node acts as far as any server has heard.
    Stopped,
    /// What the terms did, as far as is known.
    Compared(&'a CombinedView),
    /// Everything was put in order.
    Reconciled(Reconciled),
    /// The store cannot let candidates lead yet; it is asked again until it can. After a restore that takes
    /// as long as leases of its earlier life may run.
    Waits {
        /// What it says.
        why: &'a str,
    },
    /// Candidates may lead again.
    Opened,
    /// One leads, and no other node acts.
    Resumed { leader: String, term: u64 },
    /// No candidate has come yet.
    NoCandidate,
}

impl RecoveryProgress<'_> {
    /// The step it belongs to.
    #[must_use]
    pub const fn step(&self) -> RecoveryStep {
        match self {
            Self::Began { step, .. } => *step,
            Self::Stopped => RecoveryStep::Stop,
            Self::Compared(_) => RecoveryStep::Compare,
            Self::Reconciled(_) => RecoveryStep::Reconcile,
            Self::Waits { .. } | Self::Opened => RecoveryStep::Elect,
            Self::Resumed { .. } | Self::NoCandidate => RecoveryStep::Resume,
        }
    }

    /// What happened, for people.
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Self::Began { step, goes_on } => step.about(*goes_on).to_owned(),
            Self::Stopped => {
                "the group has no leader, and no server has heard of a node that acts".to_owned()
            }
            Self::Compared(sight) => sight.described(),
            Self::Reconciled(Reconciled::ByHand) => "taken as done".to_owned(),
            Self::Reconciled(Reconciled::ByCommand) => "the command succeeded".to_owned(),
            Self::Waits { why } => format!("not yet: {why}; retrying"),
            Self::Opened => "candidates may lead again".to_owned(),
            Self::Resumed { leader, term } => {
                format!("{leader} leads under term {term}, and no other node acts")
            }
            Self::NoCandidate => {
                "no leader yet: the group has no candidate; one may come later".to_owned()
            }
        }
    }
}

/// What the operator is asked before something that cannot be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Shall the group have no leader from here on?
    StopGroup,
    /// Has everything that its leaders wrote been put in order?
    IsReconciled,
    /// Shall candidates be elected again?
    ElectAgain,
}

/// Who has put in order what was done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// A person, or so the operator says.
    ByHand,
    ByCommand,
}

/// The one for whom a group is recovered: is told what happens, is asked back, and reconciles.
pub trait Operator {
    /// Why the operator ends a recovery, and what a recovery ends with.
    type Error: From<RecoveryError>;

    /// Takes note of what happens.
    ///
    /// # Errors
    /// To end the recovery.
    fn report(&mut self, progress: RecoveryProgress<'_>) -> Result<(), Self::Error>;

    /// Agrees to go on.
    ///
    /// # Errors
    /// To end the recovery.
    fn agree(&mut self, question: Question) -> Result<(), Self::Error>;

    /// Puts in order what was done twice or differently.
    ///
    /// # Errors
    /// To end the recovery. Repeated, it comes here again.
    fn reconcile(
        &mut self,
        sight: &CombinedView,
    ) -> impl Future<Output = Result<Reconciled, Self::Error>> + Send;
}

/// Why a recovery ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// A server refused, or could not be asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Not every server can be asked: a node that only such a server hears would be missed. Nothing was done.
    #[error("a node that only an unreachable server has heard of would be missed")]
    NotAllAsked(Vec<(String, String)>),
    /// A server cannot be asked any more.
    #[error("{server} cannot be asked any more: {why}; run this again later")]
    NotAskedAnyMore { server: String, why: String },
    /// Nodes still act after the time that they had to stop.
    #[error("a node still acts")]
    StillActing {
        /// How long they had.
        waited: Duration,
        /// Nodes that act, and their terms.
        acting: Vec<(String, u64)>,
        /// The leader, if it has not said that it stopped.
        leader: Option<String>,
    },
    /// Another operator has resumed the group meanwhile.
    #[error("another operator has resumed the group meanwhile; nothing more was done")]
    ResumedByOthers,
    /// An earlier version stopped the group, and what it kept cannot be had.
    #[error(transparent)]
    SavedPolicy(#[from] SavedPolicyError),
    /// The server does not know how to stop a group.
    #[error("the server did not stop {0}; use servers of this version")]
    NotStopped(Group),
}

/// A recovery that ended early.
#[derive(Debug)]
pub struct Unfinished<E> {
    pub error: E,
    /// Whether the group is stopped, so that no node can lead it until a recovery is finished.
    pub is_stopped: bool,
}

/// A recovery to be made.
#[derive(Clone, Debug)]
pub struct Recovery {
    pub group: Group,
    /// How long a step may wait for others.
    pub wait: Duration,
    /// Where an earlier version would have kept the group's policy.
    pub saved_policy: PathBuf,
}

/// Takes all five steps.
///
/// # Errors
/// Why it ended early. Called again, it goes on where it stopped.
pub async fn recover<O: Operator>(
    recovery: &Recovery,
    servers: &Servers,
    operator: &mut O,
) -> Result<(), Unfinished<O::Error>> {
    let mut walk = Walk { recovery, servers, operator, is_stopped: false };
    let walked = walk.steps().await;
    walked.map_err(|error| Unfinished { error, is_stopped: walk.is_stopped })
}

struct Walk<'a, O> {
    recovery: &'a Recovery,
    servers: &'a Servers,
    operator: &'a mut O,
    /// Whether no node may lead, as far as is known here.
    is_stopped: bool,
}

/// How a group was stopped.
struct Stop {
    /// The stop that a resumption must name.
    since: Revision,
    /// The policy to be put back, if an earlier version stopped the group.
    policy: Option<SavedPolicy>,
}

impl<O: Operator> Walk<'_, O> {
    async fn steps(&mut self) -> Result<(), O::Error> {
        let group = &self.recovery.group;
        let (mut found, unasked) = self.servers.believers(Some(group)).await;
        if !unasked.is_empty() {
            return Err(RecoveryError::NotAllAsked(unasked).into());
        }
        // A node that stopped is not heard any more; what it said about its state counts.
        let before = found.remove(group).unwrap_or_default();
        let stop = self.stop().await?;
        self.begin(RecoveryStep::Compare)?;
        let sight = self.servers.sight(group.clone(), before).await;
        self.operator.report(RecoveryProgress::Compared(&sight))?;
        self.reconcile(&sight, &stop).await?;
        self.elect(&stop).await?;
        SavedPolicy::remove(&self.recovery.saved_policy, group).map_err(RecoveryError::from)?;
        self.resume().await
    }

    fn begin(&mut self, step: RecoveryStep) -> Result<(), O::Error> {
        self.operator.report(RecoveryProgress::Began { step, goes_on: false })
    }

    async fn show(&self) -> Result<GroupResponse, RecoveryError> {
        Ok(self.servers.any.show_group(&self.recovery.group).await?)
    }

    /// A name for one step, so that a try that comes late does nothing.
    fn name(seen: Revision) -> Result<Option<RequestId>, RecoveryError> {
        fresh::request_id(seen).map(Some).map_err(|error| RemoteError::from(error).into())
    }

    async fn step(&self, request: &MoveGroupRequest) -> RemoteResult<GroupResponse> {
        let group = &self.recovery.group;
        repeat(async || self.servers.any.move_group(group, request).await).await
    }

    /// Opens the door. A store that was restored refuses that until the leases of its earlier life are over,
    /// and says for how long: that is waited for, however long a step may wait for others.
    async fn open(&mut self, request: &MoveGroupRequest) -> Result<(), O::Error> {
        let began_at = regent_clock::now();
        let mut until = None;
        loop {
            let (why, retry_after) = match self.step(request).await {
                Ok(_) => return Ok(()),
                Err(RemoteError::Unavailable { why, retry_after, .. }) => (why, retry_after),
                Err(error) => return Err(RecoveryError::from(error).into()),
            };
            let pause = retry_after.unwrap_or(RECOVERY_POLL_EVERY).max(RECOVERY_POLL_EVERY);
            if until.is_none() {
                self.operator.report(RecoveryProgress::Waits { why: &why })?;
            }
            let until = *until.get_or_insert(began_at + self.recovery.wait.max(pause * 2));
            if regent_clock::now() >= until {
                let error = RemoteError::Unavailable { why, retry_after, problem: None };
                return Err(RecoveryError::from(error).into());
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// No node may lead any more, and none acts.
    async fn stop(&mut self) -> Result<Stop, O::Error> {
        let step = RecoveryStep::Stop;
        let group = self.show().await?;
        let is_stopped = matches!(group.door, DoorBody::Stopped { .. });
        let policy = match is_stopping(&group.policy) {
            true => Some(self.saved()?),
            false => None,
        };
        if is_stopped || policy.is_some() {
            self.operator.report(RecoveryProgress::Began { step, goes_on: true })?;
        } else {
            self.begin(step)?;
            self.operator.agree(Question::StopGroup)?;
        }
        self.is_stopped = is_stopped || policy.is_some();
        let since = match group.door {
            // Another stop could end what somebody resumes at this moment.
            DoorBody::Stopped { since } => since,
            DoorBody::Open | DoorBody::Expected { .. } | DoorBody::Moved { .. } => {
                let name = Self::name(group.office.revision)?;
                let stopped = self.step(&MoveGroupRequest::of(Step::Stop, name)).await;
                self.is_stopped |= !matches!(stopped, Err(RemoteError::Refused(_)));
                let DoorBody::Stopped { since } = stopped.map_err(RecoveryError::from)?.door else {
                    return Err(RecoveryError::NotStopped(self.recovery.group.clone()).into());
                };
                since
            }
        };
        let until = regent_clock::now() + self.recovery.wait;
        loop {
            let office = self.show().await?.office;
            let acting = self.look().await?;
            if office.leader.is_none() && !acting.iter().any(Seen::is_fresh) {
                break;
            }
            if regent_clock::now() >= until {
                let leader = office.leader.map(|leader| leader.to_string());
                return Err(self.still_acting(leader, &acting).into());
            }
            tokio::time::sleep(RECOVERY_POLL_EVERY).await;
        }
        self.operator.report(RecoveryProgress::Stopped)?;
        Ok(Stop { since, policy })
    }

    fn saved(&self) -> Result<SavedPolicy, RecoveryError> {
        let Recovery { group, saved_policy: path, .. } = self.recovery;
        let saved = SavedPolicy::read(path, group)?;
        let missing = || SavedPolicyError::Missing { group: group.clone(), path: path.clone() };
        Ok(saved.ok_or_else(missing)?)
    }

    async fn look(&self) -> Result<Vec<Seen>, RecoveryError> {
        let group = &self.recovery.group;
        let (mut found, unasked) = self.servers.believers(Some(group)).await;
        if let Some((server, why)) = unasked.into_iter().next() {
            return Err(RecoveryError::NotAskedAnyMore { server, why });
        }
        Ok(found.remove(group).unwrap_or_default())
    }

    fn still_acting(&self, leader: Option<String>, acting: &[Seen]) -> RecoveryError {
        let fresh = acting.iter().filter(|seen| seen.is_fresh());
        let mut acting: Vec<(String, u64)> = fresh
            .map(|seen| (seen.believer.node_id.to_string(), seen.believer.term.get()))
            .collect();
        acting.sort();
        acting.dedup();
        RecoveryError::StillActing { waited: self.recovery.wait, acting, leader }
    }

    /// Whether this very stop still holds: another operator may have finished.
    async fn must_be_stopped(&mut self, stop: &Stop) -> Result<(), RecoveryError> {
        if self.show().await?.door == (DoorBody::Stopped { since: stop.since }) {
            return Ok(());
        }
        self.is_stopped = false;
        Err(RecoveryError::ResumedByOthers)
    }

    async fn reconcile(&mut self, sight: &CombinedView, stop: &Stop) -> Result<(), O::Error> {
        self.begin(RecoveryStep::Reconcile)?;
        self.must_be_stopped(stop).await?;
        let reconciled = self.operator.reconcile(sight).await?;
        if reconciled == Reconciled::ByHand {
            self.operator.agree(Question::IsReconciled)?;
        }
        self.operator.report(RecoveryProgress::Reconciled(reconciled))
    }

    /// Candidates may lead again, under the policy that held before.
    async fn elect(&mut self, stop: &Stop) -> Result<(), O::Error> {
        self.begin(RecoveryStep::Elect)?;
        self.must_be_stopped(stop).await?;
        self.operator.agree(Question::ElectAgain)?;
        let seen = self.show().await?.office.revision;
        if let Some(saved) = &stop.policy {
            let request_id = Self::name(seen)?;
            let request = PutGroupRequest { policy: saved.policy.clone(), request_id };
            let (any, group) = (&self.servers.any, &self.recovery.group);
            let put = repeat(async || any.put_group(group, &request).await).await;
            put.map_err(RecoveryError::from)?;
        }
        let resume = Step::Resume { since: stop.since };
        self.open(&MoveGroupRequest::of(resume, Self::name(seen)?)).await?;
        self.is_stopped = false;
        self.operator.report(RecoveryProgress::Opened)
    }

    /// One leads, and no other node acts.
    async fn resume(&mut self) -> Result<(), O::Error> {
        self.begin(RecoveryStep::Resume)?;
        let until = regent_clock::now() + self.recovery.wait;
        loop {
            let office = self.show().await?.office;
            let acting = self.look().await?;
            let is_wrong = |seen: &Seen| seen.is_fresh() && seen.believer.fault.is_some();
            let is_disputed = acting.iter().any(is_wrong);
            if let (Some(leader), false) = (&office.leader, is_disputed) {
                let (leader, term) = (leader.to_string(), office.term.get());
                return self.operator.report(RecoveryProgress::Resumed { leader, term });
            }
            if regent_clock::now() >= until {
                if is_disputed {
                    return Err(self.still_acting(None, &acting).into());
                }
                return self.operator.report(RecoveryProgress::NoCandidate);
            }
            tokio::time::sleep(RECOVERY_POLL_EVERY).await;
        }
    }
}

/// Repeats what may be repeated while its outcome is uncertain.
async fn repeat<A>(ask: impl AsyncFn() -> RemoteResult<A>) -> RemoteResult<A> {
    let mut repeats = 0;
    loop {
        match ask().await {
            Err(RemoteError::Uncertain { .. }) if repeats < REPEATS_MAX => repeats += 1,
            ended => return ended,
        }
    }
}
