//! Everything that happened on a stage, in order of true time. Figures, drawings and texts are made of this
//! and of nothing else.

use crate::protocols::NodeId;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The names of all nodes, servers last.
    pub names: Vec<String>,
    /// How many of them are candidates.
    pub nodes: u16,
    /// What happened.
    pub entries: Vec<Entry>,
    /// When it ended, in nanoseconds of true time.
    pub ended_at: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in nanoseconds of true time.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A process starts, for the first time or again.
    Starts {
        /// Whose.
        node: NodeId,
        /// Which of its runs.
        run: u32,
    },
    /// A process dies.
    Crashes {
        /// Whose.
        node: NodeId,
    },
    /// A process stands still.
    Pauses {
        /// Whose.
        node: NodeId,
    },
    /// It goes on.
    Resumes {
        /// Whose.
        node: NodeId,
    },
    /// The scenario changes the world around the nodes.
    Strikes {
        /// How.
        text: String,
    },
    /// A message leaves.
    Sends {
        /// From whom.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// Its name.
        kind: &'static str,
        /// What it carries.
        carries: String,
        /// How many bytes of payload.
        bytes: usize,
        /// Whether it only says that all is well.
        is_upkeep: bool,
        /// What becomes of it.
        fate: Fate,
    },
    /// A message reaches a process that is dead.
    Unheard {
        /// From whom.
        from: NodeId,
        /// To whom.
        to: NodeId,
        /// Its name.
        kind: &'static str,
    },
    /// A node begins to act as leader, or goes on after a pause or a lapse.
    Leads {
        /// Who.
        node: NodeId,
        /// The how manieth to hold the office.
        tenure: u64,
        /// Its term, if there are any.
        term: Option<u64>,
        /// Whether it had acted in this tenure before.
        is_again: bool,
    },
    /// A node no longer acts as leader.
    Ceases {
        /// Who.
        node: NodeId,
        /// In which tenure.
        tenure: u64,
    },
    /// A node takes another for the leader, or nobody any more.
    Follows {
        /// Who.
        node: NodeId,
        /// Whom.
        leader: Option<NodeId>,
        /// Under which term.
        term: Option<u64>,
    },
    /// A write reaches the storage.
    Writes {
        /// Whose.
        node: NodeId,
        /// Begun in which tenure.
        tenure: u64,
        /// Under which term.
        term: Option<u64>,
        /// Whether it is wrong, where nobody checks.
        is_wrong: bool,
        /// What a fence says of it.
        fence: FenceSays,
    },
    /// A node says why it does something.
    Remarks {
        /// Who.
        node: NodeId,
        /// What.
        text: String,
    },
}

impl What {
    /// Whether it tells who lived and who held the office, rather than what was said and written.
    pub(super) const fn is_of_office(&self) -> bool {
        match self {
            Self::Starts { .. }
            | Self::Crashes { .. }
            | Self::Pauses { .. }
            | Self::Resumes { .. }
            | Self::Leads { .. }
            | Self::Ceases { .. } => true,
            Self::Strikes { .. }
            | Self::Sends { .. }
            | Self::Unheard { .. }
            | Self::Follows { .. }
            | Self::Writes { .. }
            | Self::Remarks { .. } => false,
        }
    }
}

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at these times.
    Arrives(Vec<u64>),
    /// Somebody cut the way.
    Cut,
    /// Chance took it.
    Lost,
}

/// What a fence says of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceSays {
    /// It may pass.
    Admitted,
    /// It is refused.
    Refused,
    /// It passed and is wrong all the same.
    AdmittedWrongly,
    /// It has no term to judge by: what nobody can refuse passes.
    NoTerm,
}
