//! Plays an algorithm on the stage: takes what is due, tells the node, and sees to what it says.

use std::collections::BTreeMap;
use std::fmt;

use regent_election::Moment;

use super::actor::Actor;
use super::algorithm::Algorithm;
use super::links::{Network, Way};
use super::record::{Fate, StageEvent, StageRecord, What};
use super::scenario::Scenario;
use super::storage::{Storage, Write};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::protocols::bully::Bully;
use crate::protocols::byzantine::Byzantine;
use crate::protocols::gossip::Gossip;
use crate::protocols::hierarchy::Hierarchy;
use crate::protocols::lease::Lease;
use crate::protocols::paxos::Paxos;
use crate::protocols::raft::{self, Raft};
use crate::protocols::ring::Ring;
use crate::protocols::ring::chang_roberts::ChangRoberts;
use crate::protocols::{Message, NODES_MAX, NodeId, Out, Protocol, Setup};
use crate::queue::Queue;

/// Things that may happen in one run at most: an algorithm that storms is stopped here, and the record
/// ends early.
const HAPPENINGS_MAX: u64 = 5_000_000;
/// Processes start within this time of each other, in nanoseconds.
const STARTS_WITHIN_NS: u64 = 50_000_000;
/// How long a write takes to its storage, in microseconds. Nobody cuts that way: the worst case.
const STORAGE_US: std::ops::RangeInclusive<u64> = 500..=5_000;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Everything that happened.
    pub record: StageRecord,
    /// Whether it was stopped because too much happened.
    pub is_cut_short: bool,
}

