//! Power cuts and killed processes at any moment: what was confirmed is found again, exactly (S10).

use proptest::prelude::*;
use raft::eraftpb::{Entry, HardState};
use regent_replica::disk::Disk;
use regent_replica::disk::error::{SnapshotError, WriteError};
use regent_replica::io::Batch;

use super::model::{Model, entry, found, open};
use super::sim::{Dice, SimFiles};

/// One batch that is asked for.
#[derive(Clone, Debug)]
enum Ask {
    /// Entries, `back` of the uncommitted ones giving way, perhaps of a later Raft term.
    Append { back: u8, count: u8, padding: u8, is_later: bool },
    /// A vote in the next Raft term.
    Vote { who: u8 },
    /// The commit moves on; need not be synced.
    Commit { by: u8 },
    /// A snapshot from the leader.
    Install { ahead: u8, is_later: bool },
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Ask>),
    Snapshot,
    Purge,
    Fill,
    Kill,
    PowerCut,
    /// The power fails so many changes later, in whatever step that is; perhaps while recovering.
    PowerFor(u8),
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        6 => (0..4u8, 1..6u8, 0..60u8, any::<bool>()).prop_map(|(back, count, padding, is_later)| {
            Ask::Append { back, count, padding, is_later }
        }),
        2 => (0..4u8).prop_map(|who| Ask::Vote { who }),
        3 => (0..9u8).prop_map(|by| Ask::Commit { by }),
        1 => (0..9u8, any::<bool>()).prop_map(|(ahead, is_later)| Ask::Install { ahead, is_later }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(ask(), 0..5).prop_map(Step::Write),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Purge),
        1 => Just(Step::Fill),
        1 => Just(Step::Kill),
        1 => Just(Step::PowerCut),
        2 => (1..40u8).prop_map(Step::PowerFor),
    ]
}

struct Run {
    files: SimFiles,
    dice: Dice,
    disk: Option<Disk>,
    model: Model,
}

impl Run {
    fn new(seed: u64) -> Self {
        let files = SimFiles::default();
        let opened = found(&files);
        let model = Model::new(&opened);
        Self { files, dice: Dice(seed), disk: Some(opened.disk), model }
    }

