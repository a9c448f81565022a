//! The driver: who in this process works under which term. No clock, no dice, no thread.
//!
//! The participant's machine knows one session and its groups. An application knows calls that wait
//! to be elected, handles, permits and tasks. The driver stands between them: it gives each won term
//! to the claim that has waited longest, and says "the work has ended" only when nothing of that term
//! is alive any more (semantics 14). It also holds heartbeats back while the application's runtime
//! is hung (semantics 31): a process that cannot do its work must not keep its office.
//!
//! It has the shape of every machine here, `on(now, input) -> outputs`, so that the thread of a real
//! process, a unit test and a simulator run the same code.
//!
//! Road not taken: to count handles inside the participant. Its rules would then speak of Rust's
//! references, and no other language could use them.

mod probe;
#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::limits::CREDENTIAL_REFUSALS_MAX;
use crate::participant::{Action, Event, Phase, Request, Transition, Trouble};
use crate::store::StoreError;
use crate::{Budget, Group, Metadata, Moment, Node, Participant, Priority, Refusal, Term};

pub use probe::RuntimeProbe;
pub use words::{ClaimId, HandOverFault, Input, Output, PermanentFailure};

/// One session of one process, and everything that works under it.
#[derive(Clone, Debug)]
pub struct Driver {
    machine: Participant,
    probe: Option<RuntimeProbe>,
    posts: BTreeMap<Group, Post>,
    /// In which group a claim waits.
    claims: BTreeMap<ClaimId, Group>,
    /// Groups that are being settled, each with the term that ends; none if there was no term.
    unsettled_terms: BTreeMap<Group, Term>,
    /// How often the store refused the first session because of the credential.
    credential_refusals: u32,
    has_left: bool,
    events: VecDeque<Event>,
    outputs: Vec<Output>,
    wake_at: Option<Moment>,
}

/// What this process does in one group.
#[derive(Clone, Debug, Default)]
struct Post {
    line: VecDeque<Claim>,
    /// The term that something here works under.
    tenure: Option<Term>,
    is_handing_over: bool,
}

#[derive(Clone, Debug)]
struct Claim {
    id: ClaimId,
    priority: Priority,
    metadata: Metadata,
}

impl Driver {
    /// A driver that stands nowhere. `seed` is for jitter only; with a `probe` it renews only while
    /// the application answers.
    #[must_use]
    pub fn new(node: Node, budget: Budget, seed: u64, probe: Option<RuntimeProbe>) -> Self {
        Self {
            machine: Participant::new(node, budget, seed),
            probe,
            posts: BTreeMap::new(),
            claims: BTreeMap::new(),
            unsettled_terms: BTreeMap::new(),
            credential_refusals: 0,
            has_left: false,
            events: VecDeque::new(),
            outputs: Vec::new(),
            wake_at: None,
        }
    }

    /// Advances the driver and says what must be done, in order.
    ///
    /// `now` must have been read before anything in the outputs is sent. The same history always
    /// gives the same outputs.
    pub fn on(&mut self, now: Moment, input: Input) -> Vec<Output> {
        self.take(now, input);
        if self.events.is_empty() {
            self.events.push_back(Event::Tick);
        }
        while let Some(event) = self.events.pop_front() {
            self.wake_at = None;
            for action in self.machine.on(now, event) {
                self.act(now, action);
            }
        }
        self.finish_settled_terms();
        let is_idle = self.machine.is_done();
        if let Some(probe) = &mut self.probe
            && probe.is_due(now, is_idle)
        {
            self.outputs.push(Output::Probe);
        }
        if self.has_left && is_idle {
            self.outputs.push(Output::Done);
        }
        let probe_at = self.probe.as_ref().and_then(|probe| probe.next_at(is_idle));
        if let Some(wake_at) = [self.wake_at, probe_at].into_iter().flatten().min() {
            self.outputs.push(Output::WakeAt(wake_at));
        }
        std::mem::take(&mut self.outputs)
    }

