//! Your own code in the lab: an application on the library's driver, among faults that have names.
//!
//! A [`Rehearsal`] is a [`World`] with names. You bring an [`Application`]; it runs in as many simulated
//! processes as you like, with the real replica and the real participant, in virtual time. You pause, kill,
//! cut off and misadjust whom you like, or let chance do it ([`Rehearsal::trouble`]); then the
//! checkers judge the history, and you look at what was written.
//!
//! ```
//! use std::time::Duration;
//! use regent_lab::election::Group;
//! use regent_lab::{Application, Context, Rehearsal};
//!
//! /// Counts, while it leads.
//! struct Counter(u64);
//!
//! impl Application for Counter {
//!     fn on_tick(&mut self, cx: &mut Context<'_>) {
//!         let billing = Group::new("billing").unwrap();
//!         // The check and the write are of one instant: that is what makes this right.
//!         if let Some((term, _)) = cx.check(&billing) {
//!             self.0 += 1;
//!             cx.write(&billing, term, &self.0.to_string());
//!         }
//!     }
//! }
//!
//! for seed in 0..3 {
//!     let mut lab = Rehearsal::new(seed, 3);
//!     for name in ["ann", "bob"] {
//!         lab.participant(name, Duration::from_secs(2), &["billing"], Counter(0));
//!     }
//!     let first = lab.await_leader("billing", Duration::from_secs(10)).expect("somebody leads");
//!     lab.pause(&first);
//!     lab.run_for(Duration::from_secs(4));
//!     assert_ne!(lab.leader("billing"), Some(first.clone()), "a paused leader is succeeded");
//!     lab.resume(&first);
//!     lab.run_for(Duration::from_secs(2));
//!     let outcome = lab.finish();
//!     outcome.assert_kept();
//!     assert!(outcome.written("billing").len() > 10);
//! }
//! ```
//!
//! The same seed gives the same history, so whatever breaks can be looked at again and again. Half a
//! minute of virtual time costs about a tenth of a second, even unoptimised: sweep a hundred seeds in a test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use regent_election::{Group, Node};

use crate::checkers::{Violation, check};
use crate::dice::Dice;
use crate::history::History;
use crate::plan::Plan;
use crate::stats::Stats;
use crate::trial::story_of;
use crate::world::{Address, Application, World, Written};

/// How long a cluster of healthy replicas may take until it serves.
const SERVES_MS_MAX: u64 = 10_000;
/// How long one trouble of chance lasts, in milliseconds.
const TROUBLE_MS: std::ops::RangeInclusive<u64> = 50..=6_000;

/// A simulated cluster and the processes that take part in its elections, by name.
///
/// Replicas are called `replica-1`, `replica-2` and so on. A name that nobody has is a mistake in the
/// test, and panics.
#[derive(Debug)]
pub struct Rehearsal {
    world: World,
    addresses: BTreeMap<String, Address>,
    /// The links that each cut-off process lost.
    cuts: BTreeMap<String, Vec<(Address, Address)>>,
    dice: Dice,
}

impl Rehearsal {
    /// A healthy cluster of so many replicas, in the world of a seed.
    ///
    /// # Panics
    /// If there are no replicas, or more than nine.
    #[must_use]
    pub fn new(seed: u64, replicas: u64) -> Self {
        assert!((1..=9).contains(&replicas), "a cluster has one to nine replicas, not {replicas}");
        let mut world = World::new(Plan::calm(seed, replicas));
        world.prepare_stage();
        let addresses =
            (1..=replicas).map(|id| (format!("replica-{id}"), Address::Replica(id))).collect();
        let dice = Dice::new(seed).fork("trouble");
        Self { world, addresses, cuts: BTreeMap::new(), dice }
    }

