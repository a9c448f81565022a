//! From a row of findings to a verdict, with hysteresis. Pure.

use std::time::Duration;

use super::Finding;

/// How often to look, and how many results in a row change a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The pause between two looks.
    pub every: Duration,
    /// How long one look may take.
    pub timeout: Duration,
    /// So many failures in a row make it ill.
    pub ill_after: u32,
    /// So many successes in a row make it well again. More than it takes to be ill: a process that
    /// comes and goes should rather not lead.
    pub well_after: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { every: second, timeout: second, ill_after: 3, well_after: 5 }
    }
}

/// Whether a process may lead, as far as one check is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthVerdict {
    /// It may.
    Well,
    /// It must not.
    Ill,
}

/// Counts findings. The first one is believed: who has not been looked at does not lead.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    thresholds: Thresholds,
    verdict: Option<HealthVerdict>,
    /// Findings in a row that speak against the verdict.
    against: u32,
}

impl Gate {
    /// A gate with these thresholds; a threshold of zero counts as one.
    #[must_use]
    pub(super) const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, verdict: None, against: 0 }
    }

    /// Takes a finding; says the verdict if it has changed.
    pub(super) fn take(&mut self, finding: &Finding) -> Option<HealthVerdict> {
        let (says, needed) = match finding {
            Finding::Well => (HealthVerdict::Well, self.thresholds.well_after),
            Finding::Ill(_) => (HealthVerdict::Ill, self.thresholds.ill_after),
        };
        if self.verdict == Some(says) {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.verdict.is_some() && self.against < needed {
            return None;
        }
        self.against = 0;
        self.verdict = Some(says);
        Some(says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` is a look that found all well, `-` one that did not. Shows the verdict after each.
    fn verdicts(ill_after: u32, well_after: u32, looks: &str) -> String {
        let mut gate = Gate::new(Thresholds { ill_after, well_after, ..Thresholds::default() });
        let after = |look: char| {
            let finding =
                if look == '+' { Finding::Well } else { Finding::Ill("because".to_owned()) };
            let before = gate.verdict;
            let changed = gate.take(&finding);
            assert_eq!(changed.is_some(), gate.verdict != before, "told exactly when it changes");
            if gate.verdict == Some(HealthVerdict::Well) { '+' } else { '-' }
        };
        looks.chars().map(after).collect()
    }

    #[test]
    fn one_bad_look_deposes_nobody_and_one_good_look_restores_nobody() {
        assert_eq!(verdicts(3, 5, "+-+--+"), "++++++");
        assert_eq!(verdicts(3, 5, "+---"), "+++-");
        assert_eq!(verdicts(3, 5, "+---++++-+++++"), "+++----------+");
    }

    #[test]
    fn the_first_look_is_believed() {
        assert_eq!(verdicts(3, 5, "-++++"), "-----");
        assert_eq!(verdicts(3, 5, "+--"), "+++");
    }

    #[test]
    fn a_threshold_of_one_believes_every_look() {
        assert_eq!(verdicts(1, 1, "+-+-"), "+-+-");
        assert_eq!(verdicts(0, 0, "+-+-"), "+-+-");
    }

    #[test]
    fn what_comes_and_goes_stays_ill() {
        assert_eq!(verdicts(2, 2, "+--+-+-+-++"), "++--------+");
    }
}
