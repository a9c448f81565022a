//! Election by a lease: one store says who leads, for a time.
//!
//! Whoever asks first gets the office and a term, for a ttl. The holder renews; the store counts the ttl from
//! when a request arrives and the holder from when it left, on their own clocks, so the holder always stops
//! first if the clocks run at nearly the same rate. The term is one higher for every holder: a storage that
//! compares terms (a fence) refuses whoever was paused past its lease between its check and its write. The
//! stage writes to both kinds of storage at once and shows what each lets pass.
//!
//! It promises one leader at a time as long as clocks keep within their bound, and with a fence no wrong
//! write whatever clocks and pauses do. It has no leader while its one store is dead: the road to a store
//! that survives is Raft, and both together are what Regent does.

use std::time::Duration;

use regent_election::Moment;

use super::{Belief, Message, NodeId, Out, Protocol, Setup};
use crate::dice::Dice;

/// Clocks are taken to be wrong by one per cent at most, against each other by two.
const MARGIN_PERCENT: u32 = 2;

/// What candidates and the store say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leasing {
    /// May I lead? A repeated question has the number of the first.
    Campaign {
        /// The candidate's number for it.
        attempt: u64,
        /// Whether it asks before the lease that it was told of can be over: a standby that looks, in case
        /// the holder resigned. That is sent as long as all is well.
        is_look: bool,
    },
    /// I lead, and want to go on.
    Renew {
        /// The candidate's number for it.
        attempt: u64,
        /// Under which term.
        term: u64,
    },
    /// Yes, under this term and for a whole ttl.
    Granted {
        /// Which question it answers.
        attempt: u64,
        term: u64,
    },
    /// Yes, go on.
    Renewed {
        /// Which question it answers.
        attempt: u64,
    },
    /// No: somebody else does.
    Denied {
        /// Which question it answers.
        attempt: u64,
        holder: Option<NodeId>,
        /// Under which term.
        term: u64,
        /// How much longer, unless it renews.
        remaining: Duration,
        /// Whether it answers a look.
        is_look: bool,
    },
}

/// Timers of candidates and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseTimer {
    /// It is time to ask, or to ask again.
    Ask,
    /// The lease ends by the holder's own clock.
    Ended,
}

/// A candidate or the store.
#[derive(Clone, Debug)]
pub enum Lease {
    Store(LeaseModel),
    Candidate(Candidate),
}

/// The office as the store has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredOffice {
    /// The last term that was granted.
    term: u64,
    /// To whom, and in answer to which question.
    holder: Option<(NodeId, u64)>,
}

/// The store.
#[derive(Clone, Debug)]
pub struct LeaseModel {
    ttl: Duration,
    office: StoredOffice,
    free_at: Moment,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    setup: Setup,
    dice: Dice,
    /// The question that is not answered yet: its number, and when it was first sent.
    asked: Option<(u64, Moment)>,
    attempts: u64,
    /// The term it holds, and until when.
    lease: Option<(u64, Moment)>,
    /// Who else leads, as it was last told.
    told: Option<(NodeId, u64)>,
    /// Until when the office is taken even if its holder is silent, as it was last told.
    taken_until: Option<Moment>,
}

impl LeaseModel {
    fn receive(&mut self, now: Moment, from: NodeId, message: Leasing, out: &mut Out<Lease>) {
        match message {
            Leasing::Campaign { attempt, is_look } => {
                if self.office.holder == Some((from, attempt)) && now < self.free_at {
                    // The answer was lost: it is given again, and adds no time.
                    out.send(from, Leasing::Granted { attempt, term: self.office.term });
                } else if now < self.free_at {
                    out.send(from, self.denial(now, attempt, is_look));
                } else {
                    let term = self.office.term + 1;
                    self.office = StoredOffice { term, holder: Some((from, attempt)) };
                    self.free_at = now + self.ttl;
                    out.keep(Kept(self.office));
                    out.send(from, Leasing::Granted { attempt, term });
                }
            }
            Leasing::Renew { attempt, term } => {
                let is_holder = self.office.holder.is_some_and(|(holder, _)| holder == from);
                if is_holder && term == self.office.term && now < self.free_at {
                    self.free_at = now + self.ttl;
                    out.send(from, Leasing::Renewed { attempt });
                } else {
                    out.send(from, self.denial(now, attempt, false));
                }
            }
            Leasing::Granted { .. } | Leasing::Renewed { .. } | Leasing::Denied { .. } => {}
        }
    }

