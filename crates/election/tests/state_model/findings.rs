//! The model's findings: of all lines ever told, those that are kept.

use regent_election::limits::SPLIT_BRAINS_PER_GROUP_MAX;
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
        let room = match finding {
            Finding::SplitBrain => SPLIT_BRAINS_PER_GROUP_MAX,
            Finding::StaleAttempt | Finding::NearMiss => 1,
        };
        if group.history.iter().filter(|line| line.cause == cause).count() >= room {
            return Ok(Answer::Done);
        }
        self.announce(name, cause, Some(reason.clone()));
        Ok(Answer::Done)
    }
}
