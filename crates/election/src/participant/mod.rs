//! The participant's machine: one session, any number of groups, no clock, no dice of its own.
//!
//! ```text
//!            elected, or accepted               renewals fail
//!   standby ----------------------> leading <-----------------> jeopardy
//!    ^    ^                            |         renewed            |
//!    |    |                            |  asked, ending, hand-over, |
//!    |    | settled                    |  ill, or lease nearly over |
//!    |    |          work ended        v                            |
//!    |    +-- stopped <----------- stopping <-----------------------+
//!    |                                 |
//!    | settled,                        |  lease over, session gone, superseded, fenced;
//!    | work ended                      v  also straight from leading and jeopardy
//!    +------------------------------- lost
//! ```
//!
//! - **standby**: wants to lead and does not; it campaigns for ever, or stands in line.
//! - **leading**, **jeopardy**, **stopping**: [`Participant::check`] passes while the lease runs. In
//!   jeopardy a renewal that was due is overdue; in stopping the work has been told to end, and no
//!   renewal moves its end any more.
//! - **stopped**: the work has ended, validity with it, and the store is being told.
//! - **lost**: final for that term. The store is told in every heartbeat until it has acknowledged
//!   that, or the session is abandoned (semantics 4).
//!
//! **Validity belongs to the session** (semantics 3). It counts from the *send* of the last
//! acknowledged heartbeat, or of the first try of the opening; winning an election adds none. So one
//! number decides for all groups, and when it passes, all tenures are lost at once: the session is
//! then abandoned for a fresh one, which is a smaller message than disowning each.
//!
//! **Every call judges time first.** [`Participant::on`] lets `now` do its work before it looks at the
//! event, so an answer that outlived its lease finds nothing left to extend. [`Participant::check`]
//! judges by the `now` it is given, so it tells the truth after any pause.
//!
//! **An acknowledgement may come with news.** If its epoch is one the participant has not processed,
//! it extends nothing until the list has been read: tenures that are ending are stopped, promotions
//! accepted, and what is gone is lost (semantics 11, 12).
//!
//! **One request per group at a time**, retried under one id until its outcome is known. A campaign
//! and a withdrawal that overtake each other would leave an office held by nobody.
//!
//! Road not taken: one machine per group with a lease of its own. It would cost a heartbeat per
//! group, and 100,000 leaderships could not be renewed by one message.
//!
//! The rooms: `words` (events and actions), `request` (what is asked of a store), `session` (open,
//! abandon, close), `heartbeat` (validity), `beliefs` (what is told of oneself), `list` (news), `office` (phases of a group), `hand_over`
//! (offers made and received), `errand` and `answer` (requests about a group), `dice` (jitter).

mod answer;
mod beliefs;
mod candidacy;
mod dice;
mod errand;
mod hand_over;
mod heartbeat;
mod list;
mod office;
mod request;
mod session;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use beliefs::Telling;
use candidacy::{Candidacy, Seat, StandbyState};
use dice::Dice;
use heartbeat::SentHeartbeat;
use session::{Closing, Session};

pub use request::{GroupRequest, Reply, Request, Verb};
pub use words::{Action, Attempt, Event, LeadershipProof, Phase, Transition, Trouble, Why};

use crate::damping::Damping;
use crate::limits::GROUPS_PER_SESSION_MAX;
use crate::moment::Moment;
use crate::name::{Group, Metadata, Node, SessionId};
use crate::policy::Priority;
use crate::store::StoreResult;
use crate::term::{Revision, Term};
use crate::timing::Budget;

/// One process run of one node.
#[derive(Clone, Debug)]
pub struct Participant {
    node: Node,
    budget: Budget,
    dice: Dice,
    /// The latest moment it was told; time never runs backwards here.
    now: Moment,
    healthy: bool,
    session: Session,
    /// Fresh sessions asked for in a row without one being opened.
    session_tries: u32,
    closing: Vec<Closing>,
    groups: BTreeMap<Group, Candidacy>,
    /// Groups that lead and have not been told to stop: those that a change of validity concerns.
    leading: BTreeSet<Group>,
    /// Groups whose work runs, entitled to or not: those that are claimed.
    working: BTreeSet<Group>,
    /// Groups that won and wait for a lease worth beginning on.
    won: BTreeSet<Group>,
    /// Groups that have let this node campaign: being refused there later is an operator's passing wish.
    allowed: BTreeSet<Group>,
    /// Whether a session of this process was ever opened.
    was_admitted: bool,
    /// Groups in which the work failed soon after the last election. Kept beside the candidacies, which end with the
    /// wish of the application to stand.
    damped: BTreeMap<Group, Damped>,
    /// When which group needs attention.
    agenda: BTreeSet<(Moment, Group)>,
    /// Groups whose errand is to be sent.
    ready: VecDeque<Group>,
    /// Groups whose errand is under way.
    in_flight: BTreeSet<Group>,
    pending: BTreeMap<Attempt, Pending>,
    attempts_made: u64,
    errands_made: u64,
    /// The highest revision seen in this session.
    revision: Revision,
    /// What the next heartbeat says of this node.
    telling: Telling,
    actions: Vec<Action>,
}

