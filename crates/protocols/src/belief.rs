//! What a node believes about who leads.

use super::NodeId;

/// Whom a node takes for the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Belief {
    /// Whom, if anybody.
    pub leader: Option<NodeId>,
    /// Under which term, if the algorithm has terms. Without one there is nothing to fence by.
    pub term: Option<u64>,
    /// Whether the node takes itself for the leader and its own rules allow it to act at this moment.
    pub may_act: bool,
}

impl Belief {
    /// Nobody leads, as far as is known.
    pub const NOBODY: Self = Self { leader: None, term: None, may_act: false };

    /// This one leads, by an algorithm without terms: whoever believes it of itself acts.
    #[must_use]
    pub fn termless(me: NodeId, leader: Option<NodeId>) -> Self {
        Self { leader, term: None, may_act: leader == Some(me) }
    }
}