    fn batch(&mut self, ask: &Ask) -> Batch {
        let now = self.model.now();
        let mut hard_state: HardState = now.hard_state.clone();
        let (last, last_term) = now.last();
        match *ask {
            Ask::Append { back, count, padding, is_later } => {
                let back = u64::from(back).min(last - hard_state.commit);
                let term = last_term.max(hard_state.term).max(1) + u64::from(is_later || back > 0);
                let first = last + 1 - back;
                let entries: Vec<Entry> = (first..first + u64::from(count))
                    .map(|index| entry(index, term, padding.into()))
                    .collect();
                let is_known = hard_state.term == term;
                if !is_known {
                    (hard_state.term, hard_state.vote) = (term, 0);
                }
                self.model.batch(entries, (!is_known).then_some(hard_state))
            }
            Ask::Vote { who } => {
                (hard_state.term, hard_state.vote) = (hard_state.term + 1, who.into());
                self.model.batch(Vec::new(), Some(hard_state))
            }
            Ask::Commit { by } => {
                hard_state.commit = (hard_state.commit + u64::from(by)).min(last);
                self.model.batch(Vec::new(), Some(hard_state))
            }
            Ask::Install { ahead, is_later } => {
                self.model.install(ahead.into(), hard_state.term + u64::from(is_later))
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let done = match step {
            Step::Write(asks) => self.write(asks),
            Step::Snapshot => self.snapshot(),
            Step::Purge => self.disk().purge().map(|_| ()),
            Step::Fill => self.disk().reserve().fill().map(|_| ()),
            Step::Kill => return self.kill(),
            Step::PowerCut => return self.power_cut(),
            Step::PowerFor(calls) => {
                self.files.power_for((*calls).into());
                return;
            }
        };
        if let Err(error) = done {
            assert!(matches!(error, WriteError::Fatal { .. }), "{error}");
            assert!(error.to_string().contains("power"), "{error}");
            // A process that is killed in the middle leaves the same, but what it did stays.
            if self.dice.below(3) == 0 { self.kill() } else { self.power_cut() }
        }
    }

    fn disk(&mut self) -> &mut Disk {
        self.disk.as_mut().unwrap()
    }

    fn write(&mut self, asks: &[Ask]) -> Result<(), WriteError> {
        let batches: Vec<Batch> = asks.iter().map(|ask| self.batch(ask)).collect();
        let must_sync = batches.iter().any(|batch| batch.must_sync);
        let last = batches.last().map(|batch| batch.number);
        let syncs = self.files.syncs();
        let confirmed = self.disk().write(&batches)?;
        assert_eq!(confirmed, last);
        let is_plain = batches.iter().all(|batch| batch.snapshot.is_none());
        if is_plain && !must_sync && self.disk().segments() == 1 {
            assert_eq!(self.files.syncs(), syncs, "nothing that must be synced, no sync");
        }
        self.model.confirmed = self.model.states.len() - 1;
        if must_sync {
            self.model.durable = self.model.confirmed;
        }
        if !is_plain {
            self.model.kept = self.model.snapshots.len() - 1;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), WriteError> {
        let Some(task) = self.model.task() else { return Ok(()) };
        match self.disk().snapshots().make(&task) {
            Ok(_) => {
                self.model.kept = self.model.snapshots.len() - 1;
                Ok(())
            }
            Err(SnapshotError::Write(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    fn kill(&mut self) {
        self.disk = None;
        self.files.kill();
        let confirmed = self.model.confirmed;
        self.reopen(confirmed);
    }

    fn power_cut(&mut self) {
        self.disk = None;
        self.files.power_cut(&mut self.dice);
        let durable = self.model.durable;
        self.reopen(durable);
    }

    fn reopen(&mut self, mut oldest_allowed: usize) {
        if self.dice.below(4) == 0 {
            self.files.power_for(1 + self.dice.below(12));
        }
        loop {
            match open(&self.files) {
                Ok(opened) => {
                    let state = self.model.check(&opened, oldest_allowed);
                    self.model.resume(&opened, state);
                    self.disk = Some(opened.disk);
                    return;
                }
                Err(error) => {
                    assert!(error.to_string().contains("power"), "{error}");
                    if self.dice.below(3) == 0 {
                        self.files.kill();
                    } else {
                        self.files.power_cut(&mut self.dice);
                        oldest_allowed = self.model.durable;
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_confirmed_is_found_again_whatever_the_power_does(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut run = Run::new(seed);
        for step in &steps {
            run.step(step);
        }
        run.step(&Step::PowerCut);
        run.step(&Step::Kill);
    }
}

/// A life with everything in it: conflicts, votes, snapshots of both kinds, several segments.
fn a_full_life() -> Vec<Step> {
    let append = |back, count, is_later| Ask::Append { back, count, padding: 50, is_later };
    let mut steps = vec![Step::Fill];
    for round in 0..6u8 {
        steps.push(Step::Write(vec![append(0, 5, false), Ask::Commit { by: 3 }]));
        steps.push(Step::Write(vec![append(2, 3, true), Ask::Vote { who: 2 }, append(0, 5, true)]));
        steps.push(Step::Write(vec![Ask::Commit { by: 4 }]));
        steps.push(Step::Snapshot);
        steps.push(Step::Purge);
        if round % 3 == 2 {
            steps.push(Step::Write(vec![
                append(0, 2, false),
                Ask::Install { ahead: 20, is_later: true },
                append(0, 2, false),
            ]));
            steps.push(Step::Purge);
        }
        steps.push(Step::Fill);
    }
    steps
}

#[test]
fn a_power_cut_at_every_single_change_loses_nothing_confirmed() {
    let mut whole = Run::new(0);
    let from = whole.files.calls();
    a_full_life().iter().for_each(|step| whole.step(step));
    let calls = whole.files.calls() - from;
    assert!(calls > 150, "only {calls} changes");
    for cut in 1..=calls {
        for seed in 0..3 {
            let mut run = Run::new(seed << 32 | cut as u64);
            run.files.power_for(cut);
            for step in &a_full_life() {
                run.step(step);
            }
        }
    }
}

#[test]
fn founding_that_is_cut_short_is_begun_again() {
    let trial = SimFiles::default();
    found(&trial);
    for cut in 1..=trial.calls() {
        for seed in 0..4 {
            let (files, mut dice) = (SimFiles::default(), Dice(seed << 32 | cut as u64));
            files.power_for(cut);
            let refused = super::model::try_found(&files);
            assert!(refused.is_err(), "cut at {cut}");
            files.power_cut(&mut dice);
            // Either it is founded, or it says that it is not and can be founded.
            match open(&files) {
                Ok(opened) => assert!(opened.recovered.entries.is_empty()),
                Err(error) => {
                    let text = error.to_string();
                    let may_found = text.contains("found");
                    assert!(may_found, "cut at {cut}: {text}");
                    found(&files);
                }
            }
        }
    }
}
