//! The life of a world: chaos, then a core that must make progress among ruins, then everything
//! healed, then everything dead and born again.
//!
//! A simulator that only checks safety cannot see a cluster that lives and does nothing. So after the
//! faults a random majority is healed and everything else is left broken for ever, and the core must
//! elect, keep still, and take turns.

use std::collections::BTreeSet;

use regent_election::participant::Event;
use regent_election::state::Query;
use regent_election::store::Scope;
use regent_election::{Command, Group, Policy};
use regent_replica::MemberChange;

use super::net::Address;
use super::parcel::Ask;
use super::{Client, World};
use crate::dice::Dice;
use crate::history::Stage;
use crate::plan::{Plan, SNAPSHOTS_NEVER};

/// How long a healed core may take to elect and serve, beside what ttls add.
const CORE_MS_MAX: u64 = 15_000;
/// How long healed replicas may take to agree (L5).
pub(crate) const AGREE_MS_MAX: u64 = 30_000;
/// How long a group may take to find its next leader after a clean resignation, beside ttls.
const TURN_MS_MAX: u64 = 5_000;

/// The voters, as far as committed: both halves of a joint configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Voters {
    pub(super) now: BTreeSet<u64>,
    outgoing: BTreeSet<u64>,
    /// What they were, both halves, until the entry at an index.
    until: Vec<(u64, BTreeSet<u64>, BTreeSet<u64>)>,
}

impl Voters {
    pub(super) fn new(voters: impl Iterator<Item = u64>) -> Self {
        Self { now: voters.collect(), outgoing: BTreeSet::new(), until: Vec::new() }
    }

    /// Follows a committed change.
    pub(super) fn change(&mut self, index: u64, change: &MemberChange) {
        self.until.push((index, self.now.clone(), self.outgoing.clone()));
        let before = self.now.clone();
        match change {
            MemberChange::Add { .. } => {}
            MemberChange::Promote { id } => {
                self.now.insert(id.get());
                self.outgoing = before;
            }
            MemberChange::Remove { id } => {
                if self.now.remove(&id.get()) {
                    self.outgoing = before;
                }
            }
            MemberChange::LeaveJoint => self.outgoing.clear(),
        }
    }

    /// Whether these can decide.
    fn is_majority(&self, some: &BTreeSet<u64>) -> bool {
        decides(some, &self.now, &self.outgoing)
    }

    /// Whether these can decide in the eyes of everybody who has applied at least so much.
    fn were_majority_since(&self, some: &BTreeSet<u64>, applied: u64) -> bool {
        let mut since = self.until.iter().filter(|(index, ..)| applied < *index);
        self.is_majority(some) && since.all(|(_, now, out)| decides(some, now, out))
    }

    /// Whether these can decide in the eyes of one who has applied so much.
    fn was_majority(&self, some: &BTreeSet<u64>, applied: u64) -> bool {
        match self.until.iter().find(|(index, ..)| applied < *index) {
            Some((_, voters, outgoing)) => decides(some, voters, outgoing),
            None => self.is_majority(some),
        }
    }
}

fn decides(some: &BTreeSet<u64>, voters: &BTreeSet<u64>, outgoing: &BTreeSet<u64>) -> bool {
    let of = |voters: &BTreeSet<u64>| voters.intersection(some).count() * 2 > voters.len();
    of(voters) && (outgoing.is_empty() || of(outgoing))
}

/// Runs a whole life.
#[must_use]
pub fn live(plan: Plan) -> World {
    let mut world = World::new(plan);
    world.live();
    world
}

impl World {
    /// From the first fault to the last read.
    pub fn live(&mut self) {
        self.populate();
        self.enter(Stage::Chaos, Vec::new());
        self.begin_strikes();
        self.run_for_ms(self.plan.chaos_ms);
        self.end_strikes();
        self.heal_a_core();
        self.keep_still();
        self.take_turns();
        self.heal_everything();
        self.be_reborn();
        self.enter(Stage::End, self.up());
    }

