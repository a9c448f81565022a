//! Two levels: groups elect, and their leaders elect among themselves.
//!
//! Nodes stand in groups of about √n neighbours. Within a group the [bully](super::bully) decides; whoever
//! leads its group speaks for it in a second bully among groups, and the one that leads the highest group
//! leads all. It is the very machine of the first level, told other names: a message to a group goes to all
//! its members, and only the one that speaks for it listens.
//!
//! It promises what the bully promises at each level, so no more: a partition has a leader in each part. What
//! it saves is traffic: heartbeats stay within a group and between groups, instead of going to everybody, and a
//! crash of somebody who leads nothing is noticed by nobody. What it costs is time: if the leader of all
//! dies, two elections follow each other.

use std::collections::BTreeMap;

use regent_election::Moment;

use super::bully::{Bully, BullyTimer, Bullying};
use super::{Belief, Message, NodeId, Out, Protocol, Setup};

/// What its nodes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layered {
    /// Within a group.
    Local(Bullying),
    /// Between groups.
    Top(Bullying),
    /// A group's leader tells its group who leads all.
    Told(Option<NodeId>),
}

/// Timers of both levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerTimer {
    /// Within a group.
    Local(BullyTimer),
    /// Between groups.
    Top(BullyTimer),
}

/// One node.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    setup: Setup,
    groups: Groups,
    local: Bully,
    /// While it leads its group.
    top: Option<Bully>,
    /// Who was last heard to speak for each group.
    speakers: BTreeMap<NodeId, NodeId>,
    /// Who leads all, as far as this node knows.
    leader: Option<NodeId>,
}

/// Who is in which group.
#[derive(Clone, Copy, Debug)]
struct Groups {
    nodes: u16,
    size: u16,
}

impl Groups {
    const fn new(nodes: u16) -> Self {
        let mut size = 1;
        while size * size < nodes {
            size += 1;
        }
        Self { nodes, size }
    }

    const fn count(self) -> u16 {
        self.nodes.div_ceil(self.size)
    }

    /// A node's group, as the second level names it.
    const fn of(self, node: NodeId) -> NodeId {
        NodeId(node.0 / self.size)
    }

    /// A node's name within its group.
    const fn within(self, node: NodeId) -> NodeId {
        NodeId(node.0 % self.size)
    }

    /// The members of a group, in order.
    fn members(self, group: NodeId) -> impl Iterator<Item = NodeId> {
        let first = group.0 * self.size;
        (first..(first + self.size).min(self.nodes)).map(NodeId)
    }
}

impl Hierarchy {
    /// A setup of one level.
    fn level(setup: &Setup, me: NodeId, nodes: u16) -> Setup {
        Setup { me, nodes, witnesses: Vec::new(), ..setup.clone() }
    }

    fn say_local(&self, inner: Out<Bully>, out: &mut Out<Self>) {
        let first = self.groups.of(self.setup.me).0 * self.groups.size;
        for (to, message) in inner.sends {
            out.send(NodeId(first + to.0), Layered::Local(message));
        }
        for (timer, at) in inner.timers {
            out.timers.push((LayerTimer::Local(timer), at));
        }
        out.remarks.extend(inner.remarks.iter().map(|text| format!("{text} (in its group)")));
    }

    fn say_top(&self, inner: Out<Bully>, out: &mut Out<Self>) {
        for (group, message) in inner.sends {
            out.send_all(self.groups.members(group), &Layered::Top(message));
        }
        for (timer, at) in inner.timers {
            out.timers.push((LayerTimer::Top(timer), at));
        }
        let letter = |text: &String| format!("{text} (among groups)");
        out.remarks.extend(inner.remarks.iter().map(letter));
    }

    /// Enters or leaves the second level as it gains or loses the first, and tells its group what changed.
    fn settle(&mut self, now: Moment, out: &mut Out<Self>) {
        let me = self.setup.me;
        let speaks = self.local.belief(now).may_act;
        if speaks && self.top.is_none() {
            let setup = Self::level(&self.setup, self.groups.of(me), self.groups.count());
            let mut inner = Out::new();
            self.top = Some(Bully::start(&setup, None, now, &mut inner));
            self.say_top(inner, out);
        } else if !speaks && self.top.take().is_some() {
            self.leader = None;
            let timers = [
                BullyTimer::Show,
                BullyTimer::Missed,
                BullyTimer::Unanswered,
                BullyTimer::Unannounced,
            ];
            for timer in timers {
                out.stop(LayerTimer::Top(timer));
            }
        }
        let Some(top) = &self.top else { return };
        let group = top.belief(now).leader;
        let leader = group.and_then(|group| {
            if group == self.groups.of(me) { Some(me) } else { self.speakers.get(&group).copied() }
        });
        if std::mem::replace(&mut self.leader, leader) != leader {
            self.tell(out);
        }
    }

    fn tell(&self, out: &mut Out<Self>) {
        let me = self.setup.me;
        let group = self.groups.members(self.groups.of(me)).filter(|member| *member != me);
        out.send_all(group, &Layered::Told(self.leader));
    }
}

