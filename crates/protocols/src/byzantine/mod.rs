//! Election among nodes of which some lie: n = 3f + 1, with signed votes, as views change in PBFT (Castro and
//! Liskov, 1999).
//!
//! Views are numbered, and the leader of view v is node v mod n: nobody can choose. Whoever misses the leader
//! says so (SUSPECT), and when 2f + 1 do, signs a vote for the next view (VIEW-CHANGE) and sends it to all;
//! whoever sees votes of f + 1 others for a higher view joins, for one of them is honest. The leader of a view shows 2f + 1 signed votes for it
//! (NEW-VIEW): two views that were both voted in share an honest node, and a certificate cannot be made up
//! because nobody can sign for another (`seal`).
//!
//! A leader may act while 2f + 1 signed confirmations of one of its heartbeats are younger than the shortest
//! patience, counted from when the heartbeat left: each honest one of them votes for no other view before its
//! own patience is over. So it promises one leader that may act at a time, with up to f liars and clocks within
//! their bound. With more liars it promises nothing. It costs of the order of n² messages an election; the road
//! not taken, votes gathered by the next leader alone, would let a lying leader hide them. SUSPECT is not in the
//! paper, where whoever is impatient votes at once: a vote cannot be taken back, so one that missed a single
//! message would be lost to the view that all others are content with.

mod seal;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regent_election::Moment;

use seal::Pen;

use super::{Belief, Message, NodeId, Out, Pace, Protocol, Setup};
use crate::dice::Dice;

pub use seal::Sealed;

/// Clocks are taken to be wrong by one per cent at most, against each other by two.
const MARGIN_PERCENT: u32 = 2;

/// A vote for a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vote(u64);

/// A confirmation of a heartbeat: of which view, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Confirmation(u64, u64);

/// What its nodes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signed {
    /// I miss a leader, and would vote for this view. It binds nobody.
    Suspect(u64),
    /// I want this view.
    ViewChange(Sealed<Vote>),
    /// I lead this view, and these are the votes for it.
    NewView(u64, Vec<Sealed<Vote>>),
    /// I lead this view; the number of this heartbeat.
    Heartbeat(u64, u64),
    /// I have heard it, and vote for no other view for a while.
    Confirm(Sealed<Confirmation>),
    /// You say that you lead this view: show me the votes. Not a vote itself, or whoever pretends to lead
    /// could gather votes by asking.
    Show(u64),
}

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByzantineTimer {
    /// The leader shows itself.
    Show,
    /// The leader has been silent for too long, or a view was not begun.
    Missed,
    /// What was confirmed is over.
    Lapsed,
}

/// One node.
#[derive(Clone, Debug)]
pub struct Byzantine {
    setup: Setup,
    pen: Pen,
    dice: Dice,
    /// The view that it is in, and whether its leader has shown the votes for it.
    view: u64,
    has_begun: bool,
    /// The highest view that it has voted for.
    voted: u64,
    /// Until when it has promised to vote for no other view.
    bound_until: Moment,
    /// Who misses a leader, and would vote for which view; of nobody once a leader was heard.
    suspects: BTreeMap<NodeId, u64>,
    /// Votes for views above the one it is in, one of each node for each.
    votes: BTreeMap<u64, BTreeMap<NodeId, Sealed<Vote>>>,
    /// The votes by which its view has begun, to be shown to whoever was away.
    certificate: Vec<Sealed<Vote>>,
    /// A leader's heartbeats: when each left, and who has confirmed it.
    heartbeats: BTreeMap<u64, (Moment, BTreeSet<NodeId>)>,
    numbers: u64,
    acts_until: Option<Moment>,
}

/// Views above the present one that votes are kept for: liars cannot fill the memory.
const VIEWS_AHEAD_MAX: u64 = 64;
/// Heartbeats that confirmations are still counted for.
const HEARTBEATS_MAX: usize = 16;

impl Byzantine {
    /// How many liars are survived.
    const fn faults(&self) -> usize {
        (self.setup.nodes as usize - 1) / 3
    }

    /// As many that two of them share an honest node.
    const fn quorum(&self) -> usize {
        // 2f + 1 of 3f + 1; of another number of nodes, more.
        (self.setup.nodes as usize + self.faults()) / 2 + 1
    }

    const fn leader_of(&self, view: u64) -> NodeId {
        NodeId((view % self.setup.nodes as u64) as u16)
    }

    fn wait(&mut self, now: Moment, out: &mut Out<Self>) {
        let patience = self.setup.pace.draw_patience(&mut self.dice);
        out.set(ByzantineTimer::Missed, now + patience);
    }