/// A group in which the work failed soon after the last election.
#[derive(Clone, Copy, Debug)]
struct Damped {
    damping: Damping,
    /// No campaign before this.
    until: Moment,
}

/// What an attempt was for.
#[derive(Clone, Debug)]
enum Pending {
    Open,
    Heartbeat(SentHeartbeat),
    List,
    Close(SessionId),
    Errand(Group),
}

impl Participant {
    /// A participant that stands nowhere yet. `seed` is for jitter only and need not be secret.
    #[must_use]
    pub fn new(node: Node, budget: Budget, seed: u64) -> Self {
        Self {
            node,
            budget,
            dice: Dice::new(seed),
            now: Moment::ZERO,
            healthy: true,
            session: Session::Closed,
            session_tries: 0,
            closing: Vec::new(),
            groups: BTreeMap::new(),
            leading: BTreeSet::new(),
            working: BTreeSet::new(),
            won: BTreeSet::new(),
            allowed: BTreeSet::new(),
            was_admitted: false,
            damped: BTreeMap::new(),
            agenda: BTreeSet::new(),
            ready: VecDeque::new(),
            in_flight: BTreeSet::new(),
            pending: BTreeMap::new(),
            attempts_made: 0,
            errands_made: 0,
            revision: Revision::default(),
            telling: Telling::default(),
            actions: Vec::new(),
        }
    }

    /// Advances the participant and says what must be done, in order.
    ///
    /// `now` must have been read *before* anything in the returned actions is sent. The same history
    /// always gives the same actions.
    pub fn on(&mut self, now: Moment, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        // Time before news: what the clock has ended, no answer brings back.
        self.pass_time();
        self.take(event);
        self.pass_time();
        if let Some(wake_at) = self.next_at() {
            self.actions.push(Action::WakeAt(wake_at));
        }
        std::mem::take(&mut self.actions)
    }

    /// Whether this process leads the group at `now`, and for how long. Reads nothing but `now`, so
    /// it is right after any pause; what happens between this answer and a write is the fence's
    /// business (S3).
    #[must_use]
    pub fn check(&self, now: Moment, group: &Group) -> Option<LeadershipProof> {
        let now = now.max(self.now);
        let (term, valid_until) = self.valid_until(group)?;
        (now < valid_until).then(|| LeadershipProof { term, remaining: now.until(valid_until) })
    }

    /// The term held in a group and the moment its validity ends unless it is renewed, for drivers
    /// that answer checks without asking the machine.
    #[must_use]
    pub fn valid_until(&self, group: &Group) -> Option<(Term, Moment)> {
        let candidacy = self.groups.get(group)?;
        match candidacy.seat {
            Seat::Leading { term } | Seat::Jeopardy { term } => {
                Some((term, self.session.lease()?.until))
            }
            Seat::Stopping { term, by, .. } => Some((term, by)),
            Seat::Standby(_) | Seat::Stopped { .. } | Seat::Lost { .. } => None,
        }
    }

    /// When the session's validity ends unless it is renewed: the end of every term that leads and
    /// has not been told to stop. One number for drivers that answer checks of many groups.
    #[must_use]
    pub const fn lease_until(&self) -> Option<Moment> {
        match self.session.lease() {
            Some(lease) => Some(lease.until),
            None => None,
        }
    }

    /// Whether a campaign of this node was ever let into this group.
    #[must_use]
    pub fn was_allowed(&self, group: &Group) -> bool {
        self.allowed.contains(group)
    }

    /// Whether the store ever opened a session for this process.
    #[must_use]
    pub const fn was_admitted(&self) -> bool {
        self.was_admitted
    }

    /// The phase of a group; none if it does not stand there.
    #[must_use]
    pub fn phase(&self, group: &Group) -> Option<Phase> {
        self.groups.get(group).map(|candidacy| candidacy.seat.phase())
    }

    /// The groups it stands in or has yet to settle, with their phases.
    pub fn phases(&self) -> impl Iterator<Item = (&Group, Phase)> {
        self.groups.iter().map(|(group, candidacy)| (group, candidacy.seat.phase()))
    }

