//! A lease as Regent's own participants keep it: the real participant, the real rules, one store.
//!
//! Nothing of the election is written here. Candidates are [`Participant`]s with the timers that
//! [`Budget`] derives from the ttl, the store drives the [`Ledger`](regent_election::Ledger), as every
//! store of ours does. What is left out is what keeps the store itself alive: it is one process, and
//! the log is [measured on its own](super::raft). So this shows what a ttl costs, and [`super::lease`] what the textbook's
//! lease does.
//!
//! Whoever watches is told of a change once. On a real connection a lost word would come late; here
//! the next heartbeat brings it.

mod store;

use regent_election::participant::{Action, Attempt, Event, Reply, Request, Verb};
use regent_election::store::StoreResult;
use regent_election::{Budget, Drift, Group, Metadata, Moment, Node, Participant, SessionId, Term};

use super::{Belief, Message, NodeId, Out, Pace, Protocol, Setup};
use crate::dice::Dice;

pub use store::{Kept, SessionStore};

/// What candidates and the store say.
#[derive(Clone, Debug)]
pub enum Word {
    /// A question of a candidate.
    Ask(Attempt, Box<Request>),
    Answer(Attempt, Box<StoreResult<Reply>>),
    /// Who leads from here on, to whoever watches.
    Told(Term, Option<NodeId>),
}

/// Timers of candidates and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionTimer {
    /// The machine wants to be called.
    Wake,
    /// The lease ends by the holder's own clock, unless it was renewed since.
    Ended,
}

/// A candidate or the store.
#[derive(Debug)]
pub enum Session {
    Store(Box<SessionStore>),
    Candidate(Box<Candidate>),
}

/// A candidate.
#[derive(Debug)]
pub struct Candidate {
    setup: Setup,
    dice: Dice,
    machine: Participant,
    /// Who leads, as it was last told.
    told: Option<(NodeId, Term)>,
}

/// The timers of this pace's ttl.
///
/// # Errors
/// If no store keeps such a ttl.
pub fn budget(pace: &Pace) -> Result<Budget, regent_election::BudgetError> {
    Budget::new(u64::try_from(pace.ttl.as_millis()).unwrap_or(u64::MAX), Drift::DEFAULT)
}

/// The one office there is.
fn office() -> Group {
    Group::new("lab").expect("three letters are a name")
}

fn name(node: NodeId) -> Node {
    Node::new(&node.to_string()).expect("a letter is a name")
}

impl Candidate {
    /// Tells the machine, and sees to what it wants until it wants no more.
    fn tell(&mut self, now: Moment, event: Event, out: &mut Out<Session>) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.machine.on(now, event) {
                match action {
                    Action::Send { attempt, request } => {
                        out.send(NodeId(self.setup.nodes), Word::Ask(attempt, Box::new(request)));
                    }
                    Action::NeedSession => events.push(Event::Session(self.secret())),
                    // Work on a stage ends the moment it is told to.
                    Action::StopWork { group, .. } | Action::LastResort { group, .. } => {
                        events.push(Event::Stopped { group });
                    }
                    Action::WakeAt(at) => out.set(SessionTimer::Wake, at),
                    Action::Transition(_)
                    | Action::Offered { .. }
                    | Action::OfferOver { .. }
                    | Action::Trouble { .. } => {}
                }
            }
        }
        if let Some((_, until)) = self.machine.valid_until(&office()) {
            out.set(SessionTimer::Ended, until);
        }
    }

    fn secret(&mut self) -> SessionId {
        let number = u128::from(self.dice.roll()) << 64 | u128::from(self.dice.roll() | 1);
        SessionId::new(number).expect("an odd number is not zero")
    }

    fn receive(&mut self, now: Moment, word: Word, out: &mut Out<Session>) {
        match word {
            Word::Answer(attempt, answer) => {
                self.tell(now, Event::Answered { attempt, answer: *answer }, out);
            }
            Word::Told(term, leader) => {
                let other = leader.filter(|leader| *leader != self.setup.me);
                self.told = other.map(|leader| (leader, term));
                let (group, leader) = (office(), leader.map(name));
                self.tell(now, Event::Watched { group, term, leader }, out);
            }
            Word::Ask(..) => {}
        }
    }
}

impl Protocol for Session {
    type Message = Word;
    type Timer = SessionTimer;
    type Kept = Kept;

    const SERVERS: u16 = 1;

