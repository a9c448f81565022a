//! Runs trials against a target, several resources beside each other.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};

use regent::fencing::WriteError;
use regent_election::{FenceError, Term};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::judge::{Done, FenceFault, History, Look, WriteOutcome, judge};
use super::plan::{Dice, Leader, PlannedRest, TRIALS_PER_RESOURCE, Trial, series};
use super::{Order, Pause, Pretender, Rest, Target, Write};

/// Faults that are remembered one by one; the rest is counted.
const FAULTS_TOLD_MAX: usize = 10;
/// Those of one resource: they are much alike.
const FAULTS_TOLD_EACH_MAX: usize = 2;
/// Writes that fail before the first is accepted, and after which nothing more is learnt by going on.
const FAILURES_MAX: u64 = 200;
/// Errors that are remembered.
const ERRORS_TOLD_MAX: usize = 3;
/// What is remembered of one.
const ERROR_CHARACTERS_MAX: usize = 300;

/// What to run.
#[derive(Clone, Debug)]
pub struct TrialOptions {
    /// How many trials.
    pub trials: u64,
    /// Decides what is tried; what races is up to the machine.
    pub seed: u64,
    /// Whether terms are compared. Without, stale writes are to be found.
    pub is_fenced: bool,
    /// How many resources are tried beside each other.
    pub beside: usize,
    /// What the names of the resources open with. A name that was used before has a mark already.
    pub room: String,
    /// The term of the first leader on every resource: above every mark that is there.
    pub first_term: u64,
    /// Whether one mark guards all resources, as a gateway has it: then they are tried one after the other,
    /// each with higher terms than the one before.
    pub has_one_mark: bool,
}

impl TrialOptions {
    /// So many trials by this seed, fenced.
    #[must_use]
    pub fn new(trials: u64, seed: u64, room: impl Into<String>) -> Self {
        Self {
            trials,
            seed,
            is_fenced: true,
            beside: 8,
            room: room.into(),
            first_term: 1,
            has_one_mark: false,
        }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Trials that have ended.
    pub trials: u64,
    /// Writes that were accepted.
    pub accepted: u64,
    /// Writes that were refused for a higher term.
    pub refused: u64,
    /// Writes that may have been made.
    pub uncertain: u64,
    /// Writes that failed for a reason of the target's own.
    pub failed: u64,
    /// Reads that failed, and judged nothing.
    pub unread: u64,
    pub looks: u64,
    /// Whatever must not be.
    pub faults: u64,
    /// Stale writes among them: each that was accepted, and each read that showed one.
    pub stale: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.trials += more.trials;
        self.accepted += more.accepted;
        self.refused += more.refused;
        self.uncertain += more.uncertain;
        self.failed += more.failed;
        self.unread += more.unread;
        self.looks += more.looks;
        self.faults += more.faults;
        self.stale += more.stale;
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct TrialReport {
    pub tally: Tally,
    /// The first faults.
    pub faults: Vec<FenceFault>,
    /// The first errors of the target's own.
    pub errors: Vec<String>,
}

/// What a run says about the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceVerdict {
    /// No stale write, and stale leaders were refused.
    Pass,
    /// It let a stale write pass, or lied.
    Fail,
    /// Too little happened to judge by.
    Void,
}

impl FenceVerdict {
    /// The word for people and programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Void => "void",
        }
    }
}

impl TrialReport {
    /// Whether enough happened to judge by: writes were accepted, somebody came too late (and was refused,
    /// if there is a fence), and hardly anything failed.
    #[must_use]
    pub const fn is_void(&self) -> bool {
        let Tally { accepted, refused, uncertain, failed, unread, stale, .. } = self.tally;
        accepted == 0 || refused + stale == 0 || (uncertain + failed + unread) * 10 > accepted
    }

    /// What the run says about the target.
    #[must_use]
    pub const fn verdict(&self) -> FenceVerdict {
        match (self.tally.faults, self.is_void()) {
            (1.., _) => FenceVerdict::Fail,
            (0, true) => FenceVerdict::Void,
            (0, false) => FenceVerdict::Pass,
        }
    }

    /// Whether the target does nothing at all.
    const fn is_hopeless(&self) -> bool {
        self.tally.accepted == 0 && self.tally.failed + self.tally.uncertain >= FAILURES_MAX
    }

