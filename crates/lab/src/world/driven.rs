//! A participant's machine in the lab: the bare one, or the library's driver around it.
//!
//! Half of the members run what an application runs that uses the library: [`Driver`], the machine
//! behind `campaign`, `Leadership` and permits. This file is the application around it. It claims a
//! term, works under it, says when nothing of it is alive any more, and claims the next one; now and
//! then it hangs and does not answer the probe (semantics 31). A check is what the library's check is:
//! the session's lease and the term's own end, whichever is earlier.
//!
//! Road not taken: a second kind of member. Faults, scripts and checkers would have to know both, and
//! what they prove would be proved of one of them only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use regent_election::driver::{ClaimId, Driver, Input, Output, RuntimeProbe};
use regent_election::participant::{Action, Event, Participant, Phase, Transition};
use regent_election::{Budget, Group, Metadata, Moment, Node, Priority, Term};

use crate::dice::Dice;

/// How long an application waits before it claims again what it was refused.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// One question in so many meets an application that hangs.
const HANGS_ONCE_IN: u64 = 64;

/// What decides for a member.
#[derive(Debug)]
pub(super) enum Machine {
    /// The participant's rules alone.
    Bare(Box<Participant>),
    /// The library's driver, and an application around it.
    Driven(Box<Driven>),
}

/// What decides for a member, and how its application goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The participant's rules alone.
    Bare,
    /// The driver; its application wants what it wanted once for ever, and now and then hangs.
    Driven,
    /// The driver; its application wants a term as often as it is told to.
    Obedient,
    /// The driver; its application wants what it wanted once until it says otherwise.
    Attentive,
}

impl Machine {
    pub(super) fn new(node: Node, budget: Budget, seed: u64, manner: Manner) -> Self {
        match manner {
            Manner::Bare => Self::Bare(Box::new(Participant::new(node, budget, seed))),
            Manner::Driven | Manner::Obedient | Manner::Attentive => {
                Self::Driven(Box::new(Driven::new(node, budget, seed, manner)))
            }
        }
    }

    /// Tells it something and says what must be done. In calm times no application hangs.
    pub(super) fn on(&mut self, now: Moment, event: Event, is_calm: bool) -> Vec<Action> {
        match self {
            Self::Bare(participant) => participant.on(now, event),
            Self::Driven(driven) => driven.on(now, event, is_calm),
        }
    }

    /// The term under which a check passes at `now`.
    pub(super) fn check(&self, now: Moment, group: &Group) -> Option<Term> {
        match self {
            Self::Bare(participant) => participant.check(now, group).map(|held| held.term),
            Self::Driven(driven) => {
                driven.valid_until(group).and_then(|(term, until)| (now < until).then_some(term))
            }
        }
    }

    pub(super) fn phase(&self, group: &Group) -> Option<Phase> {
        match self {
            Self::Bare(participant) => participant.phase(group),
            Self::Driven(driven) => driven.driver.phase(group),
        }
    }

    /// What it holds, and when the validity of each ends unless it is renewed.
    pub(super) fn held(&self) -> BTreeMap<Group, (Term, Moment)> {
        match self {
            Self::Bare(participant) => participant
                .phases()
                .filter_map(|(group, _)| Some((group.clone(), participant.valid_until(group)?)))
                .collect(),
            Self::Driven(driven) => driven
                .work
                .keys()
                .filter_map(|group| Some((group.clone(), driven.valid_until(group)?)))
                .filter(|(_, (_, until))| *until > Moment::ZERO)
                .collect(),
        }
    }
}

/// An application over the library's driver.
#[derive(Debug)]
pub(super) struct Driven {
    driver: Driver,
    budget: Budget,
    dice: Dice,
    manner: Manner,
    wants: BTreeMap<Group, Priority>,
    claims: BTreeMap<Group, ClaimId>,
    claims_made: u64,
    work: BTreeMap<Group, Work>,
    /// Claims to be made again, and when.
    again: BTreeMap<Group, Moment>,
    /// Whether the driver waits for a sign of life, and until when there is none.
    is_asked: bool,
    hangs_until: Moment,
    inputs: VecDeque<Input>,
    actions: Vec<Action>,
    wake_at: Option<Moment>,
}

