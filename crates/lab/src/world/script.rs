//! What a scenario needs beside faults: people who do nothing by chance, and questions by hand.

use regent_election::participant::Event;
use regent_election::state::Query;
use regent_election::store::Scope;
use regent_election::{Command, Group, Policy, SessionId, Term};
use regent_replica::{Backup, Role};

use super::caller::one_shot;
use super::net::Address;
use super::parcel::{Ask, Parcel};
use super::replica::InboxItem;
use super::{Client, World, group_name, replica_id};
use crate::history::{History, Proc, Setup, Stage, What};
use crate::plan::Plan;

/// How long a healthy cluster may take until a group is led.
const SETTLE_MS_MAX: u64 = 20_000;
/// The cluster that backups are taken of.
const CLUSTER: u128 = 0xc1;

impl World {
    /// The names of the first groups.
    #[must_use]
    pub fn group_names(&self, count: u32) -> Vec<Group> {
        (1..=count).map(group_name).collect()
    }

    /// From here on nobody does anything by chance but read and work; there is an operator.
    pub fn be_quiet(&mut self) {
        self.enter(Stage::Core, Vec::new());
        self.add_operator();
    }

    /// Every leader that may act gives its office up.
    pub fn resign_all(&mut self) {
        for (number, group) in self.acting() {
            self.on_member(number, Event::Resign { group });
        }
    }

    /// Participants that stand in these groups, a caller, a watcher and the operator. Nobody does
    /// anything by chance but read and work. Returns the participants when every group is led.
    pub fn settle(&mut self, members: u32, ttl_ms: u64, groups: &[Group]) -> Vec<u32> {
        self.be_quiet();
        let mut numbers = Vec::new();
        for _ in 0..members {
            let number = self.add_member(ttl_ms, groups.to_vec());
            self.give_ears(number);
            numbers.push(number);
        }
        self.add_caller();
        self.add_watcher(Scope::Prefix(String::new()), None);
        assert!(self.await_until(SETTLE_MS_MAX, Self::is_led), "a healthy cluster elects");
        numbers
    }

    /// Heals everything, lets all agree, cuts the power of all, and lets all agree again: whatever the
    /// story was, nothing that was acknowledged may be lost by its end.
    pub fn finish(&mut self) {
        self.heal_everything();
        self.be_reborn();
        self.enter(Stage::End, self.up());
    }

    /// Who leads a group and may act, if anybody.
    #[must_use]
    pub fn leader_of(&self, group: &Group) -> Option<u32> {
        self.acting().into_iter().find(|(_, led)| led == group).map(|(number, _)| number)
    }

    /// Whether somebody leads the group and may act within the time given.
    pub fn await_leader_of(&mut self, group: &Group, ms_max: u64) -> Option<u32> {
        self.await_until(ms_max, |world| world.leader_of(group).is_some());
        self.leader_of(group)
    }

    /// The replicas that judge sessions at this instant.
    #[must_use]
    pub fn serving(&self) -> Vec<u64> {
        let running = self.replicas.values().filter_map(|r| Some((r.id, r.running.as_ref()?)));
        running.filter(|(_, running)| running.core.is_serving()).map(|(id, _)| id).collect()
    }

    /// The replicas that began to lead the log after an instant, in order.
    #[must_use]
    pub fn raft_leaders_since(&self, at: u64) -> Vec<u64> {
        let later = self.history.events.iter().filter(|event| event.at > at);
        later
            .filter_map(|event| match (&event.what, event.proc) {
                (What::RaftLeader { .. }, Proc::Replica { id, .. }) => Some(id),
                _ => None,
            })
            .collect()
    }

    /// The last entry known to be committed.
    #[must_use]
    pub const fn committed(&self) -> u64 {
        self.committed
    }

    /// Makes a replica lead the log, by order of the operator.
    pub fn let_lead(&mut self, id: u64) {
        for _ in 0..50 {
            if self.serving() == [id] {
                return;
            }
            if let Some(leader) = self.leader() {
                self.order_transfer(leader, Some(id));
            }
            self.run_for_ms(200);
        }
        panic!("replica {id} does not come to lead");
    }

    /// The operator asks a replica to hand Raft leadership over.
    pub(super) fn order_transfer(&mut self, leader: u64, to: Option<u64>) {
        let is_operator = |client: &Client| matches!(client, Client::Operator(_));
        let operator = self.clients.iter().find(|(_, client)| is_operator(client));
        let Some(number) = operator.map(|(number, _)| *number) else { return };
        self.calls += 1;
        let call = self.calls;
        let ask = Ask::RaftTransfer { to: to.map(replica_id) };
        let op = ask.op();
        self.note(Proc::Client { number, run: 1 }, What::Invoke { call, op });
        self.tell(leader, InboxItem::Ask { client: number, call, ask });
    }

    /// Writes something, at any replica that takes it, and says whether that was acknowledged in time.
    pub fn writes_within(&mut self, ms_max: u64) -> bool {
        let Some(caller) = self.first_caller() else { return false };
        let group = Group::new("written").expect("a word is a name");
        let policy = Policy { retry_ms_min: 100 + self.calls % 800, ..Policy::default() };
        let command = Command::PutPolicy { group, policy: Some(Box::new(policy)) };
        self.order(caller, Ask::Submit { command, request: None, query: None });
        self.await_until(ms_max, Self::is_idle)
    }