    fn take(&mut self, more: Self) {
        self.tally += more.tally;
        let room = FAULTS_TOLD_MAX.saturating_sub(self.faults.len());
        self.faults.extend(more.faults.into_iter().take(room));
        let room = ERRORS_TOLD_MAX.saturating_sub(self.errors.len());
        self.errors.extend(more.errors.into_iter().take(room));
    }
}

/// Runs trials until there are enough, or the target turns out to do nothing, and tells how far it is.
pub async fn run(
    target: Arc<dyn Target>,
    options: TrialOptions,
    progress: &mut (dyn FnMut(&TrialReport) + Send),
) -> TrialReport {
    let mut whole = TrialReport::default();
    let mut running: JoinSet<TrialReport> = JoinSet::new();
    let mut begun = 0;
    let mut number = 0_u64;
    let mut first_term = options.first_term;
    let beside = if options.has_one_mark { 1 } else { options.beside.max(1) };
    loop {
        while begun < options.trials && running.len() < beside && !whole.is_hopeless() {
            let trials = TRIALS_PER_RESOURCE.min(options.trials - begun);
            // Each resource has dice of its own, so that its plan does not depend on the others.
            let mut dice = Dice::new(options.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)));
            let plan = series(&mut dice, trials, first_term);
            if let Some(last) = plan.last().and_then(|trial| trial.leaders.last())
                && options.has_one_mark
            {
                first_term = last.term + 1;
            }
            let resource = format!("{}-{number}", options.room);
            let stage = Stage {
                target: Arc::clone(&target),
                resource,
                is_fenced: options.is_fenced,
                order: Order::default(),
                seen: Arc::default(),
            };
            running.spawn(stage.play(plan));
            begun += trials;
            number += 1;
        }
        match running.join_next().await {
            Some(Ok(report)) => whole.take(report),
            Some(Err(error)) => {
                whole.tally.failed += 1;
                whole.errors.push(format!("a trial ended early: {error}"));
            }
            None => return whole,
        }
        progress(&whole);
    }
}

/// One resource.
#[derive(Clone)]
struct Stage {
    target: Arc<dyn Target>,
    resource: String,
    is_fenced: bool,
    order: Order,
    seen: Arc<Mutex<Seen>>,
}

/// A leader, and whom it waits for.
struct Role {
    leader: Leader,
    /// Counts the writes of the one before.
    before: Option<watch::Receiver<usize>>,
    /// Counts its own.
    own: Option<watch::Sender<usize>>,
    /// Counts those of its successor.
    successor: Option<watch::Receiver<usize>>,
}

#[derive(Debug, Default)]
struct Seen {
    history: History,
    tally: Tally,
    errors: Vec<String>,
}

impl Seen {
    /// Remembers an error, as one line.
    fn note(&mut self, error: &str) {
        if self.errors.len() < ERRORS_TOLD_MAX {
            let line = error.lines().next().unwrap_or_default();
            self.errors.push(line.chars().take(ERROR_CHARACTERS_MAX).collect());
        }
    }
}

impl Stage {
    async fn play(self, plan: Vec<Trial>) -> TrialReport {
        for trial in plan {
            self.trial(trial).await;
            self.look().await;
            self.seen().tally.trials += 1;
        }
        let mut seen = self.seen();
        let faults = judge(&seen.history);
        let mut tally = seen.tally;
        tally.faults = faults.len() as u64;
        tally.stale = faults.iter().filter(|fault| fault.is_stale()).count() as u64;
        let resource = self.resource.clone();
        let told = faults.into_iter().take(FAULTS_TOLD_EACH_MAX);
        let faults = told.map(|kind| FenceFault { resource: resource.clone(), kind }).collect();
        TrialReport { tally, faults, errors: std::mem::take(&mut seen.errors) }
    }

    async fn trial(&self, trial: Trial) {
        let mut acts: JoinSet<()> = JoinSet::new();
        // How many writes of each leader have ended. A leader drops its own counter when it stops, which
        // wakes whoever waits for it.
        let (mut counters, counts): (Vec<_>, Vec<_>) =
            trial.leaders.iter().map(|_| watch::channel(0_usize)).unzip();
        for (place, leader) in trial.leaders.into_iter().enumerate().rev() {
            let role = Role {
                leader,
                before: place.checked_sub(1).and_then(|place| counts.get(place)).cloned(),
                own: counters.pop(),
                successor: counts.get(place + 1).cloned(),
            };
            acts.spawn(self.clone().act(role));
        }
        if let Some(leader) = trial.straggler {
            acts.spawn(self.clone().act(Role { leader, before: None, own: None, successor: None }));
        }
        while acts.join_next().await.is_some() {}
    }

