//! One register that many acceptors keep together: the rules, without a clock or a network.
//!
//! Single-decree Paxos, run again and again over one entry (Rystsov's CASPaxos): a proposer draws a
//! ballot above all it knows, asks a majority to promise it, takes the newest entry any of them
//! accepted, changes it or not, and asks them to accept the result under its ballot. Two majorities
//! share an acceptor, so of two proposers with the same view one is refused.
//!
//! What the textbook leaves open is the proposer that was refused *after* it showed its entry to
//! somebody: another may have found it, made it the truth and built on it. So an entry carries the
//! versions it descends from, and the proposer looks for its own among them before it says "no". Only
//! if too many writes lie in between does it have to say "perhaps".
//!
//! The classic Redlock was not taken: it locks, but nobody can say whose lock is newer, because it
//! yields no number that rises.

use std::collections::BTreeMap;
use std::fmt;

/// Versions an entry remembers to descend from: 2 kB. Writers that race are settled by it; a writer that
/// was overtaken by more than this while it rested has to say that it does not know.
pub(super) const ANCESTORS_MAX: usize = 63;

/// The number of an attempt. No two attempts have the same, because no two proposers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ballot {
    pub(super) round: u64,
    pub(super) proposer: u64,
}

impl fmt::Display for Ballot {
    /// As many digits for all, so that texts are ordered as ballots are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.round, self.proposer)
    }
}

impl Ballot {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let part = |range| u64::from_str_radix(text.get(range)?, 16).ok();
        (text.len() == 32).then_some(())?;
        Some(Self { round: part(0..16)?, proposer: part(16..32)? })
    }
}

/// An entry as acceptors keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The ballot under which it was first proposed; later ballots only repeat it.
    pub(super) version: Ballot,
    /// The versions before it, newest first. Complete if there are fewer than [`ANCESTORS_MAX`].
    pub(super) ancestors: Vec<Ballot>,
    pub(super) value: Vec<u8>,
    /// Shown to people; nothing is decided by it.
    pub(super) summary: String,
}

/// What an acceptor accepted last, and under which ballot.
pub(super) type Accepted = Option<(Ballot, Entry)>;

/// What is asked of every acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// What have you accepted?
    Look,
    /// Promise to refuse lower ballots, and tell what you accepted.
    Prepare(Ballot),
    /// Accept this, unless you promised a higher ballot.
    Accept(Ballot, Entry),
}

/// What an acceptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// To a look or a promise kept.
    Holds(Accepted),
    Accepted,
    /// It promised this higher ballot to somebody.
    Refused(Ballot),
}

/// What is to come of it.
#[derive(Clone, Debug)]
pub(super) enum ProposedChange {
    Read,
    /// Ours instead of the version expected; with none, if there is no entry.
    Swap {
        expected: Option<Ballot>,
        value: Vec<u8>,
        summary: String,
    },
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProposalOutcome {
    Found(Option<Entry>),
    Swapped(Ballot),
    /// Not swapped, and never will be.
    Conflict,
    /// Shown to somebody, and then lost sight of.
    Doubt,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask all acceptors. Answers to earlier questions no longer matter.
    Ask(Ask),
    /// Wait for more answers.
    Wait,
    /// Somebody else is at it: call [`Proposal::prepare`] with a ballot above this one, after a while.
    Retry(Ballot),
    /// No majority will answer.
    Stuck,
    Answer(ProposalOutcome),
}

/// One wish on its way.
#[derive(Debug)]
pub(super) struct Proposal {
    acceptors: usize,
    quorum: usize,
    wish: ProposedChange,
    /// The version of our own entry, once an acceptor may have seen it.
    shown: Option<Ballot>,
    phase: Phase,
    /// Who answered the present question, and who cannot be heard.
    answers: BTreeMap<usize, Option<Reply>>,
}

#[derive(Clone, Debug)]
enum Phase {
    Looking,
    Preparing(Ballot),
    /// What is to be said once a majority has accepted.
    Accepting(ProposalOutcome),
}

impl Proposal {
    /// A wish to `acceptors` of them.
    pub(super) fn new(acceptors: usize, wish: ProposedChange) -> Self {
        Self::with_quorum(acceptors, acceptors / 2 + 1, wish)
    }

    /// The same with another quorum, to show that a smaller one does not do.
    pub(super) fn with_quorum(acceptors: usize, quorum: usize, wish: ProposedChange) -> Self {
        let answers = BTreeMap::new();
        Self { acceptors, quorum, wish, shown: None, phase: Phase::Looking, answers }
    }

