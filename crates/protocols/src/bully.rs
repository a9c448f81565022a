//! The bully algorithm (Garcia-Molina, 1982): whoever is alive and has the highest name leads.
//!
//! A node that misses the coordinator asks everybody above it (ELECTION). Whoever is alive up there says
//! so (ALIVE) and asks in turn; whoever hears nothing from above announces itself (COORDINATOR). A node
//! that comes back asks, too, and so takes the office from a lower one that held it well: that is the
//! bully, and with a highest node that flaps the office flaps with it.
//!
//! It promises one leader if messages arrive in time and the dead stay silent, and nothing otherwise: in
//! a partition every part has a coordinator, and there is no term to fence the wrong one by. Whoever is
//! asked asks everybody above in turn: of the order of n² messages.
//!
//! The paper leaves open how a coordinator is missed. Here it shows itself to everybody at a fixed pace, and
//! every node has some patience with its silence, drawn by lot.

use regent_election::Moment;

use crate::dice::Dice;

use super::{Belief, Message, NodeId, Out, Protocol, Setup};

/// What its nodes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bullying {
    /// Is anybody above me alive?
    Election,
    /// I am, and I take over from here.
    Alive,
    /// I lead.
    Coordinator,
    /// I still lead.
    Heartbeat,
}

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BullyTimer {
    /// The coordinator shows itself.
    Show,
    /// The coordinator has been silent for too long.
    Missed,
    /// Nobody above has answered.
    Unanswered,
    /// Somebody above is alive and yet nobody has announced itself.
    Unannounced,
}

/// Where a node stands in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It follows, or waits for one to follow.
    Following,
    /// It has asked everybody above.
    Asking,
    /// Somebody above is alive: it waits for the announcement.
    Waiting,
    Leading,
}

/// One node.
#[derive(Clone, Debug)]
pub struct Bully {
    setup: Setup,
    phase: Phase,
    leader: Option<NodeId>,
    dice: Dice,
}

impl Bully {
    fn above(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.setup.me;
        self.setup.others().filter(move |node| *node > me)
    }

    fn hold_election(&mut self, now: Moment, out: &mut Out<Self>) {
        self.leader = None;
        out.stop(BullyTimer::Show);
        out.stop(BullyTimer::Missed);
        out.stop(BullyTimer::Unannounced);
        if self.above().next().is_none() {
            return self.lead(now, out);
        }
        self.phase = Phase::Asking;
        out.send_all(self.above(), &Bullying::Election);
        out.set(BullyTimer::Unanswered, now + self.setup.pace.answer_within);
    }

    fn lead(&mut self, now: Moment, out: &mut Out<Self>) {
        self.phase = Phase::Leading;
        self.leader = Some(self.setup.me);
        for timer in [BullyTimer::Missed, BullyTimer::Unanswered, BullyTimer::Unannounced] {
            out.stop(timer);
        }
        out.send_all(self.setup.others(), &Bullying::Coordinator);
        out.set(BullyTimer::Show, now + self.setup.pace.heartbeat_every);
    }

    fn follow(&mut self, now: Moment, leader: NodeId, out: &mut Out<Self>) {
        self.phase = Phase::Following;
        self.leader = Some(leader);
        for timer in [BullyTimer::Show, BullyTimer::Unanswered, BullyTimer::Unannounced] {
            out.stop(timer);
        }
        let patience = self.setup.pace.draw_patience(&mut self.dice);
        out.set(BullyTimer::Missed, now + patience);
    }

    /// Somebody says that it leads.
    fn hear_leader(&mut self, now: Moment, from: NodeId, out: &mut Out<Self>) {
        if from > self.setup.me {
            self.follow(now, from, out);
        } else {
            match self.phase {
                // It is bullied away: it may have missed the announcement in a partition.
                Phase::Leading => out.send(from, Bullying::Coordinator),
                Phase::Following => self.hold_election(now, out),
                Phase::Asking | Phase::Waiting => {}
            }
        }
    }
}

impl Protocol for Bully {
    type Message = Bullying;
    type Timer = BullyTimer;
    /// The paper keeps nothing: a node that comes back asks.
    type Kept = ();

    fn start(setup: &Setup, _kept: Option<()>, now: Moment, out: &mut Out<Self>) -> Self {
        let dice = Dice::new(setup.seed);
        let mut node = Self { setup: setup.clone(), phase: Phase::Following, leader: None, dice };
        node.hold_election(now, out);
        node
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Bullying, out: &mut Out<Self>) {
        match message {
            Bullying::Election => {
                if from < self.setup.me {
                    out.send(from, Bullying::Alive);
                    match self.phase {
                        Phase::Leading => out.send(from, Bullying::Coordinator),
                        Phase::Following => self.hold_election(now, out),
                        // It has asked already.
                        Phase::Asking | Phase::Waiting => {}
                    }
                }
            }
            Bullying::Alive => {
                if self.phase == Phase::Asking {
                    self.phase = Phase::Waiting;
                    out.stop(BullyTimer::Unanswered);
                    // The one above may have to ask on for as long as there are nodes above it.
                    let levels = self.above().count() as u32 + 1;
                    let wait = self.setup.pace.answer_within * levels;
                    out.set(BullyTimer::Unannounced, now + wait);
                }
            }
            Bullying::Coordinator | Bullying::Heartbeat => self.hear_leader(now, from, out),
        }
    }