    async fn act(self, role: Role) {
        let Role { leader, before, own, successor } = role;
        if let Some(mut before) = before {
            // Its end is as good.
            let _ = before.wait_for(|ended| *ended >= leader.begins_after).await;
        }
        for (number, rest) in leader.rests.iter().enumerate() {
            let rest = match (rest, &successor) {
                (PlannedRest::None, _) | (PlannedRest::UntilSucceeded, None) => Rest::None,
                (PlannedRest::For(time), _) => Rest::For(*time),
                (PlannedRest::UntilSucceeded, Some(successor)) => Rest::Until(successor.clone()),
            };
            let is_refused = self.write(&leader, number, rest).await;
            if let Some(own) = &own {
                own.send_modify(|ended| *ended += 1);
            }
            if leader.looks {
                self.look().await;
            }
            if is_refused && !leader.is_stubborn {
                return;
            }
        }
    }

    /// One write; whether it was refused.
    async fn write(&self, leader: &Leader, number: usize, rest: Rest) -> bool {
        let Some(term) = Term::new(leader.term) else { return true };
        let write = Write {
            resource: self.resource.clone(),
            leader: Pretender::new(term),
            // No two writes are alike.
            value: format!("{term}.{number}.{}", self.order.now()),
            is_fenced: self.is_fenced,
            pause: Pause::new(rest, self.order.clone()),
        };
        let begun_at = self.order.now();
        let result = self.target.write(&write).await;
        let ended_at = self.order.now();
        let mut seen = self.seen();
        let (outcome, error) = match result {
            Ok(()) => {
                seen.tally.accepted += 1;
                (WriteOutcome::Accepted, None)
            }
            Err(WriteError::Refused(FenceError::Stale { given, current })) => {
                seen.tally.refused += 1;
                (WriteOutcome::Refused { given: given.get(), current: current.get() }, None)
            }
            Err(error @ WriteError::Uncertain(_)) => {
                seen.tally.uncertain += 1;
                (WriteOutcome::Uncertain, Some(error))
            }
            Err(
                error @ (WriteError::Failed(_) | WriteError::Refused(FenceError::NeverGranted)),
            ) => {
                seen.tally.failed += 1;
                (WriteOutcome::Failed, Some(error))
            }
        };
        if let Some(error) = error {
            seen.note(&error.to_string());
        }
        // A target that failed before its pause never left.
        let left_at = write.pause.left_at().max(begun_at);
        let is_refused = matches!(outcome, WriteOutcome::Refused { .. });
        let shown_at = write.pause.shown_at().unwrap_or(left_at);
        let done =
            Done { term: leader.term, value: write.value, shown_at, left_at, ended_at, outcome };
        seen.history.writes.push(done);
        is_refused
    }

