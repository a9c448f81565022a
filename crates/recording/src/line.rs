//! What a line of a recording says, in the types of the rules.

use regent_election::deed::{Deed, Party};
use regent_election::{Cause, Group, Node, Revision, Term};

/// One line of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLine {
    /// Its number in the file, for people.
    pub number: usize,
    /// When, by the wall clock of whoever proposed it: a note.
    pub at_ms: u64,
    /// What it tells.
    pub told: LineContent,
}

/// What a line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineContent {
    /// A replica began to record.
    Begin { replica: u64 },
    /// Something was done.
    Deed {
        /// In the order of the store.
        revision: Revision,
        deed: Deed,
        /// By whom, or to whom.
        party: Option<Party>,
    },
    /// Who leads a group changed.
    Change {
        /// In the order of the store.
        revision: Revision,
        group: Group,
        /// The term after it.
        term: Term,
        /// Who leads after it.
        leader: Option<Node>,
        cause: Cause,
    },
    /// Another replica leads the log, or others vote.
    LogLeader {
        /// Who; none while nobody is known to.
        leader: Option<u64>,
        /// How many vote.
        voters: usize,
    },
    /// What happened up to this revision is not in the recording.
    Gap {
        /// The first revision that is known again.
        to: Revision,
    },
    /// The recording was ended in order.
    End,
}

impl LineContent {
    /// The revision it belongs to, if it belongs to one.
    #[must_use]
    pub const fn revision(&self) -> Option<Revision> {
        match self {
            Self::Deed { revision, .. } | Self::Change { revision, .. } => Some(*revision),
            Self::Begin { .. } | Self::LogLeader { .. } | Self::Gap { .. } | Self::End => None,
        }
    }

    /// The group it is about, if it is about one.
    #[must_use]
    pub const fn group(&self) -> Option<&Group> {
        match self {
            Self::Deed { deed, .. } => deed.group.as_ref(),
            Self::Change { group, .. } => Some(group),
            Self::Begin { .. } | Self::LogLeader { .. } | Self::Gap { .. } | Self::End => None,
        }
    }
}
