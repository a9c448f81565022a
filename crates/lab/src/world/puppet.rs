//! Participants in somebody's hand: chance's, a script's, or an application's of a user's own.
//!
//! A puppet does nothing by itself but its work: it checks and writes while it leads. Whether it stands,
//! resigns, hands over, leaves or dies is told from outside, one deed at a time, and it stands once for
//! every time that it is told to. That is how a recorded course is acted again.

use std::time::Duration;

use regent_election::participant::{Event, Transition};
use regent_election::store::OfficeState;
use regent_election::{Command, Group, Node, Priority, SessionNo, State, Term};
use regent_replica::Role;

use super::app::Cast;
use super::parcel::Ask;
use super::{Client, World};
use crate::history::Stage;

/// How many of its ttls a puppet waits for a standby to get warm, which hears of the offer when it renews.
const WARM_WITHIN_TTLS: u32 = 3;
/// How long at least.
const WARM_WITHIN_MIN: Duration = Duration::from_secs(5);
/// How long a puppet takes to stop its work.
const STOP_NS: u64 = 1_000_000;
/// How long the last sign of life of a puppet that is about to fall may take to be acknowledged.
const LAST_SIGN_MS_MAX: u64 = 1_000;
/// How long an administrator waits for an answer before a deed counts as not done.
const ANSWER_MS_MAX: u64 = 5_000;

/// Who decides what a participant's application does.
#[derive(Debug)]
pub(super) enum Hand {
    /// Random choices.
    Chance,
    /// A script, deed by deed.
    Puppet,
    /// An application of a user's own.
    App(Box<Cast>),
}

/// When the work of a term that must stop has stopped.
pub(super) enum Stops {
    /// In a time of chance.
    ByChance,
    /// After this long.
    Within(u64),
    /// When its application says so.
    WhenItSays,
}

impl Hand {
    pub(super) const fn is_chance(&self) -> bool {
        matches!(self, Self::Chance)
    }

    pub(super) const fn is_app(&self) -> bool {
        matches!(self, Self::App(_))
    }

    /// Keeps for the application what its participant was told.
    pub(super) fn news(&mut self, transition: &Transition) {
        match self {
            Self::Chance | Self::Puppet => {}
            Self::App(cast) => cast.moved(transition),
        }
    }

    /// The work of a term must stop, with this many nanoseconds left.
    pub(super) fn told_to_stop(&mut self, group: &Group, term: Term, left: u64) -> Stops {
        match self {
            Self::Chance => Stops::ByChance,
            Self::Puppet => Stops::Within(STOP_NS.min(left / 2)),
            Self::App(cast) => {
                cast.must_stop(group, term, left);
                Stops::WhenItSays
            }
        }
    }
}

impl World {
    /// Adds a participant that stands nowhere and does what it is told.
    pub fn add_puppet(&mut self, node: Node, ttl_ms: u64) -> u32 {
        let number = self.add_by_hand(node, ttl_ms, Vec::new(), Hand::Puppet);
        self.give_ears(number);
        number
    }

    /// A puppet stands in a group.
    pub fn let_stand(&mut self, number: u32, group: &Group, priority: Priority) {
        if let Some(Client::Member(member)) = self.clients.get_mut(&number)
            && !member.groups.contains(group)
        {
            member.groups.push(group.clone());
        }
        self.stand(number, group.clone(), priority);
    }

    /// A puppet leaves a group: it resigns what it holds there, or leaves the line.
    pub fn let_withdraw(&mut self, number: u32, group: &Group) {
        if let Some(Client::Member(member)) = self.clients.get_mut(&number) {
            member.groups.retain(|stood| stood != group);
        }
        self.withdraw(number, group.clone());
    }

