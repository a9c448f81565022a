//! What a scenario does to a stage, and whom it means.

use std::collections::BTreeSet;

use super::play::{Happening, RunError, Stage, nanos};
use super::record::What;
use super::scenario::{Blow, Scenario, Who};
use crate::protocols::{NODES_MAX, NodeId, Protocol};

impl Scenario {
    /// Whether everybody it names is there.
    pub(super) fn check(&self) -> Result<(), RunError> {
        let nodes = self.nodes;
        if !(2..=NODES_MAX).contains(&nodes) {
            return Err(RunError::Nodes(nodes));
        }
        let named = self.strikes.iter().flat_map(|strike| strike.blow.whom());
        let missing = named.filter_map(|who| match who {
            Who::Node(node) if node.0 >= nodes => Some(node),
            _ => None,
        });
        match missing.max() {
            Some(node) => Err(RunError::NoSuchNode { node, nodes }),
            None => Ok(()),
        }
    }
}

impl Blow {
    /// Everybody it names.
    fn whom(&self) -> Vec<Who> {
        match self {
            Self::Crash(who, _)
            | Self::Restart(who)
            | Self::Pause(who, _)
            | Self::Slow(who, _)
            | Self::Clock(who, _)
            | Self::Drift(who, _)
            | Self::Disk(who, _)
            | Self::Lie(who)
            | Self::Witness(who) => vec![*who],
            Self::Cut(from, to, _) => vec![*from, *to],
            Self::Partition(parts) => parts.iter().flatten().copied().collect(),
            Self::Heal | Self::Latency(_) | Self::Loss(_) | Self::Double(_) => Vec::new(),
        }
    }
}