    /// Starts a process that stands in these groups and runs this application.
    ///
    /// # Panics
    /// If the name is taken, or no name, or the ttl is out of all bounds.
    pub fn participant(
        &mut self,
        name: &str,
        ttl: Duration,
        groups: &[&str],
        application: impl Application + 'static,
    ) {
        let node = Node::new(name).unwrap_or_else(|why| panic!("{name:?}: {why}"));
        let groups = groups.iter().map(|group| named(group)).collect();
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let number = self.world.add_app(node, ttl_ms, groups, Box::new(application));
        let before = self.addresses.insert(name.to_owned(), Address::Client(number));
        assert!(before.is_none(), "{name} takes part already");
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.world.run_for_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }

    /// Who leads a group and may act at this instant.
    #[must_use]
    pub fn leader(&self, group: &str) -> Option<String> {
        let number = self.world.leader_of(&named(group))?;
        self.world.node_of(number).map(ToString::to_string)
    }

    /// Lets time pass until somebody leads a group and may act; none if nobody does in time.
    pub fn await_leader(&mut self, group: &str, within: Duration) -> Option<String> {
        let ms_max = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.world.await_leader_of(&named(group), ms_max);
        self.leader(group)
    }

    /// A process stands still from here on, while its clock runs.
    pub fn pause(&mut self, name: &str) {
        match self.address(name) {
            Address::Replica(id) => self.world.pause_replica(id),
            Address::Client(number) => self.world.pause_client(number),
            Address::Registers | Address::Engine => {}
        }
    }

    /// A process that stood still goes on. Its application acts first.
    pub fn resume(&mut self, name: &str) {
        match self.address(name) {
            Address::Replica(id) => self.world.resume_replica(id),
            Address::Client(number) => self.world.resume_client(number),
            Address::Registers | Address::Engine => {}
        }
    }

    /// A process dies on the spot; of what a replica had not synced, some may be lost.
    pub fn kill(&mut self, name: &str) {
        match self.address(name) {
            Address::Replica(id) => self.world.crash_replica(id),
            Address::Client(number) => self.world.kill_client(number),
            Address::Registers | Address::Engine => {}
        }
    }

    /// A dead process is started again.
    pub fn restart(&mut self, name: &str) {
        match self.address(name) {
            Address::Replica(id) => self.world.start_replica(id),
            Address::Client(number) => self.world.restart_client(number),
            Address::Registers | Address::Engine => {}
        }
    }

    /// Cuts a process off from all replicas. It still reaches the storage: that is the dangerous kind.
    pub fn cut_off(&mut self, name: &str) {
        let own = self.address(name);
        let replicas: Vec<Address> = self.replicas().filter(|other| *other != own).collect();
        let links = replicas.iter().flat_map(|other| [(own, *other), (*other, own)]);
        self.cut(name, links.collect());
    }

    /// Splits the named processes into parts that do not reach each other. `heal` each of the first part.
    pub fn partition(&mut self, one: &[&str], other: &[&str]) {
        let others: Vec<Address> = other.iter().map(|name| self.address(name)).collect();
        for name in one {
            let own = self.address(name);
            let links = others.iter().flat_map(|other| [(own, *other), (*other, own)]);
            self.cut(name, links.collect());
        }
    }

    /// Heals what was cut for a process.
    pub fn heal(&mut self, name: &str) {
        for (from, to) in self.cuts.remove(name).unwrap_or_default() {
            self.world.heal(from, to);
        }
    }

    /// Lets a clock run wrong by so many parts per million from here on. The promises hold up to 10,000.
    pub fn drift(&mut self, name: &str, ppm: i64) {
        let whose = self.address(name);
        self.world.set_clock_rate(whose, ppm);
    }

    /// Lets chance pause, kill, cut off and misadjust for so long, and heals everything after.
    pub fn trouble(&mut self, time: Duration) {
        let until = self.world.now() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        let names: Vec<String> = self.addresses.keys().cloned().collect();
        while self.world.now() < until {
            let at = self.dice.below(names.len() as u64) as usize;
            let Some(name) = names.get(at) else { return };
            let lasts_ms = self.dice.skewed(TROUBLE_MS);
            self.strike(name, lasts_ms);
            let rest_ms = self.dice.within(0..=500);
            self.world.run_for_ms(rest_ms);
        }
    }