/// Why a scenario cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// It names a node that there is not.
    NoSuchNode {
        node: NodeId,
        /// How many there are.
        nodes: u16,
    },
    /// Too few or too many nodes.
    Nodes(u16),
    /// The algorithm refuses the scenario's time-outs, and says why.
    Pace(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { node, nodes } => {
                let last = NodeId(nodes.saturating_sub(1));
                write!(f, "the scenario names {node}, and {nodes} nodes are A to {last}")
            }
            Self::Pace(why) => write!(f, "{why}"),
            Self::Nodes(nodes) => write!(f, "{nodes} nodes are refused: 2 to {NODES_MAX}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Whether an algorithm can be played under a scenario.
///
/// # Errors
/// If the scenario names nodes that there are not, or the algorithm refuses its time-outs.
pub fn fits(algorithm: Algorithm, scenario: &Scenario) -> Result<(), RunError> {
    scenario.check()?;
    if algorithm == Algorithm::Raft {
        raft::timing(&scenario.pace).map_err(|error| RunError::Pace(error.to_string()))?;
    }
    Ok(())
}

/// Plays a scenario with an algorithm. The same arguments always give the same record.
///
/// # Errors
/// If the scenario does not fit its number of nodes.
pub fn play(algorithm: Algorithm, scenario: &Scenario, seed: u64) -> Result<Run, RunError> {
    fits(algorithm, scenario)?;
    Ok(match algorithm {
        Algorithm::Bully => Stage::<Bully>::new(scenario, seed).run(),
        Algorithm::Ring => Stage::<Ring>::new(scenario, seed).run(),
        Algorithm::ChangRoberts => Stage::<ChangRoberts>::new(scenario, seed).run(),
        Algorithm::Lease => Stage::<Lease>::new(scenario, seed).run(),
        Algorithm::Raft => Stage::<Raft>::new(scenario, seed).run(),
        Algorithm::Paxos => Stage::<Paxos>::new(scenario, seed).run(),
        Algorithm::Hierarchy => Stage::<Hierarchy>::new(scenario, seed).run(),
        Algorithm::Gossip => Stage::<Gossip>::new(scenario, seed).run(),
        Algorithm::Byzantine => Stage::<Byzantine>::new(scenario, seed).run(),
    })
}

/// Plays a scenario for its offices alone: what nodes say and write is not recorded, so that days of it fit
/// into memory. The scenario's time-outs are the caller's to check.
pub(crate) fn play_quietly<P: Protocol>(
    scenario: &Scenario,
    seed: u64,
    happenings_max: u64,
) -> Result<Run, RunError> {
    scenario.check()?;
    let mut stage = Stage::<P>::new(scenario, seed);
    (stage.is_quiet, stage.happenings_max) = (true, happenings_max);
    Ok(stage.run())
}

/// What is due.
#[derive(Debug)]
pub(super) enum Happening<P: Protocol> {
    /// A process starts.
    Start { node: NodeId },
    /// A message is there.
    Arrive { from: NodeId, to: NodeId, message: P::Message },
    /// A timer may be over: it counts only if it is still set for this moment.
    Wake { node: NodeId, run: u32, timer: P::Timer, due: Moment },
    /// A disk is done, and what waited for it leaves.
    Release { node: NodeId, run: u32, kept: Option<P::Kept>, sends: Vec<(NodeId, P::Message)> },
    /// A leader has worked and writes.
    Work { run: u32, write: Write },
    /// A write reaches the storage.
    Land { write: Write },
    /// A pause is over.
    Resume { node: NodeId, run: u32 },
    /// The scenario strikes.
    Strike { number: usize },
}

/// The stage of one run.
#[derive(Debug)]
pub(super) struct Stage<'a, P: Protocol> {
    pub(super) scenario: &'a Scenario,
    pub(super) now: u64,
    pub(super) queue: Queue<Happening<P>>,
    pub(super) actors: Vec<Actor<P>>,
    pub(super) network: Network,
    pub(super) dice: Dice,
    disk_dice: Dice,
    storage: Storage,
    storage_dice: Dice,
    tenures: u64,
    entries: Vec<StageEvent>,
    /// Whether only lives and offices are recorded.
    is_quiet: bool,
    happenings_max: u64,
}

impl<'a, P: Protocol> Stage<'a, P> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let dice = Dice::new(seed);
        let count = scenario.nodes + P::SERVERS;
        let actor = |number: u16| {
            let mut own = dice.fork(&format!("node {number}"));
            let setup = Setup {
                me: NodeId(number),
                nodes: scenario.nodes,
                pace: scenario.pace,
                seed: own.roll(),
                run: 0,
                witnesses: Vec::new(),
                is_liar: false,
            };
            Actor {
                setup,
                // Nobody's clock starts at zero: whoever compares two of them shall notice.
                clock: Clock::new(0, own.within(1_000_000_000..=1_000_000_000_000), 0),
                machine: None,
                kept: None,
                disk_us: scenario.disk_us.clone(),
                disk_free_at: 0,
                timers: BTreeMap::new(),
                pauses: 0,
                held: Vec::new(),
                tenure: None,
                is_acting: false,
                is_working: false,
                follows: (None, None),
            }
        };
        let mut stage = Self {
            scenario,
            now: 0,
            queue: Queue::new(),
            actors: (0..count).map(actor).collect(),
            network: Network::new(scenario.links.clone(), dice.fork("links")),
            disk_dice: dice.fork("disks"),
            storage: Storage::default(),
            storage_dice: dice.fork("storage"),
            tenures: 0,
            entries: Vec::new(),
            is_quiet: false,
            happenings_max: HAPPENINGS_MAX,
            dice: dice.fork("choices"),
        };
        for (number, strike) in scenario.strikes.iter().enumerate() {
            stage.queue.push(nanos(strike.at), Happening::Strike { number });
        }
        let mut starts = dice.fork("starts");
        for number in (0..count).rev() {
            let at = if number < scenario.nodes { starts.below(STARTS_WITHIN_NS) } else { 0 };
            stage.queue.push(at, Happening::Start { node: NodeId(number) });
        }
        stage
    }

    pub(super) fn run(mut self) -> Run {
        let end = nanos(self.scenario.lasts);
        let mut happened = 0;
        while let Some(at) = self.queue.next_at().filter(|at| *at < end)
            && happened < self.happenings_max
        {
            let Some((_, happening)) = self.queue.pop() else { break };
            self.now = at;
            happened += 1;
            self.happen(happening);
        }
        let is_cut_short = happened >= self.happenings_max;
        let names = (0..self.actors.len() as u16).map(|number| self.name(NodeId(number))).collect();
        let ended_at = if is_cut_short { self.now } else { end };
        let nodes = self.scenario.nodes;
        Run { record: StageRecord { names, nodes, entries: self.entries, ended_at }, is_cut_short }
    }

    pub(super) fn name(&self, node: NodeId) -> String {
        match node.0.checked_sub(self.scenario.nodes) {
            None => node.to_string(),
            Some(0) if P::SERVERS == 1 => "store".to_owned(),
            Some(number) => format!("store{}", number + 1),
        }
    }

    pub(super) fn note(&mut self, what: What) {
        if self.is_quiet && !what.is_of_office() {
            return;
        }
        self.entries.push(StageEvent { at: self.now, what });
    }

    pub(super) fn actor(&mut self, node: NodeId) -> &mut Actor<P> {
        &mut self.actors[usize::from(node.0)]
    }

    fn happen(&mut self, happening: Happening<P>) {
        // What concerns a paused process waits until it goes on.
        let concerns = match &happening {
            Happening::Arrive { to, .. } => Some(*to),
            Happening::Wake { node, .. } | Happening::Release { node, .. } => Some(*node),
            Happening::Work { write, .. } => Some(write.node),
            Happening::Start { .. }
            | Happening::Land { .. }
            | Happening::Resume { .. }
            | Happening::Strike { .. } => None,
        };
        if let Some(node) = concerns
            && self.actor(node).pauses > 0
        {
            return self.actor(node).held.push(happening);
        }
        match happening {
            Happening::Start { node } => self.start(node),
            Happening::Arrive { from, to, message } => {
                if self.actor(to).is_up() {
                    self.step(to, |machine, now, out| machine.receive(now, from, message, out));
                } else {
                    self.note(What::Unheard { from, to, kind: message.kind() });
                }
            }
            Happening::Wake { node, run, timer, due } => self.wake(node, run, timer, due),
            Happening::Release { node, run, kept, sends } => self.release(node, run, kept, sends),
            Happening::Work { run, write } => self.finish_work(run, write),
            Happening::Land { write } => {
                let (is_wrong, fence) = self.storage.land(write);
                let Write { node, tenure, term } = write;
                self.note(What::Writes { node, tenure, term, is_wrong, fence });
            }
            Happening::Resume { node, run } => self.resume(node, run),
            Happening::Strike { number } => self.strike(number),
        }
    }

    /// Starts a process, unless it runs.
    pub(super) fn start(&mut self, node: NodeId) {
        let now = self.now;
        let actor = self.actor(node);
        if actor.is_up() {
            return;
        }
        actor.setup.run += 1;
        actor.disk_free_at = now;
        let (setup, kept) = (actor.setup.clone(), actor.kept.clone());
        self.note(What::Starts { node, run: setup.run });
        let mut out = Out::new();
        let own_now = self.actor(node).clock.read(now);
        let machine = P::start(&setup, kept, own_now, &mut out);
        self.actor(node).machine = Some(machine);
        self.absorb(node, out);
        self.look(node);
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        let actor = self.actor(node);
        if actor.machine.take().is_none() {
            return;
        }
        actor.timers.clear();
        actor.held.clear();
        (actor.pauses, actor.is_working) = (0, false);
        self.note(What::Crashes { node });
        self.look(node);
    }

    fn resume(&mut self, node: NodeId, run: u32) {
        let actor = self.actor(node);
        if actor.setup.run != run || actor.pauses == 0 {
            return;
        }
        actor.pauses -= 1;
        if actor.pauses > 0 {
            return;
        }
        let held = std::mem::take(&mut actor.held);
        self.note(What::Resumes { node });
        // It believes what it believed, until it is told otherwise or looks at its clock.
        self.look(node);
        for happening in held {
            self.queue.push(self.now, happening);
        }
    }

    /// Tells a node something and sees to what it says.
    fn step(&mut self, node: NodeId, tell: impl FnOnce(&mut P, Moment, &mut Out<P>)) {
        let now = self.now;
        let actor = self.actor(node);
        let own_now = actor.clock.read(now);
        let Some(machine) = actor.machine.as_mut() else { return };
        let mut out = Out::new();
        tell(machine, own_now, &mut out);
        self.absorb(node, out);
        self.look(node);
    }

    fn wake(&mut self, node: NodeId, run: u32, timer: P::Timer, due: Moment) {
        let now = self.now;
        let actor = self.actor(node);
        if actor.setup.run != run || actor.timers.get(&timer) != Some(&due) {
            return;
        }
        if actor.clock.read(now) < due {
            // The clock was disturbed since: it is set anew.
            return self.set_timer(node, timer, due);
        }
        actor.timers.remove(&timer);
        self.step(node, |machine, now, out| machine.wake(now, timer, out));
    }

    pub(super) fn set_timer(&mut self, node: NodeId, timer: P::Timer, due: Moment) {
        let now = self.now;
        let actor = self.actor(node);
        actor.timers.insert(timer, due);
        let (at, run) = (actor.clock.when(due).max(now), actor.setup.run);
        self.queue.push(at, Happening::Wake { node, run, timer, due });
    }

    fn absorb(&mut self, node: NodeId, out: Out<P>) {
        let Out { sends, kept, timers, remarks } = out;
        for text in remarks {
            self.note(What::Remarks { node, text });
        }
        for (timer, due) in timers {
            match due {
                Some(due) => self.set_timer(node, timer, due),
                None => {
                    self.actor(node).timers.remove(&timer);
                }
            }
        }
        let now = self.now;
        if kept.is_some() {
            let range = self.actor(node).disk_us.clone();
            let takes = self.disk_dice.skewed(range) * 1_000;
            let actor = self.actor(node);
            actor.disk_free_at = actor.disk_free_at.max(now) + takes;
        }
        let actor = self.actor(node);
        let (at, run) = (actor.disk_free_at.max(now), actor.setup.run);
        if at > now {
            self.queue.push(at, Happening::Release { node, run, kept, sends });
        } else {
            self.release(node, run, kept, sends);
        }
    }

    fn release(
        &mut self,
        node: NodeId,
        run: u32,
        kept: Option<P::Kept>,
        sends: Vec<(NodeId, P::Message)>,
    ) {
        if self.actor(node).setup.run != run || !self.actor(node).is_up() {
            return;
        }
        for (to, message) in sends {
            self.send(node, to, message);
        }
        if kept.is_some() {
            self.actor(node).kept = kept;
            self.step(node, Protocol::durable);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: P::Message) {
        if to == from {
            return self.queue.push(self.now, Happening::Arrive { from, to, message });
        }
        let setup = &self.actors[usize::from(from.0)].setup;
        let message = if setup.is_liar { P::lie(setup, to, message) } else { message };
        let now = self.now;
        let fate = match self.network.way(from, to) {
            Way::Arrives(after) => Fate::Arrives(after.iter().map(|after| now + after).collect()),
            Way::Cut => Fate::Cut,
            Way::Lost => Fate::Lost,
        };
        if let Fate::Arrives(times) = &fate {
            for at in times {
                let message = message.clone();
                self.queue.push(*at, Happening::Arrive { from, to, message });
            }
        }
        if self.is_quiet {
            return;
        }
        let (kind, carries) = (message.kind(), message.carries());
        let (bytes, is_upkeep) = (message.bytes(), message.is_upkeep());
        self.note(What::Sends { from, to, kind, carries, bytes, is_upkeep, fate });
    }

    /// Looks at what a node believes, and tells the record what is different.
    pub(super) fn look(&mut self, node: NodeId) {
        let now = self.now;
        let actor = self.actor(node);
        let own_now = actor.clock.read(now);
        let belief = actor
            .machine
            .as_ref()
            .map_or(crate::protocols::Belief::NOBODY, |machine| machine.belief(own_now));
        let is_paused = actor.pauses > 0;
        let was_acting = actor.is_acting;
        let is_acting = belief.may_act && !is_paused;
        let is_same = actor.tenure.is_some_and(|(_, term)| term == belief.term);
        if was_acting && (!is_acting || !is_same) {
            actor.is_acting = false;
            if let Some((tenure, _)) = actor.tenure {
                self.note(What::Ceases { node, tenure });
            }
        }
        let actor = self.actor(node);
        if !belief.may_act && belief.term.is_none() {
            // Without terms an office that was left is another one when it is taken again.
            actor.tenure = None;
        }
        if is_acting && !actor.is_acting {
            actor.is_acting = true;
            let is_again = is_same && actor.tenure.is_some();
            if !is_again {
                self.tenures += 1;
                let tenure = (self.tenures, belief.term);
                self.actor(node).tenure = Some(tenure);
            }
            let Some((tenure, term)) = self.actor(node).tenure else { return };
            self.note(What::Leads { node, tenure, term, is_again });
            self.begin_work(node);
        }
        let follows = if belief.leader == Some(node) {
            (None, None)
        } else {
            (belief.leader, belief.leader.and(belief.term))
        };
        let actor = self.actor(node);
        if std::mem::replace(&mut actor.follows, follows) != follows && belief.leader != Some(node)
        {
            let (leader, term) = follows;
            self.note(What::Follows { node, leader, term });
        }
    }

    /// A leader that has just checked that it may act begins a piece of work.
    fn begin_work(&mut self, node: NodeId) {
        let at = self.now + nanos(self.scenario.work);
        self.return_to_office(node);
        let actor = self.actor(node);
        let Some((tenure, term)) = actor.tenure.filter(|_| actor.is_acting) else { return };
        if !std::mem::replace(&mut actor.is_working, true) {
            let run = actor.setup.run;
            self.queue.push(at, Happening::Work { run, write: Write { node, tenure, term } });
        }
    }

    /// Where there are no terms, a leader that somebody had replaced and that is alone again has the office
    /// back: what it does from here on is right, though it never knew.
    fn return_to_office(&mut self, node: NodeId) {
        let acting = self.actors.iter().filter(|actor| actor.is_acting).count();
        let last = self.tenures;
        let actor = self.actor(node);
        let Some((tenure, None)) = actor.tenure.filter(|_| actor.is_acting) else { return };
        if tenure < last && acting == 1 {
            self.tenures += 1;
            self.actor(node).tenure = Some((self.tenures, None));
            self.note(What::Ceases { node, tenure });
            let (tenure, term) = (self.tenures, None);
            self.note(What::Leads { node, tenure, term, is_again: false });
        }
    }

    /// The work is done: it is written, whatever has become of the office meanwhile.
    fn finish_work(&mut self, run: u32, write: Write) {
        let node = write.node;
        if self.actor(node).setup.run != run {
            return;
        }
        let at = self.now + self.storage_dice.skewed(STORAGE_US) * 1_000;
        self.queue.push(at, Happening::Land { write });
        self.actor(node).is_working = false;
        self.look(node);
        self.begin_work(node);
    }
}

/// A duration as the stage counts.
pub(super) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
