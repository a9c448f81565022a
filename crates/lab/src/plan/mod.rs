//! What a seed decides before a run begins: how large the world is and what may go wrong in it.
//!
//! Swarm testing: each seed enables a random subset of the faults with random rates. A world in which
//! everything always goes wrong explores less than many worlds in which different things do.

mod register;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use regent_election::Settings;

use crate::dice::Dice;

pub use register::{RegisterPlan, StoreKind};

const MS: u64 = 1_000_000;
/// With snapshots this far apart no run drops entries from its logs.
pub const SNAPSHOTS_NEVER: u64 = 10_000;

/// Something that may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Messages get lost.
    Loss,
    /// Messages arrive twice.
    Duplicate,
    /// Messages overtake each other.
    Reorder,
    /// Some links get slow for a while.
    SlowLinks,
    /// The replicas fall into two or three parts.
    Partition,
    /// The Raft leader is cut off.
    Isolate,
    /// Random directions between replicas are cut.
    OneWay,
    /// Two parts see each other only through one replica.
    Bridge,
    /// A link comes and goes quickly.
    Flap,
    /// Clients lose some of the replicas.
    ClientCuts,
    /// A replica dies and comes back; what was not synced is lost.
    Crash,
    /// All replicas lose power at once.
    PowerCut,
    /// A replica stands still while its clock runs.
    Pause,
    /// A replica's loop gets slow.
    SlowReplica,
    /// Syncs take long.
    SlowDisk,
    /// A sync takes very long.
    StallDisk,
    /// A disk is full for a while.
    FullDisk,
    /// A disk is lost for good; another replica takes the place.
    Wipe,
    /// Snapshots are made all the time.
    Snapshots,
    /// Raft leadership is handed over.
    RaftTransfer,
    /// A client stands still while its clock runs.
    ClientPause,
    /// A client dies.
    ClientCrash,
    /// Clocks run wrong, within the bound.
    Drift,
    /// Clocks run wrong beyond the bound, or jump.
    BeyondA1,
    /// A sync fails, and with it the process; what was to be synced is lost.
    SyncFails,
    /// A bit of a file turns round while its replica is down.
    BitFlip,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::Loss,
        Self::Duplicate,
        Self::Reorder,
        Self::SlowLinks,
        Self::Partition,
        Self::Isolate,
        Self::OneWay,
        Self::Bridge,
        Self::Flap,
        Self::ClientCuts,
        Self::Crash,
        Self::PowerCut,
        Self::Pause,
        Self::SlowReplica,
        Self::SlowDisk,
        Self::StallDisk,
        Self::FullDisk,
        Self::Wipe,
        Self::Snapshots,
        Self::RaftTransfer,
        Self::ClientPause,
        Self::ClientCrash,
        Self::Drift,
        Self::BeyondA1,
        Self::SyncFails,
        Self::BitFlip,
    ];

    /// The word by which a command line names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::SlowLinks => "slow-links",
            Self::Partition => "partition",
            Self::Isolate => "isolate",
            Self::OneWay => "one-way",
            Self::Bridge => "bridge",
            Self::Flap => "flap",
            Self::ClientCuts => "client-cuts",
            Self::Crash => "crash",
            Self::PowerCut => "power-cut",
            Self::Pause => "pause",
            Self::SlowReplica => "slow-replica",
            Self::SlowDisk => "slow-disk",
            Self::StallDisk => "stall-disk",
            Self::FullDisk => "full-disk",
            Self::Wipe => "wipe",
            Self::Snapshots => "snapshots",
            Self::RaftTransfer => "raft-transfer",
            Self::ClientPause => "client-pause",
            Self::ClientCrash => "client-crash",
            Self::Drift => "drift",
            Self::BeyondA1 => "beyond-a1",
            Self::SyncFails => "sync-fails",
            Self::BitFlip => "bit-flip",
        }
    }

    /// Whether it strikes from time to time; the others are a condition of the whole run.
    #[must_use]
    pub const fn strikes(self) -> bool {
        !matches!(
            self,
            Self::Loss | Self::Duplicate | Self::Reorder | Self::SlowDisk | Self::Snapshots
        )
    }

    /// Whether it needs more than one replica.
    const fn needs_many(self) -> bool {
        matches!(
            self,
            Self::Partition
                | Self::Isolate
                | Self::OneWay
                | Self::Bridge
                | Self::Flap
                | Self::Wipe
                | Self::BitFlip
                | Self::RaftTransfer
        )
    }

    /// One of so many plans has it.
    const fn rarity(self) -> u64 {
        match self {
            Self::BeyondA1 => 16,
            Self::PowerCut | Self::Wipe | Self::FullDisk | Self::SyncFails | Self::BitFlip => 6,
            Self::Drift => 2,
            Self::Loss
            | Self::Duplicate
            | Self::Reorder
            | Self::SlowLinks
            | Self::Partition
            | Self::Isolate
            | Self::OneWay
            | Self::Bridge
            | Self::Flap
            | Self::ClientCuts
            | Self::Crash
            | Self::Pause
            | Self::SlowReplica
            | Self::SlowDisk
            | Self::StallDisk
            | Self::Snapshots
            | Self::RaftTransfer
            | Self::ClientPause
            | Self::ClientCrash => 3,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.word() == word).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|fault| fault.word()).collect();
            format!("there is no fault {word}; there are {}", known.join(", "))
        })
    }
}

