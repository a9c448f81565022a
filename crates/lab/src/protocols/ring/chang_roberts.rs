//! Election on a ring with a token of one name (Chang and Roberts, 1979).
//!
//! A node that misses the leader sends ELECTION with its own name to the next one. A higher name is passed
//! on; a lower one is replaced by the own name if this node has not taken part yet, and swallowed if it
//! has; whoever gets its own name back has won, and ELECTED goes round. n messages at best, of the order
//! of n² if the names stand in the worst order and all start at once, n log n on average.
//!
//! It promises what [the collecting token](super) promises, with smaller messages. The paper's nodes do not
//! die: the name of one that did would go round for ever, so a token here is dropped after two rounds.

use regent_election::Moment;

use super::courier::{Courier, RingTimer, Ringing, Token};
use super::office::Office;
use crate::protocols::{Belief, NodeId, Out, Protocol, Setup};

/// What goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// The highest name so far, and how many it has passed.
    Election(NodeId, u16),
    /// Who has won, and how many were told.
    Elected(NodeId, u16),
}

/// One node.
#[derive(Clone, Debug)]
pub struct ChangRoberts {
    me: NodeId,
    nodes: u16,
    /// Whether it has sent its own name, or a higher one, in this election.
    takes_part: bool,
    courier: Courier<Single>,
    office: Office,
}

impl ChangRoberts {
    fn take(&mut self, now: Moment, token: Single, out: &mut Out<Self>) {
        match token {
            Single::Election(name, passed) => {
                if passed >= 2 * self.nodes {
                    out.remark(format!("drops the name {name}: it has gone round twice"));
                } else if name > self.me {
                    self.join(now, out);
                    self.courier.pass(now, Single::Election(name, passed + 1), out);
                } else if name < self.me {
                    if !self.takes_part {
                        self.join(now, out);
                        self.courier.pass(now, Single::Election(self.me, 1), out);
                    }
                } else {
                    self.elect(now, self.me, 0, out);
                }
            }
            Single::Elected(name, told) => {
                if name != self.me && told < self.nodes {
                    self.elect(now, name, told, out);
                }
            }
        }
    }

    fn join(&mut self, now: Moment, out: &mut Out<Self>) {
        self.takes_part = true;
        self.office.vacate(now, out);
    }

    fn elect(&mut self, now: Moment, name: NodeId, told: u16, out: &mut Out<Self>) {
        self.takes_part = false;
        self.office.fill(now, name, out);
        self.courier.pass(now, Single::Elected(name, told + 1), out);
    }
}

impl Protocol for ChangRoberts {
    type Message = Ringing<Single>;
    type Timer = RingTimer;
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        let (courier, mut office) = (Courier::new(setup), Office::new(setup));
        office.wait(now, out);
        Self { me: setup.me, nodes: setup.nodes, takes_part: false, courier, office }
    }

    fn receive(
        &mut self,
        now: Moment,
        from: NodeId,
        message: Ringing<Single>,
        out: &mut Out<Self>,
    ) {
        match message {
            Ringing::Pass { number, token } => {
                if from != self.me {
                    out.send(from, Ringing::Ack { number });
                }
                self.take(now, token, out);
            }
            Ringing::Ack { number } => self.courier.acknowledged(number, out),
            Ringing::Heartbeat => {
                self.takes_part = false;
                self.office.hear(now, from, out);
            }
        }
    }

    fn wake(&mut self, now: Moment, timer: RingTimer, out: &mut Out<Self>) {
        match timer {
            RingTimer::Show => self.office.show(now, out),
            RingTimer::Missed => {
                out.remark("misses a leader");
                self.join(now, out);
                self.courier.pass(now, Single::Election(self.me, 1), out);
            }
            RingTimer::Unacknowledged(number) => self.courier.skip(now, number, out),
        }
    }

    fn belief(&self, _now: Moment) -> Belief {
        Belief::termless(self.me, self.office.leader)
    }

    /// A liar says of every election that it has won it.
    fn lie(setup: &Setup, _to: NodeId, message: Ringing<Single>) -> Ringing<Single> {
        match message {
            Ringing::Pass { number, .. } => {
                Ringing::Pass { number, token: Single::Elected(setup.me, 1) }
            }
            Ringing::Ack { .. } | Ringing::Heartbeat => message,
        }
    }
}

impl Token for Single {
    fn kind(&self) -> &'static str {
        match self {
            Self::Election(..) => "ELECTION",
            Self::Elected(..) => "ELECTED",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Election(name, _) | Self::Elected(name, _) => name.to_string(),
        }
    }

    fn bytes(&self) -> usize {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::by_hand::{Hand, node};

    #[test]
    fn one_starter_is_replaced_by_higher_names_until_the_highest_gets_its_own_back() {
        let mut hand = Hand::<ChangRoberts>::new(4);
        hand.start_all();
        hand.wake(node(1), RingTimer::Missed);
        hand.deliver_all();
        let said: Vec<&String> =
            hand.said().iter().filter(|line| line.contains("ELECTION")).collect();
        let whole = [
            "C -> D ELECTION C",
            "D -> A ELECTION D",
            "A -> B ELECTION D",
            "B -> C ELECTION D",
            "C -> D ELECTION D",
        ];
        assert_eq!(said, whole);
        assert_eq!(hand.count("ELECTED"), 4);
        assert!((0..4).all(|one| hand.belief(node(one)).leader == Some(node(3))));
    }

    /// The paper's figures if all start at once: names that rise along the ring are the best order,
    /// names that fall are the worst. The lab's ring rises, so all but the highest name die at once.
    #[test]
    fn if_all_start_at_once_on_a_rising_ring_lower_names_are_swallowed_at_once() {
        for nodes in 3..=12_u16 {
            let mut hand = Hand::<ChangRoberts>::new(nodes);
            hand.start_all();
            for one in 0..nodes {
                hand.wake(node(one), RingTimer::Missed);
            }
            hand.deliver_all();
            assert_eq!(hand.count("ELECTION"), 2 * usize::from(nodes) - 1, "{nodes} nodes");
            assert!((0..nodes).all(|one| hand.belief(node(one)).leader == Some(node(nodes - 1))));
        }
    }

    #[test]
    fn the_name_of_a_dead_node_does_not_go_round_for_ever() {
        let mut hand = Hand::<ChangRoberts>::new(3);
        hand.start_all();
        hand.wake(node(2), RingTimer::Missed);
        hand.kill(node(2));
        hand.deliver_all();
        for _ in 0..20 {
            for number in 1..40 {
                hand.wake(node(1), RingTimer::Unacknowledged(number));
                hand.deliver_all();
            }
        }
        assert!(hand.count("ELECTION") <= 3 * 3 + 2, "{}", hand.count("ELECTION"));
    }
}