impl Protocol for Hierarchy {
    type Message = Layered;
    type Timer = LayerTimer;
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        let groups = Groups::new(setup.nodes);
        let size = groups.members(groups.of(setup.me)).count() as u16;
        let own = Self::level(setup, groups.within(setup.me), size);
        let mut inner = Out::new();
        let local = Bully::start(&own, None, now, &mut inner);
        let speakers = BTreeMap::new();
        let mut node =
            Self { setup: setup.clone(), groups, local, top: None, speakers, leader: None };
        node.say_local(inner, out);
        node.settle(now, out);
        node
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Layered, out: &mut Out<Self>) {
        let mut inner = Out::new();
        match message {
            Layered::Local(message) => {
                self.local.receive(now, self.groups.within(from), message, &mut inner);
                self.say_local(inner, out);
            }
            Layered::Top(message) => {
                let group = self.groups.of(from);
                if let Some(top) = &mut self.top
                    && group != self.groups.of(self.setup.me)
                {
                    self.speakers.insert(group, from);
                    top.receive(now, group, message, &mut inner);
                    self.say_top(inner, out);
                }
            }
            Layered::Told(leader) => {
                let speaker = self.local.belief(now).leader;
                if self.top.is_none() && speaker == Some(self.groups.within(from)) {
                    self.leader = leader;
                }
            }
        }
        self.settle(now, out);
    }

    fn wake(&mut self, now: Moment, timer: LayerTimer, out: &mut Out<Self>) {
        let mut inner = Out::new();
        match timer {
            LayerTimer::Local(timer) => {
                if timer == BullyTimer::Missed {
                    self.leader = None;
                }
                self.local.wake(now, timer, &mut inner);
                self.say_local(inner, out);
                if timer == BullyTimer::Show {
                    self.tell(out);
                }
            }
            LayerTimer::Top(timer) => {
                if let Some(top) = &mut self.top {
                    top.wake(now, timer, &mut inner);
                    self.say_top(inner, out);
                }
            }
        }
        self.settle(now, out);
    }

    fn belief(&self, _now: Moment) -> Belief {
        Belief::termless(self.setup.me, self.leader)
    }

    /// A liar bullies at both levels.
    fn lie(_setup: &Setup, _to: NodeId, message: Layered) -> Layered {
        match message {
            Layered::Local(_) => Layered::Local(Bullying::Coordinator),
            Layered::Top(_) => Layered::Top(Bullying::Coordinator),
            Layered::Told(_) => message,
        }
    }
}

impl Message for Layered {
    fn kind(&self) -> &'static str {
        match self {
            Self::Local(message) => message.kind(),
            Self::Top(Bullying::Election) => "TOP-ELECTION",
            Self::Top(Bullying::Alive) => "TOP-ALIVE",
            Self::Top(Bullying::Coordinator) => "TOP-COORDINATOR",
            Self::Top(Bullying::Heartbeat) => "TOP-HEARTBEAT",
            Self::Told(_) => "TOLD",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Local(_) | Self::Top(_) => String::new(),
            Self::Told(Some(leader)) => leader.to_string(),
            Self::Told(None) => "nobody".to_owned(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Local(_) | Self::Top(_) => 2,
            Self::Told(_) => 3,
        }
    }

    fn is_upkeep(&self) -> bool {
        match self {
            Self::Local(message) | Self::Top(message) => message.is_upkeep(),
            Self::Told(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, node};

    #[test]
    fn groups_are_as_many_as_they_are_large() {
        let groups = Groups::new(9);
        assert_eq!((groups.size, groups.count()), (3, 3));
        let members: Vec<NodeId> = Groups::new(5).members(NodeId(1)).collect();
        assert_eq!(members, [node(3), node(4)]);
    }

    #[test]
    fn the_leaders_of_groups_elect_the_leader_of_all_and_everybody_is_told() {
        let mut hand = Hand::<Hierarchy>::new(9);
        hand.start_all();
        hand.deliver_all();
        // C, F and I lead their groups; I leads all.
        assert!((0..9).all(|one| hand.belief(node(one)).leader == Some(node(8))));

        // I dies: H leads its group, speaks for it, and so leads all.
        hand.kill(node(8));
        hand.wake(node(7), LayerTimer::Local(BullyTimer::Missed));
        hand.wake(node(7), LayerTimer::Local(BullyTimer::Unanswered));
        hand.deliver_all();
        assert!((0..8).all(|one| hand.belief(node(one)).leader == Some(node(7))));
    }

    #[test]
    fn a_group_that_dies_whole_is_succeeded_by_the_next() {
        let mut hand = Hand::<Hierarchy>::new(9);
        hand.start_all();
        hand.deliver_all();
        for one in 6..9 {
            hand.kill(node(one));
        }
        hand.wake(node(5), LayerTimer::Top(BullyTimer::Missed));
        hand.wake(node(5), LayerTimer::Top(BullyTimer::Unanswered));
        hand.deliver_all();
        assert!((0..6).all(|one| hand.belief(node(one)).leader == Some(node(5))));
    }
}
