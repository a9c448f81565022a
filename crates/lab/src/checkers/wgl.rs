//! The black box of S7: is there any order of the calls of a group, each somewhere between its question
//! and its answer, that explains all answers? Nothing the store says about revisions is trusted.
//!
//! The search is Wing and Gong's with Lowe's memory of what was tried. The specification of a group as
//! its clients see it: the term never falls; under one term there is one leader, and once it is gone
//! it stays gone; the policy is a register; a deleted group may be unknown until it is made again.
//! Expiries and promotions happen by themselves, so the office may move forward between any two calls.
//!
//! Calls that were never answered are the enemy of every such search. A policy that nobody ever read
//! need not be placed; if more than a few open ones are left, or the search grows too large, or a call
//! overlaps with more others than are looked at together, this checker gives up and leaves the verdict
//! to the witness.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::state::{Query, View};
use regent_election::store::{GroupView, LeaderView};
use regent_election::{Answer, Command, Group, Node, Policy, RequestId, Term};

use super::{Case, CheckResult, End, Violation};
use crate::history::{Op, Out};

/// Calls without an answer that are placed in every possible way.
const OPEN_MAX: usize = 8;
/// States tried before the search gives up.
const TRIED_MAX: usize = 100_000;
/// Calls that may overlap with the oldest one not yet placed; where it is too short nothing is refuted.
const WINDOW: usize = 120;

/// What one call says about its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The office was seen like this.
    Saw(ObservedOffice),
    /// The office and the policy were seen like this.
    SawGroup(ObservedOffice, Box<Policy>),
    /// This node was told that it leads.
    Won(Term, Node),
    /// The policy was set, and the office perhaps seen after.
    Put(Box<Policy>, Option<ObservedOffice>),
    /// The group was to be deleted.
    Deleted,
}

/// An office as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedOffice {
    pub term: Term,
    /// Who leads.
    pub leader: Option<Node>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Placed {
    /// When it was asked.
    pub from: u64,
    /// When it was answered; none if it never was.
    pub to: Option<u64>,
    /// What it says.
    pub act: Act,
}

/// A group between two calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    term: Term,
    leader: Option<Node>,
    policy: Vec<u8>,
    /// A deletion is under way, or has happened unseen.
    doomed: bool,
}

impl State {
    fn new(default: &Policy) -> Self {
        let policy = print(default);
        Self { term: Term::NONE, leader: None, policy, doomed: false }
    }

    /// What the group may be after a call; nothing if the call cannot come here.
    fn after(&self, act: &Act, default: &Policy) -> Vec<Self> {
        match act {
            Act::Saw(office) => self.moved_to(office, default),
            Act::SawGroup(office, policy) => {
                let print = print(policy);
                // A deletion that nobody saw took the policy with it.
                let lost = (self.doomed && **policy == *default)
                    .then(|| Self { policy: print.clone(), ..self.clone() });
                let kept = (self.policy == print).then(|| self.clone());
                kept.or(lost).map_or_else(Vec::new, |state| state.moved_to(office, default))
            }
            Act::Won(term, node) => {
                let office = ObservedOffice { term: *term, leader: Some(node.clone()) };
                self.moved_to(&office, default)
            }
            Act::Put(policy, office) => {
                let put = Self { policy: print(policy), ..self.clone() };
                let seen = office.as_ref();
                seen.map_or_else(|| vec![put.clone()], |office| put.moved_to(office, default))
            }
            Act::Deleted => vec![Self { doomed: true, ..self.clone() }],
        }
    }

    /// Offices move by themselves, but only forward; a group that was to be deleted may be gone.
    fn moved_to(&self, office: &ObservedOffice, default: &Policy) -> Vec<Self> {
        let mut moved = Vec::new();
        let is_forward = office.term > self.term
            || (office.term == self.term
                && (office.leader == self.leader || office.leader.is_none()));
        if is_forward {
            let (term, leader) = (office.term, office.leader.clone());
            moved.push(Self { term, leader, ..self.clone() });
        }
        if self.doomed && office.term == Term::NONE && office.leader.is_none() {
            let policy = print(default);
            moved.push(Self { leader: None, policy, ..self.clone() });
        }
        moved
    }
}

fn print(policy: &Policy) -> Vec<u8> {
    let mut bytes = Vec::new();
    regent_election::codec::Wire::put(policy, &mut bytes);
    bytes
}

