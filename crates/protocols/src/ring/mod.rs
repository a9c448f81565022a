//! Election on a ring, with a token that collects names (as in Tanenbaum's and van Steen's textbook).
//!
//! Everybody knows the order of the ring. A node that misses the leader sends ELECTION with its own name
//! to the next one; each adds its name and passes it on, over whoever is dead. When it comes back, the
//! highest name on the list has won, and COORDINATOR goes round with it. Two rounds: of the order of n
//! messages, however many nodes there are, if one node alone has noticed.
//!
//! It promises one leader if nobody dies on the way and the ring is not cut; a partition makes two rings,
//! and there is no term. [`chang_roberts`] is the older variant that carries one name only.
//!
//! Every token has its starter's number, and a node passes each once: where acknowledgements are late,
//! doubled tokens would otherwise double again at every node. A token that waited for a paused node, and was
//! then passed over a slow one, comes back late and without that name: it deposes no higher leader that is
//! heard. If that leader is gone, it is missed, and the next election vacates the office first.

pub mod chang_roberts;
mod courier;
mod office;

use std::collections::BTreeMap;

use regent_election::Moment;

use courier::{Courier, list};
use office::RingOffice;

use super::{Belief, NodeId, Out, Protocol, Setup};

pub use courier::{RingTimer, Ringing, Token};

/// What goes round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Who is alive? Everybody whom it has passed, in order; and its number, for whom it passed first.
    Election(Vec<NodeId>, u64),
    /// Who leads, and everybody who was told; and its number, for whom it passed first.
    Coordinator(NodeId, Vec<NodeId>, u64),
}

/// One node.
#[derive(Clone, Debug)]
pub struct Ring {
    me: NodeId,
    /// The last number that it has given a token.
    number: u64,
    /// By starter: the last election and the last announcement that came by here.
    seen: BTreeMap<NodeId, (u64, u64)>,
    courier: Courier<Collected>,
    office: RingOffice,
}

impl Ring {
    fn ask(&mut self, now: Moment, out: &mut Out<Self>) {
        self.number += 1;
        self.take(now, Collected::Election(Vec::new(), self.number), out);
    }

    fn take(&mut self, now: Moment, token: Collected, out: &mut Out<Self>) {
        match token {
            Collected::Election(mut names, number) => {
                let starter = names.first().copied().unwrap_or(self.me);
                if names.contains(&self.me) {
                    // It has gone round: to its starter, or past it if that one has died.
                    if let Some(highest) = names.iter().max().copied()
                        && self.office.leader.is_none_or(|leader| highest > leader)
                    {
                        self.number += 1;
                        let told = Collected::Coordinator(highest, Vec::new(), self.number);
                        self.take(now, told, out);
                    }
                } else if number > self.seen.get(&starter).map_or(0, |seen| seen.0) {
                    self.seen.entry(starter).or_default().0 = number;
                    names.push(self.me);
                    self.office.vacate(now, out);
                    self.courier.pass(now, Collected::Election(names, number), out);
                }
            }
            Collected::Coordinator(leader, mut told, number) => {
                let starter = told.first().copied().unwrap_or(self.me);
                if number > self.seen.get(&starter).map_or(0, |seen| seen.1) {
                    self.seen.entry(starter).or_default().1 = number;
                    told.push(self.me);
                    self.office.fill(now, leader, out);
                    self.courier.pass(now, Collected::Coordinator(leader, told, number), out);
                }
            }
        }
    }
}

