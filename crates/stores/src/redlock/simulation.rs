//! Proposers and acceptors in a network that loses, repeats and reorders: the history they leave must
//! be that of one register.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::paxos::{
    Acceptor, Ask, Ballot, Entry, Proposal, ProposalOutcome, ProposedChange, Reply, Step,
};

/// What a proposer has under way.
struct Running {
    proposal: Proposal,
    /// Which question of which wish it waits for; answers to others are late.
    question: u64,
    began_at: u64,
    swap: Option<Option<Ballot>>,
    ours: Option<Ballot>,
}

/// What is known of a finished wish.
#[derive(Clone, Debug)]
struct Done {
    began_at: u64,
    ended_at: u64,
    /// The version it saw or made; none is an absent entry.
    version: Option<Ballot>,
}

enum Message {
    Question { acceptor: usize, proposer: usize, question: u64, ask: Ask },
    Answer { acceptor: usize, proposer: usize, question: u64, reply: Reply },
}

struct World {
    quorum: usize,
    acceptors: Vec<Acceptor>,
    proposers: Vec<Option<Running>>,
    /// The version each proposer read last: what it expects.
    known: Vec<Option<Ballot>>,
    rounds: Vec<u64>,
    network: Vec<Message>,
    now: u64,
    questions: u64,
    done: Vec<Done>,
    /// From which version each write goes.
    parents: BTreeMap<Ballot, Option<Ballot>>,
    /// Writes that were told to have happened, or not to.
    swapped: BTreeSet<Ballot>,
    refused: BTreeSet<Ballot>,
    doubts: usize,
}

impl World {
    fn new(acceptors: usize, proposers: usize, quorum: usize) -> Self {
        Self {
            quorum,
            acceptors: vec![Acceptor::default(); acceptors],
            proposers: (0..proposers).map(|_| None).collect(),
            known: vec![None; proposers],
            rounds: vec![0; proposers],
            network: Vec::new(),
            now: 0,
            questions: 0,
            done: Vec::new(),
            parents: BTreeMap::new(),
            swapped: BTreeSet::new(),
            refused: BTreeSet::new(),
            doubts: 0,
        }
    }

    fn ballot(&mut self, proposer: usize, above: u64) -> Ballot {
        self.rounds[proposer] = self.rounds[proposer].max(above) + 1;
        Ballot { round: self.rounds[proposer], proposer: proposer as u64 }
    }

    /// One thing that may happen, chosen by the dice.
    fn turn(&mut self, dice: u32) {
        self.now += 1;
        let pick = dice as usize / 16;
        match dice % 16 {
            0 | 1 => self.begin(pick),
            2 if !self.network.is_empty() => {
                // Lost.
                let at = pick % self.network.len();
                self.network.swap_remove(at);
            }
            3 if !self.network.is_empty() => self.deliver(pick % self.network.len(), true),
            4 => self.give_up_on(pick),
            5 if pick.is_multiple_of(4) => self.crash(pick),
            _ if !self.network.is_empty() => self.deliver(pick % self.network.len(), false),
            _ => self.begin(pick),
        }
    }

    fn begin(&mut self, pick: usize) {
        let proposer = pick % self.proposers.len();
        if self.proposers[proposer].is_some() {
            return;
        }
        let is_read = (pick / self.proposers.len()).is_multiple_of(3);
        let expected = self.known[proposer];
        let wish = if is_read {
            ProposedChange::Read
        } else {
            ProposedChange::Swap { expected, value: Vec::new(), summary: String::new() }
        };
        let running = Running {
            proposal: Proposal::with_quorum(self.acceptors.len(), self.quorum, wish),
            question: 0,
            began_at: self.now,
            swap: (!is_read).then_some(expected),
            ours: None,
        };
        let ballot = self.ballot(proposer, 0);
        let running = self.proposers[proposer].insert(running);
        let step = if is_read { running.proposal.look() } else { running.proposal.prepare(ballot) };
        self.step(proposer, step);
    }

    fn deliver(&mut self, at: usize, again: bool) {
        let message = self.network.swap_remove(at);
        match &message {
            Message::Question { acceptor, proposer, question, ask } => {
                let reply = self.acceptors[*acceptor].on(ask);
                self.network.push(Message::Answer {
                    acceptor: *acceptor,
                    proposer: *proposer,
                    question: *question,
                    reply,
                });
            }
            Message::Answer { acceptor, proposer, question, reply } => {
                let running = self.proposers[*proposer].as_mut();
                if let Some(running) = running.filter(|running| running.question == *question) {
                    let step = running.proposal.heard(*acceptor, reply.clone());
                    self.step(*proposer, step);
                }
            }
        }
        if again {
            self.network.push(message);
        }
    }

    /// A proposer stops waiting for one acceptor.
    fn give_up_on(&mut self, pick: usize) {
        let (proposer, acceptor) = (pick % self.proposers.len(), pick / 8 % self.acceptors.len());
        if let Some(running) = &mut self.proposers[proposer] {
            let step = running.proposal.lost(acceptor);
            self.step(proposer, step);
        }
    }

    /// A proposer dies; one that knows nothing takes its place, with other ballots.
    fn crash(&mut self, pick: usize) {
        let proposer = pick / 4 % self.proposers.len();
        self.proposers[proposer] = None;
        self.known[proposer] = None;
    }