/// How links behave when nothing strikes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetPlan {
    /// One way, without jitter.
    pub delay_ns: RangeInclusive<u64>,
    /// Messages lost, in a million.
    pub loss_ppm: u32,
    /// Messages repeated, in a million.
    pub duplicate_ppm: u32,
    /// Messages held back so that others overtake them, in a million.
    pub reorder_ppm: u32,
    /// The longest that one is held back.
    pub reorder_ns_max: u64,
}

/// What disks are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// The idea of a disk: what was synced is there, of the rest a prefix. Fast.
    Image,
    /// The real log and snapshots, over simulated files.
    Directory {
        /// Bytes of a segment of the log: small ones are changed often.
        segment_bytes: u64,
    },
}

/// How disks behave when nothing strikes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// What they are made of.
    pub medium: Medium,
    /// How long a sync takes.
    pub sync_ns: RangeInclusive<u64>,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
}

/// A driver's own mistakes, for proving that they would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sabotage {
    /// The disk says that everything is durable at once, and loses it in a crash.
    FsyncSkipped,
    /// A turn computes expiries before it drains what has arrived.
    ExpiriesFirst,
    /// A replica whose disk was lost comes back under its old id.
    WipedVotes,
    /// The register's fence is off.
    FenceOff,
    /// A replica that starts again takes the number of its last run.
    BootReused,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::FsyncSkipped,
        Self::ExpiriesFirst,
        Self::WipedVotes,
        Self::FenceOff,
        Self::BootReused,
    ];

    /// The word by which a command line names it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::FsyncSkipped => "fsync-skipped",
            Self::ExpiriesFirst => "expiries-first",
            Self::WipedVotes => "wiped-votes",
            Self::FenceOff => "fence-off",
            Self::BootReused => "boot-reused",
        }
    }
}

/// What is left out of a seed's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// What keeps the elections.
    pub store: StoreKind,
    /// Faults that do not happen.
    pub without: Vec<Fault>,
    /// How long faults strike.
    pub chaos_ms: Option<u64>,
    pub members: Option<u32>,
    /// Clients without a participant.
    pub callers: Option<u32>,
    /// Clients that watch.
    pub watchers: Option<u32>,
    pub groups: Option<u32>,
}

/// Everything that a seed decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    /// Replicas at the start; in a world with a register, the hosts that share it.
    pub replicas: u64,
    /// The register that keeps the elections in place of replicas, if one does.
    pub register: Option<RegisterPlan>,
    /// The one of them that votes and keeps the log, but no state, if any.
    pub witness: Option<u64>,
    pub members: u32,
    /// Clients that read, administer and campaign without a participant.
    pub callers: u32,
    /// Clients that watch.
    pub watchers: u32,
    pub groups: u32,
    /// The ttls participants choose from.
    pub ttls_ms: Vec<u64>,
    /// How long faults strike.
    pub chaos_ms: u64,
    /// What may go wrong.
    pub faults: BTreeSet<Fault>,
    /// The pause between two strikes of the same fault.
    pub strike_every_ms: RangeInclusive<u64>,
    pub net: NetPlan,
    pub disk: DiskPlan,
    /// What holds for the whole store.
    pub settings: Settings,
    /// The drift bound ρ.
    pub drift_ppm: u32,
    /// Events a replica remembers for watchers.
    pub ring_count: usize,
    /// The pause between two acts of a participant's application.
    pub act_every_ms: RangeInclusive<u64>,
    /// The pause between two calls of a caller.
    pub call_every_ms: RangeInclusive<u64>,
    /// Whether the application stops in time.
    pub overruns_ppm: u32,
    /// A mistake built into the driver.
    pub sabotage: Option<Sabotage>,
}

