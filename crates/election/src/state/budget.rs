//! What would be too much: the budget of the state, and the share of it that one principal may take.
//!
//! **Who decides.** No rule of `apply` looks at these bounds: one that differs between replicas must not make their
//! states differ. A store asks [`State::check_budget`] before it proposes a command, and what is in the log is applied.
//!
//! A share bounds what a principal's own commands put on its account (`accounts`). It never keeps anybody from giving
//! something up, from deleting what others made, or from renewing. Callers without a principal have no share, and neither
//! have those on the replica's own machine (`local:…`): who can change the settings is not bound by them.

use super::State;
use super::group::{GroupState, Office};
use super::weight::{self, CANDIDATE, CHANGE, DOOR, PROPOSAL, REQUEST, texts};
use crate::access::Principal;
use crate::command::{Command, Grows};
use crate::door::Step;
use crate::limits::{STATE_BYTES_MAX_FLOOR, STATE_BYTES_RESERVE_PART};
use crate::name::{Node, RequestId, SessionId};
use crate::outcome::Refusal;

/// How much a store's state may weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBudget {
    /// Of everything together, in bytes.
    pub bytes_max: u64,
    /// Of what one principal made; none is no bound.
    pub share_max: Option<u64>,
}

impl StateBudget {
    /// A budget without shares.
    #[must_use]
    pub const fn whole(bytes_max: u64) -> Self {
        Self { bytes_max, share_max: None }
    }

    /// The same, but never so small that everything would be refused.
    #[must_use]
    pub fn at_least_usable(self) -> Self {
        Self { bytes_max: self.bytes_max.max(STATE_BYTES_MAX_FLOOR), ..self }
    }
}

/// Bytes that are about to be added to a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateGrowth {
    /// To the whole.
    pub state: u64,
    /// Of these, to the share of the caller.
    pub share: u64,
}

impl State {
    /// Whether a store with this budget takes a command, `pending` being proposed and not applied yet: by everybody, and
    /// by this command's caller. Says how much the command may add.
    ///
    /// What ends something is always taken: a store that is over its budget must be able to shrink, and so must a
    /// principal over its share. What adds little, such as a hand-over or a step-down, may use a reserve above the
    /// bounds. A campaign for an office that nobody else wants may use half of it, so that what grows by itself does not
    /// leave a group without the leader that it had.
    pub fn check_budget(
        &self,
        command: &Command,
        request: Option<&RequestId>,
        pending: StateGrowth,
        budget: StateBudget,
    ) -> Result<StateGrowth, Refusal> {
        let growth = self.growth(command, request);
        let reserves = match command.grows() {
            // A deletion may have to be proposed first. It is counted, and taken all the same.
            Grows::Nothing => return Ok(growth),
            Grows::Little => 2,
            Grows::Freely if self.is_wanted(command) => 1,
            Grows::Freely => 0,
        };
        let with_reserve =
            |max: u64| max.saturating_add(max / STATE_BYTES_RESERVE_PART / 2 * reserves);
        let (used, adds) = (self.bytes().saturating_add(pending.state), growth.state);
        let max = with_reserve(budget.bytes_max);
        if adds > 0 && used.saturating_add(adds) > max {
            return Err(Refusal::StateFull { used, adds, max });
        }
        if let (Some(who), Some(share_max)) = (command.who(), budget.share_max)
            && !matches!(who, Principal::Local(_))
        {
            let (used, adds) = (self.bytes_of(who).saturating_add(pending.share), growth.share);
            let max = with_reserve(share_max);
            if adds > 0 && used.saturating_add(adds) > max {
                return Err(Refusal::ShareFull { who: Box::new(who.clone()), used, adds, max });
            }
        }
        Ok(growth)
    }

