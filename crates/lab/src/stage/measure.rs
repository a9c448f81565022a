//! What a run comes to, in figures. Everything is counted from the record.

use std::collections::BTreeMap;

use super::record::{FenceSays, StageRecord, What};
use crate::protocols::NodeId;

/// One stretch of time in which a node acted as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    pub node: NodeId,
    pub tenure: u64,
    /// Its term, if there are any.
    pub term: Option<u64>,
    /// From when, in nanoseconds.
    pub from: u64,
    pub until: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How many tenures began.
    pub elections: u64,
    /// Messages sent to elect somebody.
    pub messages: u64,
    /// Their payload.
    pub bytes: u64,
    /// Messages sent because all was well.
    pub upkeep_messages: u64,
    /// Their payload.
    pub upkeep_bytes: u64,
    /// By kind: how many, and how many bytes.
    pub kinds: BTreeMap<&'static str, (u64, u64)>,
    /// How long each vacancy lasted that ended, the first one from the start; in nanoseconds.
    pub vacancies_ns: Vec<u64>,
    /// How long the vacancy had lasted that had not ended when the run did.
    pub unfilled_ns: Option<u64>,
    /// How long nobody acted as leader.
    pub leaderless_ns: u64,
    /// How long more than one did.
    pub two_leaders_ns: u64,
    /// Writes that reached the storage.
    pub writes: u64,
    /// Those that were wrong, where nobody checks.
    pub wrong_writes: u64,
    /// Those that were wrong and passed a fence.
    pub wrong_writes_fenced: u64,
    /// Those that a fence refused.
    pub refused_writes: u64,
}

/// Who acted as leader when, in order of beginning.
#[must_use]
pub fn reigns(record: &StageRecord) -> Vec<Reign> {
    let mut open: BTreeMap<NodeId, Reign> = BTreeMap::new();
    let mut done = Vec::new();
    for entry in &record.entries {
        match &entry.what {
            What::Leads { node, tenure, term, .. } => {
                let (from, until) = (entry.at, record.ended_at);
                let reign = Reign { node: *node, tenure: *tenure, term: *term, from, until };
                open.insert(*node, reign);
            }
            What::Ceases { node, .. } => {
                if let Some(reign) = open.remove(node) {
                    done.push(Reign { until: entry.at, ..reign });
                }
            }
            _ => {}
        }
    }
    done.extend(open.into_values());
    done.sort_by_key(|reign| (reign.from, reign.node));
    done
}

/// Counts everything.
#[must_use]
pub fn figures(record: &StageRecord) -> Figures {
    figures_from(record, 0)
}

/// Counts everything from some moment on, in nanoseconds, as if the run had begun then.
#[must_use]
pub fn figures_from(record: &StageRecord, from: u64) -> Figures {
    let mut figures = Figures::default();
    for entry in record.entries.iter().filter(|entry| entry.at >= from) {
        match &entry.what {
            What::Sends { kind, bytes, is_upkeep, .. } => {
                let bytes = *bytes as u64;
                let of_kind = figures.kinds.entry(kind).or_default();
                *of_kind = (of_kind.0 + 1, of_kind.1 + bytes);
                if *is_upkeep {
                    figures.upkeep_messages += 1;
                    figures.upkeep_bytes += bytes;
                } else {
                    figures.messages += 1;
                    figures.bytes += bytes;
                }
            }
            What::Leads { is_again: false, .. } => figures.elections += 1,
            What::Writes { is_wrong, fence, .. } => {
                figures.writes += 1;
                figures.wrong_writes += u64::from(*is_wrong);
                let passed_wrongly = match fence {
                    FenceSays::AdmittedWrongly => true,
                    FenceSays::NoTerm => *is_wrong,
                    FenceSays::Admitted | FenceSays::Refused => false,
                };
                figures.wrong_writes_fenced += u64::from(passed_wrongly);
                figures.refused_writes += u64::from(*fence == FenceSays::Refused);
            }
            _ => {}
        }
    }
    count_times(&reigns(record), from, record.ended_at, &mut figures);
    figures
}

/// Walks over every instant at which somebody begins or ends, and adds up what lies between.
fn count_times(reigns: &[Reign], began_at: u64, ended_at: u64, figures: &mut Figures) {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for reign in reigns.iter().filter(|reign| reign.from.max(began_at) < reign.until) {
        changes.extend([(reign.from.max(began_at), 1), (reign.until, -1)]);
    }
    // At one instant ends come before beginnings: a hand-over is no overlap.
    changes.sort_unstable();
    let (mut before, mut acting) = (began_at, 0_i64);
    let mut vacant_since = Some(began_at);
    for (at, change) in changes {
        match acting {
            0 => figures.leaderless_ns += at - before,
            1 => {}
            _ => figures.two_leaders_ns += at - before,
        }
        before = at;
        acting += change;
        if acting == 0 {
            vacant_since = Some(at);
        } else if let Some(since) = vacant_since.take()
            && at > since
        {
            figures.vacancies_ns.push(at - since);
        }
    }
    figures.unfilled_ns =
        vacant_since.map(|since| ended_at.saturating_sub(since)).filter(|time| *time > 0);
    match acting {
        0 => figures.leaderless_ns += ended_at.saturating_sub(before),
        1 => {}
        _ => figures.two_leaders_ns += ended_at.saturating_sub(before),
    }
}

impl Figures {
    /// Messages per election, to one decimal; none without an election.
    #[must_use]
    pub fn messages_per_election(&self) -> Option<f64> {
        (self.elections > 0).then(|| self.messages as f64 / self.elections as f64)
    }

    /// The vacancy that this share of all were not longer than, in nanoseconds.
    #[must_use]
    pub fn vacancy_at(&self, percent: u32) -> Option<u64> {
        let mut sorted = self.vacancies_ns.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reign(node: u16, from: u64, until: u64) -> Reign {
        Reign { node: NodeId(node), tenure: 1, term: None, from, until }
    }

    #[test]
    fn time_is_nobodys_or_one_nodes_or_two_nodes() {
        let mut figures = Figures::default();
        count_times(&[reign(0, 10, 50), reign(1, 40, 60), reign(0, 70, 90)], 0, 100, &mut figures);
        assert_eq!((figures.leaderless_ns, figures.two_leaders_ns), (10 + 10 + 10, 10));
        assert_eq!(
            (figures.vacancies_ns.as_slice(), figures.unfilled_ns),
            (&[10, 10][..], Some(10))
        );
        assert_eq!((figures.vacancy_at(50), figures.vacancy_at(99)), (Some(10), Some(10)));
    }

    #[test]
    fn counted_from_a_moment_on_a_run_begins_then() {
        let mut figures = Figures::default();
        let reigns = [reign(0, 10, 50), reign(1, 40, 60), reign(0, 70, 80)];
        count_times(&reigns, 45, 80, &mut figures);
        assert_eq!((figures.leaderless_ns, figures.two_leaders_ns), (10, 5));
        assert_eq!((figures.vacancies_ns.as_slice(), figures.unfilled_ns), (&[10][..], None));
    }

    #[test]
    fn a_handover_at_one_instant_is_neither_a_gap_nor_an_overlap() {
        let mut figures = Figures::default();
        count_times(&[reign(0, 0, 50), reign(1, 50, 100)], 0, 100, &mut figures);
        assert_eq!((figures.leaderless_ns, figures.two_leaders_ns), (0, 0));
        assert!(figures.vacancies_ns.is_empty());
    }
}
