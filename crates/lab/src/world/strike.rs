//! Faults by chance: each kind strikes on its own dice, lasts a while, and is undone.

use std::collections::BTreeMap;

use super::disk::Disk;
use super::net::Address;
use super::{Client, Happening, World, replica_id};
use crate::dice::Dice;
use crate::plan::{Fault, Sabotage};

/// Replicas whose disk may be lost in one run.
const WIPES_MAX: u32 = 2;

/// Something that strikes, or ends.
#[derive(Clone, Debug)]
pub(super) enum Strike {
    /// A fault of this kind begins.
    Begin(Fault),
    /// A strike ends.
    End(u64),
    /// A flapping link changes.
    Flap { one: u64, other: u64, left: u32, is_cut: bool },
}

/// What undoes a strike.
#[derive(Clone, Debug)]
pub(super) enum Undo {
    Heal(Address, Address),
    SpeedUp(Address, Address),
    Resume(u64),
    Start(u64),
    KeepUp(u64),
    Room(u64),
    ResumeClient(u32),
    EngineUp,
    EngineRoom,
}

/// The strikes under way.
#[derive(Debug)]
pub(super) struct Strikes {
    seed: Dice,
    dice: BTreeMap<Fault, Dice>,
    under_way: BTreeMap<u64, Vec<Undo>>,
    count: u64,
    wipes: u32,
}

impl Strikes {
    pub(super) fn new(dice: &Dice) -> Self {
        Self {
            seed: dice.fork("strikes"),
            dice: BTreeMap::new(),
            under_way: BTreeMap::new(),
            count: 0,
            wipes: 0,
        }
    }
}

impl World {
    /// Lets the faults of the plan strike from here on.
    pub fn begin_strikes(&mut self) {
        self.is_striking = true;
        for fault in self.plan.faults.clone().into_iter().filter(|fault| fault.strikes()) {
            let dice = self.strikes.seed.fork(fault.word());
            self.strikes.dice.insert(fault, dice);
            self.strike_later(fault);
        }
    }

    /// No further strikes. Those under way last until they are undone by hand.
    pub fn end_strikes(&mut self) {
        self.is_striking = false;
    }

    fn strike_later(&mut self, fault: Fault) {
        let every = self.plan.strike_every_ms.clone();
        let Some(dice) = self.strikes.dice.get_mut(&fault) else { return };
        let at = self.now + dice.within(every) * 1_000_000;
        self.queue.push(at, Happening::Strike(Strike::Begin(fault)));
    }

    pub(super) fn strike(&mut self, strike: Strike) {
        match strike {
            Strike::Begin(fault) if self.is_striking => {
                self.begin(fault);
                self.strike_later(fault);
            }
            Strike::Begin(_) => {}
            Strike::End(id) if self.is_striking => self.end_strike(id),
            Strike::End(_) => {}
            Strike::Flap { one, other, left, is_cut } => self.flap(one, other, left, is_cut),
        }
    }

    fn end_strike(&mut self, id: u64) {
        for undo in self.strikes.under_way.remove(&id).unwrap_or_default() {
            self.undo(&undo);
        }
    }

    /// Undoes everything under way. With `core`, only what concerns these replicas and the clients.
    pub(super) fn undo_strikes(&mut self, core: Option<&[u64]>) {
        let is_meant = |undo: &Undo| match (core, undo) {
            (None, _) | (Some(_), Undo::ResumeClient(_) | Undo::EngineUp | Undo::EngineRoom) => {
                true
            }
            (
                Some(core),
                Undo::Resume(id) | Undo::Start(id) | Undo::KeepUp(id) | Undo::Room(id),
            ) => core.contains(id),
            // Links are healed by whoever knows the core.
            (Some(_), Undo::Heal(..) | Undo::SpeedUp(..)) => false,
        };
        for (id, undos) in std::mem::take(&mut self.strikes.under_way) {
            let (now, later): (Vec<Undo>, Vec<Undo>) = undos.into_iter().partition(is_meant);
            for undo in &now {
                self.undo(undo);
            }
            if !later.is_empty() {
                self.strikes.under_way.insert(id, later);
            }
        }
    }

    fn undo(&mut self, undo: &Undo) {
        match undo {
            Undo::Heal(from, to) => self.net.heal(*from, *to),
            Undo::SpeedUp(from, to) => self.net.speed_up(*from, *to),
            Undo::Resume(id) => self.resume_replica(*id),
            Undo::Start(id) => self.start_replica(*id),
            Undo::KeepUp(id) => {
                self.keep_host_up(*id);
                if let Some(replica) = self.replicas.get_mut(id) {
                    replica.lag_ns = 0;
                }
            }
            Undo::Room(id) => self.set_room(*id, true),
            Undo::ResumeClient(number) => self.resume_client(*number),
            Undo::EngineUp => self.bring_engine_back(),
            Undo::EngineRoom => self.give_engine_room(),
        }
    }