pub(super) fn check(case: &Case<'_>) -> CheckResult {
    for (group, calls) in calls_by_group(case) {
        if let Some(call) = refuted(calls, &case.history.setup.settings.default_policy) {
            let how = format!(
                "no order of the calls about {group} explains their answers; the first that fits \
                 nowhere was asked at {} and says {:?}",
                call.from, call.act
            );
            return Err(Violation::new("S7", call.to.unwrap_or(call.from), how));
        }
    }
    Ok(())
}

fn office(view: &LeaderView) -> ObservedOffice {
    ObservedOffice { term: view.term, leader: view.leader.clone() }
}

fn calls_by_group(case: &Case<'_>) -> BTreeMap<Group, Vec<Placed>> {
    let mut calls: BTreeMap<Group, Vec<Placed>> = BTreeMap::new();
    let mut changes: BTreeMap<&RequestId, (Group, Placed)> = BTreeMap::new();
    for call in case.calls.values() {
        let (to, out) = match call.end {
            End::Ok { at, out, .. } => (Some(at), Some(out)),
            End::Unknown => (None, None),
            End::Fail { .. } => continue,
        };
        let Some((group, act)) = act_of(call.op, out) else { continue };
        let placed = Placed { from: call.sent, to, act };
        match (call.op, &placed.act) {
            (Op::Submit { request: Some(id), .. }, Act::Put(..) | Act::Deleted) => {
                let known = changes.remove(id);
                let whole = known.map_or_else(|| placed.clone(), |(_, known)| known.or(&placed));
                changes.insert(id, (group, whole));
            }
            _ => calls.entry(group).or_default().push(placed),
        }
    }
    for (group, change) in changes.into_values() {
        calls.entry(group).or_default().push(change);
    }
    calls
}

impl Placed {
    /// All tries of one request are one change, from the first question to the first answer. What was
    /// seen beside the answer of a repeat was seen later than the change was made.
    fn or(self, other: &Self) -> Self {
        let to = match (self.to, other.to) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let act = match self.act {
            Act::Put(policy, _) => Act::Put(policy, None),
            act @ (Act::Saw(_) | Act::SawGroup(..) | Act::Won(..) | Act::Deleted) => act,
        };
        Self { from: self.from.min(other.from), to, act }
    }
}

/// What a call says, if it says anything about one group.
fn act_of(op: &Op, out: Option<&Out>) -> Option<(Group, Act)> {
    match (op, out) {
        (Op::Read { query: Query::Leader(group), linearizable: true }, Some(Out::Seen(view))) => {
            let View::Leader(view) = view else { return None };
            Some((group.clone(), Act::Saw(office(view))))
        }
        (Op::Read { query: Query::Group(group), linearizable: true }, Some(Out::Seen(view))) => {
            let View::Group(view) = view else { return None };
            Some((group.clone(), saw_group(view)))
        }
        (Op::Submit { command: Command::PutPolicy { group, policy }, .. }, out) => {
            let policy = policy.clone().unwrap_or_default();
            let seen = match out {
                None => None,
                Some(Out::Applied { answer: Ok(_), view }) => match view {
                    Some(Ok(View::Group(view))) => Some(office(&view.office)),
                    Some(_) | None => None,
                },
                Some(_) => return None,
            };
            Some((group.clone(), Act::Put(policy, seen)))
        }
        (Op::Submit { command: Command::Delete { group }, .. }, out) => match out {
            None | Some(Out::Applied { answer: Ok(_), .. }) => Some((group.clone(), Act::Deleted)),
            Some(_) => None,
        },
        (Op::Submit { command: Command::Campaign { group, .. }, .. }, Some(out)) => {
            let Out::Applied { answer: Ok(answer), view: Some(Ok(View::Leader(view))) } = out
            else {
                return None;
            };
            match (answer, &view.leader) {
                (Answer::Elected { term, .. }, Some(node)) if view.term == *term => {
                    Some((group.clone(), Act::Won(*term, node.clone())))
                }
                _ => Some((group.clone(), Act::Saw(office(view)))),
            }
        }
        _ => None,
    }
}

fn saw_group(view: &GroupView) -> Act {
    Act::SawGroup(office(&view.office), Box::new(view.policy.clone()))
}