    fn strike(&mut self, name: &str, lasts_ms: u64) {
        match self.dice.below(4) {
            0 => {
                self.pause(name);
                self.world.run_for_ms(lasts_ms);
                self.resume(name);
            }
            1 => {
                self.kill(name);
                self.world.run_for_ms(lasts_ms);
                self.restart(name);
            }
            2 => {
                self.cut_off(name);
                self.world.run_for_ms(lasts_ms);
                self.heal(name);
            }
            _ => {
                let bound = i64::from(self.world.history().setup.drift_ppm);
                let ppm = if self.dice.once_in(2) { bound } else { -bound };
                self.drift(name, ppm);
                self.world.run_for_ms(lasts_ms);
                self.drift(name, 0);
            }
        }
    }

    /// The world itself, for what has no name here.
    pub const fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Heals everything, lets the cluster agree, cuts its power, lets it agree again, and judges.
    #[must_use]
    pub fn finish(mut self) -> RehearsalOutcome {
        for name in self.cuts.keys().cloned().collect::<Vec<_>>() {
            self.heal(&name);
        }
        self.world.await_leader(SERVES_MS_MAX);
        self.world.finish();
        let written = self.world.take_written();
        let (history, stats) = self.world.into_history();
        let violations = check(&history);
        RehearsalOutcome { history, stats, violations, written }
    }

    fn cut(&mut self, name: &str, links: Vec<(Address, Address)>) {
        for (from, to) in &links {
            self.world.cut(*from, *to);
        }
        self.cuts.entry(name.to_owned()).or_default().extend(links);
    }

    fn replicas(&self) -> impl Iterator<Item = Address> {
        self.addresses.values().copied().filter(|address| matches!(address, Address::Replica(_)))
    }

    fn address(&self, name: &str) -> Address {
        let found = self.addresses.get(name).copied();
        found.unwrap_or_else(|| {
            let known: Vec<&str> = self.addresses.keys().map(String::as_str).collect();
            panic!("nobody is called {name:?}; there are {}", known.join(", "))
        })
    }
}

fn named(group: &str) -> Group {
    Group::new(group).unwrap_or_else(|why| panic!("{group:?}: {why}"))
}

/// What a rehearsal came to.
#[derive(Debug)]
pub struct RehearsalOutcome {
    /// Everything that happened.
    pub history: History,
    /// What it amounted to.
    pub stats: Stats,
    /// The promises that were broken, by Regent or by the application.
    pub violations: Vec<Violation>,
    written: BTreeMap<Group, Vec<Written>>,
}

impl RehearsalOutcome {
    /// What was written to the storage of a group, in the order in which it landed.
    #[must_use]
    pub fn written(&self, group: &str) -> &[Written] {
        self.written.get(&named(group)).map_or(&[], Vec::as_slice)
    }

    /// The writes that landed after one of a higher term: what a storage without a fence suffers.
    #[must_use]
    pub fn late_writes(&self, group: &str) -> Vec<&Written> {
        let mut highest = regent_election::Term::NONE;
        let mut late = Vec::new();
        for write in self.written(group) {
            if write.term < highest {
                late.push(write);
            }
            highest = highest.max(write.term);
        }
        late
    }

    /// Panics with the seed, the broken promises and what led to the first, if any is broken.
    ///
    /// # Panics
    /// If a promise was broken.
    pub fn assert_kept(&self) {
        let Some(first) = self.violations.first() else { return };
        let mut told = format!("seed {} broke a promise\n", self.history.setup.seed);
        told += &story_of(&self.history, first.at);
        for violation in &self.violations {
            writeln!(told, "{violation}").expect("a string takes everything");
        }
        panic!("{told}");
    }
}
