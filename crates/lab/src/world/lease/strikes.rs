//! What befalls hosts, their links to the engine, and the engine itself.

use super::World;
use crate::dice::Dice;
use crate::plan::Fault;
use crate::world::net::Address;
use crate::world::strike::Undo;

impl World {
    /// Lets a fault strike that is another one here than among replicas. False if it is not.
    pub(in crate::world) fn strike_lease(&mut self, fault: Fault, dice: &mut Dice) -> bool {
        match fault {
            Fault::SlowLinks => self.slow_engine_links(dice),
            Fault::Partition => self.part_from_engine(dice),
            Fault::Isolate => self.cut_one_off(dice),
            Fault::OneWay => self.cut_one_way(dice),
            Fault::PowerCut => self.end_engine(dice),
            Fault::StallDisk => {
                let ms = dice.skewed(100..=3_000);
                let until = self.now + ms * 1_000_000;
                if let Some(lease) = &mut self.lease {
                    lease.engine.stalled_until = until;
                }
                self.note_fault(format!("the engine stalls for {ms} ms"), false);
            }
            Fault::FullDisk => {
                if let Some(lease) = &mut self.lease {
                    lease.engine.full += 1;
                }
                let ms = dice.within(200..=3_000);
                self.lasts("the engine has no room".into(), ms, vec![Undo::EngineRoom]);
            }
            Fault::SlowReplica => {
                let Some(id) = dice.pick(&self.up()) else { return true };
                let lag_ns = dice.skewed(1_000_000..=150_000_000);
                if let Some(host) = self.host(id) {
                    host.lag_ns = lag_ns;
                }
                let what = format!("host {id} lags by up to {} ms", lag_ns / 1_000_000);
                self.lasts(what, dice.within(200..=4_000), vec![Undo::KeepUp(id)]);
            }
            Fault::Loss
            | Fault::Duplicate
            | Fault::Reorder
            | Fault::Bridge
            | Fault::Flap
            | Fault::ClientCuts
            | Fault::Crash
            | Fault::Pause
            | Fault::SlowDisk
            | Fault::Wipe
            | Fault::Snapshots
            | Fault::RaftTransfer
            | Fault::ClientPause
            | Fault::ClientCrash
            | Fault::Drift
            | Fault::BeyondA1
            | Fault::SyncFails
            | Fault::BitFlip => return false,
        }
        true
    }

    fn slow_engine_links(&mut self, dice: &mut Dice) {
        let Some(id) = dice.pick(&self.askable()) else { return };
        let by_ns = dice.skewed(1_000_000..=1_500_000_000);
        let (host, engine) = (Address::Replica(id), Address::Engine);
        let mut undos = Vec::new();
        // One way only is the crueller: the deed is done in time, and nobody knows.
        let way = dice.below(3);
        for (from, to, is_meant) in [(host, engine, way != 1), (engine, host, way != 2)] {
            if is_meant {
                self.net.slow_down(from, to, by_ns);
                undos.push(Undo::SpeedUp(from, to));
            }
        }
        let what = format!("host {id} and the engine are slow by {} ms", by_ns / 1_000_000);
        self.lasts(what, dice.within(200..=5_000), undos);
    }

    fn cut_from_engine(&mut self, id: u64, way: u64, undos: &mut Vec<Undo>) {
        let (host, engine) = (Address::Replica(id), Address::Engine);
        for (from, to, is_meant) in [(host, engine, way != 1), (engine, host, way != 2)] {
            if is_meant {
                self.net.cut(from, to);
                undos.push(Undo::Heal(from, to));
            }
        }
    }

    fn part_from_engine(&mut self, dice: &mut Dice) {
        let mut undos = Vec::new();
        let parted: Vec<u64> = self.askable().into_iter().filter(|_| dice.once_in(2)).collect();
        for id in &parted {
            self.cut_from_engine(*id, 0, &mut undos);
        }
        let what = format!("hosts {parted:?} are parted from the engine");
        self.lasts(what, dice.within(100..=6_000), undos);
    }

    fn cut_one_off(&mut self, dice: &mut Dice) {
        let Some(id) = dice.pick(&self.askable()) else { return };
        let mut undos = Vec::new();
        self.cut_from_engine(id, 0, &mut undos);
        let what = format!("host {id} is cut off from the engine");
        self.lasts(what, dice.within(100..=6_000), undos);
    }

    fn cut_one_way(&mut self, dice: &mut Dice) {
        let Some(id) = dice.pick(&self.askable()) else { return };
        let way = 1 + dice.below(2);
        let mut undos = Vec::new();
        self.cut_from_engine(id, way, &mut undos);
        let how = if way == 1 { "hears nothing of" } else { "is not heard by" };
        self.lasts(format!("host {id} {how} the engine"), dice.within(100..=5_000), undos);
    }

    /// The engine dies and comes back with everything that it has acknowledged.
    fn end_engine(&mut self, dice: &mut Dice) {
        if let Some(lease) = &mut self.lease {
            lease.engine.outages += 1;
            lease.engine.forget_waits();
        }
        let ms = dice.within(50..=2_500);
        self.lasts(format!("the engine is away for {ms} ms"), ms, vec![Undo::EngineUp]);
    }

    pub(in crate::world) fn bring_engine_back(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.engine.outages = lease.engine.outages.saturating_sub(1);
        }
    }

    pub(in crate::world) fn give_engine_room(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.engine.full = lease.engine.full.saturating_sub(1);
        }
    }

    pub(in crate::world) fn keep_host_up(&mut self, id: u64) {
        if let Some(host) = self.host(id) {
            host.lag_ns = 0;
        }
    }

    /// Those outside of a healthy core die, lose the engine for ever, or stay as they are.
    pub(in crate::world) fn break_other_hosts(&mut self, core: &[u64], dice: &mut Dice) {
        for id in self.hosts(false).into_iter().filter(|id| !core.contains(id)) {
            match dice.below(4) {
                0 => self.crash_host(id),
                1 => self.cut_from_engine(id, dice.below(3), &mut Vec::new()),
                _ => {}
            }
        }
    }

    /// Some host or some more.
    pub(in crate::world) fn choose_hosts(&self, dice: &mut Dice) -> Vec<u64> {
        let mut all = self.hosts(false);
        dice.shuffle(&mut all);
        let mut core: Vec<u64> = all
            .iter()
            .enumerate()
            .filter(|(at, _)| *at == 0 || dice.once_in(2))
            .map(|(_, id)| *id)
            .collect();
        core.sort_unstable();
        core
    }
}