    /// Votes when it misses a leader itself and is one of enough that do.
    fn weigh(&mut self, now: Moment, out: &mut Out<Self>) {
        let Some(own) = self.suspects.get(&self.setup.me).copied() else { return };
        if self.suspects.len() < self.quorum() || now < self.bound_until {
            return;
        }
        // One honest node at least is as far as the highest but f: liars cannot drive views up.
        let mut wanted: Vec<u64> = self.suspects.values().copied().collect();
        wanted.sort_unstable_by(|one, other| other.cmp(one));
        let common = wanted.get(self.faults()).copied().unwrap_or(own);
        self.vote(now, own.max(common), out);
    }

    /// Signs a vote for a view and sends it to all; again if it has voted for it before.
    fn vote(&mut self, now: Moment, view: u64, out: &mut Out<Self>) {
        self.voted = view;
        self.suspects.clear();
        self.has_begun = false;
        self.acts_until = None;
        out.stop(ByzantineTimer::Show);
        // Kept before it is sent: a node that came back must not vote in an older view.
        out.keep(Kept { voted: self.voted, view: self.view });
        let vote = self.pen.sign(Vote(view));
        out.send_all(self.setup.others(), &Signed::ViewChange(vote.clone()));
        self.count(now, vote, out);
        self.wait(now, out);
    }

    /// Counts a vote, joins if one honest node at least wants a higher view, and begins its own view when
    /// the votes for it are enough.
    fn count(&mut self, now: Moment, vote: Sealed<Vote>, out: &mut Out<Self>) {
        let Vote(view) = *vote.statement();
        let is_near = view <= self.view.saturating_add(VIEWS_AHEAD_MAX);
        if view <= self.view || !is_near {
            return;
        }
        self.votes.entry(view).or_default().insert(vote.by(), vote);
        let votes = self.votes.get(&view).map_or(0, BTreeMap::len);
        if votes > self.faults() && self.voted < view && now >= self.bound_until {
            return self.vote(now, view, out);
        }
        if votes >= self.quorum() && self.leader_of(view) == self.setup.me && self.voted <= view {
            let votes = self.votes.get(&view).map(|votes| votes.values().cloned().collect());
            self.begin(now, view, votes.unwrap_or_default(), out);
            let news = Signed::NewView(view, self.certificate.clone());
            out.send_all(self.setup.others(), &news);
            self.show(now, out);
        }
    }

    /// A view has begun.
    fn begin(
        &mut self,
        now: Moment,
        view: u64,
        certificate: Vec<Sealed<Vote>>,
        out: &mut Out<Self>,
    ) {
        (self.view, self.has_begun) = (view, true);
        self.voted = self.voted.max(view);
        self.certificate = certificate;
        self.suspects.clear();
        self.votes.retain(|of, _| *of > view);
        self.heartbeats.clear();
        self.acts_until = None;
        out.keep(Kept { voted: self.voted, view: self.view });
        if self.leader_of(view) == self.setup.me {
            out.stop(ByzantineTimer::Missed);
        } else {
            out.stop(ByzantineTimer::Show);
            self.wait(now, out);
        }
    }

    fn show(&mut self, now: Moment, out: &mut Out<Self>) {
        self.numbers += 1;
        self.heartbeats.insert(self.numbers, (now, BTreeSet::from([self.setup.me])));
        while self.heartbeats.len() > HEARTBEATS_MAX {
            self.heartbeats.pop_first();
        }
        out.send_all(self.setup.others(), &Signed::Heartbeat(self.view, self.numbers));
        out.set(ByzantineTimer::Show, now + self.setup.pace.heartbeat_every);
    }

    /// Whether these votes are what begins a view: enough, for this view, each of another node.
    fn is_certificate(&self, view: u64, votes: &[Sealed<Vote>]) -> bool {
        let voters: BTreeSet<NodeId> =
            votes.iter().filter(|vote| *vote.statement() == Vote(view)).map(Sealed::by).collect();
        voters.len() >= self.quorum()
    }

    fn confirmed(&mut self, now: Moment, sealed: &Sealed<Confirmation>, out: &mut Out<Self>) {
        let Confirmation(view, number) = *sealed.statement();
        if view != self.view || !self.has_begun || self.leader_of(view) != self.setup.me {
            return;
        }
        let quorum = self.quorum();
        let Some((left_at, by)) = self.heartbeats.get_mut(&number) else { return };
        by.insert(sealed.by());
        if by.len() >= quorum {
            let until = *left_at + promised(&self.setup.pace) * (100 - MARGIN_PERCENT) / 100;
            let until = self.acts_until.map_or(until, |before| before.max(until));
            if now < until {
                self.acts_until = Some(until);
                // Its own confirmation binds it like any other's.
                self.bound_until = self.bound_until.max(until);
                out.set(ByzantineTimer::Lapsed, until);
            }
        }
    }
}

