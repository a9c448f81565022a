//! Why a group is led as it is: the last change of its history as a sentence, with whom it concerned and what was found.
//!
//! It reads the few changes that the state keeps. What happened before them is in the flight recorder.

use regent_api::{Change, HistoryResponse};
use regent_election::{Cause, Node};
use serde::Serialize;

/// So often in a row is no chance any more.
const GIVEN_UP_MIN: usize = 3;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub group: String,
    /// Who leads since the last change; none means nobody.
    pub leader: Option<String>,
    pub term: u64,
    /// When it changed, by the store's wall clock; a note for people.
    pub since: Option<String>,
    /// The cause in a word.
    pub cause: String,
    /// What ended the tenure before, and who began the next one.
    pub because: String,
    /// Who led before, if that is known.
    pub before: Option<String>,
    /// What was seen in the terms that are known: split brains, near misses, a leader that gives up again and again.
    pub findings: Vec<String>,
}

/// Explains the last change of who leads; none if nothing has happened yet.
#[must_use]
pub fn explain(history: &HistoryResponse) -> Option<Explanation> {
    let (findings, changes): (Vec<&Change>, Vec<&Change>) =
        history.changes.iter().partition(|change| change.cause.is_finding());
    let (last, earlier) = changes.split_last()?;
    let before = earlier.iter().rev().find_map(|change| change.leader.as_ref());
    let finding = |change: &&Change| {
        let reason = change.reason.as_deref().unwrap_or("no details");
        format!("{} in term {}: {reason}", change.cause, change.term)
    };
    let findings = findings.iter().map(finding).chain(crash_loop(&changes)).collect();
    Some(Explanation {
        group: history.group.to_string(),
        leader: last.leader.as_ref().map(ToString::to_string),
        term: last.term.get(),
        since: last.at.clone(),
        cause: last.cause.to_string(),
        because: because(last, before),
        before: before.map(ToString::to_string),
        findings,
    })
}

impl Explanation {
    /// The same for a person.
    #[must_use]
    pub fn lines(&self) -> String {
        let Self { group, term, because, .. } = self;
        let since = self.since.as_ref().map(|at| format!(" since {at}")).unwrap_or_default();
        let mut text = match &self.leader {
            Some(leader) => format!("{leader} leads {group}, term {term},{since}: {because}"),
            None => format!("nobody leads {group}{since}, last term {term}: {because}"),
        };
        for finding in &self.findings {
            text.push_str("\nfound: ");
            text.push_str(finding);
        }
        text
    }
}

/// One node that is elected and gives the office up by itself, again and again up to now.
fn crash_loop(changes: &[&Change]) -> Option<String> {
    let newest = changes.iter().rev().find_map(|change| change.leader.as_ref())?;
    let own = changes.iter().rev().take_while(|change| match change.cause {
        Cause::Elected => change.leader.as_ref() == Some(newest),
        Cause::Resigned | Cause::Withdrawn => change.leader.is_none(),
        Cause::Transferred
        | Cause::Expired
        | Cause::SteppedDown
        | Cause::Forced
        | Cause::Policy
        | Cause::Deleted
        | Cause::PassedOver
        | Cause::Moved
        | Cause::SplitBrain
        | Cause::StaleAttempt
        | Cause::NearMiss
        | Cause::Failing => false,
    });
    let given_up: Vec<_> = own.filter(|change| change.leader.is_none()).collect();
    let since = given_up.last()?.at.as_deref().unwrap_or("an unknown time");
    let times = given_up.len();
    (times >= GIVEN_UP_MIN).then(|| {
        format!(
            "{newest} gave the office up {times} times in a row since {since}: look why its work ends soon after each election"
        )
    })
}