    fn step(&mut self, proposer: usize, step: Step) {
        match step {
            Step::Wait => {}
            Step::Ask(ask) => {
                self.questions += 1;
                let question = self.questions;
                let running = self.proposers[proposer].as_mut().expect("it asked");
                running.question = question;
                if let (Ask::Accept(_, entry), Some(expected)) = (&ask, running.swap)
                    && !self.parents.contains_key(&entry.version)
                {
                    // A version not seen before is our own.
                    self.parents.insert(entry.version, expected);
                    running.ours = Some(entry.version);
                }
                for acceptor in 0..self.acceptors.len() {
                    self.network.push(Message::Question {
                        acceptor,
                        proposer,
                        question,
                        ask: ask.clone(),
                    });
                }
            }
            Step::Retry(above) => {
                let ballot = self.ballot(proposer, above.round);
                let running = self.proposers[proposer].as_mut().expect("it asked");
                let step = running.proposal.prepare(ballot);
                self.step(proposer, step);
            }
            Step::Stuck => {
                let running = self.proposers[proposer].take().expect("it asked");
                self.doubts += usize::from(running.proposal.is_shown());
            }
            Step::Answer(outcome) => self.answer(proposer, outcome),
        }
    }

    fn answer(&mut self, proposer: usize, outcome: ProposalOutcome) {
        let running = self.proposers[proposer].take().expect("it asked");
        let mut finish = |version| {
            self.known[proposer] = version;
            self.done.push(Done { began_at: running.began_at, ended_at: self.now, version });
        };
        match outcome {
            ProposalOutcome::Found(entry) => finish(entry.map(|entry: Entry| entry.version)),
            ProposalOutcome::Swapped(version) => {
                finish(Some(version));
                assert!(self.swapped.insert(version), "told twice");
            }
            ProposalOutcome::Conflict => {
                self.known[proposer] = None;
                self.refused.extend(running.ours);
            }
            ProposalOutcome::Doubt => self.doubts += 1,
        }
    }

    /// How many writes lie before a version; none if its line is broken.
    fn depth(&self, version: Option<Ballot>) -> Option<usize> {
        let (mut depth, mut at) = (0, version);
        while let Some(version) = at {
            depth += 1;
            at = *self.parents.get(&version)?;
        }
        Some(depth)
    }

    /// Why the history is not that of one register.
    fn fault(&self) -> Option<String> {
        // Whatever was read or acknowledged happened, and everything before it.
        let mut happened: BTreeSet<Ballot> = self.swapped.clone();
        for done in &self.done {
            let mut at = done.version;
            while let Some(version) = at {
                happened.insert(version);
                match self.parents.get(&version) {
                    Some(parent) => at = *parent,
                    None => return Some(format!("nobody wrote {version}")),
                }
            }
        }
        let mut children: BTreeMap<Option<Ballot>, Ballot> = BTreeMap::new();
        for version in &happened {
            if let Some(other) = children.insert(self.parents[version], *version) {
                return Some(format!("{other} and {version} both replaced the same entry"));
            }
        }
        if let Some(version) = self.refused.intersection(&happened).next() {
            return Some(format!("{version} was refused and happened"));
        }
        for later in &self.done {
            for earlier in self.done.iter().filter(|done| done.ended_at < later.began_at) {
                if self.depth(earlier.version) > self.depth(later.version) {
                    return Some(format!("{earlier:?} was forgotten by {later:?}"));
                }
            }
        }
        None
    }
}

fn world(acceptors: usize, quorum: usize, dice: &[u32]) -> World {
    let mut world = World::new(acceptors, 3, quorum);
    for dice in dice {
        world.turn(*dice);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_majority_of_acceptors_is_one_register(
        acceptors in 1_usize..=5,
        dice in proptest::collection::vec(any::<u32>(), 0..800),
    ) {
        let world = world(acceptors, acceptors / 2 + 1, &dice);
        prop_assert_eq!(world.fault(), None);
    }
}

/// Dice of a plain generator: enough to show what a whole sweep comes to.
fn dice(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 32).expect("32 bits are left")
    };
    (0..count).map(|_| roll()).collect()
}

#[test]
fn writers_really_finish_and_doubts_are_rare() {
    let (mut done, mut swapped, mut refused, mut doubts) = (0, 0, 0, 0);
    for seed in 0..100 {
        let world = world(3, 2, &dice(seed, 2000));
        assert_eq!(world.fault(), None, "seed {seed}");
        done += world.done.len();
        swapped += world.swapped.len();
        refused += world.refused.len();
        doubts += world.doubts;
    }
    // Otherwise the property above would hold because nothing happens.
    assert!(done > 2000 && swapped > 500 && refused > 5, "{done} {swapped} {refused} {doubts}");
    assert!(doubts < swapped, "{doubts} doubts to {swapped} writes");
}

#[test]
fn less_than_a_majority_is_found_out() {
    let broken = (0..200).filter(|seed| world(4, 2, &dice(*seed, 1500)).fault().is_some()).count();
    assert!(broken > 20, "only {broken} of 200 histories were found to be wrong");
}