    /// When the validity of every term that has not been told to stop ends, unless it is renewed.
    #[must_use]
    pub fn lease_until(&self) -> Option<Moment> {
        self.machine.lease_until()
    }

    /// The timers it runs on.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        self.machine.budget()
    }

    /// The phase of a group; none if nobody here stands there.
    #[must_use]
    pub fn phase(&self, group: &Group) -> Option<Phase> {
        self.machine.phase(group)
    }

    fn take(&mut self, now: Moment, input: Input) {
        match input {
            Input::Claim { claim, group, priority, metadata } => {
                self.claim(now, group, Claim { id: claim, priority, metadata });
            }
            Input::Unclaim { claim } => self.unclaim(claim),
            Input::GiveUp { group, term } => self.give_up(group, term),
            Input::HandOver { group, term, to, within } => {
                self.hand_over(group, term, to, within);
            }
            Input::Warm { group, term } => self.events.push_back(Event::Warm { group, term }),
            Input::Idle { group, term } => self.idle(group, term),
            Input::FenceRefused { group, term } => {
                self.events.push_back(Event::FenceRefused { group, term });
            }
            Input::Failed { group, term } => {
                self.events.push_back(Event::Failed { group, term });
            }
            Input::Digest { group, term, digest } => {
                self.events.push_back(Event::Digest { group, term, digest });
            }
            Input::Renew => self.events.push_back(Event::Renew),
            Input::Health { is_healthy: true } => self.events.push_back(Event::Healthy),
            Input::Health { is_healthy: false } => self.events.push_back(Event::Unhealthy),
            Input::Alive { at } => {
                if let Some(probe) = &mut self.probe {
                    probe.answered(now, at);
                }
            }
            Input::Sighted { group, term, leader } => {
                self.events.push_back(Event::Watched { group, term, leader });
            }
            Input::Session(id) => self.events.push_back(Event::Session(id)),
            Input::Answered { attempt, answer } => {
                self.events.push_back(Event::Answered { attempt, answer });
            }
            Input::Leave => self.leave(),
            Input::Tick => {}
        }
    }

    fn claim(&mut self, now: Moment, group: Group, claim: Claim) {
        if self.has_left {
            self.outputs.push(Output::Failed { claim: claim.id, why: PermanentFailure::Left });
            return;
        }
        if let Some(probe) = self.probe.as_mut().filter(|_| self.machine.is_done()) {
            // Nobody was asked while nothing was held; the claim itself is a sign of life.
            probe.begin(now);
        }
        self.claims.insert(claim.id, group.clone());
        let outputs = &mut self.outputs;
        let post = self.posts.entry(group.clone()).or_insert_with(|| {
            outputs.push(Output::Watch(group.clone()));
            Post::default()
        });
        post.line.push_back(claim);
        self.stand(&group);
    }

    /// Stands as the claim that is next. Told again, it changes what is claimed in the next campaign.
    fn stand(&mut self, group: &Group) {
        if let Some(next) = self.posts.get(group).and_then(|post| post.line.front()) {
            let (priority, metadata) = (next.priority, next.metadata.clone());
            self.events.push_back(Event::Stand { group: group.clone(), priority, metadata });
        }
    }

    fn unclaim(&mut self, claim: ClaimId) {
        let Some(group) = self.claims.remove(&claim) else { return };
        let Some(post) = self.posts.get_mut(&group) else { return };
        post.line.retain(|waiting| waiting.id != claim);
        if post.line.is_empty() && post.tenure.is_none() {
            self.withdraw(group, Term::NONE);
        } else {
            self.stand(&group);
        }
    }

    /// Leaves a group once the store knows of the end of `term`.
    fn withdraw(&mut self, group: Group, term: Term) {
        self.events.push_back(Event::Withdraw { group: group.clone() });
        let owed = self.unsettled_terms.entry(group).or_insert(Term::NONE);
        *owed = (*owed).max(term);
    }

    fn give_up(&mut self, group: Group, term: Term) {
        let Some(post) = self.posts.get(&group).filter(|post| post.tenure == Some(term)) else {
            return;
        };
        if !self.leads(&group) {
            return;
        }
        self.events.push_back(if post.line.is_empty() {
            Event::Withdraw { group }
        } else {
            Event::Resign { group }
        });
    }

    fn hand_over(&mut self, group: Group, term: Term, to: Node, within: Duration) {
        let leads = self.leads(&group);
        match self.posts.get_mut(&group).filter(|post| post.tenure == Some(term) && leads) {
            Some(post) => {
                post.is_handing_over = true;
                self.events.push_back(Event::Transfer { group, to, within });
            }
            None => {
                let (given, leader) = (term, None);
                let refusal = Refusal::NotLeader { group: group.clone(), given, term, leader };
                let why = HandOverFault::Refused(StoreError::Refused(refusal));
                self.outputs.push(Output::HandOverRefused { group, term, why });
            }
        }
    }

    fn leads(&self, group: &Group) -> bool {
        matches!(self.machine.phase(group), Some(Phase::Leading | Phase::Jeopardy))
    }

    fn idle(&mut self, group: Group, term: Term) {
        let Some(post) = self.posts.get_mut(&group).filter(|post| post.tenure == Some(term)) else {
            return;
        };
        post.tenure = None;
        let is_last = post.line.is_empty();
        // In this order: a withdrawal that came first would turn a hand-over into a resignation.
        self.events.push_back(Event::Stopped { group: group.clone() });
        if is_last {
            self.withdraw(group, term);
        } else {
            self.stand(&group);
            self.unsettled_terms.insert(group, term);
        }
    }

    fn leave(&mut self) {
        self.has_left = true;
        let groups: Vec<Group> = self.posts.keys().cloned().collect();
        for group in groups {
            self.fail_line(&group, &PermanentFailure::Left);
            self.unsettled_terms.entry(group).or_insert(Term::NONE);
        }
        self.events.push_back(Event::Leave);
    }

    fn fail_line(&mut self, group: &Group, why: &PermanentFailure) {
        let Some(post) = self.posts.get_mut(group) else { return };
        for claim in std::mem::take(&mut post.line) {
            self.claims.remove(&claim.id);
            self.outputs.push(Output::Failed { claim: claim.id, why: why.clone() });
        }
    }

    fn act(&mut self, now: Moment, action: Action) {
        match action {
            Action::Send { attempt, request } => {
                let hung_for = self.probe.as_ref().and_then(|probe| probe.hung_for(now));
                match hung_for {
                    // What would keep or earn validity waits until the application answers.
                    Some(hung_for) if earns_validity(&request) => {
                        let hung_ms = hung_for.as_millis();
                        let why = format!(
                            "the application's runtime has not answered for {hung_ms} ms, so its lease is not renewed; do not block it"
                        );
                        let answer = Err(StoreError::Unavailable { why, retry_after: None });
                        self.events.push_back(Event::Answered { attempt, answer });
                    }
                    Some(_) | None => self.outputs.push(Output::Send { attempt, request }),
                }
            }
            Action::Transition(transition) => self.moved(transition),
            Action::StopWork { group, term, by } => {
                self.outputs.push(Output::Stop { group, term, by });
            }
            Action::LastResort { group, term } => {
                self.outputs.push(Output::LastResort { group, term });
            }
            Action::Offered { group, term, by } => {
                self.outputs.push(Output::Offered { group, term, by });
            }
            Action::OfferOver { group, term } => {
                self.outputs.push(Output::OfferOver { group, term });
            }
            Action::NeedSession => self.outputs.push(Output::NeedSession),
            Action::Trouble { group, trouble } => self.trouble(group, trouble),
            Action::WakeAt(at) => self.wake_at = Some(at),
        }
    }

    fn moved(&mut self, transition: Transition) {
        let (group, term) = (transition.group.clone(), transition.term);
        let is_elected = (transition.from, transition.to) == (Phase::Standby, Phase::Leading);
        self.outputs.push(Output::Moved(transition));
        if !is_elected {
            return;
        }
        let post = self.posts.entry(group.clone()).or_default();
        match post.line.pop_front() {
            Some(claim) => {
                post.tenure = Some(term);
                post.is_handing_over = false;
                self.claims.remove(&claim.id);
                self.outputs.push(Output::Elected { claim: claim.id, group, term });
            }
            // Nobody waits for it: no work begins, so it has ended.
            None => {
                self.events.push_back(Event::Stopped { group: group.clone() });
                self.withdraw(group, term);
            }
        }
    }

    fn trouble(&mut self, group: Option<Group>, trouble: Trouble) {
        match (&group, &trouble) {
            // The session stands, so the process was let in before and may be about to show the next credential.
            (Some(_), Trouble::Store(StoreError::Refused(Refusal::Unauthenticated { .. }))) => {}
            (Some(group), Trouble::Store(StoreError::Refused(refusal))) => {
                let why = HandOverFault::Refused(StoreError::Refused(refusal.clone()));
                // An operator who stops a group for a while must not end everybody that stands there.
                let is_passing = matches!(refusal, Refusal::NotAllowed { .. })
                    && self.machine.was_allowed(group);
                if !self.hand_over_failed(group, why) && is_permanent(refusal) && !is_passing {
                    self.fail_all_claims(
                        &group.clone(),
                        &PermanentFailure::Refused(refusal.clone()),
                    );
                }
            }
            (Some(group), Trouble::NotWarm { .. }) => {
                self.hand_over_failed(group, HandOverFault::NotWarm);
            }
            (Some(group), Trouble::TooManyGroups) => {
                self.fail_all_claims(&group.clone(), &PermanentFailure::TooManyGroups);
            }
            (None, Trouble::Store(StoreError::Refused(refusal)))
                if is_permanent(refusal) || self.is_stranger(refusal) =>
            {
                for group in self.posts.keys().cloned().collect::<Vec<_>>() {
                    self.fail_all_claims(&group, &PermanentFailure::Refused(refusal.clone()));
                }
            }
            (
                Some(_) | None,
                Trouble::NotLeading
                | Trouble::TooManyGroups
                | Trouble::NotWarm { .. }
                | Trouble::SessionShared { .. }
                | Trouble::Damped { .. }
                | Trouble::Store(_),
            ) => {}
        }
        self.outputs.push(Output::Trouble { group, trouble });
    }

    /// Whether a process that never had a session is refused because of its credential, and not for the first time: a
    /// replica that lags behind may not know a token that was made this moment.
    fn is_stranger(&mut self, refusal: &Refusal) -> bool {
        let is_of_credential =
            matches!(refusal, Refusal::Unauthenticated { .. } | Refusal::CredentialOver { .. });
        if !is_of_credential || self.machine.was_admitted() {
            return false;
        }
        self.credential_refusals += 1;
        self.credential_refusals >= CREDENTIAL_REFUSALS_MAX
    }

    /// Tells that a hand-over failed; says whether one was under way.
    fn hand_over_failed(&mut self, group: &Group, why: HandOverFault) -> bool {
        let Some(post) = self.posts.get_mut(group) else { return false };
        if !std::mem::take(&mut post.is_handing_over) {
            return false;
        }
        let term = self.term_of(group);
        self.outputs.push(Output::HandOverRefused { group: group.clone(), term, why });
        true
    }

    /// The term that ends or is held in a group.
    fn term_of(&self, group: &Group) -> Term {
        let held = self.posts.get(group).and_then(|post| post.tenure);
        held.or_else(|| self.unsettled_terms.get(group).copied()).unwrap_or(Term::NONE)
    }

    /// Every claim of a group that holds nothing fails.
    fn fail_all_claims(&mut self, group: &Group, why: &PermanentFailure) {
        if self.posts.get(group).is_none_or(|post| post.tenure.is_some()) {
            return;
        }
        self.fail_line(group, why);
        self.withdraw(group.clone(), Term::NONE);
    }

    /// Says which terms are settled, and forgets groups in which nothing is left.
    fn finish_settled_terms(&mut self) {
        let groups: Vec<Group> = self.unsettled_terms.keys().cloned().collect();
        for group in groups {
            let phase = self.machine.phase(&group);
            match phase {
                Some(Phase::Leading | Phase::Jeopardy | Phase::Stopping) => continue,
                Some(Phase::Stopped | Phase::Lost) => continue,
                Some(Phase::Standby) | None => {}
            }
            let Some(owed) = self.unsettled_terms.get_mut(&group) else { continue };
            let term = std::mem::replace(owed, Term::NONE);
            if term != Term::NONE {
                self.outputs.push(Output::Over { group: group.clone(), term });
                if let Some(post) = self.posts.get_mut(&group).filter(|it| it.tenure.is_none()) {
                    post.is_handing_over = false;
                }
            }
            let is_empty = self
                .posts
                .get(&group)
                .is_none_or(|post| post.line.is_empty() && post.tenure.is_none());
            if !is_empty {
                self.unsettled_terms.remove(&group);
            } else if phase.is_none() {
                self.unsettled_terms.remove(&group);
                self.posts.remove(&group);
                self.outputs.push(Output::Unwatch(group));
            }
        }
    }
}