/// What works under one term.
#[derive(Clone, Copy, Debug)]
struct Work {
    term: Term,
    /// The end that is this term's own. It only ever falls.
    own_until: Moment,
}

impl Driven {
    fn new(node: Node, budget: Budget, seed: u64, manner: Manner) -> Self {
        let probe = Some(RuntimeProbe::new(&budget));
        Self {
            driver: Driver::new(node, budget, seed, probe),
            budget,
            dice: Dice::new(seed),
            manner,
            wants: BTreeMap::new(),
            claims: BTreeMap::new(),
            claims_made: 0,
            work: BTreeMap::new(),
            again: BTreeMap::new(),
            is_asked: false,
            hangs_until: Moment::ZERO,
            inputs: VecDeque::new(),
            actions: Vec::new(),
            wake_at: None,
        }
    }

    fn valid_until(&self, group: &Group) -> Option<(Term, Moment)> {
        let Work { term, own_until } = *self.work.get(group)?;
        let lease_until = self.driver.lease_until().unwrap_or(Moment::ZERO);
        Some((term, own_until.min(lease_until)))
    }

    fn on(&mut self, now: Moment, event: Event, is_calm: bool) -> Vec<Action> {
        self.take(event);
        self.due(now);
        while let Some(input) = self.inputs.pop_front() {
            self.wake_at = None;
            for output in self.driver.on(now, input) {
                self.act(now, output, is_calm);
            }
        }
        let answer_at = self.is_asked.then_some(self.hangs_until);
        let again_at = self.again.values().copied().min();
        if let Some(at) = [self.wake_at, answer_at, again_at].into_iter().flatten().min() {
            self.actions.push(Action::WakeAt(at));
        }
        std::mem::take(&mut self.actions)
    }

    fn take(&mut self, event: Event) {
        let input = match event {
            Event::Stand { group, priority, .. } => {
                if self.manner != Manner::Obedient {
                    self.wants.insert(group.clone(), priority);
                }
                return self.claim(group, priority);
            }
            Event::Withdraw { group } => {
                self.wants.remove(&group);
                self.again.remove(&group);
                if let Some(claim) = self.claims.remove(&group) {
                    self.inputs.push_back(Input::Unclaim { claim });
                }
                return self.give_up(group);
            }
            Event::Resign { group } => return self.give_up(group),
            Event::Transfer { group, to, within } => {
                let Some(Work { term, .. }) = self.work.get(&group).copied() else { return };
                Input::HandOver { group, term, to, within }
            }
            Event::Stopped { group } => return self.work_ended(group),
            Event::Leave => Input::Leave,
            Event::Warm { group, term } => Input::Warm { group, term },
            Event::FenceRefused { group, term } => Input::FenceRefused { group, term },
            Event::Failed { group, term } => Input::Failed { group, term },
            Event::Digest { group, term, digest } => Input::Digest { group, term, digest },
            Event::Renew => Input::Renew,
            Event::Healthy => Input::Health { is_healthy: true },
            Event::Unhealthy => Input::Health { is_healthy: false },
            Event::Watched { group, term, leader } => Input::Sighted { group, term, leader },
            Event::Session(id) => Input::Session(id),
            Event::Answered { attempt, answer } => Input::Answered { attempt, answer },
            Event::Tick => Input::Tick,
        };
        self.inputs.push_back(input);
    }

    /// What time brings about in the application.
    fn due(&mut self, now: Moment) {
        let again: Vec<Group> =
            self.again.iter().filter(|(_, at)| **at <= now).map(|(at, _)| at.clone()).collect();
        for group in again {
            self.again.remove(&group);
            let priority = self.wants.get(&group).copied().unwrap_or_default();
            self.claim(group, priority);
        }
        if self.is_asked && self.hangs_until <= now {
            self.is_asked = false;
            self.inputs.push_back(Input::Alive { at: now });
        }
    }

