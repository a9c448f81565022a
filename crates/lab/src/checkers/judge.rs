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
    /// Arrivals that count, by session.
    heard: BTreeMap<SessionId, Vec<u64>>,
    /// Every sign of life, counted or not, by session.
    signs: BTreeMap<SessionId, Vec<u64>>,
    /// The highest number heard of each session.
    numbers: BTreeMap<SessionId, u64>,
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
                What::Hear { is_heartbeat, session, sequence, clock } => {
                    let judge = judges.judges.entry(judge()).or_default();
                    if *is_heartbeat {
                        judge.hear(*session, *sequence, *clock);
                    }
                    judge.signs.entry(*session).or_default().push(*clock);
                }
                What::Append { session, index, raft_term, clock } => {
                    judges.appended.insert((*index, *raft_term), (event.proc, *clock));
                    // Whoever asks for a change is alive, too.
                    if let Some(session) = session {
                        let judge = judges.judges.entry(event.proc).or_default();
                        judge.hear(*session, None, *clock);
                    }
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
    fn hear(&mut self, session: SessionId, sequence: Option<u64>, clock: u64) {
        if let Some(sequence) = sequence {
            let last = self.numbers.entry(session).or_default();
            // A late duplicate is no sign of life.
            if sequence <= *last {
                return;
            }
            *last = sequence;
        }
        self.heard.entry(session).or_default().push(clock);
    }

    /// The last moment before `clock` from which this judge had to count, and why; none if it did not
    /// judge then, and so knew nothing of anybody.
    ///
    /// Having been away for longer than `away_max` counts, and of signs of life only those that must.
    pub(super) fn counts_from(
        &self,
        session: SessionId,
        clock: u64,
        away_max: u64,
    ) -> Option<(u64, &'static str)> {
        let is_then = |(from, until): &&(u64, u64)| *from <= clock && clock <= *until;
        let (since, _) = self.serving.iter().find(is_then)?;
        let last = |moments: &[u64]| moments.iter().copied().filter(|at| *at < clock).max();
        let is_gap = |(at, away): &&(u64, u64)| *at <= clock && *away > away_max;
        let gap = self.gaps.iter().filter(is_gap).map(|(at, _)| *at).max();
        let heard = self.heard.get(&session).map_or(&[][..], Vec::as_slice);
        [
            (Some(*since), "it began to judge"),
            (gap, "it had been away"),
            (last(heard), "it was heard"),
        ]
        .into_iter()
        .filter_map(|(at, why)| Some((at?, why)))
        .max()
    }

    /// The last sign of life before `clock`, even one that need not count.
    pub(super) fn last_sign(&self, session: SessionId, clock: u64) -> u64 {
        let signs = self.signs.get(&session).into_iter().flatten();
        signs.copied().filter(|at| *at <= clock).max().unwrap_or(0)
    }
}