    /// The cheapest first question of a read: if a majority holds the same, no other may be the truth.
    pub(super) fn look(&mut self) -> Step {
        self.ask(Phase::Looking, Ask::Look)
    }

    /// The first question of an attempt, under a ballot that was never used.
    pub(super) fn prepare(&mut self, ballot: Ballot) -> Step {
        self.ask(Phase::Preparing(ballot), Ask::Prepare(ballot))
    }

    /// An answer to the present question.
    pub(super) fn heard(&mut self, acceptor: usize, reply: Reply) -> Step {
        self.answers.entry(acceptor).or_insert(Some(reply));
        self.turn()
    }

    /// There will be no answer to the present question.
    pub(super) fn lost(&mut self, acceptor: usize) -> Step {
        self.answers.entry(acceptor).or_insert(None);
        self.turn()
    }

    /// Whether an acceptor may have seen our entry: if so, giving up leaves a doubt.
    pub(super) const fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    fn ask(&mut self, phase: Phase, ask: Ask) -> Step {
        self.phase = phase;
        self.answers.clear();
        Step::Ask(ask)
    }

    fn turn(&mut self) -> Step {
        let mut held = Vec::new();
        let mut accepted = 0;
        let mut highest: Option<Ballot> = None;
        for reply in self.answers.values() {
            match reply {
                None => {}
                Some(Reply::Holds(entry)) => held.push(entry.clone()),
                Some(Reply::Accepted) => accepted += 1,
                Some(Reply::Refused(ballot)) => highest = highest.max(Some(*ballot)),
            }
        }
        let agreed = held.len().max(accepted);
        if agreed >= self.quorum {
            return match self.phase.clone() {
                Phase::Looking => look_at(&held),
                Phase::Preparing(ballot) => {
                    let newest = held.into_iter().flatten().max_by_key(|(accepted, _)| *accepted);
                    self.decide(ballot, newest.map(|(_, entry)| entry))
                }
                Phase::Accepting(outcome) => Step::Answer(outcome),
            };
        }
        let silent = self.acceptors - self.answers.len();
        match highest {
            _ if agreed + silent >= self.quorum => Step::Wait,
            Some(ballot) => Step::Retry(ballot),
            None => Step::Stuck,
        }
    }

    /// What to do about the entry that may be the truth, now that nobody with a lower ballot can change it.
    fn decide(&mut self, ballot: Ballot, held: Option<Entry>) -> Step {
        let ProposedChange::Swap { expected, value, summary } = &self.wish else {
            // What was found is made the truth before it is told: it might have been one acceptor's only.
            return match held {
                None => Step::Answer(ProposalOutcome::Found(None)),
                Some(entry) => {
                    self.repeat(ballot, entry.clone(), ProposalOutcome::Found(Some(entry)))
                }
            };
        };
        let version = held.as_ref().map(|entry| entry.version);
        if version == *expected {
            // Ours keeps its version when it is shown again.
            let version = *self.shown.get_or_insert(ballot);
            let before = held
                .into_iter()
                .flat_map(|entry| std::iter::once(entry.version).chain(entry.ancestors));
            let ancestors = before.take(ANCESTORS_MAX).collect();
            let entry =
                Entry { version, ancestors, value: value.clone(), summary: summary.clone() };
            return self.repeat(ballot, entry, ProposalOutcome::Swapped(version));
        }
        let outcome = match (self.shown, &held) {
            (None, _) => ProposalOutcome::Conflict,
            (Some(_), None) => ProposalOutcome::Doubt,
            (Some(ours), Some(entry)) => settle(ours, *expected, entry),
        };
        match held {
            Some(entry) if outcome != ProposalOutcome::Doubt => self.repeat(ballot, entry, outcome),
            Some(_) | None => Step::Answer(outcome),
        }
    }