    fn populate(&mut self) {
        let mut dice = self.dice.fork("population");
        let groups = self.groups();
        for _ in 0..self.plan.members {
            let ttls = self.plan.ttls_ms.clone();
            let ttl_ms = dice.pick(&ttls).unwrap_or(1_000);
            let mut stands: Vec<Group> =
                groups.iter().filter(|_| !dice.once_in(4)).cloned().collect();
            if stands.is_empty() {
                stands.clone_from(&groups);
            }
            let number = self.add_member(ttl_ms, stands);
            // Most learn of their promotion by a watch, some only by their heartbeats.
            if !dice.once_in(3) {
                self.give_ears(number);
            }
        }
        for _ in 0..self.plan.callers {
            self.add_caller();
        }
        for number in 0..self.plan.watchers {
            let all = Scope::Prefix(String::new());
            let one = groups.first().map_or(all.clone(), |group| Scope::Group(group.clone()));
            self.add_watcher(if number == 0 { all } else { one }, None);
        }
        if !self.is_leased() {
            self.add_operator();
        }
    }

    /// Gives a participant a watch.
    pub fn give_ears(&mut self, number: u32) {
        let ears = self.add_watcher(Scope::Prefix(String::new()), Some(number));
        if let Some(Client::Member(member)) = self.clients.get_mut(&number) {
            member.ears = Some(ears);
        }
    }

    /// A random majority that lives from here on; the rest stays as broken as it is, or worse.
    fn heal_a_core(&mut self) {
        let mut dice = self.dice.fork("core");
        let core = self.choose_core(&mut dice);
        self.break_others(&core, &mut dice);
        self.undo_strikes(Some(&core));
        self.heal_core(&core);
        self.note_fault(format!("cut for good: {:?}", self.cuts()), false);
        self.enter(Stage::Core, core.clone());
        for id in &core {
            self.restore(*id);
        }
        self.calm_clocks();
        self.revive_clients();
        self.await_calm();
        if !self.is_leased() && !self.is_led() && !self.decides_in_its_own_eyes(&core) {
            self.undo_strikes(None);
            self.heal_links();
            for id in self.askable() {
                self.restore(id);
            }
            self.enter(Stage::Core, self.askable());
            self.await_calm();
        }
    }

    /// Whether each of these, by what it has applied itself, needs nobody else to elect.
    ///
    /// A replica goes by the members that it has applied, not by those in its log. If a change was
    /// known to be complete by nobody but a replica outside the core, the core waits for that one with
    /// reason, however many it is by the members that are in force.
    fn decides_in_its_own_eyes(&self, core: &[u64]) -> bool {
        let some: BTreeSet<u64> = core.iter().copied().collect();
        core.iter().all(|id| {
            let running = self.replicas.get(id).and_then(|replica| replica.running.as_ref());
            running.is_some_and(|it| self.voters.was_majority(&some, it.core.applied()))
        })
    }

    /// Whether all but this one can decide, even if all of them lose power at once.
    pub(super) fn others_decide(&self, id: u64) -> bool {
        let others: BTreeSet<u64> = self.askable().into_iter().filter(|it| *it != id).collect();
        others.iter().all(|other| {
            let running = self.replicas.get(other).and_then(|replica| replica.running.as_ref());
            let kept = running.map_or(0, |running| running.kept_commit);
            self.voters.were_majority_since(&others, kept)
        })
    }

    /// Lets time pass until every group has a leader that has stayed for a while, bounded.
    fn await_calm(&mut self) {
        let ttl_ms = self.ttl_ms_max();
        let over = self.now + (CORE_MS_MAX + 3 * ttl_ms) * 1_000_000;
        while self.now < over {
            let left_ms = (over - self.now) / 1_000_000;
            // What callers began in the chaos comes first: it may be another policy, or a step-down.
            self.await_until(left_ms, |world| !world.is_change_under_way());
            self.order_default_policies();
            let left_ms = over.saturating_sub(self.now) / 1_000_000;
            self.await_until(left_ms, |world| {
                !world.is_change_under_way()
                    && (world.is_led() || !world.groups_of_another_policy().is_empty())
            });
            let before = self.acting();
            self.run_for_ms(ttl_ms.min(left_ms + 1));
            if before == self.acting()
                && self.is_led()
                && self.groups_of_another_policy().is_empty()
                && !self.is_change_under_way()
            {
                return;
            }
        }
    }

    /// Every group gets its default policy, or somebody who stands might not be allowed to.
    fn order_default_policies(&mut self) {
        let Some(caller) = self.first_caller() else { return };
        for group in self.groups_of_another_policy() {
            let command = Command::PutPolicy { group, policy: None };
            self.order(caller, Ask::Submit { command, request: None, query: None });
        }
    }

    /// Whether a caller is about to change something, or may just have done so.
    ///
    /// A leader that is about to hand over changes something, too.
    fn is_change_under_way(&self) -> bool {
        self.clients.values().any(|client| match client {
            Client::Caller(caller) => caller.is_changing(),
            Client::Member(member) => self.now < member.hands_over_until,
            Client::Watcher(_) | Client::Operator(_) => false,
        })
    }