impl Plan {
    /// What this seed decides.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let mut size = dice.fork("size");
        let replicas = [1, 3, 3, 3, 3, 5, 5][size.below(7) as usize];
        let faults = draw_faults(&mut dice.fork("faults"), replicas);
        let mut rates = dice.fork("rates");
        let is_slow = rates.once_in(4);
        let ppm = |is_on: bool, rates: &mut Dice, most: u64| {
            let drawn = rates.skewed(1_000..=most);
            if is_on { u32::try_from(drawn).unwrap_or(0) } else { 0 }
        };
        let net = NetPlan {
            delay_ns: if is_slow { MS..=12 * MS } else { 50_000..=2 * MS },
            loss_ppm: ppm(faults.contains(&Fault::Loss), &mut rates, 200_000),
            duplicate_ppm: ppm(faults.contains(&Fault::Duplicate), &mut rates, 100_000),
            reorder_ppm: ppm(faults.contains(&Fault::Reorder), &mut rates, 300_000),
            reorder_ns_max: rates.skewed(MS..=300 * MS),
        };
        let sync_ms_max = if faults.contains(&Fault::SlowDisk) { 60 } else { 4 };
        let mut stuff = dice.fork("medium");
        let medium = if stuff.once_in(2) {
            Medium::Image
        } else {
            Medium::Directory { segment_bytes: 4_096 << stuff.below(4) }
        };
        let mut watch = dice.fork("witness");
        let witness = (replicas > 1 && watch.once_in(4)).then(|| watch.within(1..=replicas));
        let snapshot_every = if faults.contains(&Fault::Snapshots) {
            rates.within(5..=60)
        } else if witness.is_some() {
            SNAPSHOTS_NEVER
        } else {
            rates.within(200..=2_000)
        };
        let mut load = dice.fork("load");
        let ttl_low = [500, 700, 1_000, 2_000, 4_000][load.below(5) as usize];
        let ttls_ms = vec![ttl_low, ttl_low + load.within(0..=1_000), ttl_low * 2];
        let strike_low = load.within(200..=2_000);
        Self {
            seed,
            replicas,
            register: None,
            witness,
            members: u32::try_from(load.within(2..=5)).unwrap_or(2),
            callers: u32::try_from(load.within(1..=3)).unwrap_or(1),
            watchers: u32::try_from(load.within(1..=2)).unwrap_or(1),
            groups: u32::try_from(load.within(1..=3)).unwrap_or(1),
            ttls_ms,
            chaos_ms: load.within(8_000..=20_000),
            faults,
            strike_every_ms: strike_low..=strike_low * 4,
            net,
            disk: DiskPlan { medium, sync_ns: 100_000..=sync_ms_max * MS, snapshot_every },
            settings: Settings::default(),
            drift_ppm: 10_000,
            ring_count: [16, 64, 4_096][load.below(3) as usize],
            act_every_ms: 10..=load.within(100..=600),
            call_every_ms: 5..=load.within(60..=500),
            overruns_ppm: if load.once_in(3) { 100_000 } else { 0 },
            sabotage: None,
        }
    }

    /// Leaves a fault out, and nothing else.
    pub fn leave_out(&mut self, fault: Fault) {
        self.faults.remove(&fault);
        match fault {
            Fault::Loss => self.net.loss_ppm = 0,
            Fault::Duplicate => self.net.duplicate_ppm = 0,
            Fault::Reorder => self.net.reorder_ppm = 0,
            Fault::SlowDisk => self.disk.sync_ns = 100_000..=4 * MS,
            Fault::Snapshots => self.disk.snapshot_every = SNAPSHOTS_NEVER,
            Fault::SlowLinks
            | Fault::Partition
            | Fault::Isolate
            | Fault::OneWay
            | Fault::Bridge
            | Fault::Flap
            | Fault::ClientCuts
            | Fault::Crash
            | Fault::PowerCut
            | Fault::Pause
            | Fault::SlowReplica
            | Fault::StallDisk
            | Fault::FullDisk
            | Fault::Wipe
            | Fault::RaftTransfer
            | Fault::ClientPause
            | Fault::ClientCrash
            | Fault::Drift
            | Fault::BeyondA1
            | Fault::SyncFails
            | Fault::BitFlip => {}
        }
    }

    /// The plan of a seed with less in it: what a shrunk failure is replayed by.
    #[must_use]
    pub fn cut(seed: u64, cuts: &Cuts) -> Self {
        let mut plan = Self::draw_for(cuts.store, seed);
        for fault in &cuts.without {
            plan.leave_out(*fault);
        }
        plan.chaos_ms = cuts.chaos_ms.unwrap_or(plan.chaos_ms);
        plan.members = cuts.members.unwrap_or(plan.members);
        plan.callers = cuts.callers.unwrap_or(plan.callers);
        plan.watchers = cuts.watchers.unwrap_or(plan.watchers);
        plan.groups = cuts.groups.unwrap_or(plan.groups);
        plan
    }

    /// The words of a command line that make this plan of its seed's.
    #[must_use]
    pub fn arguments(&self) -> String {
        let drawn = Self::draw_for(self.store(), self.seed);
        let mut words = format!("--seed {}", self.seed);
        if self.store() != StoreKind::default() {
            words += &format!(" --store {}", self.store());
        }
        let without: Vec<&str> =
            drawn.faults.difference(&self.faults).map(|fault| fault.word()).collect();
        if !without.is_empty() {
            words += &format!(" --without {}", without.join(","));
        }
        for (name, is, was) in [
            ("chaos-ms", self.chaos_ms, drawn.chaos_ms),
            ("members", self.members.into(), drawn.members.into()),
            ("callers", self.callers.into(), drawn.callers.into()),
            ("watchers", self.watchers.into(), drawn.watchers.into()),
            ("groups", self.groups.into(), drawn.groups.into()),
        ] {
            if is != was {
                words += &format!(" --{name} {is}");
            }
        }
        words
    }

    /// What it is, in one line for people.
    #[must_use]
    pub fn about(&self) -> String {
        let faults: Vec<&str> = self.faults.iter().map(|fault| fault.word()).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
        let servers = match self.store() {
            StoreKind::Replica => "replicas",
            StoreKind::Lease => "hosts that share a register",
        };
        format!(
            "seed {}: {} {servers}, {} members, {} groups, {} ms of faults: {faults}",
            self.seed, self.replicas, self.members, self.groups, self.chaos_ms
        )
    }

    /// A world without faults, for scenarios that bring their own.
    #[must_use]
    pub fn calm(seed: u64, replicas: u64) -> Self {
        let mut plan = Self::draw(seed);
        plan.replicas = replicas;
        plan.witness = None;
        plan.faults.clear();
        plan.net = NetPlan {
            delay_ns: 100_000..=2 * MS,
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_ns_max: 0,
        };
        plan.disk.sync_ns = 200_000..=4 * MS;
        plan.disk.snapshot_every = SNAPSHOTS_NEVER;
        plan.overruns_ppm = 0;
        plan
    }
}