    fn repeat(&mut self, ballot: Ballot, entry: Entry, outcome: ProposalOutcome) -> Step {
        self.ask(Phase::Accepting(outcome), Ask::Accept(ballot, entry))
    }
}

/// What a majority shows without any promise: the truth if all hold the same, otherwise a write is on
/// its way and must be helped or ended.
fn look_at(held: &[Accepted]) -> Step {
    let ballots: Vec<_> =
        held.iter().map(|held| held.as_ref().map(|(ballot, _)| *ballot)).collect();
    if ballots.windows(2).all(|pair| pair[0] == pair[1]) {
        let entry = held.first().cloned().flatten().map(|(_, entry)| entry);
        return Step::Answer(ProposalOutcome::Found(entry));
    }
    Step::Retry(ballots.into_iter().flatten().max().unwrap_or_default())
}

/// What became of our entry, shown once, if this one is made the truth.
fn settle(ours: Ballot, expected: Option<Ballot>, held: &Entry) -> ProposalOutcome {
    if held.version == ours || held.ancestors.contains(&ours) {
        return ProposalOutcome::Swapped(ours);
    }
    // The line from what we expected to what is held is known, and we are not in it.
    let is_known = match expected {
        Some(expected) => held.ancestors.contains(&expected),
        None => held.ancestors.len() < ANCESTORS_MAX,
    };
    if is_known { ProposalOutcome::Conflict } else { ProposalOutcome::Doubt }
}

/// An acceptor: what the script in Redis does, for simulations.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptor {
    promised: Ballot,
    accepted: Accepted,
}

#[cfg(test)]
impl Acceptor {
    pub(super) fn on(&mut self, ask: &Ask) -> Reply {
        match ask {
            Ask::Look => Reply::Holds(self.accepted.clone()),
            Ask::Prepare(ballot) | Ask::Accept(ballot, _) if *ballot < self.promised => {
                Reply::Refused(self.promised)
            }
            Ask::Prepare(ballot) => {
                self.promised = *ballot;
                Reply::Holds(self.accepted.clone())
            }
            Ask::Accept(ballot, entry) => {
                self.promised = *ballot;
                self.accepted = Some((*ballot, entry.clone()));
                Reply::Accepted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ballot(round: u64, proposer: u64) -> Ballot {
        Ballot { round, proposer }
    }

    fn swap(expected: Option<Ballot>) -> ProposedChange {
        ProposedChange::Swap { expected, value: b"x".to_vec(), summary: String::new() }
    }

    #[test]
    fn texts_are_ordered_as_ballots_are() {
        let mut ballots = [ballot(2, 0), ballot(1, u64::MAX), ballot(10, 3), ballot(2, 16)];
        ballots.sort_unstable();
        let texts: Vec<_> = ballots.iter().map(Ballot::to_string).collect();
        assert!(texts.is_sorted(), "{texts:?}");
        assert_eq!(
            texts.iter().map(|text| Ballot::parse(text).unwrap()).collect::<Vec<_>>(),
            ballots
        );
        for wrong in ["", "12", "g".repeat(32).as_str(), "0".repeat(33).as_str()] {
            assert_eq!(Ballot::parse(wrong), None);
        }
    }

    #[test]
    fn a_writer_that_was_overtaken_after_it_was_found_learns_that_it_won() {
        let ours = ballot(1, 1);
        let entry = |ancestors| Entry {
            version: ballot(3, 2),
            ancestors,
            value: Vec::new(),
            summary: String::new(),
        };
        assert_eq!(settle(ours, None, &entry(vec![ours])), ProposalOutcome::Swapped(ours));
        assert_eq!(settle(ours, None, &entry(vec![ballot(2, 2)])), ProposalOutcome::Conflict);
        let far = entry((0..ANCESTORS_MAX as u64).map(|round| ballot(100 - round, 2)).collect());
        assert_eq!(
            settle(ours, None, &far),
            ProposalOutcome::Doubt,
            "too many writes lie in between"
        );
        assert_eq!(settle(ours, Some(ballot(90, 2)), &far), ProposalOutcome::Conflict);
    }

    #[test]
    fn without_a_majority_nothing_is_said_to_have_happened() {
        let mut proposal = Proposal::new(3, swap(None));
        proposal.prepare(ballot(1, 1));
        assert_eq!(proposal.lost(0), Step::Wait);
        assert_eq!(proposal.lost(1), Step::Stuck);
        assert!(!proposal.is_shown(), "only promises were asked for");

        let mut proposal = Proposal::new(3, swap(None));
        proposal.prepare(ballot(1, 1));
        assert_eq!(proposal.heard(0, Reply::Holds(None)), Step::Wait);
        assert!(matches!(proposal.heard(1, Reply::Holds(None)), Step::Ask(Ask::Accept(..))));
        assert!(proposal.is_shown());
        assert_eq!(proposal.lost(0), Step::Wait);
        assert_eq!(proposal.heard(1, Reply::Refused(ballot(5, 2))), Step::Retry(ballot(5, 2)));
    }
}