    /// Puts this many changes to one replica at once and waits for no answer.
    pub fn flood(&mut self, to: u64, count: u64) {
        let Some(number) = self.first_caller() else { return };
        for at in 0..count {
            let group = Group::new(&format!("flood-{at}")).expect("a word is a name");
            let policy = Some(Box::new(Policy { retry_ms_min: 100 + at, ..Policy::default() }));
            let command = Command::PutPolicy { group, policy };
            let ask = Ask::Submit { command, request: None, query: None };
            self.calls += 1;
            let call = self.calls;
            self.note(Proc::Client { number, run: 1 }, What::Invoke { call, op: ask.op() });
            let parcel = Parcel::Ask { call, ask };
            self.send(Address::Client(number), Address::Replica(to), parcel);
        }
    }

    /// A caller campaigns with a bare request of a session that is made for it, ttl 1 s, and says what
    /// it won.
    pub fn win_bare(&mut self, number: u32, group: &Group) -> Option<(SessionId, Term)> {
        let session = self.fresh_session();
        let to = *self.serving().first()?;
        self.ask(number, to, one_shot(group.clone(), session, number, None));
        self.await_until(1_000, |world| world.is_answered(number));
        let Some(Client::Caller(caller)) = self.clients.get(&number) else { return None };
        caller.office_in(group)
    }

    /// A caller sends the heartbeat of a bare session, at this very instant.
    pub fn renew_bare(&mut self, number: u32, group: &Group, (session, term): (SessionId, Term)) {
        let Some(to) = self.serving().first().copied() else { return };
        let tenure = Some((group.clone(), term));
        let ask = Ask::Heartbeat { session, sequence: None, tenure, disowned: Vec::new() };
        self.ask(number, to, ask);
    }

    /// Reads who leads a group, by one caller at one replica.
    pub fn read_at(&mut self, number: u32, to: u64, group: &Group) {
        let query = Query::Leader(group.clone());
        self.ask(number, to, Ask::Read { query, linearizable: true });
    }

    /// The Raft leader of the highest term that this replica knows itself to be.
    #[must_use]
    pub fn believes_to_lead(&self, id: u64) -> bool {
        let running = self.replicas.get(&id).and_then(|replica| replica.running.as_ref());
        running.is_some_and(|running| running.core.role() == Role::Leader)
    }

    /// Somebody writes to the registers of a group with a term so much above any that was seen there.
    pub fn raise_fence(&mut self, group: &Group, by: u64) {
        let registers = self.registers.entry(group.clone()).or_default();
        let raised = Term::new(registers.highest.get() + by).expect("terms of a run are small");
        let _ = registers.fence.admit(raised);
        self.note_fault(format!("the registers of {group} are written with term {raised}"), false);
    }

    /// Lets the clock of a process run wrong by this much from here on.
    pub fn set_clock_rate(&mut self, whose: Address, rate_ppm: i64) {
        self.change_clock(whose, |clock, now| clock.set_rate(now, rate_ppm));
    }

    /// A disk is lost for good; the operator replaces its replica by another one, whose id this is.
    pub fn lose_disk(&mut self, id: u64) -> Option<u64> {
        self.note_fault(format!("the disk of replica {id} is lost"), false);
        self.crash_replica(id);
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.is_retired = true;
        }
        self.replace(id)
    }

    /// A backup of what the Raft leader has applied, as bytes, by the code that makes real ones.
    #[must_use]
    pub fn backup(&self, stamp_s: u64) -> Vec<u8> {
        let serving = self.serving();
        let leader = serving.first().and_then(|id| self.replicas.get(id));
        let running = leader.and_then(|leader| leader.running.as_ref());
        let core = &running.expect("somebody serves").core;
        Backup::of(CLUSTER, core.applied(), stamp_s, core.replicated().clone()).encode()
    }

    /// The whole cluster is gone at this instant, and a backup of it starts another one in its place,
    /// with the wall clock at `now_s`. The registers outside go on. Returns how it was before.
    ///
    /// # Errors
    /// Why the backup is refused.
    pub fn restore_from(&mut self, backup: &[u8], now_s: u64) -> Result<History, String> {
        let backup = Backup::decode(backup).map_err(|why| why.to_string())?;
        let members = self.history.setup.members.clone();
        let replicated =
            backup.restored(members, now_s, Term::NONE).map_err(|why| why.to_string())?;
        let setup = Setup { replicated: Some(replicated.encode()), ..self.history.setup.clone() };
        let plan = Plan { seed: self.dice.roll(), ..self.plan.clone() };
        let mut next = Self::founded(plan, setup, self.now);
        next.registers = std::mem::take(&mut self.registers);
        next.sessions = self.sessions;
        let (history, stats) = std::mem::replace(self, next).into_history();
        self.stats += stats;
        Ok(history)
    }
}