/// For how long whoever confirms a heartbeat votes for nobody else.
const fn promised(pace: &Pace) -> Duration {
    pace.patience_min
}

/// What survives a crash.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    voted: u64,
    view: u64,
}

impl Protocol for Byzantine {
    type Message = Signed;
    type Timer = ByzantineTimer;
    type Kept = Kept;

    fn start(setup: &Setup, kept: Option<Kept>, now: Moment, out: &mut Out<Self>) -> Self {
        let (voted, view) = kept.map_or((0, 0), |kept| (kept.voted, kept.view));
        // Whom it has confirmed before a crash it does not know: it is bound for as long as that could be.
        let bound_until = if setup.run > 1 { now + promised(&setup.pace) } else { now };
        let mut node = Self {
            pen: Pen::of(setup),
            dice: Dice::new(setup.seed.wrapping_add(u64::from(setup.run))),
            setup: setup.clone(),
            view,
            has_begun: false,
            voted,
            bound_until,
            suspects: BTreeMap::new(),
            votes: BTreeMap::new(),
            certificate: Vec::new(),
            heartbeats: BTreeMap::new(),
            // Heartbeats of an earlier run are not confirmed by accident.
            numbers: u64::from(setup.run) << 32,
            acts_until: None,
        };
        node.wait(now, out);
        node
    }

    fn receive(&mut self, now: Moment, from: NodeId, message: Signed, out: &mut Out<Self>) {
        match message {
            Signed::Suspect(view) => {
                let is_mine = self.leader_of(self.view) == self.setup.me && self.has_begun;
                if is_mine {
                    out.send(from, Signed::NewView(self.view, self.certificate.clone()));
                }
                self.suspects.insert(from, view);
                self.weigh(now, out);
            }
            Signed::ViewChange(vote) => {
                let Vote(view) = *vote.statement();
                let is_mine = self.leader_of(self.view) == self.setup.me && self.has_begun;
                if view <= self.view && is_mine {
                    // It was away: it is shown that this view has begun.
                    out.send(from, Signed::NewView(self.view, self.certificate.clone()));
                }
                self.count(now, vote, out);
            }
            Signed::NewView(view, votes) => {
                let is_news = view > self.view || view == self.view && !self.has_begun;
                if is_news && view >= self.voted && self.is_certificate(view, &votes) {
                    self.begin(now, view, votes, out);
                }
            }
            Signed::Heartbeat(view, number) => {
                let is_led = from == self.leader_of(view) && view == self.view && self.has_begun;
                if is_led && self.voted == view {
                    self.bound_until = now + promised(&self.setup.pace);
                    self.suspects.clear();
                    let sealed = self.pen.sign(Confirmation(view, number));
                    out.send(from, Signed::Confirm(sealed));
                    self.wait(now, out);
                } else if from == self.leader_of(view) && view >= self.voted && !is_led {
                    out.send(from, Signed::Show(view));
                }
            }
            Signed::Confirm(sealed) => self.confirmed(now, &sealed, out),
            Signed::Show(view) => {
                if view == self.view && self.has_begun && self.leader_of(view) == self.setup.me {
                    out.send(from, Signed::NewView(view, self.certificate.clone()));
                }
            }
        }
    }

    fn wake(&mut self, now: Moment, timer: ByzantineTimer, out: &mut Out<Self>) {
        match timer {
            ByzantineTimer::Show => self.show(now, out),
            ByzantineTimer::Missed => {
                if now < self.bound_until {
                    return out.set(ByzantineTimer::Missed, self.bound_until);
                }
                out.remark(format!("misses the leader of view {}", self.view.max(self.voted)));
                // A view that has begun and whose leader is silent, or one that was never begun.
                let next = self.view.max(self.voted) + 1;
                self.suspects.insert(self.setup.me, next);
                out.send_all(self.setup.others(), &Signed::Suspect(next));
                self.wait(now, out);
                self.weigh(now, out);
            }
            ByzantineTimer::Lapsed => {}
        }
    }

    fn belief(&self, now: Moment) -> Belief {
        let leader = self.has_begun.then(|| self.leader_of(self.view));
        let may_act = leader == Some(self.setup.me) && self.acts_until.is_some_and(|at| now < at);
        Belief { leader, term: self.has_begun.then_some(self.view), may_act }
    }