    /// What a command would add, at most, to the state and to its caller's account.
    fn growth(&self, command: &Command, request: Option<&RequestId>) -> StateGrowth {
        let (plain, adds) = (command.plain(), self.adds(command, request));
        let Some(who) = command.who() else { return StateGrowth { state: adds, share: 0 } };
        let proposal = if self.takes_place(who, plain) { PROPOSAL } else { 0 };
        let group = plain.group().and_then(|group| self.groups.get(group));
        let own = match plain {
            // What another has put there is no longer on the other's account.
            Command::PutPolicy { policy: wanted, .. } => {
                let present = group.and_then(|group| group.policy.as_deref());
                let is_own = group.and_then(|group| group.policy_payer.as_deref()) == Some(who);
                if is_own || present == wanted.as_deref() {
                    adds
                } else {
                    let wanted = weight::own_policy(wanted.as_deref());
                    adds + wanted.min(weight::own_policy(present))
                }
            }
            // The group's creator is charged for its history and its door, and nobody for the rest.
            Command::StepDown { .. }
            | Command::Report { .. }
            | Command::Relieve { .. }
            | Command::PutSettings { .. }
            | Command::PutBindings { .. }
            | Command::CreateToken { .. }
            | Command::RevokeToken { .. } => 0,
            Command::Move { .. } if group.is_some() => 0,
            Command::Move { .. }
            | Command::Open { .. }
            | Command::ChangeTtl { .. }
            | Command::Close { .. }
            | Command::Campaign { .. }
            | Command::Withdraw { .. }
            | Command::Accept { .. }
            | Command::Resign { .. }
            | Command::Offer { .. }
            | Command::Warm { .. }
            | Command::Transfer { .. }
            | Command::Delete { .. }
            | Command::Admit { .. }
            | Command::ForgetFence { .. }
            | Command::As { .. }
            | Command::Expire { .. }
            | Command::Elapsed { .. }
            | Command::Refill { .. } => adds,
        };
        // A policy of the same weight adds nothing to the whole, and may be the first on its caller's account.
        let is_first = own > 0 && !self.accounts.knows(who);
        let account = if is_first { weight::account(who) } else { 0 };
        let both = account + proposal;
        StateGrowth { state: adds + both, share: if own == 0 { proposal } else { own + both } }
    }

