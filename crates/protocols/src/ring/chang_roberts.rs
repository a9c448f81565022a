//! Election on a ring with a token of one name (Chang and Roberts, 1979).
//!
//! A node that misses the leader sends ELECTION with its own name to the next one. A higher name is passed
//! on; a lower one is replaced by the own name if this node has not taken part yet, and swallowed if it
//! has; whoever gets its own name back has won, and ELECTED goes round. n messages at best, of the order
//! of n² if the names stand in the worst order and all start at once, n log n on average.
//!
//! It promises what [the collecting token](super) promises, with smaller messages. The paper's links are
//! reliable and its nodes do not die, so a token comes once and whoever sent its name is there to take it
//! back. Here every token has its owner's number and a node passes each once, and in an election only names
//! above the highest that it has passed: the same on the paper's ring, and on a worse one doubled tokens die
//! out and the name of a dead node does not go round for ever.

use std::collections::BTreeMap;

use regent_election::Moment;

use super::courier::{Courier, RingTimer, Ringing, Token};
use super::office::RingOffice;
use crate::{Belief, NodeId, Out, Protocol, Setup};

/// What goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// The highest name so far, and its owner's number.
    Election(NodeId, u64),
    /// Who has won, and its number.
    Elected(NodeId, u64),
}

/// One node.
#[derive(Clone, Debug)]
pub struct ChangRoberts {
    me: NodeId,
    /// The highest name that it has passed in this election, its own included; none if it has not taken
    /// part.
    passed: Option<NodeId>,
    /// The last number that it has given a token.
    number: u64,
    /// By owner: the last token that came by here.
    seen: BTreeMap<NodeId, u64>,
    courier: Courier<Single>,
    office: RingOffice,
}

impl ChangRoberts {
    fn take(&mut self, now: Moment, token: Single, out: &mut Out<Self>) {
        let (Single::Election(name, number) | Single::Elected(name, number)) = token;
        if name == self.me {
            if matches!(token, Single::Election(..)) && number == self.number {
                self.number += 1;
                self.elect(now, Single::Elected(self.me, self.number), out);
            }
            return;
        }
        if number <= self.seen.get(&name).copied().unwrap_or(0) {
            return;
        }
        self.seen.insert(name, number);
        match token {
            Single::Election(..) if self.passed.is_some_and(|passed| name <= passed) => {}
            Single::Election(..) if name < self.me => self.pass_own(now, out),
            Single::Election(..) => self.pass(now, token, out),
            Single::Elected(..) => self.elect(now, token, out),
        }
    }

    fn pass_own(&mut self, now: Moment, out: &mut Out<Self>) {
        self.number += 1;
        self.pass(now, Single::Election(self.me, self.number), out);
    }

    fn pass(&mut self, now: Moment, token: Single, out: &mut Out<Self>) {
        self.passed = Some(token.name());
        self.office.vacate(now, out);
        self.courier.pass(now, token, out);
    }

    fn elect(&mut self, now: Moment, token: Single, out: &mut Out<Self>) {
        self.passed = None;
        self.office.fill(now, token.name(), out);
        self.courier.pass(now, token, out);
    }
}

impl Single {
    const fn name(self) -> NodeId {
        match self {
            Self::Election(name, _) | Self::Elected(name, _) => name,
        }
    }
}

impl Protocol for ChangRoberts {
    type Message = Ringing<Single>;
    type Timer = RingTimer;
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        let (courier, mut office) = (Courier::new(setup), RingOffice::new(setup));
        office.wait(now, out);
        // Numbers of an earlier run are not used again.
        let number = u64::from(setup.run) << 32;
        Self { me: setup.me, passed: None, number, seen: BTreeMap::new(), courier, office }
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
                self.passed = None;
                self.office.hear(now, from, out);
            }
        }
    }

    fn wake(&mut self, now: Moment, timer: RingTimer, out: &mut Out<Self>) {
        match timer {
            RingTimer::Show => self.office.show(now, out),
            RingTimer::Missed => {
                out.remark("misses a leader");
                self.pass_own(now, out);
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
                Ringing::Pass { number, token: Single::Elected(setup.me, u64::MAX) }
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
        self.name().to_string()
    }

    fn bytes(&self) -> usize {
        10
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, node};

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
