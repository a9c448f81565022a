//! Everything that happened on a stage, in order of true time. Figures, drawings and texts are made of this
//! and of nothing else.

use crate::protocols::NodeId;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRecord {
    /// The names of all nodes, servers last.
    pub names: Vec<String>,
    /// How many of them are candidates.
    pub nodes: u16,
    pub entries: Vec<StageEvent>,
    /// When it ended, in nanoseconds of true time.
    pub ended_at: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageEvent {
    /// When, in nanoseconds of true time.
    pub at: u64,
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A process starts, for the first time or again.
    Starts {
        node: NodeId,
        /// Which of its runs.
        run: u32,
    },
    /// A process dies.
    Crashes { node: NodeId },
    /// A process stands still.
    Pauses { node: NodeId },
    /// It goes on.
    Resumes { node: NodeId },
    /// The scenario changes the world around the nodes.
    Strikes { text: String },
    /// A message leaves.
    Sends {
        from: NodeId,
        to: NodeId,
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
    Unheard { from: NodeId, to: NodeId, kind: &'static str },
    /// A node begins to act as leader, or goes on after a pause or a lapse.
    Leads {
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
        node: NodeId,
        /// In which tenure.
        tenure: u64,
    },
    /// A node takes another for the leader, or nobody any more.
    Follows {
        node: NodeId,
        leader: Option<NodeId>,
        /// Under which term.
        term: Option<u64>,
    },
    /// A write reaches the storage.
    Writes {
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
    Remarks { node: NodeId, text: String },
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
