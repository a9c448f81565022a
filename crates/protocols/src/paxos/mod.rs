//! Election by single-decree Paxos (Lamport, 1998): for every epoch the nodes agree on one value, the name of
//! its leader.
//!
//! Three roles, each a file: a `proposer` gets promises of a majority for its ballot (PREPARE, PROMISE) and
//! asks it to accept a name (ACCEPT), its own unless a promise tells of another; `acceptor`s keep what they
//! promise and accept before they say it; a `learner` takes a name for chosen when a majority has accepted
//! it in one ballot. Every node has all three. A leader that is missed is not voted out: the next epoch is
//! decided.
//!
//! It promises that no epoch ever has two leaders, whatever is lost, late, doubled or restarted; the epoch is
//! the term, so a fence stops the leader of an earlier one. It does not promise that two never act at once: an
//! old leader that hears nothing does not know that an epoch has passed it. Nor that anybody is ever chosen:
//! two proposers can outbid each other for ever if they lose patience in step.
//!
//! The road not taken is a lease for the leader, as Raft has it here: it is not Paxos.

mod acceptor;
mod learner;
mod proposer;

use std::fmt;

use regent_election::Moment;

use acceptor::Acceptor;
use learner::Learner;
use proposer::Proposer;

use super::{Belief, Message, NodeId, Out, Protocol, Setup};
use crate::dice::Dice;

pub use acceptor::{Slot, Slots};

/// A try of one proposer: rounds first, names to tell equal rounds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// The how manieth try.
    pub round: u64,
    pub of: NodeId,
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.round, self.of)
    }
}

/// What its nodes say. All of it is about one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paxon {
    /// Promise to take part in no lower ballot.
    Prepare(u64, Ballot),
    /// I do, and this is the highest ballot in which I have accepted a name.
    Promise(u64, Ballot, Option<(Ballot, NodeId)>),
    /// Accept this name.
    Accept(u64, Ballot, NodeId),
    /// I have.
    Accepted(u64, Ballot, NodeId),
    /// I have promised a higher ballot.
    Nack(u64, Ballot),
    /// This epoch is decided, and this is its leader.
    Decided(u64, NodeId),
    /// I lead this epoch.
    Heartbeat(u64),
}

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PaxosTimer {
    /// The leader shows itself.
    Show,
    /// The leader has been silent for too long.
    Missed,
    /// A ballot came to nothing: the next one.
    Again,
}

/// One node: a proposer, an acceptor and a learner.
#[derive(Clone, Debug)]
pub struct Paxos {
    setup: Setup,
    dice: Dice,
    acceptor: Acceptor,
    learner: Learner,
    proposer: Option<Proposer>,
}

impl Paxos {
    fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.setup.nodes).map(NodeId)
    }

    /// Proposes a leader for the epoch after the last that is known to be decided.
    fn propose(&mut self, now: Moment, round: u64, out: &mut Out<Self>) {
        let epoch = self.learner.epoch() + 1;
        let ballot = Ballot { round, of: self.setup.me };
        self.proposer = Some(Proposer::new(epoch, ballot, self.setup.majority()));
        out.send_all(self.all(), &Paxon::Prepare(epoch, ballot));
        // A ballot whose answers are lost is tried again.
        self.again(now + self.setup.pace.answer_within * 2, out);
    }

    /// Tries the next ballot a little after this. Without a lot two proposers stay in step: they duel.
    fn again(&mut self, after: Moment, out: &mut Out<Self>) {
        let pace = self.setup.pace;
        let spread = pace.patience_max.saturating_sub(pace.patience_min);
        let micros = u64::try_from(spread.as_micros()).unwrap_or(0);
        let lot = std::time::Duration::from_micros(self.dice.within(0..=micros));
        out.set(PaxosTimer::Again, after + lot);
    }

    fn wait(&mut self, now: Moment, out: &mut Out<Self>) {
        let patience = self.setup.pace.draw_patience(&mut self.dice);
        out.set(PaxosTimer::Missed, now + patience);
    }

    /// An epoch is decided: nobody proposes for it any more, and whoever led an earlier one stops.
    fn decide(&mut self, now: Moment, epoch: u64, leader: NodeId, out: &mut Out<Self>) {
        if !self.learner.decide(epoch, leader) {
            return;
        }
        self.acceptor.forget_before(epoch);
        if self.proposer.as_ref().is_some_and(|proposer| proposer.epoch() <= epoch) {
            self.proposer = None;
            out.stop(PaxosTimer::Again);
        }
        if leader == self.setup.me {
            out.stop(PaxosTimer::Missed);
            self.show(now, out);
        } else {
            out.stop(PaxosTimer::Show);
            self.wait(now, out);
        }
    }

    fn show(&mut self, now: Moment, out: &mut Out<Self>) {
        out.send_all(self.setup.others(), &Paxon::Heartbeat(self.learner.epoch()));
        out.set(PaxosTimer::Show, now + self.setup.pace.heartbeat_every);
    }

    /// Whoever speaks of an epoch that is over is told of the last one.
    fn is_over(&self, epoch: u64, from: NodeId, out: &mut Out<Self>) -> bool {
        let last = self.learner.epoch();
        if epoch > last {
            return false;
        }
        if let Some(leader) = self.learner.leader() {
            out.send(from, Paxon::Decided(last, leader));
        }
        true
    }
}