/// What ended the tenure before, and how the next one began.
fn because(change: &Change, before: Option<&Node>) -> String {
    let next = change.leader.as_ref();
    let who = before.map_or_else(|| "the leader before".to_owned(), ToString::to_string);
    let ended = match change.cause {
        Cause::Elected => "the office was vacant".to_owned(),
        Cause::Resigned => format!("{who} gave the office up"),
        Cause::Transferred => format!("{who} handed the office over"),
        Cause::Expired => format!("{who} was not heard for its whole ttl"),
        Cause::SteppedDown => format!("an operator told {who} to stop"),
        Cause::Forced => format!("an operator ended the term of {who} at once"),
        Cause::Withdrawn => format!("{who} withdrew"),
        Cause::Policy => format!("{who} is not allowed any more"),
        Cause::Deleted => "the group was deleted".to_owned(),
        Cause::PassedOver => format!("{who} was promoted and did not accept in time"),
        Cause::Moved => "the group moved between stores".to_owned(),
        Cause::SplitBrain | Cause::StaleAttempt | Cause::NearMiss | Cause::Failing => {
            change.cause.to_string()
        }
    };
    let reason = change.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let began = match (change.cause, next) {
        (Cause::Elected, Some(next)) => format!(", and {next} campaigned first"),
        (_, Some(next)) => format!(", and {next} was next"),
        (_, None) => ", and nobody could follow".to_owned(),
    };
    format!("{ended}{reason}{began}")
}

#[cfg(test)]
mod tests {
    use regent_election::{Group, Revision, Term};

    use super::*;

    fn change(term: u64, leader: Option<&str>, cause: Cause, reason: Option<&str>) -> Change {
        Change {
            revision: Revision(term),
            at: Some("2026-11-18T10:00:00Z".to_owned()),
            term: Term::new(term).unwrap(),
            leader: leader.map(|name| Node::new(name).unwrap()),
            cause,
            reason: reason.map(str::to_owned),
        }
    }

    fn told(changes: Vec<Change>) -> String {
        let history = HistoryResponse { group: Group::new("billing").unwrap(), changes };
        explain(&history).unwrap().lines()
    }

    #[test]
    fn the_last_change_is_explained_with_whom_it_concerned() {
        let first = || change(1, Some("web-1"), Cause::Elected, None);
        assert_eq!(
            told(vec![first()]),
            "web-1 leads billing, term 1, since 2026-11-18T10:00:00Z: the office was vacant, and web-1 campaigned first"
        );
        assert!(
            told(vec![first(), change(2, Some("web-2"), Cause::Expired, None)])
                .ends_with("web-1 was not heard for its whole ttl, and web-2 was next")
        );
        let stepped = change(1, None, Cause::SteppedDown, Some("kernel update"));
        let nobody = told(vec![first(), stepped]);
        assert!(nobody.starts_with("nobody leads billing since"), "{nobody}");
        assert!(
            nobody.ends_with(
                "an operator told web-1 to stop (kernel update), and nobody could follow"
            ),
            "{nobody}"
        );
    }

    /// What the history of a damped crash loop looks like.
    #[test]
    fn a_node_that_gives_up_again_and_again_is_found() {
        let elected = |term| change(term, Some("web-1"), Cause::Elected, None);
        let resigned = |term| change(term, None, Cause::Resigned, None);
        let twice = vec![elected(1), resigned(1), elected(2), resigned(2)];
        assert!(!told(twice.clone()).contains("in a row"));
        let more = [twice, vec![elected(3), resigned(3), elected(4)]].concat();
        let text = told(more.clone());
        assert!(text.contains("found: web-1 gave the office up 3 times in a row since"), "{text}");
        let other = [vec![change(5, Some("web-2"), Cause::Expired, None)], more].concat();
        assert!(told(other).contains("web-1 gave the office up 3 times"));
        let taken_over = vec![elected(1), resigned(1), change(2, Some("b"), Cause::Resigned, None)];
        assert!(!told(taken_over).contains("in a row"));
    }

    /// A finding says nothing about who leads, and is told beside it.
    #[test]
    fn a_finding_is_no_change_and_is_told() {
        let miss = change(1, Some("web-1"), Cause::NearMiss, Some("80 ms were left"));
        let text = told(vec![change(1, Some("web-1"), Cause::Elected, None), miss]);
        assert!(text.contains("the office was vacant"), "{text}");
        assert!(text.ends_with("found: near_miss in term 1: 80 ms were left"), "{text}");
        let history = HistoryResponse { group: Group::new("g").unwrap(), changes: Vec::new() };
        assert_eq!(explain(&history), None);
    }
}
