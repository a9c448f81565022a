//! What can be done to a world: by hand in a scenario, or by chance.

use std::collections::BTreeSet;

use regent_election::participant::Event;
use regent_replica::Role;

use super::disk::{Disk, Refused};
use super::net::Address;
use super::parcel::Parcel;
use super::replica::{Birth, InboxItem, Replica, Running};
use super::{Client, Happening, Timer, World, replica_id};
use crate::clock::Clock;
use crate::history::{Proc, Stage, What};
use crate::plan::Sabotage;

impl World {
    pub(super) fn add_replica(&mut self, id: u64, disk: Disk) {
        let clock = self.draw_clock(&format!("clock of replica {id}"));
        let replica = Replica {
            id,
            clock,
            disk,
            running: None,
            pauses: 0,
            lag_ns: 0,
            stalled_until: 0,
            is_retired: false,
        };
        self.replicas.insert(id, replica);
    }

    /// Starts a replica from what its disk remembers, unless it runs or its disk is lost.
    pub fn start_replica(&mut self, id: u64) {
        if self.is_leased() {
            self.start_host(id);
            return;
        }
        let now = self.now;
        let birth = Birth {
            id: replica_id(id),
            seed: self.dice.roll(),
            snapshot_every: self.plan.disk.snapshot_every,
            ring_count: self.plan.ring_count,
            is_witness: self.is_witness(id),
        };
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if replica.running.is_some() || replica.is_retired {
            return;
        }
        let own_now = replica.clock.read(now);
        let disk = &mut replica.disk;
        if self.plan.sabotage == Some(Sabotage::BootReused) {
            disk.forget_runs();
        }
        let running = match Running::start(&birth, disk, own_now) {
            Ok(running) => running,
            Err(Refused::NotNow(why)) => {
                self.note_fault(format!("replica {id} cannot start: {why}"), false);
                self.start_later(id);
                return;
            }
            Err(Refused::ForGood(why)) => {
                // It cannot prove what it promised, so it must not vote: another one takes its place.
                replica.is_retired = true;
                self.note_fault(format!("replica {id} refuses its disk: {why}"), false);
                self.replace(id);
                return;
            }
        };
        let run = running.run;
        replica.running = Some(Box::new(running));
        self.note(Proc::Replica { id, run }, What::Up);
        self.wake_replica(id, now + 1_000_000);
    }

    /// A replica dies; of what was not synced, some may be lost.
    pub fn crash_replica(&mut self, id: u64) {
        if self.is_leased() {
            self.crash_host(id);
            return;
        }
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let Some(running) = replica.running.take() else { return };
        replica.disk.crash(&mut self.dice);
        let run = running.run;
        self.stats.crashes += 1;
        self.note(Proc::Replica { id, run }, What::Down);
    }