    /// What a command would add if it took effect, at most. What it frees is not counted, except where it
    /// replaces something.
    fn adds(&self, command: &Command, request: Option<&RequestId>) -> u64 {
        let session = command.session().and_then(|secret| self.find_session(secret));
        let record = session.and_then(|no| self.sessions.get(&no));
        let window = match command.session() {
            Some(_) => record.map(|record| &record.requests),
            None => Some(&self.requests),
        };
        if let (Some(request), Some(window)) = (request, window)
            && window.knows(request)
        {
            return 0;
        }
        let remembered = match (request, record) {
            (Some(_), Some(record)) if record.requests.is_full() => 0,
            (Some(_), Some(_)) => REQUEST,
            (Some(_), None) if command.session().is_some() => REQUEST,
            (Some(_) | None, _) => 0,
        };
        let state = command.group().and_then(|group| self.groups.get(group));
        let new_group = || match (command.group(), state) {
            (Some(group), None) => weight::new_group(group),
            (Some(_) | None, _) => 0,
        };
        let line = |text: &str| {
            let lines = state.map_or(&[][..], |state| &state.history);
            weight::line(lines, texts(text))
        };
        let content = match command {
            Command::As { .. } => return self.adds(command.plain(), request),
            // Bounded by their own limits, and what an administrator needs to bring order.
            Command::PutBindings { .. }
            | Command::CreateToken { .. }
            | Command::RevokeToken { .. } => 0,
            Command::Open { session, node, .. } => self.new_session(*session, Some(node)),
            Command::Campaign { session: secret, opening, metadata: told, .. } => {
                let held = state.and_then(|state| {
                    let session = session?;
                    match &state.office {
                        // It keeps its term and what it told.
                        Office::Held { tenure } if tenure.session == session => Some(u64::MAX),
                        // A holder whose tenure is ending stands in line like any other.
                        Office::Held { .. }
                        | Office::Ending { .. }
                        | Office::Vacant
                        | Office::Delayed { .. } => {
                            state.place_of(session).map(|place| weight::standby(&state.line[place]))
                        }
                    }
                });
                let opens = self.new_session(*secret, opening.as_ref().map(|told| &told.node));
                let candidate = CANDIDATE + weight::metadata(told);
                let is_new_line = held != Some(u64::MAX);
                let node = record.map(|record| &record.node);
                let node = node.or(opening.as_ref().map(|told| &told.node));
                let told = node.filter(|_| is_new_line).map_or(0, |node| line(node.as_str()));
                opens + new_group() + candidate.saturating_sub(held.unwrap_or(0)) + told
            }
            // It ends a vacancy, once for a tenure. Whoever has accepted before only adds a request id.
            Command::Accept { .. } => {
                let is_again = state.is_some_and(|state| match &state.office {
                    Office::Held { tenure } => tenure.accepted && Some(tenure.session) == session,
                    Office::Ending { .. } | Office::Vacant | Office::Delayed { .. } => false,
                });
                return if is_again { remembered } else { 0 };
            }
            // Who leaves frees more than its request id. Who does not lead is refused, and its id is not kept.
            Command::Resign { .. } => return 0,
            // Who neither stands nor leads frees nothing, nor does a leader that has been told to stop before.
            Command::Withdraw { group, .. } => {
                let leads = || {
                    state.is_some_and(|state| match &state.office {
                        Office::Held { tenure } => Some(tenure.session) == session,
                        Office::Ending { .. } | Office::Vacant | Office::Delayed { .. } => false,
                    })
                };
                let is_concerned =
                    record.is_none_or(|record| record.stands.contains(group) || leads());
                return if is_concerned { 0 } else { remembered };
            }
            Command::PutPolicy { policy: wanted, .. } => {
                let present = state.map_or(0, |state| weight::own_policy(state.policy.as_deref()));
                new_group() + weight::own_policy(wanted.as_deref()).saturating_sub(present)
            }
            Command::Admit { resource, .. } => match state {
                Some(state) => {
                    let fences = state.fences.as_deref();
                    let is_known = fences.is_some_and(|it| it.marks.contains_key(resource));
                    if is_known { 0 } else { weight::fence(resource) }
                }
                None => 0,
            },
            Command::Move { step, .. } => match (step, state) {
                // They open a door that keeps everybody from leading, and what closed it goes.
                (Step::Arrive { .. } | Step::Resume { .. }, Some(_)) => 0,
                // The office and the line end with it.
                (Step::Depart { to }, Some(state)) => {
                    let held = state.office.tenure().map_or(0, weight::tenure);
                    let present = state.door.as_deref().map_or(0, weight::door);
                    (DOOR + texts(to.as_str())).saturating_sub(held + state.line_bytes + present)
                }
                (Step::Expect { from: home } | Step::Depart { to: home }, _) => {
                    new_group() + DOOR + texts(home.as_str()) + CHANGE
                }
                (Step::Stop | Step::Arrive { .. } | Step::Resume { .. }, _) => {
                    new_group() + DOOR + CHANGE
                }
            },
            Command::StepDown { reason, .. }
            | Command::Report { reason, .. }
            // In the history, or first in the office that is ending.
            | Command::Relieve { reason, .. } => CHANGE + texts(reason.as_str()),
            Command::PutSettings { settings } => weight::policy(&settings.default_policy)
                .saturating_sub(weight::policy(&self.settings.default_policy)),
            Command::ChangeTtl { .. }
            | Command::Offer { .. }
            | Command::Warm { .. }
            | Command::Transfer { .. } => 0,
            Command::Close { .. }
            | Command::Delete { .. }
            | Command::ForgetFence { .. }
            | Command::Expire { .. }
            | Command::Elapsed { .. }
            | Command::Refill { .. } => return 0,
        };
        remembered + content
    }

    /// Whether an open session campaigns in a known group that would have no leader without it.
    fn is_wanted(&self, command: &Command) -> bool {
        let Command::Campaign { group, session, .. } = command.plain() else { return false };
        let is_vacant =
            |state: &GroupState| state.office == Office::Vacant && state.line.is_empty();
        self.find_session(*session).is_some() && self.groups.get(group).is_some_and(is_vacant)
    }

    fn new_session(&self, secret: SessionId, node: Option<&Node>) -> u64 {
        match node {
            Some(node) if self.find_session(secret).is_none() => weight::new_session(node),
            Some(_) | None => 0,
        }
    }
}
