//! What a seed decides of a world whose elections are kept in a register.

use std::collections::BTreeSet;
use std::fmt;

use super::{Fault, MS, Medium, Plan};
use crate::dice::Dice;

/// What keeps the elections of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// Our own replicas.
    #[default]
    Replica,
    /// The lease, in a register that somebody else keeps.
    Lease,
}

impl StoreKind {
    /// The word by which a command line names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Replica => "replica",
            Self::Lease => "lease",
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl std::str::FromStr for StoreKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Replica, Self::Lease];
        let found = all.into_iter().find(|kind| kind.word() == word);
        found
            .ok_or_else(|| format!("the simulator keeps elections in replica or lease, not {word}"))
    }
}

/// The register and those who share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterPlan {
    /// Whether the engine times sessions itself.
    pub times_sessions: bool,
    /// How often it is looked at, if it announces nothing.
    pub poll_ms: Option<u64>,
    /// How long an answer of it is awaited.
    pub timeout_ms: u64,
}

impl Plan {
    /// What this seed decides of a world with such a store.
    #[must_use]
    pub fn draw_for(store: StoreKind, seed: u64) -> Self {
        match store {
            StoreKind::Replica => Self::draw(seed),
            StoreKind::Lease => Self::draw_leased(seed),
        }
    }

    /// What keeps the elections of this world.
    #[must_use]
    pub const fn store(&self) -> StoreKind {
        match self.register {
            None => StoreKind::Replica,
            Some(_) => StoreKind::Lease,
        }
    }

    fn draw_leased(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let mut plan = Self::draw(seed);
        let mut own = dice.fork("register");
        plan.replicas = own.within(1..=4);
        plan.witness = None;
        plan.faults = draw_faults(&mut dice.fork("faults of a register"));
        let mut rates = dice.fork("rates of a register");
        let mut ppm = |fault: Fault, most: u64| {
            let drawn = rates.skewed(1_000..=most);
            if plan.faults.contains(&fault) { u32::try_from(drawn).unwrap_or(0) } else { 0 }
        };
        plan.net.loss_ppm = ppm(Fault::Loss, 100_000);
        plan.net.duplicate_ppm = ppm(Fault::Duplicate, 100_000);
        plan.net.reorder_ppm = ppm(Fault::Reorder, 300_000);
        plan.disk.medium = Medium::Image;
        let work_ms_max = if plan.faults.contains(&Fault::SlowDisk) { 60 } else { 4 };
        plan.disk.sync_ns = 100_000..=work_ms_max * MS;
        let ttl_ms_min = plan.ttls_ms.iter().copied().min().unwrap_or(1_000);
        plan.register = Some(RegisterPlan {
            times_sessions: own.once_in(3),
            poll_ms: own.once_in(3).then(|| own.within(20..=200)),
            timeout_ms: own.within(100..=ttl_ms_min / 2),
        });
        plan
    }
}

/// Whether a fault is one of a world without a log.
const fn is_of_registers(fault: Fault) -> bool {
    match fault {
        Fault::Loss
        | Fault::Duplicate
        | Fault::Reorder
        | Fault::SlowLinks
        | Fault::Partition
        | Fault::Isolate
        | Fault::OneWay
        | Fault::ClientCuts
        | Fault::Crash
        | Fault::PowerCut
        | Fault::Pause
        | Fault::SlowReplica
        | Fault::SlowDisk
        | Fault::StallDisk
        | Fault::FullDisk
        | Fault::ClientPause
        | Fault::ClientCrash
        | Fault::Drift
        | Fault::BeyondA1 => true,
        Fault::Bridge
        | Fault::Flap
        | Fault::Wipe
        | Fault::Snapshots
        | Fault::RaftTransfer
        | Fault::SyncFails
        | Fault::BitFlip => false,
    }
}

fn draw_faults(dice: &mut Dice) -> BTreeSet<Fault> {
    // Rolled for every fault, so that one more in the list does not change the others.
    let drawn = Fault::ALL.into_iter().filter(|fault| dice.once_in(fault.rarity()));
    drawn.filter(|fault| is_of_registers(*fault)).collect()
}