    async fn look(&self) {
        let left_at = self.order.now();
        let read = self.target.read(&self.resource).await;
        let ended_at = self.order.now();
        let mut seen = self.seen();
        match read {
            Ok(value) => {
                seen.tally.looks += 1;
                seen.history.looks.push(Look { left_at, ended_at, value });
            }
            Err(error) => {
                seen.tally.unread += 1;
                seen.note(&error.to_string());
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // A count that a panicking trial left behind is still a count.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::error::Error;

    use async_trait::async_trait;
    use regent_election::Fence;

    use super::*;
    use regent::fencing::{Proof as _, WriteResult};

    /// How a target in memory is wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wrong {
        NotAtAll,
        /// It compares, then sleeps, then writes: what everybody writes first.
        ChecksBeforeThePause,
        /// It compares and never raises.
        NeverRaises,
        /// It refuses the highest term, too.
        RefusesEqual,
        /// It refuses and writes all the same.
        WritesAnyway,
        /// It is not there.
        Fails,
    }

    struct Memory {
        wrong: Wrong,
        /// Whether all resources have one mark.
        has_one_mark: bool,
        rows: Mutex<BTreeMap<String, (Fence, String)>>,
    }

    #[async_trait]
    impl Target for Memory {
        async fn write(&self, write: &Write) -> WriteResult<()> {
            let admit = || {
                let mut rows = self.rows.lock().unwrap();
                let name = if self.has_one_mark { "the mark" } else { &write.resource };
                let row = rows.entry(name.to_owned()).or_default();
                let mut fence = row.0;
                if self.wrong == Wrong::RefusesEqual && fence.mark() == write.leader.term() {
                    let (given, current) = (write.leader.term(), fence.mark());
                    return Err(WriteError::Refused(FenceError::Stale { given, current }));
                }
                let admitted = fence.admit(write.leader.term());
                if self.wrong != Wrong::NeverRaises {
                    row.0 = fence;
                }
                admitted.map_err(WriteError::Refused)
            };
            let put = || {
                let mut rows = self.rows.lock().unwrap();
                rows.entry(write.resource.clone()).or_default().1 = write.value.clone();
            };
            if self.wrong == Wrong::ChecksBeforeThePause && write.is_fenced {
                admit()?;
            }
            write.pause.over().await;
            if self.wrong == Wrong::Fails {
                return Err(crate::failed("nobody is there"));
            }
            if self.wrong != Wrong::ChecksBeforeThePause && write.is_fenced {
                let admitted = admit();
                if self.wrong == Wrong::WritesAnyway {
                    put();
                }
                admitted?;
            }
            put();
            Ok(())
        }

        async fn read(&self, key: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
            let rows = self.rows.lock().unwrap();
            Ok(rows.get(key).map(|row| row.1.clone()).filter(|value| !value.is_empty()))
        }
    }

    async fn tried(wrong: Wrong, is_fenced: bool) -> TrialReport {
        tried_on(wrong, TrialOptions { is_fenced, ..TrialOptions::new(500, 1, "memory") }).await
    }

    async fn tried_on(wrong: Wrong, options: TrialOptions) -> TrialReport {
        let has_one_mark = options.has_one_mark;
        let target = Arc::new(Memory { wrong, has_one_mark, rows: Mutex::default() });
        run(target, options, &mut |_| {}).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_honest_fence_passes_and_stale_leaders_were_there() {
        let report = tried(Wrong::NotAtAll, true).await;
        assert_eq!(report.faults, []);
        assert_eq!(report.tally.trials, 500);
        assert!(report.tally.refused > 200 && report.tally.accepted > 500, "{report:?}");
        assert!(!report.is_void());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_trials_without_a_fence_find_stale_writes() {
        let report = tried(Wrong::NotAtAll, false).await;
        assert!(report.tally.stale > 100, "{report:?}");
        assert_eq!(report.tally.refused, 0);
        assert!(!report.is_void());
    }

    #[tokio::test(start_paused = true)]
    async fn every_wrong_fence_is_found_out() {
        for wrong in [
            Wrong::ChecksBeforeThePause,
            Wrong::NeverRaises,
            Wrong::RefusesEqual,
            Wrong::WritesAnyway,
        ] {
            let report = tried(wrong, true).await;
            assert!(!report.faults.is_empty(), "{wrong:?} passed: {report:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_with_one_mark_for_everything_is_tried_with_terms_that_go_on() {
        let options = TrialOptions { has_one_mark: true, ..TrialOptions::new(500, 1, "memory") };
        let report = tried_on(Wrong::NotAtAll, options.clone()).await;
        assert_eq!(report.faults, []);
        assert!(!report.is_void());
        assert!(tried_on(Wrong::NeverRaises, options).await.tally.stale > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_does_nothing_is_given_up() {
        let report = tried_on(Wrong::Fails, TrialOptions::new(100_000, 1, "memory")).await;
        assert!(report.is_void() && report.tally.trials < 1_000, "{report:?}");
        assert_eq!(report.errors[0], "nothing was written: nobody is there");
    }

    #[test]
    fn a_run_in_which_nothing_happened_proves_nothing() {
        let tally = Tally { accepted: 100, refused: 5, ..Tally::default() };
        let void = |tally| TrialReport { tally, ..TrialReport::default() }.is_void();
        assert!(!void(tally));
        assert!(void(Tally { refused: 0, ..tally }));
        assert!(void(Tally { accepted: 0, ..tally }));
        assert!(void(Tally { failed: 11, ..tally }));
    }
}
