//! Findings: what was seen about a group and must not be lost, such as a second leader (S1 broken from outside).
//!
//! A finding changes nothing about who leads. It is told to watchers and kept in the history, so that whoever is
//! called at night finds it on every server, restarts included.
//!
//! Who reports may be wrong, or a nuisance: the same finding is noted once a term, and each kind has a few lines of
//! the history ([`lines_of`]). When they are taken, more are not noted until elections have pushed them out: what is
//! in the history is never taken out of its midst, because watchers are told from it what they missed.

use super::{State, Turn, VerbResult, done};
use crate::command::Finding;
use crate::limits::SPLIT_BRAINS_PER_GROUP_MAX;
use crate::name::{Group, Reason};
use crate::outcome::{Cause, Change, Refusal};

impl State {
    /// Notes a finding, unless it was noted already.
    pub(super) fn report(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        finding: Finding,
        reason: Reason,
    ) -> VerbResult {
        self.check_home(group)?;
        let Some(state) = self.groups.get_mut(group) else {
            return Err(Refusal::GroupUnknown { group: group.clone() });
        };
        let (cause, term) = (cause_of(finding), state.term);
        let is_known = |line: &Change| {
            // How little was left differs every time; that it was little is one finding.
            let is_same = match finding {
                Finding::NearMiss | Finding::Failing => true,
                Finding::SplitBrain | Finding::StaleAttempt => {
                    line.reason.as_deref() == Some(&reason)
                }
            };
            line.cause == cause && line.term == term && is_same
        };
        if state.history.iter().any(is_known) {
            return done();
        }
        let alike = state.history.iter().filter(|line| line.cause == cause).count();
        if alike >= lines_of(finding) {
            return done();
        }
        self.announce(turn, group, cause, Some(Box::new(reason)));
        done()
    }
}

/// How many lines of a history tell of this at most: together fewer than leave no room for elections. A relief is told
/// in any case: it is followed by a change of leader, or was the only one of its term.
const fn lines_of(finding: Finding) -> usize {
    match finding {
        Finding::SplitBrain => SPLIT_BRAINS_PER_GROUP_MAX,
        Finding::StaleAttempt | Finding::NearMiss | Finding::Failing => 1,
    }
}

const fn cause_of(finding: Finding) -> Cause {
    match finding {
        Finding::SplitBrain => Cause::SplitBrain,
        Finding::StaleAttempt => Cause::StaleAttempt,
        Finding::NearMiss => Cause::NearMiss,
        Finding::Failing => Cause::Failing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Entry, IfLost, Opening};
    use crate::limits::HISTORY_PER_GROUP;
    use crate::name::Metadata;
    use crate::policy::Settings;
    use crate::{Node, SessionId};

    fn reason(text: &str) -> Reason {
        Reason::new(text).unwrap()
    }

    fn led() -> (State, Group) {
        let (mut state, group) = (State::new(Settings::default()), Group::new("g").unwrap());
        let campaign = Command::Campaign {
            group: group.clone(),
            session: SessionId::new(1).unwrap(),
            opening: Some(Opening {
                node: Node::new("a").unwrap(),
                ttl_ms: Some(10_000),
                passing: false,
            }),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        };
        state.apply(Entry::bare(campaign));
        (state, group)
    }

    fn told(state: &mut State, group: &Group, finding: Finding, text: &str) -> usize {
        let (group, reason) = (group.clone(), reason(text));
        let applied = state.apply(Entry::bare(Command::Report { group, finding, reason }));
        assert!(applied.answer.is_ok(), "{applied:?}");
        applied.events.len()
    }

    #[test]
    fn a_finding_is_told_once_and_changes_nobodys_office() {
        let (mut state, group) = led();
        let before = state.holder(&group).map(|holder| (holder.session, holder.term));
        assert_eq!(told(&mut state, &group, Finding::SplitBrain, "b acts under term 9"), 1);
        assert_eq!(told(&mut state, &group, Finding::SplitBrain, "b acts under term 9"), 0);
        assert_eq!(told(&mut state, &group, Finding::SplitBrain, "c acts under term 9"), 1);
        assert_eq!(told(&mut state, &group, Finding::NearMiss, "80 ms were left"), 1);
        assert_eq!(told(&mut state, &group, Finding::NearMiss, "79 ms were left"), 0);
        assert_eq!(told(&mut state, &group, Finding::Failing, "2 more would come in time"), 1);
        assert_eq!(told(&mut state, &group, Finding::Failing, "1 more would come in time"), 0);
        assert_eq!(state.holder(&group).map(|holder| (holder.session, holder.term)), before);
        assert_eq!(state.history(&group).len(), 5);
    }

    #[test]
    fn findings_leave_room_for_elections() {
        let (mut state, group) = led();
        for number in 0..100 {
            for finding in
                [Finding::StaleAttempt, Finding::NearMiss, Finding::Failing, Finding::SplitBrain]
            {
                told(&mut state, &group, finding, &format!("number {number}"));
            }
        }
        let causes: Vec<_> = state.history(&group).iter().map(|line| line.cause).collect();
        let kept = [
            Cause::Elected,
            Cause::StaleAttempt,
            Cause::NearMiss,
            Cause::Failing,
            Cause::SplitBrain,
            Cause::SplitBrain,
        ];
        assert_eq!(causes, kept, "a nuisance does not push a split brain out");
        const { assert!(SPLIT_BRAINS_PER_GROUP_MAX + 3 <= HISTORY_PER_GROUP - 3) };
    }

    #[test]
    fn a_group_that_nobody_knows_has_no_findings() {
        let (finding, reason) = (Finding::SplitBrain, reason("x"));
        let command = Command::Report { group: Group::new("none").unwrap(), finding, reason };
        let applied = State::new(Settings::default()).apply(Entry::bare(command));
        assert!(matches!(applied.answer, Err(Refusal::GroupUnknown { .. })), "{applied:?}");
    }
}