    /// Notes a strike and undoes it after a while.
    pub(super) fn lasts(&mut self, what: String, ms: u64, undos: Vec<Undo>) {
        self.note_fault(what, false);
        self.strikes.count += 1;
        let id = self.strikes.count;
        self.strikes.under_way.insert(id, undos);
        self.queue.push(self.now + ms * 1_000_000, Happening::Strike(Strike::End(id)));
    }

    fn begin(&mut self, fault: Fault) {
        let Some(mut dice) = self.strikes.dice.remove(&fault) else { return };
        if self.is_leased() && self.strike_lease(fault, &mut dice) {
            self.strikes.dice.insert(fault, dice);
            return;
        }
        match fault {
            Fault::SlowLinks => self.slow_links(&mut dice),
            Fault::Partition => self.partition(&mut dice),
            Fault::Isolate => self.isolate(&mut dice),
            Fault::OneWay => self.one_way(&mut dice),
            Fault::Bridge => self.bridge(&mut dice),
            Fault::Flap => {
                if let Some((one, other)) = self.two_replicas(&mut dice) {
                    self.note_fault(format!("the link {one}-{other} flaps"), false);
                    let left = dice.within(2..=12) as u32;
                    self.flap(one, other, left, false);
                }
            }
            Fault::ClientCuts => self.client_cuts(&mut dice),
            Fault::Crash => self.crash_some(&mut dice),
            Fault::PowerCut => self.power_cut(&mut dice),
            Fault::Pause => self.pause_some(&mut dice),
            Fault::SlowReplica => {
                if let Some(id) = dice.pick(&self.up()) {
                    let lag_ns = dice.skewed(1_000_000..=150_000_000);
                    if let Some(replica) = self.replicas.get_mut(&id) {
                        replica.lag_ns = lag_ns;
                    }
                    let ms = dice.within(200..=4_000);
                    let what = format!("replica {id} lags by up to {} ms", lag_ns / 1_000_000);
                    self.lasts(what, ms, vec![Undo::KeepUp(id)]);
                }
            }
            Fault::StallDisk => {
                if let Some(id) = dice.pick(&self.up()) {
                    let ms = dice.skewed(100..=3_000);
                    if let Some(replica) = self.replicas.get_mut(&id) {
                        replica.stalled_until = self.now + ms * 1_000_000;
                    }
                    self.note_fault(format!("the disk of replica {id} stalls for {ms} ms"), false);
                }
            }
            Fault::FullDisk => {
                if let Some(id) = dice.pick(&self.up()) {
                    self.set_room(id, false);
                    let ms = dice.within(200..=3_000);
                    self.lasts(
                        format!("the disk of replica {id} is full"),
                        ms,
                        vec![Undo::Room(id)],
                    );
                }
            }
            Fault::Wipe => self.wipe(&mut dice),
            Fault::RaftTransfer => self.raft_transfer(&mut dice),
            Fault::ClientPause => {
                if let Some(number) = dice.pick(&self.member_numbers()) {
                    let number = self.leading_client(&mut dice).unwrap_or(number);
                    self.pause_client(number);
                    let ms = dice.skewed(20..=12_000);
                    let what = format!("client {number} stands still for {ms} ms");
                    self.lasts(what, ms, vec![Undo::ResumeClient(number)]);
                }
            }
            Fault::ClientCrash => {
                if let Some(number) = dice.pick(&self.member_numbers()) {
                    let number = self.leading_client(&mut dice).unwrap_or(number);
                    self.note_fault(format!("client {number} dies"), false);
                    self.kill_client(number);
                    self.restart_client_later(number);
                }
            }
            Fault::Drift => {
                let whose = self.any_process(&mut dice);
                let rate_ppm = self.draw_rate(&mut dice);
                self.note_fault(format!("the clock of {whose:?} is {rate_ppm} ppm fast"), false);
                self.change_clock(whose, |clock, now| clock.set_rate(now, rate_ppm));
            }
            Fault::BeyondA1 => self.beyond_a1(&mut dice),
            Fault::SyncFails => {
                if let Some(id) = dice.pick(&self.up())
                    && self.replicas.get_mut(&id).is_some_and(|r| r.disk.fail_next_sync())
                {
                    self.note_fault(format!("the next sync of replica {id} fails"), false);
                }
            }
            Fault::BitFlip => self.bit_flip(&mut dice),
            // Conditions of the whole run, not strikes.
            Fault::Loss
            | Fault::Duplicate
            | Fault::Reorder
            | Fault::SlowDisk
            | Fault::Snapshots => {}
        }
        self.strikes.dice.insert(fault, dice);
    }