    /// A replica's process dies alone, between two writes.
    pub(super) fn end_process(&mut self, id: u64) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let Some(running) = replica.running.take() else { return };
        replica.disk.drop_dead();
        let run = running.run;
        self.stats.crashes += 1;
        self.note(Proc::Replica { id, run }, What::Down);
    }

    /// A replica stands still from here on, while its clock runs.
    pub fn pause_replica(&mut self, id: u64) {
        if self.is_leased() {
            self.pause_host(id);
            return;
        }
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.pauses += 1;
        let run = replica.run();
        if let Some(running) = &mut replica.running {
            running.turn_at = None;
        }
        if let Some(run) = run {
            self.note(Proc::Replica { id, run }, What::Paused);
        }
    }

    /// A replica that stood still goes on.
    pub fn resume_replica(&mut self, id: u64) {
        if self.is_leased() {
            self.resume_host(id);
            return;
        }
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        replica.pauses = replica.pauses.saturating_sub(1);
        if replica.pauses > 0 {
            return;
        }
        let Some(run) = replica.run() else { return };
        self.note(Proc::Replica { id, run }, What::Resumed);
        self.queue.push(self.now, Happening::Depart { replica: id, run });
        self.wake_replica(id, self.now + 50_000);
    }

    /// Cuts what one says to the other.
    pub fn cut(&mut self, from: Address, to: Address) {
        self.net.cut(from, to);
    }

    /// Heals one cut of [`World::cut`].
    pub fn heal(&mut self, from: Address, to: Address) {
        self.net.heal(from, to);
    }

    /// Cuts both directions between two replicas.
    pub fn part(&mut self, one: u64, other: u64) {
        self.net.cut(Address::Replica(one), Address::Replica(other));
        self.net.cut(Address::Replica(other), Address::Replica(one));
    }

    /// Heals both directions between two replicas, one cut each.
    pub fn join(&mut self, one: u64, other: u64) {
        self.net.heal(Address::Replica(one), Address::Replica(other));
        self.net.heal(Address::Replica(other), Address::Replica(one));
    }

    /// Heals every link.
    pub fn heal_links(&mut self) {
        self.net.heal_all();
    }

    /// Splits the replicas into parts that do not see each other, and says which links that cut.
    pub fn split(&mut self, parts: &[&[u64]]) -> Vec<(u64, u64)> {
        let mut cuts = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            for other in parts.iter().skip(at + 1).copied().flatten() {
                for one in *part {
                    self.part(*one, *other);
                    cuts.push((*one, *other));
                }
            }
        }
        cuts
    }

    /// The Raft leader of the highest term among those that run, if any.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let running = self
            .replicas
            .values()
            .filter_map(|replica| Some((replica.id, replica.running.as_deref()?)));
        running
            .filter(|(_, running)| running.core.role() == Role::Leader)
            .max_by_key(|(_, running)| running.core.raft_term())
            .map(|(id, _)| id)
    }

    /// Every replica that believes to lead the log.
    #[must_use]
    pub fn leaders(&self) -> Vec<u64> {
        let leads = |replica: &&Replica| {
            replica.running.as_ref().is_some_and(|r| r.core.role() == Role::Leader)
        };
        self.replicas.values().filter(leads).map(|replica| replica.id).collect()
    }

    /// Lets time pass until a Raft leader judges sessions; none if that takes too long.
    pub fn await_leader(&mut self, ms_max: u64) -> Option<u64> {
        for _ in 0..ms_max {
            let serving = self.replicas.values().find(|replica| {
                replica.running.as_ref().is_some_and(|running| running.core.is_serving())
            });
            if let Some(replica) = serving {
                return Some(replica.id);
            }
            self.run_for_ms(1);
        }
        None
    }

    /// Replicas that run.
    #[must_use]
    pub fn up(&self) -> Vec<u64> {
        if self.is_leased() {
            return self.hosts(true);
        }
        self.replicas.values().filter(|r| r.running.is_some()).map(|r| r.id).collect()
    }

    /// Replicas a client may ask: all that may still live.
    pub(super) fn askable(&self) -> Vec<u64> {
        if self.is_leased() {
            return self.hosts(false);
        }
        self.replicas.values().filter(|r| !r.is_retired).map(|r| r.id).collect()
    }

    /// Replicas that keep the state and so can be watched.
    pub(super) fn watchable(&self) -> Vec<u64> {
        self.askable().into_iter().filter(|id| !self.is_witness(*id)).collect()
    }

    /// Replicas that participants are told of. Nobody lists a witness among its servers; in bad times one
    /// is asked all the same, to see that it answers nothing.
    pub(super) fn known_to_clients(&self) -> Vec<u64> {
        if self.stage == Stage::Chaos { self.askable() } else { self.watchable() }
    }

    /// Whether a replica votes and keeps the log, but no state.
    #[must_use]
    pub fn is_witness(&self, id: u64) -> bool {
        self.plan.witness == Some(id)
    }

    pub(super) fn member_numbers(&self) -> Vec<u32> {
        let is_member = |client: &Client| matches!(client, Client::Member(_));
        self.clients.iter().filter(|(_, c)| is_member(c)).map(|(number, _)| *number).collect()
    }

    /// A client stands still from here on, while its clock runs.
    pub fn pause_client(&mut self, number: u32) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        member.pauses += 1;
        let proc = member.proc();
        self.note(proc, What::Paused);
    }

    /// A client that stood still goes on.
    pub fn resume_client(&mut self, number: u32) {
        let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
        member.pauses = member.pauses.saturating_sub(1);
        if member.pauses > 0 {
            return;
        }
        let proc = member.proc();
        self.note(proc, What::Resumed);
        self.resume_member(number);
    }

    pub(super) fn restart_client_later(&mut self, number: u32) {
        let at = self.now + self.dice.within(50..=3_000) * 1_000_000;
        let timer = Timer::Start;
        self.queue.push(at, Happening::Client { number, run: 0, timer });
    }

    /// Changes a clock, and tells the history what that does to validity.
    pub(super) fn change_clock(&mut self, whose: Address, change: impl FnOnce(&mut Clock, u64)) {
        let now = self.now;
        match whose {
            Address::Replica(id) if self.is_leased() => self.change_host_clock(id, change),
            Address::Replica(id) => {
                if let Some(replica) = self.replicas.get_mut(&id) {
                    change(&mut replica.clock, now);
                    if let Some(running) = &mut replica.running {
                        running.turn_at = None;
                    }
                }
                self.wake_replica(id, now + 10_000);
            }
            Address::Client(number) => {
                let Some(Client::Member(member)) = self.clients.get_mut(&number) else { return };
                change(&mut member.clock, now);
                let is_paused = member.pauses > 0;
                self.note_leads(number);
                if is_paused {
                    return;
                }
                self.on_member(number, Event::Tick);
            }
            Address::Registers | Address::Engine => {}
        }
    }

    /// A disk has room again, or has none.
    pub fn set_room(&mut self, id: u64, is_there: bool) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if let Some(is_there) = replica.disk.set_room(is_there, &mut self.dice) {
            if let Some(running) = &mut replica.running {
                running.has_room = is_there;
            }
            self.tell(id, InboxItem::Room { is_there });
        }
    }

    pub(super) fn client_timer(&mut self, number: u32, run: u32, timer: Timer) {
        match self.clients.get(&number) {
            Some(Client::Member(member)) => {
                if matches!(timer, Timer::Start) {
                    self.start_member(number);
                } else if member.run == run && member.machine.is_some() {
                    if member.pauses == 0 {
                        self.member_timer(number, timer);
                    } else {
                        self.defer(number, run, timer);
                    }
                }
            }
            Some(Client::Caller(_)) => self.caller_timer(number),
            Some(Client::Watcher(_)) => self.watcher_timer(number),
            Some(Client::Operator(_)) => self.operator_timer(number),
            None => {}
        }
    }

    /// What falls into a pause happens after it.
    fn defer(&mut self, number: u32, run: u32, timer: Timer) {
        match timer {
            // Going on does these by itself.
            Timer::Wake | Timer::Depart => {}
            Timer::Act | Timer::Drained { .. } | Timer::Start => {
                let at = self.now + 20_000_000;
                self.queue.push(at, Happening::Client { number, run, timer });
            }
        }
    }

    pub(super) fn arrive_at_client(&mut self, _from: Address, number: u32, parcel: Parcel) {
        match self.clients.get(&number) {
            Some(Client::Member(_)) => self.arrive_at_member(number, parcel),
            Some(Client::Caller(_)) => self.arrive_at_caller(number, parcel),
            Some(Client::Watcher(_)) => self.arrive_at_watcher(number, parcel),
            Some(Client::Operator(_)) => self.arrive_at_operator(number, &parcel),
            None => {}
        }
    }

    /// Heals links among these replicas and between them and all clients, for good.
    pub(super) fn heal_core(&mut self, core: &[u64]) {
        let replicas = core.iter().map(|id| Address::Replica(*id));
        let clients = self.clients.keys().map(|number| Address::Client(*number));
        let mut healthy: BTreeSet<Address> = replicas.chain(clients).collect();
        healthy.extend([Address::Registers, Address::Engine]);
        self.net.heal_among(&healthy);
        // A replica that the core hears by its witness alone may lead on, and no other member of the core
        // could pass anything on to it: whoever wants something of it must be able to ask it itself.
        if core.iter().any(|id| self.is_witness(*id)) {
            let clients = || self.clients.keys().map(|number| Address::Client(*number));
            for id in self.replicas.keys() {
                let with_it: BTreeSet<_> = clients().chain([Address::Replica(*id)]).collect();
                self.net.heal_among(&with_it);
            }
        }
    }

    /// A print of every running replica's state.
    pub fn note_states(&mut self) {
        for id in self.up() {
            let Some(replica) = self.replicas.get_mut(&id) else { continue };
            let Some(running) = replica.running.take() else { continue };
            let proc = Proc::Replica { id, run: running.run };
            self.note_state(proc, &running);
            if let Some(replica) = self.replicas.get_mut(&id) {
                replica.running = Some(running);
            }
        }
    }
}
