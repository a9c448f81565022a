//! Why this process does not lead, for tools that give up waiting and must say why. Only with the feature `tools`.

use regent_election::store::StoreError;
use regent_election::{Group, Node, Term};

use crate::regent::Regent;

/// Why an office was not won in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotElected {
    /// Another node leads, or another process under the same name.
    #[error("{leader} leads, term {term}")]
    OtherLeads { leader: Node, term: Term },
    /// The store could not be asked, or refused the campaign for now.
    #[error("{}", obstacle(.0))]
    Obstacle(StoreError),
    /// The store answers, and the office is vacant: it is kept so for a while.
    #[error("nobody leads yet")]
    Vacant,
}

/// A campaign that may have happened has no effect any more: the session is closed, or ends by itself.
fn obstacle(error: &StoreError) -> String {
    match error.outage() {
        Some(why) => format!("the store cannot be asked: {why}"),
        None => error.to_string(),
    }
}

impl Regent {
    /// Why this process does not lead `group` at this moment; the group must be watched or stood in. What the watch saw
    /// before the store fell silent proves nothing, unless `just_seen` says that it came this moment.
    #[must_use]
    pub fn why_not_elected(&self, group: &Group, just_seen: bool) -> NotElected {
        let obstacle = self.home_of(group).known.obstacle();
        let seen = self.known_leader(group);
        let other = seen.and_then(|it| {
            it.leader.map(|leader| NotElected::OtherLeads { leader, term: it.term })
        });
        match (obstacle, other) {
            (_, Some(other)) if just_seen => other,
            (Some(obstacle), _) => NotElected::Obstacle(obstacle),
            (None, Some(other)) => other,
            (None, None) => NotElected::Vacant,
        }
    }
}