    fn denial(&self, now: Moment, attempt: u64, is_look: bool) -> Leasing {
        let is_held = now < self.free_at;
        let holder = self.office.holder.filter(|_| is_held).map(|(holder, _)| holder);
        let remaining = now.until(self.free_at);
        Leasing::Denied { attempt, holder, term: self.office.term, remaining, is_look }
    }
}

impl Candidate {
    const fn store(&self) -> NodeId {
        NodeId(self.setup.nodes)
    }

    fn ask(&mut self, now: Moment, out: &mut Out<Lease>) {
        // A question that is older than a lease could win nothing any more.
        let is_fresh = |sent_at: Moment| now < sent_at + self.setup.pace.ttl;
        let (attempt, _) = match self.asked.filter(|(_, sent_at)| is_fresh(*sent_at)) {
            Some(asked) => asked,
            None => {
                self.attempts += 1;
                let asked = (u64::from(self.setup.run) << 32 | self.attempts, now);
                self.asked = Some(asked);
                asked
            }
        };
        let is_look = self.taken_until.is_some_and(|until| now < until);
        out.send(
            self.store(),
            match self.lease {
                Some((term, _)) => Leasing::Renew { attempt, term },
                None => Leasing::Campaign { attempt, is_look },
            },
        );
        out.set(LeaseTimer::Ask, now + self.setup.pace.answer_within);
    }

    /// The store has said yes: the lease counts from when the question first left.
    fn extend(&mut self, now: Moment, term: u64, sent_at: Moment, out: &mut Out<Lease>) {
        let ttl = self.setup.pace.ttl;
        let until = sent_at + ttl * (100 - MARGIN_PERCENT) / 100;
        self.told = None;
        if until <= now {
            out.remark("gets an answer that has outlived its lease");
            return self.lose(now, out);
        }
        self.lease = Some((term, until));
        out.set(LeaseTimer::Ended, until);
        out.set(LeaseTimer::Ask, now + ttl / 3);
    }

    fn lose(&mut self, now: Moment, out: &mut Out<Lease>) {
        (self.lease, self.asked, self.taken_until) = (None, None, None);
        out.stop(LeaseTimer::Ended);
        self.bid_after(now, Duration::ZERO, out);
    }

    /// Asks again a little after this time. The lot keeps a herd from coming at once.
    fn bid_after(&mut self, now: Moment, wait: Duration, out: &mut Out<Lease>) {
        let spread = u64::try_from(self.setup.pace.heartbeat_every.as_micros()).unwrap_or(0);
        let lot = Duration::from_micros(self.dice.within(0..=spread));
        // The holder may resign or die with its store: nobody waits for more than half a ttl.
        out.set(LeaseTimer::Ask, now + wait.min(self.setup.pace.ttl / 2) + lot);
    }

    fn receive(&mut self, now: Moment, message: Leasing, out: &mut Out<Lease>) {
        let (attempt, asked) = match message {
            Leasing::Granted { attempt, .. }
            | Leasing::Renewed { attempt }
            | Leasing::Denied { attempt, .. } => (attempt, self.asked),
            Leasing::Campaign { .. } | Leasing::Renew { .. } => return,
        };
        let Some((_, sent_at)) = asked.filter(|(number, _)| *number == attempt) else { return };
        self.asked = None;
        match message {
            Leasing::Granted { term, .. } => self.extend(now, term, sent_at, out),
            Leasing::Renewed { .. } => match self.lease {
                Some((term, _)) => self.extend(now, term, sent_at, out),
                None => self.lose(now, out),
            },
            Leasing::Denied { holder, term, remaining, .. } => {
                self.lose(now, out);
                let other = holder.filter(|holder| *holder != self.setup.me);
                self.told = other.map(|holder| (holder, term));
                self.taken_until = Some(now + remaining);
                self.bid_after(now, remaining, out);
            }
            Leasing::Campaign { .. } | Leasing::Renew { .. } => {}
        }
    }