    fn two_replicas(&self, dice: &mut Dice) -> Option<(u64, u64)> {
        let mut all = self.askable();
        dice.shuffle(&mut all);
        match all.as_slice() {
            [one, other, ..] => Some((*one, *other)),
            [] | [_] => None,
        }
    }

    fn any_process(&self, dice: &mut Dice) -> Address {
        let replicas = self.askable().into_iter().map(Address::Replica);
        let clients = self.member_numbers().into_iter().map(Address::Client);
        let all: Vec<Address> = replicas.chain(clients).collect();
        dice.pick(&all).unwrap_or(Address::Registers)
    }

    /// Half of the time, a client that leads.
    fn leading_client(&self, dice: &mut Dice) -> Option<u32> {
        let leads = |client: &Client| match client {
            Client::Member(member) => member.is_leading(),
            Client::Caller(_) | Client::Watcher(_) | Client::Operator(_) => false,
        };
        let leading: Vec<u32> =
            self.clients.iter().filter(|(_, c)| leads(c)).map(|(number, _)| *number).collect();
        if dice.once_in(2) { dice.pick(&leading) } else { None }
    }

    fn cut_link(&mut self, from: u64, to: u64, undos: &mut Vec<Undo>) {
        let (from, to) = (Address::Replica(from), Address::Replica(to));
        self.net.cut(from, to);
        undos.push(Undo::Heal(from, to));
    }

    fn slow_links(&mut self, dice: &mut Dice) {
        let Some((one, other)) = self.two_replicas(dice) else { return };
        let by_ns = dice.skewed(1_000_000..=400_000_000);
        let (one, other) = (Address::Replica(one), Address::Replica(other));
        self.net.slow_down(one, other, by_ns);
        let mut undos = vec![Undo::SpeedUp(one, other)];
        if dice.once_in(2) {
            self.net.slow_down(other, one, by_ns);
            undos.push(Undo::SpeedUp(other, one));
        }
        let what = format!("{one:?} and {other:?} are slow by {} ms", by_ns / 1_000_000);
        self.lasts(what, dice.within(200..=5_000), undos);
    }

    fn partition(&mut self, dice: &mut Dice) {
        let mut all = self.askable();
        dice.shuffle(&mut all);
        let parts = if all.len() > 3 && dice.once_in(3) { 3 } else { 2 };
        let mut undos = Vec::new();
        let part_of: BTreeMap<u64, u64> = all.iter().map(|id| (*id, dice.below(parts))).collect();
        for one in &all {
            for other in all.iter().filter(|other| part_of[other] != part_of[one]) {
                self.cut_link(*one, *other, &mut undos);
            }
        }
        self.lasts(format!("partition {part_of:?}"), dice.within(100..=6_000), undos);
    }

    fn isolate(&mut self, dice: &mut Dice) {
        let Some(leader) = self.leader() else { return };
        let way = dice.below(3);
        let mut undos = Vec::new();
        for other in self.askable().into_iter().filter(|other| *other != leader) {
            if way != 1 {
                self.cut_link(leader, other, &mut undos);
            }
            if way != 2 {
                self.cut_link(other, leader, &mut undos);
            }
        }
        let how = ["", " from hearing others", " from being heard"][way as usize];
        self.lasts(format!("replica {leader} is cut off{how}"), dice.within(100..=6_000), undos);
    }

    fn one_way(&mut self, dice: &mut Dice) {
        let all = self.askable();
        let mut undos = Vec::new();
        let mut cuts = Vec::new();
        for one in &all {
            for other in all.iter().filter(|other| *other != one) {
                if dice.once_in(4) {
                    self.cut_link(*one, *other, &mut undos);
                    cuts.push((*one, *other));
                }
            }
        }
        self.lasts(format!("one-way cuts {cuts:?}"), dice.within(100..=5_000), undos);
    }

    fn bridge(&mut self, dice: &mut Dice) {
        let mut all = self.askable();
        dice.shuffle(&mut all);
        let Some((bridge, rest)) = all.split_first() else { return };
        let (left, right) = rest.split_at(rest.len() / 2);
        let mut undos = Vec::new();
        for one in left {
            for other in right {
                self.cut_link(*one, *other, &mut undos);
                self.cut_link(*other, *one, &mut undos);
            }
        }
        let what = format!("{left:?} and {right:?} meet only in {bridge}");
        self.lasts(what, dice.within(200..=5_000), undos);
    }

    fn flap(&mut self, one: u64, other: u64, left: u32, is_cut: bool) {
        if is_cut {
            self.join(one, other);
        }
        if left == 0 || !self.is_striking {
            return;
        }
        if !is_cut {
            self.part(one, other);
        }
        let at = self.now + self.dice.within(20..=300) * 1_000_000;
        let flap = Strike::Flap { one, other, left: left - 1, is_cut: !is_cut };
        self.queue.push(at, Happening::Strike(flap));
    }

