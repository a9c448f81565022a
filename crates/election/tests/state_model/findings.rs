//! The model's findings: of all lines ever told, those that are kept.

use regent_election::limits::FINDINGS_PER_GROUP_MAX;
use regent_election::{Answer, Cause, Finding, Group, Reason, Refusal};

use super::model::Model;
use super::verbs::Verdict;

impl Model {
    pub(crate) fn report(&mut self, name: &Group, finding: Finding, reason: &Reason) -> Verdict {
        self.must_live_here(name)?;
        let Some(group) = self.group(name) else {
            return Err(Refusal::GroupUnknown { group: name.clone() });
        };
        let cause = match finding {
            Finding::SplitBrain => Cause::SplitBrain,
            Finding::StaleAttempt => Cause::StaleAttempt,
            Finding::NearMiss => Cause::NearMiss,
        };
        let of_term = group.history.iter().filter(|line| line.term == group.term);
        let mut alike = of_term.filter(|line| line.cause == cause);
        let is_known = match finding {
            Finding::NearMiss => alike.next().is_some(),
            Finding::SplitBrain | Finding::StaleAttempt => {
                alike.any(|line| line.reason.as_deref() == Some(reason))
            }
        };
        if is_known {
            return Ok(Answer::Done);
        }
        let found =
            |cause| matches!(cause, Cause::SplitBrain | Cause::StaleAttempt | Cause::NearMiss);
        let history = &mut self.group_mut(name).history;
        if history.iter().filter(|line| found(line.cause)).count() == FINDINGS_PER_GROUP_MAX {
            let oldest = history.iter().position(|line| found(line.cause)).expect("there are some");
            history.remove(oldest);
        }
        self.announce(name, cause, Some(reason.clone()));
        Ok(Answer::Done)
    }
}