    fn wake(&mut self, now: Moment, timer: LeaseTimer, out: &mut Out<Lease>) {
        match timer {
            LeaseTimer::Ask => {
                // After a pause the lease may be over before its timer was noticed.
                if self.lease.is_some_and(|(_, until)| until <= now) {
                    return self.wake(now, LeaseTimer::Ended, out);
                }
                self.ask(now, out);
            }
            LeaseTimer::Ended => {
                out.remark("could not renew its lease in time");
                self.lose(now, out);
            }
        }
    }
}

/// What the store keeps. How long a lease has run is not kept: a store that comes back gives its holder a
/// whole ttl.
#[derive(Clone, Copy, Debug)]
pub struct Kept(StoredOffice);

impl Protocol for Lease {
    type Message = Leasing;
    type Timer = LeaseTimer;
    type Kept = Kept;

    const SERVERS: u16 = 1;

    fn start(setup: &Setup, kept: Option<Kept>, now: Moment, out: &mut Out<Self>) -> Self {
        if setup.me.0 >= setup.nodes {
            let office = kept.map_or_else(StoredOffice::default, |kept| kept.0);
            let ttl = setup.pace.ttl;
            let free_at = if office.holder.is_some() { now + ttl } else { now };
            return Self::Store(LeaseModel { ttl, office, free_at });
        }
        let dice = Dice::new(setup.seed.wrapping_add(u64::from(setup.run)));
        let setup = setup.clone();
        let mut candidate = Candidate {
            setup,
            dice,
            asked: None,
            attempts: 0,
            lease: None,
            told: None,
            taken_until: None,
        };
        if !candidate.setup.is_witness() {
            candidate.bid_after(now, Duration::ZERO, out);
        }
        Self::Candidate(candidate)
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Leasing, out: &mut Out<Self>) {
        match self {
            Self::Store(store) => store.receive(now, from, message, out),
            Self::Candidate(candidate) => candidate.receive(now, message, out),
        }
    }

    fn wake(&mut self, now: Moment, timer: LeaseTimer, out: &mut Out<Self>) {
        match self {
            Self::Store(_) => {}
            Self::Candidate(candidate) => candidate.wake(now, timer, out),
        }
    }

    fn belief(&self, now: Moment) -> Belief {
        let Self::Candidate(candidate) = self else { return Belief::NOBODY };
        match (candidate.lease, candidate.told) {
            (Some((term, until)), _) => {
                Belief { leader: Some(candidate.setup.me), term: Some(term), may_act: now < until }
            }
            (None, Some((leader, term))) => {
                Belief { leader: Some(leader), term: Some(term), may_act: false }
            }
            (None, None) => Belief::NOBODY,
        }
    }

    /// A liar claims the next term. The store compares, and says no.
    fn lie(_setup: &Setup, _to: NodeId, message: Leasing) -> Leasing {
        match message {
            Leasing::Campaign { attempt, .. } => Leasing::Renew { attempt, term: u64::MAX },
            Leasing::Renew { attempt, term } => Leasing::Renew { attempt, term: term + 1 },
            Leasing::Granted { .. } | Leasing::Renewed { .. } | Leasing::Denied { .. } => message,
        }
    }
}

impl Message for Leasing {
    fn kind(&self) -> &'static str {
        match self {
            Self::Campaign { .. } => "CAMPAIGN",
            Self::Renew { .. } => "RENEW",
            Self::Granted { .. } => "GRANTED",
            Self::Renewed { .. } => "RENEWED",
            Self::Denied { .. } => "DENIED",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Campaign { is_look: true, .. } => "in case it is free".to_owned(),
            Self::Campaign { .. } | Self::Renewed { .. } => String::new(),
            Self::Renew { term, .. } | Self::Granted { term, .. } => format!("term {term}"),
            Self::Denied { holder: Some(holder), term, .. } => format!("{holder}, term {term}"),
            Self::Denied { holder: None, .. } => "nobody leads".to_owned(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Campaign { .. } | Self::Renewed { .. } => 9,
            Self::Renew { .. } | Self::Granted { .. } => 17,
            Self::Denied { .. } => 27,
        }
    }