    /// Whether nothing is left: no group, no session, nothing to tell the store.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.groups.is_empty() && self.closing.is_empty() && matches!(self.session, Session::Closed)
    }

    /// The timers it runs on.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Stand { group, priority, metadata } => self.stand(group, priority, metadata),
            Event::Withdraw { group } => self.withdraw(&group),
            Event::Leave => {
                for group in self.groups.keys().cloned().collect::<Vec<_>>() {
                    self.withdraw(&group);
                }
            }
            Event::Resign { group } => self.resign(&group),
            Event::Transfer { group, to, within } => self.hand_over(&group, to, within),
            Event::Warm { group, term } => self.warm(&group, term),
            Event::Stopped { group } => self.work_ended(&group),
            Event::FenceRefused { group, term } => {
                self.note_refusal(&group, term);
                if self.groups.get(&group).is_some_and(|c| c.seat.held() == Some(term)) {
                    self.lose(&group, Why::FenceRefused);
                }
            }
            Event::Digest { group, term, digest } => self.set_digest(&group, term, digest),
            Event::Failed { group, term } => {
                if self.groups.get(&group).is_some_and(|c| c.seat.held() == Some(term)) {
                    self.work_failed(&group);
                }
            }
            Event::Renew => self.hurry_heartbeat(),
            Event::Healthy => self.set_health(true),
            Event::Unhealthy => self.set_health(false),
            Event::Watched { group, term, leader } => self.watched(&group, term, leader.as_ref()),
            Event::Session(id) => self.session_given(id),
            Event::Answered { attempt, answer } => self.answered(attempt, answer),
            Event::Tick => {}
        }
    }

    fn answered(&mut self, attempt: Attempt, answer: StoreResult<Reply>) {
        // An attempt that is not known was answered before, or belongs to an abandoned session.
        match self.pending.remove(&attempt) {
            Some(Pending::Open) => self.open_answered(attempt, answer),
            Some(Pending::Heartbeat(sent)) => self.heartbeat_answered(attempt, sent, answer),
            Some(Pending::List) => self.list_answered(attempt, answer),
            Some(Pending::Close(id)) => self.close_answered(id, &answer),
            Some(Pending::Errand(group)) => self.errand_answered(&group, attempt, answer),
            None => {}
        }
    }

    /// Everything that the clock alone brings about.
    fn pass_time(&mut self) {
        self.judge();
        self.session_due();
        while self.agenda.first().is_some_and(|(due_at, _)| *due_at <= self.now) {
            if let Some((_, group)) = self.agenda.pop_first() {
                self.group_due(&group);
            }
        }
        self.send_ready();
    }

    fn next_at(&self) -> Option<Moment> {
        let group_at = self.agenda.first().map(|(due_at, _)| *due_at);
        [self.session_next_at(), group_at].into_iter().flatten().min()
    }

    fn stand(&mut self, group: Group, priority: Priority, metadata: Metadata) {
        let now = self.now;
        if let Some(candidacy) = self.groups.get_mut(&group) {
            let is_changed = candidacy.priority != priority || candidacy.metadata != metadata;
            candidacy.wants = true;
            candidacy.priority = priority;
            candidacy.metadata = metadata;
            if is_changed && candidacy.seat == Seat::Standby(StandbyState::Standing) {
                // Campaigning again keeps its place in line and tells what has changed.
                candidacy.set_line(StandbyState::Out { campaign_at: now });
            }
        } else if self.groups.len() < GROUPS_PER_SESSION_MAX {
            // What is being given back is over, though the store may still say that it is held: the
            // heartbeat that disowns it lets the next leader begin.
            let over = self.highest_disowned(&group);
            let damped_until = self.damped.get(&group).map_or(Moment::ZERO, |it| it.until);
            self.groups.insert(
                group.clone(),
                Candidacy { over, damped_until, ..Candidacy::new(priority, metadata, now) },
            );
        } else {
            self.trouble(Some(&group), Trouble::TooManyGroups);
            return;
        }
        self.want_session();
        self.plan(&group);
    }

    fn trouble(&mut self, group: Option<&Group>, trouble: Trouble) {
        self.actions.push(Action::Trouble { group: group.cloned(), trouble });
    }

    fn send(&mut self, pending: Pending, request: Request) -> Attempt {
        self.attempts_made += 1;
        let attempt = Attempt(self.attempts_made);
        self.pending.insert(attempt, pending);
        self.actions.push(Action::Send { attempt, request });
        attempt
    }

    fn saw(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }
}