    fn client_cuts(&mut self, dice: &mut Dice) {
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        let Some(number) = dice.pick(&numbers) else { return };
        let client = Address::Client(number);
        let mut undos = Vec::new();
        for id in self.askable() {
            let replica = Address::Replica(id);
            for (from, to) in [(client, replica), (replica, client)] {
                if dice.once_in(2) {
                    self.net.cut(from, to);
                    undos.push(Undo::Heal(from, to));
                }
            }
        }
        self.lasts(format!("client {number} loses replicas"), dice.within(200..=4_000), undos);
    }

    /// A replica that ended by itself is started again after a while, by whoever looks after it.
    pub(super) fn start_later(&mut self, id: u64) {
        let ms = self.dice.within(50..=1_500);
        self.lasts(format!("replica {id} is away for {ms} ms"), ms, vec![Undo::Start(id)]);
    }

    fn crash_some(&mut self, dice: &mut Dice) {
        let leader = self.leader().filter(|_| dice.once_in(2));
        let Some(id) = leader.or_else(|| dice.pick(&self.up())) else { return };
        self.crash_replica(id);
        let ms = dice.skewed(20..=4_000);
        self.lasts(format!("replica {id} dies for {ms} ms"), ms, vec![Undo::Start(id)]);
    }

    fn power_cut(&mut self, dice: &mut Dice) {
        self.note_fault("all replicas lose power".into(), false);
        for id in self.up() {
            self.crash_replica(id);
            let ms = dice.within(50..=1_500);
            self.lasts(format!("replica {id} is off for {ms} ms"), ms, vec![Undo::Start(id)]);
        }
    }

    fn pause_some(&mut self, dice: &mut Dice) {
        let leader = self.leader().filter(|_| dice.once_in(2));
        let Some(id) = leader.or_else(|| dice.pick(&self.up())) else { return };
        self.pause_replica(id);
        let ms = dice.skewed(20..=4_000);
        self.lasts(format!("replica {id} stands still for {ms} ms"), ms, vec![Undo::Resume(id)]);
    }

    /// A disk is lost. At most one at a time and while the others live: more is beyond what any
    /// quorum survives.
    fn wipe(&mut self, dice: &mut Dice) {
        let all = self.askable();
        let Some(id) = dice.pick(&all).filter(|id| self.may_lose_a_disk(*id)) else { return };
        self.strikes.wipes += 1;
        self.note_fault(format!("the disk of replica {id} is lost"), false);
        self.crash_replica(id);
        if self.plan.sabotage == Some(Sabotage::WipedVotes) {
            let settings = self.history.setup.settings.clone();
            let medium = self.plan.disk.medium;
            if let Some(replica) = self.replicas.get_mut(&id) {
                replica.disk = Disk::empty(medium, replica_id(id), &settings);
            }
            self.start_replica(id);
            return;
        }
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.is_retired = true;
        }
        self.replace(id);
    }

    /// Whether the cluster survives the loss of this disk: all others are there, none is being replaced,
    /// and they can decide by whatever members they would know of after a power cut.
    fn may_lose_a_disk(&self, id: u64) -> bool {
        let all = self.askable().len();
        self.strikes.wipes < WIPES_MAX
            && self.is_replaced()
            && all >= 3
            && self.plan.witness.is_none()
            && self.up().len() == all
            && self.others_decide(id)
    }

    /// A replica dies, and while it is down one bit of its files turns round. It notices when it starts,
    /// and is replaced, or it does not matter.
    fn bit_flip(&mut self, dice: &mut Dice) {
        let Some(id) = dice.pick(&self.up()).filter(|id| self.may_lose_a_disk(*id)) else { return };
        self.end_process(id);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        if let Some(place) = replica.disk.flip(dice) {
            self.strikes.wipes += 1;
            self.note_fault(format!("{place} of replica {id} turns round"), false);
        }
        self.start_replica(id);
    }

    fn raft_transfer(&mut self, dice: &mut Dice) {
        let Some(leader) = self.leader() else { return };
        let to = dice.pick(&self.askable()).filter(|_| dice.once_in(2));
        self.order_transfer(leader, to);
    }

    fn beyond_a1(&mut self, dice: &mut Dice) {
        let whose = self.any_process(dice);
        if dice.once_in(2) {
            let ms = dice.within(100..=5_000);
            self.note_fault(format!("the clock of {whose:?} jumps by {ms} ms"), true);
            self.change_clock(whose, |clock, now| clock.jump(now, ms * 1_000_000));
        } else {
            let rate_ppm = i64::try_from(dice.below(600_000)).unwrap_or(0) - 300_000;
            self.note_fault(format!("the clock of {whose:?} is {rate_ppm} ppm fast"), true);
            self.change_clock(whose, |clock, now| clock.set_rate(now, rate_ppm));
        }
    }
}