impl Protocol for Paxos {
    type Message = Paxon;
    type Timer = PaxosTimer;
    type Kept = Slots;

    fn start(setup: &Setup, kept: Option<Slots>, now: Moment, out: &mut Out<Self>) -> Self {
        let mut node = Self {
            setup: setup.clone(),
            dice: Dice::new(setup.seed.wrapping_add(u64::from(setup.run))),
            acceptor: Acceptor::new(kept.unwrap_or_default()),
            learner: Learner::new(setup.majority()),
            proposer: None,
        };
        node.wait(now, out);
        node
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Paxon, out: &mut Out<Self>) {
        match message {
            Paxon::Prepare(epoch, ballot) => {
                if !self.is_over(epoch, from, out) {
                    self.acceptor.prepare(epoch, ballot, from, out);
                }
            }
            Paxon::Accept(epoch, ballot, name) => {
                if !self.is_over(epoch, from, out) {
                    let learners = self.all();
                    self.acceptor.accept(epoch, ballot, name, from, learners, out);
                }
            }
            Paxon::Promise(epoch, ballot, accepted) => {
                let me = self.setup.me;
                if let Some(proposer) = &mut self.proposer
                    && let Some(name) = proposer.promised(epoch, ballot, from, accepted, me)
                {
                    out.send_all(self.all(), &Paxon::Accept(epoch, ballot, name));
                }
            }
            Paxon::Nack(epoch, promised) => {
                if let Some(proposer) = &mut self.proposer
                    && proposer.refused(epoch, promised)
                {
                    self.again(now, out);
                }
            }
            Paxon::Accepted(epoch, ballot, name) => {
                if let Some(name) = self.learner.accepted(epoch, ballot, name, from) {
                    self.decide(now, epoch, name, out);
                }
            }
            Paxon::Decided(epoch, leader) => self.decide(now, epoch, leader, out),
            Paxon::Heartbeat(epoch) => {
                if epoch > self.learner.epoch() {
                    // Whoever leads was chosen.
                    self.decide(now, epoch, from, out);
                } else if self.learner.leader() == Some(from) && epoch == self.learner.epoch() {
                    self.proposer = None;
                    out.stop(PaxosTimer::Again);
                    self.wait(now, out);
                } else {
                    self.is_over(epoch, from, out);
                }
            }
        }
    }

    fn wake(&mut self, now: Moment, timer: PaxosTimer, out: &mut Out<Self>) {
        match timer {
            PaxosTimer::Show => self.show(now, out),
            PaxosTimer::Missed => {
                // A witness accepts and never stands.
                if !self.setup.is_witness() {
                    out.remark("misses a leader");
                    self.propose(now, 1, out);
                }
            }
            PaxosTimer::Again => {
                let seen = self.proposer.as_ref().map_or(0, Proposer::highest_round);
                self.propose(now, seen + 1, out);
            }
        }
    }

    fn belief(&self, _now: Moment) -> Belief {
        let leader = self.learner.leader();
        let term = leader.map(|_| self.learner.epoch());
        Belief { leader, term, may_act: leader == Some(self.setup.me) }
    }

    /// A liar promises and accepts whatever it is asked, and tells half of the nodes that it was chosen.
    fn lie(setup: &Setup, to: NodeId, message: Paxon) -> Paxon {
        match message {
            Paxon::Nack(epoch, ballot) => Paxon::Promise(epoch, ballot, None),
            Paxon::Promise(epoch, ballot, _) => Paxon::Promise(epoch, ballot, None),
            Paxon::Accepted(epoch, ..) if to.0.is_multiple_of(2) => Paxon::Decided(epoch, setup.me),
            Paxon::Accepted(..)
            | Paxon::Prepare(..)
            | Paxon::Accept(..)
            | Paxon::Decided(..)
            | Paxon::Heartbeat(_) => message,
        }
    }
}