    /// Groups that have another policy than the default, by the replica that has applied most.
    fn groups_of_another_policy(&self) -> Vec<Group> {
        if self.is_leased() {
            return self.leased_groups_of_another_policy();
        }
        let full = self.replicas.values().filter(|replica| !self.is_witness(replica.id));
        let running = full.filter_map(|replica| replica.running.as_ref());
        let Some(first) = running.max_by_key(|running| running.core.applied()) else {
            return self.groups();
        };
        let state = &first.core.replicated().state;
        let default = &state.settings().default_policy;
        let is_other = |group: &Group| state.policy(group) != default;
        self.groups().into_iter().filter(is_other).collect()
    }

    /// Every link that is cut.
    #[must_use]
    pub fn cuts(&self) -> Vec<(Address, Address)> {
        self.net.cuts()
    }

    fn choose_core(&self, dice: &mut Dice) -> Vec<u64> {
        if self.is_leased() {
            return self.choose_hosts(dice);
        }
        let mut candidates: Vec<u64> = self.askable();
        dice.shuffle(&mut candidates);
        let mut core = BTreeSet::new();
        // A witness that has dropped entries cannot bring a lagging replica up to date: it has no
        // state to send. The cluster then waits for whoever is ahead, which is owed nothing here.
        let drops = self.plan.witness.is_some() && self.plan.disk.snapshot_every < SNAPSHOTS_NEVER;
        for id in candidates {
            let is_needed = drops && !self.is_witness(id);
            if is_needed || !self.voters.is_majority(&core) || dice.once_in(3) {
                core.insert(id);
            }
        }
        core.into_iter().collect()
    }