/// The call at which the last hope died, if no order explains these calls. A group without a policy of
/// its own has the default one.
#[must_use]
pub fn refuted(calls: Vec<Placed>, default: &Policy) -> Option<Placed> {
    let read: BTreeSet<Vec<u8>> = calls
        .iter()
        .filter_map(|call| match &call.act {
            Act::SawGroup(_, policy) => Some(print(policy)),
            Act::Saw(_) | Act::Won(..) | Act::Put(..) | Act::Deleted => None,
        })
        .collect();
    let (mut answered, open): (Vec<Placed>, Vec<Placed>) =
        calls.into_iter().partition(|call| call.to.is_some());
    answered.sort_by_key(|call| call.from);
    let open: Vec<Placed> = open
        .into_iter()
        .filter(|call| match &call.act {
            Act::Put(policy, _) => read.contains(&print(policy)),
            Act::Deleted => true,
            Act::Saw(_) | Act::SawGroup(..) | Act::Won(..) => false,
        })
        .collect();
    if open.len() > OPEN_MAX {
        return None;
    }
    let default = default.clone();
    Search { answered, open, default, tried: BTreeSet::new(), furthest: 0, is_short: false }.run()
}

/// Where a search stands: everything before `next` is placed, and those of the window that are marked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SearchState {
    next: usize,
    window: u128,
    open: u32,
    state: State,
}

struct Search {
    answered: Vec<Placed>,
    open: Vec<Placed>,
    default: Policy,
    tried: BTreeSet<SearchState>,
    furthest: usize,
    /// Some call could have come next that the window does not reach.
    is_short: bool,
}

impl Search {
    fn run(mut self) -> Option<Placed> {
        let start = SearchState { next: 0, window: 0, open: 0, state: State::new(&self.default) };
        let mut stack = vec![start];
        while let Some(place) = stack.pop() {
            if place.next >= self.answered.len() {
                return None;
            }
            if self.tried.len() > TRIED_MAX {
                return None;
            }
            if !self.tried.insert(place.clone()) {
                continue;
            }
            self.furthest = self.furthest.max(place.next);
            stack.extend(self.steps(&place));
        }
        if self.is_short { None } else { self.answered.get(self.furthest).cloned() }
    }

    /// Every call that may come next: asked before any other that is not yet placed was answered.
    fn steps(&mut self, place: &SearchState) -> Vec<SearchState> {
        let is_placed = |at: usize| place.window & (1 << (at - place.next)) != 0;
        let window = place.next..self.answered.len().min(place.next + WINDOW);
        let waiting: Vec<usize> = window.filter(|at| !is_placed(*at)).collect();
        let deadline =
            waiting.iter().filter_map(|at| self.answered[*at].to).min().unwrap_or(u64::MAX);
        let beyond = self.answered.get(place.next + WINDOW);
        self.is_short |= beyond.is_some_and(|call| call.from <= deadline);
        let mut steps = Vec::new();
        for (at, call) in self.open.iter().enumerate() {
            if place.open & (1 << at) == 0 && call.from <= deadline {
                for state in place.state.after(&call.act, &self.default) {
                    steps.push(SearchState {
                        open: place.open | (1 << at),
                        state,
                        ..place.clone()
                    });
                }
            }
        }
        for at in waiting {
            let call = &self.answered[at];
            if call.from > deadline {
                continue;
            }
            for state in place.state.after(&call.act, &self.default) {
                let mut step = place.clone();
                step.window |= 1 << (at - place.next);
                step.state = state;
                while step.window & 1 == 1 {
                    step.window >>= 1;
                    step.next += 1;
                }
                steps.push(step);
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saw(from: u64, to: u64, term: u64) -> Placed {
        let leader = Node::new("a").ok();
        let office = ObservedOffice { term: Term::new(term).unwrap(), leader };
        Placed { from, to: Some(to), act: Act::Saw(office) }
    }

    #[test]
    fn an_answer_from_the_past_is_refuted() {
        let calls = vec![saw(1, 2, 5), saw(3, 4, 4)];
        assert_eq!(refuted(calls, &Policy::default()).map(|call| call.from), Some(3));
        let together = vec![saw(1, 4, 5), saw(3, 6, 4)];
        assert!(refuted(together, &Policy::default()).is_none(), "they may be in either order");
    }

    #[test]
    fn a_call_that_overlaps_with_more_than_are_looked_at_refutes_nothing() {
        let mut calls = vec![saw(1, 100_000, 6)];
        calls.extend((1..=400).map(|at| saw(10 * at, 10 * at + 5, 5)));
        assert!(refuted(calls, &Policy::default()).is_none());
    }
}
