//! Leadership by gossip: everybody tells everybody who is alive, and the highest name alive leads.
//!
//! Every node counts a heartbeat of its own and now and then sends all counts it knows to a few others by lot
//! (van Renesse and others, 1998). Whose count does not rise becomes suspect, by the φ accrual (`phi`)
//! detector. Nobody is elected: each takes the highest name that it does not suspect, so a change of leader
//! costs no message at all.
//!
//! It promises that nodes which hear each other for long enough agree, and that messages per node do not grow
//! with the number of nodes. It does not promise one leader at any moment: views differ while news travels,
//! a partition has a leader in each part, a pause makes its victim suspect all others, and there are no terms.

mod phi;

use std::collections::BTreeMap;

use regent_election::Moment;

use phi::Detector;

use super::{Belief, Message, NodeId, Out, Protocol, Setup};
use crate::dice::Dice;

/// To how many a node talks at a time.
const FANOUT: usize = 2;
/// Above this a node is suspect.
const PHI_MAX: f64 = 8.0;

/// What its nodes say: the highest count that they know of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossiped(BTreeMap<NodeId, u64>);

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GossipTimer {
    /// It is time to talk.
    Talk,
}

/// One node.
#[derive(Clone, Debug)]
pub struct Gossip {
    setup: Setup,
    dice: Dice,
    counts: BTreeMap<NodeId, u64>,
    detectors: BTreeMap<NodeId, Detector>,
    /// Before this it has not listened for long enough to take itself for the leader.
    listens_until: Moment,
    leader: Option<NodeId>,
}

impl Gossip {
    fn judge(&mut self, now: Moment, out: &mut Out<Self>) {
        let alive =
            |(node, detector): (&NodeId, &Detector)| (detector.phi(now) < PHI_MAX).then_some(*node);
        let others = self.detectors.iter().filter_map(alive).max();
        let own = (now >= self.listens_until).then_some(self.setup.me);
        let leader = others.max(own);
        if let Some(before) = self.leader.filter(|before| Some(*before) > leader) {
            out.remark(format!("suspects {before}"));
        }
        self.leader = leader;
    }
}

impl Protocol for Gossip {
    type Message = Gossiped;
    type Timer = GossipTimer;
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        out.set(GossipTimer::Talk, now);
        Self {
            setup: setup.clone(),
            dice: Dice::new(setup.seed.wrapping_add(u64::from(setup.run))),
            // Counts of an earlier run are below all of this one.
            counts: BTreeMap::from([(setup.me, u64::from(setup.run) << 32)]),
            detectors: BTreeMap::new(),
            listens_until: now + setup.pace.patience_max,
            leader: None,
        }
    }

    fn receive(&mut self, now: Moment, _from: NodeId, message: Gossiped, out: &mut Out<Self>) {
        let expected = self.setup.pace.heartbeat_every;
        for (node, count) in message.0 {
            let known = self.counts.entry(node).or_default();
            if node == self.setup.me || count <= *known {
                continue;
            }
            *known = count;
            let detector = self.detectors.entry(node);
            detector
                .and_modify(|detector| detector.hear(now))
                .or_insert_with(|| Detector::new(now, expected));
        }
        self.judge(now, out);
    }

    fn wake(&mut self, now: Moment, _timer: GossipTimer, out: &mut Out<Self>) {
        *self.counts.entry(self.setup.me).or_default() += 1;
        let mut others: Vec<NodeId> = self.setup.others().collect();
        self.dice.shuffle(&mut others);
        let news = Gossiped(self.counts.clone());
        out.send_all(others.into_iter().take(FANOUT), &news);
        out.set(GossipTimer::Talk, now + self.setup.pace.heartbeat_every);
        self.judge(now, out);
    }

    fn belief(&self, _now: Moment) -> Belief {
        Belief::termless(self.setup.me, self.leader)
    }

    /// A liar says of everybody above it that it has not been heard of.
    fn lie(setup: &Setup, _to: NodeId, message: Gossiped) -> Gossiped {
        Gossiped(message.0.into_iter().filter(|(node, _)| *node <= setup.me).collect())
    }
}

impl Message for Gossiped {
    fn kind(&self) -> &'static str {
        "GOSSIP"
    }

    fn carries(&self) -> String {
        format!("counts of {}", self.0.len())
    }

    fn bytes(&self) -> usize {
        10 * self.0.len()
    }

    fn is_upkeep(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, PACE, node};

    fn talk(hand: &mut Hand<Gossip>, who: &[u16], rounds: u32) {
        for _ in 0..rounds {
            hand.pass(PACE.heartbeat_every);
            for one in who {
                hand.wake(node(*one), GossipTimer::Talk);
            }
            hand.deliver_all();
        }
    }

    #[test]
    fn the_highest_that_is_heard_of_leads_and_the_next_one_after_it_falls_silent() {
        let mut hand = Hand::<Gossip>::new(4);
        hand.start_all();
        talk(&mut hand, &[0, 1, 2, 3], 20);
        assert!((0..4).all(|one| hand.belief(node(one)).leader == Some(node(3))));
        hand.kill(node(3));
        talk(&mut hand, &[0, 1, 2], 30);
        assert!((0..3).all(|one| hand.belief(node(one)).leader == Some(node(2))));
    }

    #[test]
    fn a_node_talks_to_two_others_at_a_time_however_many_there_are() {
        for nodes in [3, 10, 26] {
            let mut hand = Hand::<Gossip>::new(nodes);
            hand.start_all();
            hand.forget_counts();
            hand.wake(node(0), GossipTimer::Talk);
            assert_eq!(hand.count("GOSSIP"), FANOUT);
        }
    }
}