    /// Those outside the core die, or lose links for ever, or stay as they are.
    fn break_others(&mut self, core: &[u64], dice: &mut Dice) {
        if self.is_leased() {
            self.break_other_hosts(core, dice);
            return;
        }
        let all = self.askable();
        for id in all.iter().copied().filter(|id| !core.contains(id)) {
            match dice.below(4) {
                0 => self.crash_replica(id),
                1 => {
                    for other in all.iter().copied().filter(|other| *other != id) {
                        if dice.once_in(2) {
                            self.cut(Address::Replica(id), Address::Replica(other));
                        }
                        if dice.once_in(2) {
                            self.cut(Address::Replica(other), Address::Replica(id));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Makes one replica healthy, whatever was done to it.
    fn restore(&mut self, id: u64) {
        if self.is_leased() {
            self.restore_host(id);
            return;
        }
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.lag_ns = 0;
        replica.stalled_until = 0;
        replica.disk.calm();
        let is_paused = replica.pauses > 0;
        replica.pauses = u32::from(is_paused);
        if is_paused {
            self.resume_replica(id);
        }
        self.set_room(id, true);
        self.start_replica(id);
    }

    fn calm_clocks(&mut self) {
        if !self.history.is_beyond_a1() {
            return;
        }
        let replicas: Vec<Address> = self.askable().into_iter().map(Address::Replica).collect();
        let clients = self.member_numbers().into_iter().map(Address::Client);
        for whose in replicas.into_iter().chain(clients).collect::<Vec<_>>() {
            self.change_clock(whose, |clock, now| clock.set_rate(now, 0));
        }
    }

    /// Every participant lives, is well and stands.
    fn revive_clients(&mut self) {
        for number in self.member_numbers() {
            if let Some(Client::Member(member)) = self.clients.get_mut(&number)
                && member.pauses > 0
            {
                member.pauses = 1;
                self.resume_client(number);
            }
            self.start_member(number);
            self.on_member(number, Event::Healthy);
            let Some(Client::Member(member)) = self.clients.get(&number) else { continue };
            for group in member.groups.clone() {
                self.stand(number, group, 0);
            }
        }
    }

    pub(super) fn first_caller(&self) -> Option<u32> {
        let is_caller = |client: &Client| matches!(client, Client::Caller(_));
        self.clients.iter().find(|(_, client)| is_caller(client)).map(|(number, _)| *number)
    }

    /// Nothing may change while nothing happens.
    fn keep_still(&mut self) {
        self.enter(Stage::Steady, self.up());
        self.run_for_ms(2 * self.ttl_ms_max() + 1_000);
    }

    /// Every leader gives its office up, once more than there are candidates.
    fn take_turns(&mut self) {
        self.enter(Stage::Rotation, self.up());
        for _ in 0..=self.plan.members {
            for (number, group) in self.acting() {
                self.on_member(number, Event::Resign { group });
            }
            self.run_for_ms(50);
            let ms_max = TURN_MS_MAX + 2 * self.ttl_ms_max();
            self.await_until(ms_max, Self::is_led);
        }
    }

    pub(super) fn heal_everything(&mut self) {
        self.undo_strikes(None);
        self.heal_links();
        for id in self.askable() {
            self.restore(id);
        }
        self.enter(Stage::Healed, self.askable());
        self.await_until(AGREE_MS_MAX, |world| world.is_replaced() && world.is_agreed());
        self.note_states();
    }

    /// All lose power at once; what was acknowledged must be there again.
    pub(super) fn be_reborn(&mut self) {
        for id in self.up() {
            self.crash_replica(id);
        }
        self.run_for_ms(100);
        for id in self.askable() {
            self.restore(id);
        }
        self.enter(Stage::Reborn, self.askable());
        let Some(caller) = self.first_caller() else { return };
        let tombstone = Group::new("tombstone").expect("a word is a name");
        let policy = Some(Box::new(Policy { retry_ms_min: 777, ..Policy::default() }));
        let command = Command::PutPolicy { group: tombstone.clone(), policy };
        let query = Some(Query::Group(tombstone));
        self.order(caller, Ask::Submit { command, request: None, query });
        for group in self.groups() {
            let query = Query::Group(group);
            self.order(caller, Ask::Read { query, linearizable: true });
        }
        self.await_until(AGREE_MS_MAX, |world| world.is_idle() && world.is_agreed());
        self.note_states();
    }

    /// Lets time pass until something is true, or too much has passed.
    pub fn await_until(&mut self, ms_max: u64, is_true: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..ms_max / 10 {
            if is_true(self) {
                return true;
            }
            self.run_for_ms(10);
        }
        is_true(self)
    }

    /// Who leads at this instant without having been told to stop, and where.
    #[must_use]
    pub fn acting(&self) -> Vec<(u32, Group)> {
        let mut acting = Vec::new();
        for (number, client) in &self.clients {
            if let Client::Member(member) = client {
                acting.extend(member.settled(self.now).into_iter().map(|group| (*number, group)));
            }
        }
        acting
    }

    /// Whether every group that a participant stands in has somebody who may act.
    #[must_use]
    pub fn is_led(&self) -> bool {
        let led: BTreeSet<Group> = self.acting().into_iter().map(|(_, group)| group).collect();
        self.clients.values().all(|client| match client {
            Client::Member(member) => member.groups.iter().all(|group| led.contains(group)),
            Client::Caller(_) | Client::Watcher(_) | Client::Operator(_) => true,
        })
    }

    /// Whether callers have done what they were ordered to do.
    pub(super) fn is_idle(&self) -> bool {
        self.clients.values().all(|client| match client {
            Client::Caller(caller) => caller.is_idle(),
            Client::Member(_) | Client::Watcher(_) | Client::Operator(_) => true,
        })
    }

    /// Whether all replicas run and have applied the same.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        let mut running = self.replicas.values().filter(|replica| !replica.is_retired);
        running.all(|replica| {
            let is_member = self.voters.now.contains(&replica.id);
            replica.running.as_ref().map_or(!is_member, |running| {
                !is_member || running.core.applied() == self.committed
            })
        })
    }

    fn ttl_ms_max(&self) -> u64 {
        self.plan.ttls_ms.iter().copied().max().unwrap_or(1_000)
    }

    /// Takes notice of a committed change of members.
    pub(super) fn note_members(&mut self, index: u64, data: &[u8]) {
        let mut input = regent_election::codec::Input::new(data);
        if let Ok(change) = MemberChange::take(&mut input) {
            self.voters.change(index, &change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::replica_id;

    #[test]
    fn who_decides_depends_on_what_one_has_applied() {
        let mut voters = Voters::new(2..=3);
        voters.change(60, &MemberChange::Promote { id: replica_id(4) });
        voters.change(63, &MemberChange::LeaveJoint);
        let core = BTreeSet::from([3, 4]);
        assert!(voters.is_majority(&core), "two of the three that vote");
        assert!(!voters.was_majority(&core, 59), "one of the two that voted");
        assert!(!voters.was_majority(&core, 62), "and one of the two that go");
        assert!(voters.was_majority(&core, 63));
        assert!(voters.was_majority(&BTreeSet::from([2, 3]), 62));
    }
}