    /// A puppet hands an office to a standby.
    pub fn let_transfer(&mut self, number: u32, group: &Group, to: &Node) {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return };
        let within = (member.budget.ttl() * WARM_WITHIN_TTLS).max(WARM_WITHIN_MIN);
        let (group, to) = (group.clone(), to.clone());
        self.on_member(number, Event::Transfer { group, to, within });
    }

    /// A puppet gives up everything and closes its session.
    pub fn let_leave(&mut self, number: u32) {
        self.on_member(number, Event::Leave);
    }

    /// A puppet dies right after the store has heard it: its session runs for a whole ttl from here.
    pub fn let_fall(&mut self, number: u32) {
        self.on_member(number, Event::Renew);
        self.await_until(LAST_SIGN_MS_MAX, |world| match world.clients.get(&number) {
            Some(Client::Member(member)) => member.calls.is_empty(),
            Some(Client::Caller(_) | Client::Watcher(_) | Client::Operator(_)) | None => true,
        });
        self.kill_client(number);
    }

    /// An administrator has something done, and waits for the answer. Says whether one came.
    pub fn administer(&mut self, command: Command) -> bool {
        let Some(caller) = self.first_caller() else { return false };
        for _ in 0..3 {
            let Some(to) = self.await_leader(ANSWER_MS_MAX) else { return false };
            let request = None;
            self.ask(caller, to, Ask::Submit { command: command.clone(), request, query: None });
            if self.await_until(ANSWER_MS_MAX, |world| world.is_answered(caller)) {
                return true;
            }
        }
        false
    }

    /// A world in which nobody does anything by chance but work, with somebody who administers.
    pub fn prepare_stage(&mut self) {
        self.enter(Stage::Core, Vec::new());
        self.add_operator();
        self.add_caller();
        self.await_leader(ANSWER_MS_MAX);
    }

    /// The state of the Raft leader that serves, unless it is between two entries.
    pub(crate) fn served_state(&self) -> Option<&State> {
        let running = self.replicas.values().filter_map(|replica| replica.running.as_ref());
        running
            .filter(|it| it.core.role() == Role::Leader && it.core.is_serving())
            .filter(|it| !it.core.is_between())
            .max_by_key(|it| it.core.raft_term())
            .map(|it| &it.core.replicated().state)
    }

    /// Whether the store knows that a participant stands in a group or leads it.
    #[must_use]
    pub fn is_known_in(&self, number: u32, group: &Group) -> bool {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return false };
        let Some(state) = self.served_state() else { return false };
        let session: Option<SessionNo> = member.session.and_then(|id| state.find_session(id));
        session.is_some_and(|session| {
            state.stands(group, session)
                || state.holder(group).is_some_and(|holder| holder.session == session)
        })
    }

    /// Whether the store knows that a participant leads a group and has accepted to.
    #[must_use]
    pub fn has_accepted(&self, number: u32, group: &Group) -> bool {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return false };
        let Some(state) = self.served_state() else { return false };
        let session = member.session.and_then(|id| state.find_session(id));
        state.holder(group).is_some_and(|holder| {
            Some(holder.session) == session && holder.state == OfficeState::Leading
        })
    }

    /// Whether the store knows a session of a participant's.
    #[must_use]
    pub fn has_session(&self, number: u32) -> bool {
        let Some(Client::Member(member)) = self.clients.get(&number) else { return false };
        let Some(state) = self.served_state() else { return true };
        member.session.is_some_and(|id| state.find_session(id).is_some())
    }

    /// Whether a participant's process runs.
    #[must_use]
    pub fn is_alive(&self, number: u32) -> bool {
        matches!(self.clients.get(&number), Some(Client::Member(member)) if member.machine.is_some())
    }

    /// The name under which a participant takes part.
    #[must_use]
    pub fn node_of(&self, number: u32) -> Option<&Node> {
        match self.clients.get(&number) {
            Some(Client::Member(member)) => Some(&member.node),
            Some(Client::Caller(_) | Client::Watcher(_) | Client::Operator(_)) | None => None,
        }
    }
}
