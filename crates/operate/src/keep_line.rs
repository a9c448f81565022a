//! What a candidate that keeps its office tells: to people a line, to programs an object.

use regent::{Current, Phase, Transition, Why};
use regent_election::{Group, Node};
use serde::Serialize;

/// One change of phase, or who leads while this candidate stands by.
#[derive(Debug, Serialize)]
pub struct KeepLine {
    phase: &'static str,
    group: String,
    /// Who leads, if anybody.
    leader: Option<String>,
    term: u64,
    /// Why the phase changed; none while standing by.
    why: Option<&'static str>,
    /// How long the lease is still good.
    pub remaining_ms: u64,
}

impl KeepLine {
    /// What a change of phase of this node says.
    #[must_use]
    pub fn of(transition: &Transition, node: &Node) -> Self {
        let leads = matches!(transition.to, Phase::Leading | Phase::Jeopardy | Phase::Stopping);
        Self {
            phase: transition.to.word(),
            group: transition.group.to_string(),
            leader: leads.then(|| node.to_string()),
            term: transition.term.get(),
            why: Some(transition.why.word()),
            remaining_ms: u64::try_from(transition.remaining.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Another node leads; none if nobody else does.
    #[must_use]
    pub fn standing_by(group: &Group, current: &Current, node: &Node) -> Option<Self> {
        let leader = current.leader.as_ref().filter(|leader| *leader != node)?;
        Some(Self {
            phase: Phase::Standby.word(),
            group: group.to_string(),
            leader: Some(leader.to_string()),
            term: current.term.get(),
            why: None,
            remaining_ms: 0,
        })
    }

    /// The line for people; `remaining` is how long the lease is good, as people write it.
    #[must_use]
    pub fn line(&self, phase: Phase, node: &Node, remaining: &str) -> String {
        let Self { group, term, .. } = self;
        let valid = format!("term {term}, valid for {remaining}");
        let why = self.why.unwrap_or_default();
        match phase {
            Phase::Standby => {
                let leader = self.leader.as_deref().unwrap_or("nobody");
                format!("{group}: standing by; {leader} leads, term {term}")
            }
            Phase::Leading if self.why == Some(Why::Elected.word()) => {
                format!("{group}: {node} leads, {valid}")
            }
            Phase::Leading => format!("{group}: {node} leads, {valid} ({why})"),
            Phase::Jeopardy => format!("{group}: {node} leads in jeopardy, {valid} ({why})"),
            Phase::Stopping => format!("{group}: {node} must stop, {valid} ({why})"),
            Phase::Stopped => format!("{group}: {node} has stopped, term {term} is over ({why})"),
            Phase::Lost => format!("{group}: {node} has lost term {term} ({why})"),
        }
    }
}