impl Message for Paxon {
    fn kind(&self) -> &'static str {
        match self {
            Self::Prepare(..) => "PREPARE",
            Self::Promise(..) => "PROMISE",
            Self::Accept(..) => "ACCEPT",
            Self::Accepted(..) => "ACCEPTED",
            Self::Nack(..) => "NACK",
            Self::Decided(..) => "DECIDED",
            Self::Heartbeat(_) => "HEARTBEAT",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Prepare(epoch, ballot) | Self::Nack(epoch, ballot) => {
                format!("epoch {epoch}, ballot {ballot}")
            }
            Self::Promise(epoch, ballot, None) => format!("epoch {epoch}, ballot {ballot}"),
            Self::Promise(epoch, ballot, Some((before, name))) => {
                format!("epoch {epoch}, ballot {ballot}, accepted {name} in {before}")
            }
            Self::Accept(epoch, ballot, name) | Self::Accepted(epoch, ballot, name) => {
                format!("epoch {epoch}, ballot {ballot}, {name}")
            }
            Self::Decided(epoch, name) => format!("epoch {epoch}, {name}"),
            Self::Heartbeat(epoch) => format!("epoch {epoch}"),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Prepare(..) | Self::Nack(..) => 19,
            Self::Promise(_, _, accepted) => 20 + 12 * usize::from(accepted.is_some()),
            Self::Accept(..) | Self::Accepted(..) => 21,
            Self::Decided(..) => 11,
            Self::Heartbeat(_) => 9,
        }
    }

    fn is_upkeep(&self) -> bool {
        matches!(self, Self::Heartbeat(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, node};

    const A: NodeId = node(0);
    const B: NodeId = node(1);
    const C: NodeId = node(2);

    #[test]
    fn one_proposer_needs_two_rounds_to_a_majority() {
        let mut hand = Hand::<Paxos>::new(3);
        hand.start_all();
        hand.wake(A, PaxosTimer::Missed);
        assert_eq!(
            hand.said(),
            ["A -> B PREPARE epoch 1, ballot 1A", "A -> C PREPARE epoch 1, ballot 1A"]
        );
        hand.deliver_all();
        assert!([A, B, C].iter().all(|one| hand.belief(*one).leader == Some(A)));
        assert_eq!(hand.belief(A), Belief { leader: Some(A), term: Some(1), may_act: true });
        let counts = ["PREPARE", "PROMISE", "ACCEPT", "ACCEPTED"].map(|kind| hand.count(kind));
        // Every acceptor tells every learner.
        assert_eq!(counts, [2, 2, 2, 6]);
    }

    /// What was accepted by a majority stays chosen: a later proposer takes that name for its own.
    #[test]
    fn a_later_ballot_adopts_the_name_that_may_have_been_chosen() {
        let mut hand = Hand::<Paxos>::new(3);
        hand.start_all();
        hand.wake(A, PaxosTimer::Missed);
        hand.deliver(|_, to, message| to != C && matches!(message, Paxon::Prepare(..)));
        hand.deliver(|_, to, message| to == A && matches!(message, Paxon::Promise(..)));
        // A and B accept A's name, and nobody learns of it.
        hand.deliver(|_, to, message| to != C && matches!(message, Paxon::Accept(..)));
        hand.lose_all();
        hand.kill(A);
        hand.wake(C, PaxosTimer::Missed);
        hand.deliver_all();
        // C's first ballot is as high as A's: names tell them apart.
        assert_eq!(hand.belief(C), Belief { leader: Some(A), term: Some(1), may_act: false });
        assert_eq!(hand.belief(B).leader, Some(A));
    }

    /// The duel: each new ballot voids the other's before it is accepted, for as long as they stay in step.
    #[test]
    fn two_proposers_in_step_outbid_each_other_and_nobody_is_chosen() {
        let mut hand = Hand::<Paxos>::new(3);
        hand.start_all();
        hand.wake(A, PaxosTimer::Missed);
        for _ in 0..20 {
            hand.deliver(|_, to, message| {
                to == C && matches!(message, Paxon::Prepare(_, ballot) if ballot.of == A)
            });
            hand.deliver(|_, to, message| {
                to == A && matches!(message, Paxon::Prepare(_, ballot) if ballot.of == A)
            });
            hand.deliver(|_, to, message| to == A && matches!(message, Paxon::Promise(..)));
            // Before A's name is accepted, B has the promises.
            hand.wake(B, PaxosTimer::Again);
            hand.deliver(|from, to, message| {
                from == B && to != A && matches!(message, Paxon::Prepare(..))
            });
            hand.deliver(|_, to, message| to == B && matches!(message, Paxon::Promise(..)));
            hand.deliver(|from, to, message| {
                from == A && to == C && matches!(message, Paxon::Accept(..))
            });
            assert!(hand.said().iter().any(|line| line.contains("NACK")), "{:?}", hand.said());
            hand.deliver(|_, to, message| to == A && matches!(message, Paxon::Nack(..)));
            hand.lose_all();
            // And before B's name is accepted, A has them again.
            hand.wake(A, PaxosTimer::Again);
        }
        assert!([A, B, C].iter().all(|one| hand.belief(*one).leader.is_none()));
        hand.deliver_all();
        assert!(
            [A, B, C].iter().all(|one| hand.belief(*one).leader == Some(A)),
            "the duel is over"
        );
    }

    #[test]
    fn an_acceptor_that_restarts_keeps_its_word() {
        let mut hand = Hand::<Paxos>::new(3);
        hand.start_all();
        hand.wake(B, PaxosTimer::Missed);
        hand.deliver_all();
        hand.kill(C);
        hand.start(C);
        hand.wake(A, PaxosTimer::Missed);
        hand.deliver_all();
        // The second epoch is A's; the first stays what it was.
        assert_eq!(hand.belief(C), Belief { leader: Some(A), term: Some(2), may_act: false });
        assert!(!hand.belief(B).may_act);
    }
}