/// About a third of the faults; those that need more than one replica only where there are.
fn draw_faults(dice: &mut Dice, replicas: u64) -> BTreeSet<Fault> {
    // Rolled for every fault, so that one more in the list does not change the others.
    let drawn = Fault::ALL.into_iter().filter(|fault| dice.once_in(fault.rarity()));
    drawn.filter(|fault| replicas > 1 || !fault.needs_many()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrunk_plan_is_made_again_from_its_words() {
        let mut plan = Plan::draw(77);
        let faults: Vec<Fault> = plan.faults.iter().copied().take(2).collect();
        for fault in &faults {
            plan.leave_out(*fault);
        }
        plan.chaos_ms = 700;
        plan.members = 1;
        let words = plan.arguments();
        assert!(words.contains("--seed 77") && words.contains("--chaos-ms 700"), "{words}");
        let cuts =
            Cuts { without: faults, chaos_ms: Some(700), members: Some(1), ..Cuts::default() };
        assert_eq!(Plan::cut(77, &cuts), plan);
    }

    #[test]
    fn every_fault_is_drawn_by_some_seed_and_read_back_by_its_word() {
        for fault in Fault::ALL {
            assert!((0..200).any(|seed| Plan::draw(seed).faults.contains(&fault)), "{fault}");
            assert_eq!(fault.word().parse(), Ok(fault));
        }
        assert!("sunshine".parse::<Fault>().is_err());
    }
}