    fn start(setup: &Setup, kept: Option<Kept>, now: Moment, out: &mut Out<Self>) -> Self {
        if setup.me.0 >= setup.nodes {
            let mut store = SessionStore::new(setup.nodes, kept, now);
            store.pass_time(now, out);
            return Self::Store(Box::new(store));
        }
        let mut dice = Dice::new(setup.seed.wrapping_add(u64::from(setup.run)));
        let budget = budget(&setup.pace).expect("whoever set the stage has checked the ttl");
        let machine = Participant::new(name(setup.me), budget, dice.roll());
        let mut candidate = Candidate { setup: setup.clone(), dice, machine, told: None };
        let stand = Event::Stand { group: office(), priority: 0, metadata: Metadata::NONE };
        candidate.tell(now, stand, out);
        Self::Candidate(Box::new(candidate))
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Word, out: &mut Out<Self>) {
        match self {
            Self::Store(store) => store.receive(now, from, message, out),
            Self::Candidate(candidate) => candidate.receive(now, message, out),
        }
    }

    fn wake(&mut self, now: Moment, _timer: SessionTimer, out: &mut Out<Self>) {
        match self {
            Self::Store(store) => store.pass_time(now, out),
            Self::Candidate(candidate) => candidate.tell(now, Event::Tick, out),
        }
    }

    fn belief(&self, now: Moment) -> Belief {
        let Self::Candidate(candidate) = self else { return Belief::NOBODY };
        if let Some(held) = candidate.machine.check(now, &office()) {
            let term = Some(held.term.get());
            return Belief { leader: Some(candidate.setup.me), term, may_act: true };
        }
        match candidate.told {
            Some((leader, term)) => {
                Belief { leader: Some(leader), term: Some(term.get()), may_act: false }
            }
            None => Belief::NOBODY,
        }
    }
}

impl Message for Word {
    fn kind(&self) -> &'static str {
        match self {
            Self::Ask(_, request) => match &**request {
                Request::Open(_) => "OPEN",
                Request::Heartbeat(_) => "HEARTBEAT",
                Request::List(_) => "LIST",
                Request::Close(_) => "CLOSE",
                Request::Campaign(_) => "CAMPAIGN",
                Request::Group(request) => match request.verb {
                    Verb::Withdraw => "WITHDRAW",
                    Verb::Accept(_) => "ACCEPT",
                    Verb::Resign(_) => "RESIGN",
                    Verb::Offer(..) => "OFFER",
                    Verb::Warm(_) => "WARM",
                    Verb::Transfer(..) => "TRANSFER",
                },
            },
            Self::Answer(_, answer) => match &**answer {
                Ok(Reply::Heartbeat(_)) => "HEARD",
                Ok(Reply::Session(_) | Reply::Campaigned(_) | Reply::Done) => "DONE",
                Err(_) => "REFUSED",
            },
            Self::Told(..) => "TOLD",
        }
    }

    /// The numbers that travel; names and metadata are not counted.
    fn bytes(&self) -> usize {
        match self {
            Self::Ask(..) => 32,
            Self::Answer(..) => 24,
            Self::Told(..) => 17,
        }
    }

    fn is_upkeep(&self) -> bool {
        matches!(self.kind(), "HEARTBEAT" | "HEARD")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_protocols::by_hand::{Hand, PACE, node};

    const A: NodeId = node(0);
    const B: NodeId = node(1);

    fn settle(hand: &mut Hand<Session>) {
        for _ in 0..8 {
            hand.deliver_all();
        }
    }

    /// Time passes in small steps for those that are awake.
    fn pass(hand: &mut Hand<Session>, who: &[NodeId], ms: u64) {
        for _ in 0..ms / 10 {
            hand.pass(std::time::Duration::from_millis(10));
            for one in who {
                hand.wake(*one, SessionTimer::Wake);
            }
            settle(hand);
        }
    }

    #[test]
    fn one_leads_and_is_succeeded_a_ttl_after_it_fell_silent() {
        let mut hand = Hand::<Session>::new(2);
        hand.start_all();
        settle(&mut hand);
        pass(&mut hand, &[A, B, node(2)], 200);
        let leaders: Vec<NodeId> =
            [A, B].into_iter().filter(|one| hand.belief(*one).may_act).collect();
        let [leader] = leaders[..] else { panic!("one of them leads: {leaders:?}") };
        let other = if leader == A { B } else { A };
        let term = hand.belief(leader).term;

        hand.kill(leader);
        let ttl_ms = PACE.ttl.as_millis() as u64;
        pass(&mut hand, &[other, node(2)], ttl_ms / 2);
        assert!(!hand.belief(other).may_act, "the dead one's lease still runs");
        pass(&mut hand, &[other, node(2)], ttl_ms / 2 + 100);
        let belief = hand.belief(other);
        assert!(belief.may_act, "{belief:?}");
        assert_eq!(belief.term, term.map(|term| term + 1));
    }
}
