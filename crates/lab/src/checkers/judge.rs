//! What a Raft leader knew when it judged: whom it had heard and when, on its own clock.

use std::collections::BTreeMap;

use regent_election::SessionId;

use super::Case;
use crate::history::{Proc, What};

/// One replica's run as a judge.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// What its clock showed when it began to judge and when it ceased to, each time.
    serving: Vec<(u64, u64)>,
    /// What its clock showed when it returned from being away, and for how long it was.
    gaps: Vec<(u64, u64)>,
    /// Signs of life that count, by session.
    heard: BTreeMap<SessionId, Vec<Sign>>,
    /// The highest number heard of each session: for certain, and perhaps.
    numbers: BTreeMap<SessionId, (u64, u64)>,
    /// What its clock showed when it had applied everything up to an index.
    applied: BTreeMap<u64, u64>,
}

/// A sign of life, by the judge's clock.
#[derive(Clone, Copy, Debug)]
struct Sign {
    /// When it reached the judge's machine.
    arrived: u64,
    /// When its loop came round to it: a busy one is late, and cannot know how late.
    taken: u64,
    /// Whether it counted. If not, it may have: it spares nobody, and whom it kept is not blamed on the judge.
    is_sure: bool,
}

/// From which moment of a sign of life a judge counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// Nobody may be judged earlier.
    Arrival,
    /// Nobody may be believed in for longer.
    Taking,
}

/// All judges, and who appended which entry.
#[derive(Debug)]
pub(super) struct Judges {
    judges: BTreeMap<Proc, Judge>,
    appended: BTreeMap<(u64, u64), (Proc, u64)>,
    terms: BTreeMap<u64, u64>,
}

impl Judges {
    pub(super) fn of(case: &Case<'_>) -> Self {
        let mut judges =
            Self { judges: BTreeMap::new(), appended: BTreeMap::new(), terms: BTreeMap::new() };
        for event in &case.history.events {
            let judge = || event.proc;
            match &event.what {
                What::Serving { clock } => {
                    judges.judges.entry(judge()).or_default().serving.push((*clock, u64::MAX));
                }
                What::ServingOver { clock } => {
                    let judge = judges.judges.entry(judge()).or_default();
                    if let Some((_, until)) = judge.serving.last_mut() {
                        *until = *clock;
                    }
                }
                What::Gap { clock, away } => {
                    judges.judges.entry(judge()).or_default().gaps.push((*clock, *away));
                }
                // Any other wish counts when it is appended.
                What::Hear { is_heartbeat: false, .. } => {}
                What::Hear { is_heartbeat: true, is_sure, session, sequence, clock, taken } => {
                    let judge = judges.judges.entry(judge()).or_default();
                    let (arrived, taken, is_sure) = (*clock, *taken, *is_sure);
                    judge.heartbeat(*session, *sequence, Sign { arrived, taken, is_sure });
                }
                What::Append { session, index, raft_term, clock } => {
                    judges.appended.insert((*index, *raft_term), (event.proc, *clock));
                    // Whoever asks for a change is alive, too.
                    if let Some(session) = session {
                        let judge = judges.judges.entry(event.proc).or_default();
                        let (arrived, taken) = (*clock, *clock);
                        judge.heartbeat(*session, None, Sign { arrived, taken, is_sure: true });
                    }
                }
                What::Apply { index, clock, .. } => {
                    judges.judges.entry(judge()).or_default().applied.insert(*index, *clock);
                }
                What::Commit { index, raft_term, .. } => {
                    judges.terms.insert(*index, *raft_term);
                }
                _ => {}
            }
        }
        judges
    }

    /// Who appended a committed entry, and what its clock showed.
    pub(super) fn appended(&self, index: u64) -> Option<(&Judge, Proc, u64)> {
        let raft_term = self.terms.get(&index)?;
        let (proc, clock) = self.appended.get(&(index, *raft_term))?;
        Some((self.judges.get(proc)?, *proc, *clock))
    }
}

impl Judge {
    fn heartbeat(&mut self, session: SessionId, sequence: Option<u64>, mut sign: Sign) {
        if let Some(sequence) = sequence {
            let (sure, perhaps) = self.numbers.entry(session).or_default();
            // A late duplicate is no sign of life.
            if sequence <= *sure {
                return;
            }
            sign.is_sure &= sequence > *perhaps;
            *perhaps = sequence.max(*perhaps);
            if sign.is_sure {
                *sure = sequence;
            }
        }
        self.heard.entry(session).or_default().push(sign);
    }

    /// The last moment before `clock` from which this judge had to count, and why; none if it did not
    /// judge then, and so knew nothing of anybody.
    ///
    /// Having been away for longer than `away_max` counts.
    pub(super) fn counts_from(
        &self,
        session: SessionId,
        clock: u64,
        away_max: u64,
        since: Since,
    ) -> Option<(u64, &'static str)> {
        let is_then = |(from, until): &&(u64, u64)| *from <= clock && clock <= *until;
        let (began, _) = self.serving.iter().find(is_then)?;
        let is_gap = |(at, away): &&(u64, u64)| *at <= clock && *away > away_max;
        let gap = self.gaps.iter().filter(is_gap).map(|(at, _)| *at).max();
        let signs = self.heard.get(&session).into_iter().flatten();
        // What was appended in the turn that expired a session came after; what was taken in the turn
        // that made a promise to it came before.
        let heard = signs.filter_map(|sign| match since {
            Since::Arrival => Some(sign.arrived).filter(|at| sign.is_sure && *at < clock),
            Since::Taking => Some(sign.taken).filter(|at| *at <= clock),
        });
        [
            (Some(*began), "it began to judge"),
            (gap, "it had been away"),
            (heard.max(), "it was heard"),
        ]
        .into_iter()
        .filter_map(|(at, why)| Some((at?, why)))
        .max()
    }

    /// What its clock showed when it had applied an entry; none if it never did.
    pub(super) fn applied(&self, index: u64) -> Option<u64> {
        self.applied.range(index..).next().map(|(_, clock)| *clock)
    }
}