    fn wake(&mut self, now: Moment, timer: BullyTimer, out: &mut Out<Self>) {
        match timer {
            BullyTimer::Show => {
                out.send_all(self.setup.others(), &Bullying::Heartbeat);
                out.set(BullyTimer::Show, now + self.setup.pace.heartbeat_every);
            }
            BullyTimer::Missed => {
                out.remark(match self.leader {
                    Some(leader) => format!("misses {leader}"),
                    None => "misses a leader".to_owned(),
                });
                self.hold_election(now, out);
            }
            BullyTimer::Unanswered => self.lead(now, out),
            BullyTimer::Unannounced => {
                out.remark("nobody announced itself: asks again");
                self.hold_election(now, out);
            }
        }
    }

    fn belief(&self, _now: Moment) -> Belief {
        Belief::termless(self.setup.me, self.leader)
    }

    /// A liar answers nobody and announces itself to everybody.
    fn lie(_setup: &Setup, _to: NodeId, _message: Bullying) -> Bullying {
        Bullying::Coordinator
    }
}

impl Message for Bullying {
    fn kind(&self) -> &'static str {
        match self {
            Self::Election => "ELECTION",
            Self::Alive => "ALIVE",
            Self::Coordinator => "COORDINATOR",
            Self::Heartbeat => "HEARTBEAT",
        }
    }

    fn bytes(&self) -> usize {
        // A tag; who sent it is known from the sender.
        1
    }

    fn is_upkeep(&self) -> bool {
        *self == Self::Heartbeat
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, node};

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);
    const D: NodeId = NodeId(3);
    const E: NodeId = NodeId(4);

    /// The textbook's example: five nodes, E led and is dead, C notices.
    #[test]
    fn c_notices_that_e_is_dead_and_d_leads() {
        let mut hand = Hand::<Bully>::new(5);
        hand.start_all();
        hand.deliver_all();
        assert!([A, B, C, D, E].iter().all(|one| hand.belief(*one).leader == Some(E)));
        hand.kill(E);

        hand.wake(C, BullyTimer::Missed);
        assert_eq!(hand.said(), ["C -> D ELECTION", "C -> E ELECTION"]);
        hand.deliver_all();
        // D says that it is alive, and asks the one above it.
        assert_eq!(hand.said(), ["D -> C ALIVE", "D -> E ELECTION"]);
        hand.wake(D, BullyTimer::Unanswered);
        assert_eq!(
            hand.said(),
            [
                "D -> A COORDINATOR",
                "D -> B COORDINATOR",
                "D -> C COORDINATOR",
                "D -> E COORDINATOR"
            ]
        );
        hand.deliver_all();
        assert!([A, B, C, D].iter().all(|one| hand.belief(*one).leader == Some(D)));
        assert!(hand.belief(D).may_act && !hand.belief(C).may_act);
    }

    #[test]
    fn the_highest_takes_the_office_back_when_it_returns() {
        let mut hand = Hand::<Bully>::new(5);
        hand.start_all();
        hand.deliver_all();
        hand.kill(E);
        hand.wake(D, BullyTimer::Missed);
        hand.wake(D, BullyTimer::Unanswered);
        hand.deliver_all();
        assert_eq!(hand.belief(A).leader, Some(D));
        hand.start(E);
        hand.deliver_all();
        assert_eq!(hand.belief(D), Belief::termless(D, Some(E)));
    }

    /// The worst case of the paper: the lowest notices, and everybody asks everybody above.
    #[test]
    fn if_the_lowest_notices_everybody_asks_everybody_above() {
        for nodes in 3..=12_u16 {
            let mut hand = Hand::<Bully>::new(nodes);
            hand.start_all();
            hand.deliver_all();
            hand.kill(NodeId(nodes - 1));
            hand.forget_counts();
            hand.wake(A, BullyTimer::Missed);
            hand.deliver_all();
            let n = usize::from(nodes);
            assert_eq!(hand.count("ELECTION"), n * (n - 1) / 2, "{nodes} nodes");
            assert_eq!(hand.count("ALIVE"), (n - 1) * (n - 2) / 2);
            hand.wake(node(nodes - 2), BullyTimer::Unanswered);
            assert_eq!(hand.count("COORDINATOR"), n - 1);
        }
    }

    #[test]
    fn if_the_one_below_the_dead_notices_one_announcement_is_all() {
        let mut hand = Hand::<Bully>::new(5);
        hand.start_all();
        hand.deliver_all();
        hand.kill(E);
        hand.forget_counts();
        hand.wake(D, BullyTimer::Missed);
        hand.wake(D, BullyTimer::Unanswered);
        hand.deliver_all();
        assert_eq!((hand.count("ELECTION"), hand.count("COORDINATOR")), (1, 4));
    }
}