    fn is_upkeep(&self) -> bool {
        match self {
            Self::Renew { .. } | Self::Renewed { .. } => true,
            Self::Campaign { is_look, .. } | Self::Denied { is_look, .. } => *is_look,
            Self::Granted { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, PACE, node};

    const A: NodeId = node(0);
    const B: NodeId = node(1);

    #[test]
    fn whoever_asks_first_leads_under_the_next_term_until_it_is_silent_for_a_ttl() {
        let mut hand = Hand::<Lease>::new(2);
        hand.start_all();
        hand.wake(A, LeaseTimer::Ask);
        hand.deliver_all();
        hand.wake(B, LeaseTimer::Ask);
        hand.deliver_all();
        assert_eq!(hand.belief(A), Belief { leader: Some(A), term: Some(1), may_act: true });
        assert_eq!(hand.belief(B), Belief { leader: Some(A), term: Some(1), may_act: false });

        // The holder stops before the store lets go.
        hand.pass(PACE.ttl * 98 / 100);
        assert!(!hand.belief(A).may_act);
        hand.wake(B, LeaseTimer::Ask);
        hand.deliver_all();
        assert!(!hand.belief(B).may_act);
        hand.pass(PACE.ttl * 2 / 100);
        hand.wake(B, LeaseTimer::Ask);
        hand.deliver_all();
        assert_eq!(hand.belief(B), Belief { leader: Some(B), term: Some(2), may_act: true });
    }

    #[test]
    fn a_standby_looks_while_the_holder_lives_and_bids_when_its_lease_may_be_over() {
        let mut hand = Hand::<Lease>::new(2);
        hand.start_all();
        hand.wake(A, LeaseTimer::Ask);
        hand.deliver_all();
        hand.wake(B, LeaseTimer::Ask);
        assert_eq!(hand.said(), ["B -> C CAMPAIGN"]);
        hand.deliver_all();
        hand.pass(PACE.ttl / 2);
        hand.wake(B, LeaseTimer::Ask);
        assert_eq!(hand.said(), ["B -> C CAMPAIGN in case it is free"]);
        hand.deliver_all();
        hand.pass(PACE.ttl / 2);
        hand.wake(B, LeaseTimer::Ask);
        assert_eq!(hand.said(), ["B -> C CAMPAIGN"]);
    }

    #[test]
    fn a_lost_answer_does_not_cost_its_holder_the_office_and_adds_no_time() {
        let mut hand = Hand::<Lease>::new(2);
        hand.start_all();
        hand.wake(A, LeaseTimer::Ask);
        hand.deliver(|_, to, _| to == node(2));
        hand.lose_all();
        hand.pass(PACE.answer_within);
        hand.wake(A, LeaseTimer::Ask);
        hand.deliver_all();
        assert_eq!(hand.belief(A), Belief { leader: Some(A), term: Some(1), may_act: true });
        hand.pass(PACE.ttl * 98 / 100 - PACE.answer_within);
        assert!(!hand.belief(A).may_act, "counts from the first question");
    }

    #[test]
    fn a_store_that_comes_back_remembers_the_term_and_waits_a_whole_ttl() {
        let mut hand = Hand::<Lease>::new(2);
        hand.start_all();
        hand.wake(A, LeaseTimer::Ask);
        hand.deliver_all();
        hand.kill(node(2));
        hand.pass(PACE.ttl / 2);
        hand.start(node(2));
        hand.pass(PACE.ttl / 2);
        hand.wake(B, LeaseTimer::Ask);
        hand.deliver_all();
        assert!(!hand.belief(B).may_act);
        hand.pass(PACE.ttl / 2);
        hand.wake(B, LeaseTimer::Ask);
        hand.deliver_all();
        assert_eq!(hand.belief(B).term, Some(2));
    }
}
