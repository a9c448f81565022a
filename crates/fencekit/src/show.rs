//! A run, for people and for programs.

use serde_json::{Value, json};

use crate::{FenceFault, FenceVerdict, Tally, TrialOptions, TrialReport};

/// A run that has ended, and what it was.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// What the target is, without any password.
    pub kind: &'a str,
    /// What was run.
    pub options: &'a TrialOptions,
    /// What it came to.
    pub report: &'a TrialReport,
    /// How long it took, in words.
    pub took: &'a str,
}

impl Shown<'_> {
    /// For programs.
    #[must_use]
    pub fn object(&self) -> Value {
        let Tally { trials, accepted, refused, uncertain, failed, unread, looks, faults, stale } =
            self.report.tally;
        let told: Vec<Value> = self.report.faults.iter().map(fault).collect();
        json!({
            "target": self.kind,
            "verdict": self.report.verdict().word(),
            "seed": self.options.seed,
            "is_fenced": self.options.is_fenced,
            "trials": trials,
            "accepted": accepted,
            "refused": refused,
            "uncertain": uncertain,
            "failed": failed,
            "reads": looks,
            "reads_failed": unread,
            "faults": faults,
            "stale_writes": stale,
            "told": told,
            "errors": self.report.errors,
        })
    }

    /// For people: the first faults and errors, the figures, and how to run it again.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { kind, options, report, took } = self;
        let Tally { trials, accepted, refused, uncertain, failed, faults, stale, .. } =
            report.tally;
        let mut lines: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
        let more = faults.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.extend(report.errors.iter().map(|error| format!("error: {error}")));
        let how = if options.is_fenced { "fenced" } else { "without the fence" };
        let (word, seed) = (report.verdict().word(), options.seed);
        lines.push(format!(
            "{word}: {kind}, {how}: {trials} trials by seed {seed} in {took}: {stale} stale writes; \
             {accepted} writes accepted, {refused} refused, {uncertain} uncertain, {failed} failed"
        ));
        match report.verdict() {
            FenceVerdict::Pass => {}
            FenceVerdict::Fail => lines.push(format!(
                "the same again: regent fence test TARGET --trials {} --seed {seed}{}",
                options.trials,
                if options.is_fenced { "" } else { " --unfenced" }
            )),
            FenceVerdict::Void => lines.push(
                "too little happened to say anything: writes must be accepted, stale ones refused, and few may fail"
                    .to_owned(),
            ),
        }
        lines.join("\n")
    }
}

fn fault(fault: &FenceFault) -> Value {
    json!({"resource": fault.resource, "code": fault.kind.word(), "how": fault.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_something_to_judge() {
        let report = |tally| TrialReport { tally, ..TrialReport::default() };
        let good = Tally { trials: 10, accepted: 20, refused: 5, ..Tally::default() };
        assert_eq!(report(good).verdict(), FenceVerdict::Pass);
        assert_eq!(report(Tally { refused: 0, ..good }).verdict(), FenceVerdict::Void);
        let bad = Tally { faults: 1, stale: 1, ..good };
        assert_eq!(report(bad).verdict(), FenceVerdict::Fail);
        assert_eq!(report(Tally { accepted: 0, ..bad }).verdict(), FenceVerdict::Fail);
    }
}
