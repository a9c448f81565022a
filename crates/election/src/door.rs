//! The door of a group: whether it lives here, is on its way here, or has moved to another store.
//!
//! A group moves in three steps, each of them one entry (semantics 34). The new store **expects** it: who
//! wants may stand there, nobody is granted. In the old one it **departs**: its leader is told to stop, its
//! line is dissolved, and whoever comes later is told where it went. When the old office is vacant for
//! certain, it **arrives**: the new store opens its door above the old store's last term.
//!
//! At no time are both doors open, and each step may be repeated. A step that comes too late opens nothing:
//! an arrival names the revision at which this very group was expected, and a group that has moved away must
//! be expected back before it can arrive.
//!
//! The same door **stops** a group while an operator recovers it from a split brain, and **resumes** it
//! afterwards. A stopped group lives here: candidates may stand, terms and fences are kept, and no office is
//! granted. It can be neither deleted nor moved, because both would let it be led again without a resumption,
//! and a resumption names the stop that it ends.

use crate::name::{Home, Node};
use crate::term::{Revision, Term};

/// Whether a group lives in this store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Door {
    #[default]
    Open,
    /// It is on its way here: who wants may stand, nobody is granted.
    Expected {
        /// The store it comes from.
        from: Home,
        /// The entry that closed the door; an arrival must name it.
        since: Revision,
    },
    /// It has moved away, or is about to: its leader was told to stop, nobody is admitted.
    Moved {
        /// The store it went to.
        to: Home,
    },
    /// It lives here and is stopped for recovery: candidates may stand, no office is granted.
    Stopped {
        /// The entry that stopped it; a resumption must name it.
        since: Revision,
    },
}

impl Door {
    /// Whether an office may be granted.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Expected { .. } | Self::Moved { .. } | Self::Stopped { .. } => false,
        }
    }

    /// Whether the group lives in this store, led or not.
    #[must_use]
    pub const fn is_home(&self) -> bool {
        match self {
            Self::Open | Self::Stopped { .. } => true,
            Self::Expected { .. } | Self::Moved { .. } => false,
        }
    }

    /// Where the group went, if it has moved.
    #[must_use]
    pub const fn moved_to(&self) -> Option<&Home> {
        match self {
            Self::Moved { to } => Some(to),
            Self::Open | Self::Expected { .. } | Self::Stopped { .. } => None,
        }
    }
}

/// One step of a group's move between two stores, or of its recovery in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// In the new store, first: close the door until it arrives. Nobody may lead it here.
    Expect {
        /// The store it comes from.
        from: Home,
    },
    /// In the old store: tell the leader to stop, and whoever comes later where it went.
    Depart {
        /// The store it goes to.
        to: Home,
    },
    /// In the new store, last: open the door. The old office must be vacant for certain.
    Arrive {
        /// The revision at which it was expected.
        since: Revision,
        /// The last term that the old store granted: those granted here are higher.
        above: Term,
        /// Who led it there, and comes first here if it stands.
        heir: Option<Node>,
    },
    /// For recovery, first: tell the leader to stop, and grant no office until the group is resumed.
    Stop,
    /// For recovery, last: open the door that the stop closed.
    Resume {
        /// The revision at which it was stopped.
        since: Revision,
    },
}

impl Step {
    /// The word for wires, logs and people.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Expect { .. } => "expect",
            Self::Depart { .. } => "depart",
            Self::Arrive { .. } => "arrive",
            Self::Stop => "stop",
            Self::Resume { .. } => "resume",
        }
    }
}
