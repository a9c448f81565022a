//! The model's findings: of all lines ever told, those that are kept.

use regent_election::limits::SPLIT_BRAINS_PER_GROUP_MAX;
use regent_election::{Answer, Cause, Finding, Group, Node, Reason, Refusal, Term};

use super::model::Model;
use super::verbs::VerbResult;

impl Model {
    pub(crate) fn report(&mut self, name: &Group, finding: Finding, reason: &Reason) -> VerbResult {
        self.must_live_here(name)?;
        let Some(group) = self.group(name) else {
            return Err(Refusal::GroupUnknown { group: name.clone() });
        };
        let cause = match finding {
            Finding::SplitBrain => Cause::SplitBrain,
            Finding::StaleAttempt => Cause::StaleAttempt,
            Finding::NearMiss => Cause::NearMiss,
            Finding::Failing => Cause::Failing,
        };
        let of_term = group.history.iter().filter(|line| line.term == group.term);
        let mut alike = of_term.filter(|line| line.cause == cause);
        let is_known = match finding {
            Finding::NearMiss | Finding::Failing => alike.next().is_some(),
            Finding::SplitBrain | Finding::StaleAttempt => {
                alike.any(|line| line.reason.as_deref() == Some(reason))
            }
        };
        if is_known {
            return Ok(Answer::Done);
        }
        let room = match finding {
            Finding::SplitBrain => SPLIT_BRAINS_PER_GROUP_MAX,
            Finding::StaleAttempt | Finding::NearMiss | Finding::Failing => 1,
        };
        if group.history.iter().filter(|line| line.cause == cause).count() >= room {
            return Ok(Answer::Done);
        }
        self.announce(name, cause, Some(reason.clone()));
        Ok(Answer::Done)
    }

    /// An offer in the leader's stead, unless it made one.
    pub(crate) fn relieve(
        &mut self,
        name: &Group,
        term: Term,
        to: &Node,
        reason: &Reason,
    ) -> VerbResult {
        self.must_live_here(name)?;
        let Some(group) = self.group(name) else {
            return Err(Refusal::GroupUnknown { group: name.clone() });
        };
        let (group, current, given) = (name.clone(), group.term, term);
        if given < current {
            return Err(Refusal::StaleTerm { group, resource: None, given, current });
        }
        if given > current {
            return Err(Refusal::NeverGranted { group, given, current });
        }
        if self.holder(name).is_none() {
            return Err(Refusal::NobodyLeads { group });
        }
        let holding = self.holding(name).expect("the leader holds");
        if let Some(ending) = &holding.ending {
            return Err(Refusal::TenureEnding { group, term, cause: ending.cause });
        }
        if holding.offered.is_some() {
            return Ok(Answer::Done);
        }
        let to = self.successor(name, to)?;
        let holding = self.holding_mut(name).expect("the leader holds");
        (holding.offered, holding.warm) = (Some(to), false);
        self.announce(name, Cause::Failing, Some(reason.clone()));
        Ok(Answer::Done)
    }
}