/// Whether a request keeps a session alive or opens one.
fn earns_validity(request: &Request) -> bool {
    match request {
        Request::Open(_) | Request::Heartbeat(_) => true,
        Request::List(_) | Request::Close(_) | Request::Campaign(_) | Request::Group(_) => false,
    }
}

/// Whether asking again can never help. The participant itself would try for ever.
fn is_permanent(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::NotAllowed { .. }
        | Refusal::GroupUnknown { .. }
        | Refusal::TtlOutOfBounds { .. }
        | Refusal::TermsExhausted { .. }
        | Refusal::Moved { .. }
        | Refusal::Denied { .. }
        | Refusal::Access(_)
        | Refusal::Policy(_) => true,
        Refusal::SessionUnknown
        | Refusal::SessionMismatch
        | Refusal::HeartbeatNotNewer { .. }
        | Refusal::NotLeader { .. }
        | Refusal::TenureEnding { .. }
        | Refusal::GroupEnding { .. }
        | Refusal::OnItsWay { .. }
        | Refusal::NotExpected { .. }
        | Refusal::Stopped { .. }
        | Refusal::StillLed { .. }
        | Refusal::TermTooHigh { .. }
        | Refusal::NobodyLeads { .. }
        | Refusal::Full { .. }
        | Refusal::StateFull { .. }
        | Refusal::ShareFull { .. }
        | Refusal::SuccessorUnknown { .. }
        | Refusal::SuccessorAmbiguous { .. }
        | Refusal::SuccessorSilent { .. }
        | Refusal::NoOffer { .. }
        | Refusal::StaleTerm { .. }
        | Refusal::NeverGranted { .. }
        | Refusal::TermOver { .. }
        | Refusal::FenceUnknown { .. }
        | Refusal::SessionOfAnother
        | Refusal::Unauthenticated { .. }
        | Refusal::CredentialOver { .. }
        | Refusal::BindingsChanged { .. }
        | Refusal::TokenUnknown { .. }
        | Refusal::TokenExists { .. }
        | Refusal::SecondApprovalNeeded { .. }
        | Refusal::NobodyToApprove { .. }
        | Refusal::RequestTooOld { .. }
        | Refusal::RequestAhead { .. }
        | Refusal::RequestReused => false,
    }
}