impl<P: Protocol> Stage<'_, P> {
    pub(super) fn strike(&mut self, number: usize) {
        let scenario = self.scenario;
        let Some(strike) = scenario.strikes.get(number) else { return };
        match &strike.blow {
            Blow::Crash(who, back_after) => {
                for node in self.resolve(*who) {
                    self.crash(node);
                    if let Some(after) = back_after {
                        self.queue.push(self.now + nanos(*after), Happening::Start { node });
                    }
                }
            }
            Blow::Restart(who) => {
                for node in self.resolve(*who) {
                    self.start(node);
                }
            }
            Blow::Pause(who, time) => {
                for node in self.resolve(*who) {
                    self.pause(node, nanos(*time));
                }
            }
            Blow::Partition(parts) => self.partition(parts),
            Blow::Cut(from, to, both) => {
                let (from, to) = (self.resolve(*from), self.resolve(*to));
                for (one, other) in pairs(&from, &to) {
                    self.network.cut(one, other);
                    if *both {
                        self.network.cut(other, one);
                    }
                    let arrow = if *both { "and" } else { "to" };
                    let text = format!("way cut: {} {arrow} {}", self.name(one), self.name(other));
                    self.note(What::Strikes { text });
                }
            }
            Blow::Heal => {
                self.network.heal();
                self.note(What::Strikes { text: "network whole again".into() });
            }
            Blow::Latency(range) => {
                self.network.links.latency_us = range.clone();
                let text = format!("messages take {} to {} us", range.start(), range.end());
                self.note(What::Strikes { text });
            }
            Blow::Loss(ppm) => {
                self.network.links.loss_ppm = *ppm;
                let text = format!("{} % of messages are lost", f64::from(*ppm) / 10_000.0);
                self.note(What::Strikes { text });
            }
            Blow::Double(ppm) => {
                self.network.links.double_ppm = *ppm;
                let text = format!("{} % of messages come twice", f64::from(*ppm) / 10_000.0);
                self.note(What::Strikes { text });
            }
            Blow::Slow(who, time) => {
                for node in self.resolve(*who) {
                    self.network.slow.insert(node, nanos(*time));
                    self.tell(node, &format!("is slow: {time:?} more each way"));
                }
            }
            Blow::Clock(who, by) => {
                for node in self.resolve(*who) {
                    let now = self.now;
                    self.actor(node).clock.jump(now, nanos(*by));
                    self.tell(node, &format!("clock jumps by {by:?}"));
                    self.reset_timers(node);
                }
            }
            Blow::Drift(who, ppm) => {
                for node in self.resolve(*who) {
                    let now = self.now;
                    self.actor(node).clock.set_rate(now, *ppm);
                    self.tell(node, &format!("clock is off by {} %", *ppm as f64 / 10_000.0));
                    self.reset_timers(node);
                }
            }
            Blow::Disk(who, range) => {
                for node in self.resolve(*who) {
                    self.actor(node).disk_us = range.clone();
                    self.tell(node, &format!("disk takes {} to {} us", range.start(), range.end()));
                }
            }
            Blow::Lie(who) => {
                for node in self.resolve(*who) {
                    self.actor(node).setup.is_liar = true;
                    self.tell(node, "lies from here on");
                }
            }
            Blow::Witness(who) => {
                for node in self.resolve(*who) {
                    for actor in &mut self.actors {
                        actor.setup.witnesses.push(node);
                    }
                    self.tell(node, "is a witness");
                }
            }
        }
    }

    fn tell(&mut self, node: NodeId, what: &str) {
        let text = format!("{} {what}", self.name(node));
        self.note(What::Strikes { text });
    }

    fn pause(&mut self, node: NodeId, time: u64) {
        let now = self.now;
        let actor = self.actor(node);
        if !actor.is_up() {
            return;
        }
        actor.pauses += 1;
        let run = actor.setup.run;
        if actor.pauses == 1 {
            self.note(What::Pauses { node });
            self.look(node);
        }
        self.queue.push(now + time, Happening::Resume { node, run });
    }

    /// A clock was disturbed: what is due by it comes at another time.
    fn reset_timers(&mut self, node: NodeId) {
        let timers: Vec<_> =
            self.actor(node).timers.iter().map(|(timer, due)| (*timer, *due)).collect();
        for (timer, due) in timers {
            self.set_timer(node, timer, due);
        }
    }

    /// Splits the network. Servers that nobody names are with the most candidates.
    fn partition(&mut self, parts: &[Vec<Who>]) {
        let mut taken = BTreeSet::new();
        let mut found: Vec<BTreeSet<NodeId>> = Vec::new();
        for part in parts {
            let named = part.iter().filter(|who| **who != Who::Rest);
            let nodes: BTreeSet<NodeId> = named.flat_map(|who| self.resolve(*who)).collect();
            let nodes: BTreeSet<NodeId> = nodes.difference(&taken).copied().collect();
            taken.extend(nodes.iter().copied());
            found.push(nodes);
        }
        let candidates: BTreeSet<NodeId> = (0..self.scenario.nodes).map(NodeId).collect();
        let left: Vec<NodeId> = candidates.difference(&taken).copied().collect();
        match parts.iter().position(|part| part.contains(&Who::Rest)) {
            Some(place) => found[place].extend(left),
            None => found.extend((!left.is_empty()).then(|| left.into_iter().collect())),
        }
        let servers = (self.scenario.nodes..self.actors.len() as u16).map(NodeId);
        let homeless: Vec<NodeId> = servers.filter(|server| !taken.contains(server)).collect();
        if let Some(largest) = (0..found.len()).rev().max_by_key(|place| found[*place].len()) {
            found[largest].extend(homeless);
        }
        self.network.part(&found);
        let text: Vec<String> = found
            .iter()
            .map(|part| part.iter().map(|node| self.name(*node)).collect::<Vec<_>>().join(" "))
            .collect();
        self.note(What::Strikes { text: format!("network split: {}", text.join(" | ")) });
    }

    fn leader(&self) -> Option<NodeId> {
        let acting = self.actors.iter().find(|actor| actor.is_acting);
        acting.map(|actor| actor.setup.me)
    }

    fn resolve(&mut self, who: Who) -> Vec<NodeId> {
        let nodes = self.scenario.nodes;
        match who {
            Who::Node(node) => vec![node],
            Who::Leader => {
                let found: Vec<NodeId> = self.leader().into_iter().collect();
                if found.is_empty() {
                    let text = "strikes nobody: nobody leads".to_owned();
                    self.note(What::Strikes { text });
                }
                found
            }
            Who::Highest => vec![NodeId(nodes - 1)],
            Who::Lowest => vec![NodeId(0)],
            Who::Follower => {
                let leader = self.leader();
                let is_eligible = |node: &NodeId| {
                    Some(*node) != leader && self.actors[usize::from(node.0)].is_up()
                };
                let others: Vec<NodeId> = (0..nodes).map(NodeId).filter(is_eligible).collect();
                self.dice.pick(&others).into_iter().collect()
            }
            Who::Minority => {
                let leader = self.leader();
                let others = (0..nodes).map(NodeId).filter(|node| Some(*node) != leader);
                leader.into_iter().chain(others).take(usize::from((nodes - 1) / 2).max(1)).collect()
            }
            Who::All => (0..nodes).map(NodeId).collect(),
            Who::Rest => Vec::new(),
            Who::Store => (nodes..self.actors.len() as u16).map(NodeId).collect(),
        }
    }
}

fn pairs(from: &[NodeId], to: &[NodeId]) -> Vec<(NodeId, NodeId)> {
    let all = from.iter().flat_map(|one| to.iter().map(move |other| (*one, *other)));
    all.filter(|(one, other)| one != other).collect()
}