impl Protocol for Ring {
    type Message = Ringing<Collected>;
    type Timer = RingTimer;
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        let (courier, mut office) = (Courier::new(setup), RingOffice::new(setup));
        office.wait(now, out);
        // Numbers of an earlier run are not used again.
        let number = u64::from(setup.run) << 32;
        Self { me: setup.me, number, seen: BTreeMap::new(), courier, office }
    }

    fn receive(
        &mut self,
        now: Moment,
        from: NodeId,
        message: Ringing<Collected>,
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
            Ringing::Heartbeat => self.office.hear(now, from, out),
        }
    }

    fn wake(&mut self, now: Moment, timer: RingTimer, out: &mut Out<Self>) {
        match timer {
            RingTimer::Show => self.office.show(now, out),
            RingTimer::Missed => {
                out.remark("misses a leader");
                self.ask(now, out);
            }
            RingTimer::Unacknowledged(number) => self.courier.skip(now, number, out),
        }
    }

    fn belief(&self, _now: Moment) -> Belief {
        Belief::termless(self.me, self.office.leader)
    }

    /// A liar takes all other names off the list, and announces itself.
    fn lie(setup: &Setup, _to: NodeId, message: Ringing<Collected>) -> Ringing<Collected> {
        match message {
            Ringing::Pass { number, .. } => Ringing::Pass {
                number,
                token: Collected::Coordinator(setup.me, vec![setup.me], u64::MAX),
            },
            Ringing::Ack { .. } | Ringing::Heartbeat => message,
        }
    }
}

impl Token for Collected {
    fn kind(&self) -> &'static str {
        match self {
            Self::Election(..) => "ELECTION",
            Self::Coordinator(..) => "COORDINATOR",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Election(names, _) => list(names),
            Self::Coordinator(leader, told, _) => format!("{leader} {}", list(told)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Election(names, _) => 8 + 2 * names.len(),
            Self::Coordinator(_, told, _) => 10 + 2 * told.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, node};

    fn only(hand: &Hand<Ring>, kind: &str) -> Vec<String> {
        hand.said().iter().filter(|line| line.contains(kind)).cloned().collect()
    }

    /// The textbook's example: A-B-C-D, started by B.
    #[test]
    fn b_starts_and_after_four_messages_the_highest_of_b_c_d_a_wins() {
        let mut hand = Hand::<Ring>::new(4);
        hand.start_all();
        hand.wake(node(1), RingTimer::Missed);
        assert_eq!(hand.said(), ["B -> C ELECTION [B]"]);
        hand.deliver_all();
        let rest =
            ["C -> D ELECTION [B,C]", "D -> A ELECTION [B,C,D]", "A -> B ELECTION [B,C,D,A]"];
        assert_eq!(only(&hand, "ELECTION"), rest);
        assert_eq!(hand.count("ELECTION"), 4);
        assert_eq!(only(&hand, "COORDINATOR")[0], "B -> C COORDINATOR D [B]");
        assert_eq!(hand.count("COORDINATOR"), 4);
        assert!((0..4).all(|one| hand.belief(node(one)).leader == Some(node(3))));
        assert!(hand.belief(node(3)).may_act);
    }

    #[test]
    fn two_rounds_are_two_n_messages_however_many_there_are() {
        for nodes in 3..=20_u16 {
            let mut hand = Hand::<Ring>::new(nodes);
            hand.start_all();
            hand.wake(node(1), RingTimer::Missed);
            hand.deliver_all();
            let n = usize::from(nodes);
            assert_eq!((hand.count("ELECTION"), hand.count("COORDINATOR")), (n, n));
        }
    }

    #[test]
    fn the_dead_are_passed_over_and_do_not_win() {
        let mut hand = Hand::<Ring>::new(4);
        hand.start_all();
        hand.kill(node(3));
        hand.wake(node(1), RingTimer::Missed);
        hand.deliver_all();
        // C's token to D, its first, was not acknowledged.
        hand.wake(node(2), RingTimer::Unacknowledged(1));
        assert_eq!(hand.said(), ["C -> A ELECTION [B,C]"]);
        hand.deliver_all();
        hand.wake(node(2), RingTimer::Unacknowledged(3));
        hand.deliver_all();
        assert!((0..3).all(|one| hand.belief(node(one)).leader == Some(node(2))));
    }

    #[test]
    fn whoever_is_alone_elects_itself() {
        let mut hand = Hand::<Ring>::new(3);
        hand.start(node(0));
        hand.wake(node(0), RingTimer::Missed);
        hand.wake(node(0), RingTimer::Unacknowledged(1));
        hand.wake(node(0), RingTimer::Unacknowledged(2));
        hand.deliver_all();
        assert!(hand.belief(node(0)).may_act);
    }
}