    /// Claims a term, behind the one it has if it has one: now and then somebody waits for that.
    fn claim(&mut self, group: Group, priority: Priority) {
        let is_waiting = self.claims.contains_key(&group);
        let may_queue = self.manner == Manner::Driven;
        let has_one = self.work.contains_key(&group);
        if is_waiting || (has_one && !(may_queue && self.dice.once_in(4))) {
            return;
        }
        self.claims_made += 1;
        let (claim, metadata) = (ClaimId(self.claims_made), Metadata::NONE);
        self.claims.insert(group.clone(), claim);
        self.inputs.push_back(Input::Claim { claim, group, priority, metadata });
    }

    fn give_up(&mut self, group: Group) {
        if let Some(Work { term, .. }) = self.work.get(&group).copied() {
            self.inputs.push_back(Input::GiveUp { group, term });
        }
    }

    /// Nothing works any more: validity ends first, then it is said so, then the next term is claimed.
    fn work_ended(&mut self, group: Group) {
        let Some(Work { term, .. }) = self.work.remove(&group) else { return };
        self.inputs.push_back(Input::Idle { group: group.clone(), term });
        if let Some(priority) = self.wants.get(&group).copied() {
            self.claim(group, priority);
        }
    }

    fn act(&mut self, now: Moment, output: Output, is_calm: bool) {
        let action = match output {
            Output::Send { attempt, request } => Action::Send { attempt, request },
            Output::Elected { group, term, .. } => {
                self.claims.remove(&group);
                let own_until = Moment::from_nanos(u64::MAX);
                let before = self.work.insert(group, Work { term, own_until });
                assert!(before.is_none(), "two terms of one group in one process: {before:?}");
                return;
            }
            Output::Failed { claim, .. } => {
                let found = self.claims.iter().find(|(_, known)| **known == claim);
                if let Some(group) = found.map(|(group, _)| group.clone()) {
                    self.claims.remove(&group);
                    if self.manner != Manner::Obedient {
                        self.again.insert(group, now + CLAIM_AGAIN_AFTER);
                    }
                }
                return;
            }
            Output::Moved(transition) => {
                self.moved(&transition);
                Action::Transition(transition)
            }
            Output::Stop { group, term, by } => {
                self.lower(&group, term, by);
                Action::StopWork { group, term, by }
            }
            Output::LastResort { group, term } => Action::LastResort { group, term },
            Output::Offered { group, term, by } => Action::Offered { group, term, by },
            Output::OfferOver { group, term } => Action::OfferOver { group, term },
            Output::Probe => return self.asked(now, is_calm),
            Output::NeedSession => Action::NeedSession,
            Output::Trouble { group, trouble } => Action::Trouble { group, trouble },
            Output::WakeAt(at) => {
                self.wake_at = Some(at);
                return;
            }
            Output::HandOverRefused { .. }
            | Output::Over { .. }
            | Output::Watch(_)
            | Output::Unwatch(_)
            | Output::Done => return,
        };
        self.actions.push(action);
    }

    fn moved(&mut self, transition: &Transition) {
        match transition.to {
            Phase::Stopped | Phase::Lost => {
                self.lower(&transition.group, transition.term, Moment::ZERO);
            }
            Phase::Standby | Phase::Leading | Phase::Jeopardy | Phase::Stopping => {}
        }
    }

    fn lower(&mut self, group: &Group, term: Term, until: Moment) {
        if let Some(work) = self.work.get_mut(group).filter(|work| work.term == term) {
            work.own_until = work.own_until.min(until);
        }
    }

    /// The driver asks for a sign of life: given at once, unless the application hangs.
    fn asked(&mut self, now: Moment, is_calm: bool) {
        self.is_asked = true;
        if !is_calm && self.manner == Manner::Driven && self.dice.once_in(HANGS_ONCE_IN) {
            let ttl_ms = self.budget.ttl_ms();
            self.hangs_until = now + Duration::from_millis(self.dice.within(1..=ttl_ms * 3 / 2));
        }
        if is_calm {
            self.hangs_until = self.hangs_until.min(now);
        }
        self.due(now);
    }
}