    /// A liar tells half of the nodes that it leads a view of its own, with its own vote as often as votes
    /// are needed, and votes for that view wherever it is asked for anything.
    fn lie(setup: &Setup, to: NodeId, message: Signed) -> Signed {
        let view = match &message {
            Signed::ViewChange(vote) => vote.statement().0,
            Signed::NewView(view, _)
            | Signed::Heartbeat(view, _)
            | Signed::Show(view)
            | Signed::Suspect(view) => *view,
            Signed::Confirm(sealed) => sealed.statement().0,
        };
        let nodes = u64::from(setup.nodes);
        let own = view - view % nodes + nodes + u64::from(setup.me.0);
        let vote = Pen::of(setup).sign(Vote(own));
        if to.0.is_multiple_of(2) {
            Signed::NewView(own, vec![vote; usize::from(setup.nodes)])
        } else {
            Signed::ViewChange(vote)
        }
    }
}

impl Message for Signed {
    fn kind(&self) -> &'static str {
        match self {
            Self::Suspect(_) => "SUSPECT",
            Self::ViewChange(_) => "VIEW-CHANGE",
            Self::NewView(..) => "NEW-VIEW",
            Self::Heartbeat(..) => "HEARTBEAT",
            Self::Confirm(_) => "CONFIRM",
            Self::Show(_) => "SHOW",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::ViewChange(vote) => format!("view {}, signed {}", vote.statement().0, vote.by()),
            Self::NewView(view, votes) => {
                let by: Vec<String> = votes.iter().map(|vote| vote.by().to_string()).collect();
                format!("view {view}, signed {}", by.join(" "))
            }
            Self::Heartbeat(view, _) | Self::Show(view) | Self::Suspect(view) => {
                format!("view {view}")
            }
            Self::Confirm(sealed) => {
                format!("view {}, signed {}", sealed.statement().0, sealed.by())
            }
        }
    }

    fn bytes(&self) -> usize {
        // A signature is 64 bytes.
        match self {
            Self::ViewChange(_) => 1 + 10 + 64,
            Self::NewView(_, votes) => 9 + votes.len() * (10 + 64),
            Self::Heartbeat(..) => 17,
            Self::Confirm(_) => 1 + 18 + 64,
            Self::Show(_) | Self::Suspect(_) => 9,
        }
    }

    fn is_upkeep(&self) -> bool {
        matches!(self, Self::Heartbeat(..) | Self::Confirm(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::{Hand, PACE, node};

    /// These miss their leader, one after the other.
    fn miss(hand: &mut Hand<Byzantine>, who: &[u16]) {
        for one in who {
            hand.wake(node(*one), ByzantineTimer::Missed);
            hand.deliver_all();
        }
    }

    #[test]
    fn four_nodes_need_three_votes_and_survive_one_liar() {
        let mut hand = Hand::<Byzantine>::new(4);
        hand.start_all();
        miss(&mut hand, &[0, 2]);
        assert!((0..4).all(|one| hand.belief(node(one)).leader.is_none()), "two are not enough");
        assert_eq!(hand.count("VIEW-CHANGE"), 0);
        miss(&mut hand, &[3]);
        // Three miss a leader and vote, and B, the leader of view 1, has the votes it needs.
        assert!((0..4).all(|one| hand.belief(node(one)).leader == Some(node(1))));
        let belief = Belief { leader: Some(node(1)), term: Some(1), may_act: true };
        assert_eq!(hand.belief(node(1)), belief);
    }

    #[test]
    fn votes_of_one_node_are_one_vote_however_often_it_signs() {
        let mut hand = Hand::<Byzantine>::new(4);
        hand.start_all();
        let liar = Pen::of(hand.setup(node(3)));
        let forged = Signed::NewView(3, vec![liar.sign(Vote(3)); 4]);
        hand.inject(node(3), node(0), forged);
        for _ in 0..4 {
            hand.inject(node(3), node(0), Signed::ViewChange(liar.sign(Vote(3))));
        }
        hand.deliver_all();
        assert_eq!(hand.belief(node(0)), Belief::NOBODY);
        assert_eq!(hand.count("VIEW-CHANGE"), 0, "one that may be a liar moves nobody");
    }

    #[test]
    fn whoever_has_confirmed_a_leader_votes_for_no_other_for_a_while() {
        let mut hand = Hand::<Byzantine>::new(4);
        hand.start_all();
        miss(&mut hand, &[0, 2, 3]);
        assert!(hand.belief(node(1)).may_act);
        hand.forget_counts();
        miss(&mut hand, &[0, 2, 3]);
        assert_eq!((hand.count("SUSPECT"), hand.count("VIEW-CHANGE")), (0, 0));
        hand.pass(PACE.patience_min);
        assert!(!hand.belief(node(1)).may_act, "by then the leader has stopped");
        hand.kill(node(1));
        miss(&mut hand, &[0, 2, 3]);
        assert_eq!(hand.belief(node(0)).leader, Some(node(2)));
    }
}
