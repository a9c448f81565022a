//! Rights, and the roles that hold them.

use std::fmt;
use std::str::FromStr;

use super::AccessError;

/// What a request needs. Every request needs exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// To read: leaders, groups, histories, watches, metrics.
    Observe,
    /// To take part: open a session, campaign, renew, hand over, and have terms judged by a fence.
    Stand,
    /// To run elections: policies, step-downs, deletion of groups and fences.
    Operate,
    /// To run the cluster: members, backups, moves between stores, bindings and tokens.
    Administer,
    /// To exchange the log with other replicas.
    Replicate,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Observe, Self::Stand, Self::Operate, Self::Administer, Self::Replicate];

    /// The word for wires and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Stand => "stand",
            Self::Operate => "operate",
            Self::Administer => "administer",
            Self::Replicate => "replicate",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Right {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let found = Self::ALL.into_iter().find(|right| right.word() == text);
        found.ok_or_else(|| AccessError::Right(text.chars().take(40).collect()))
    }
}

/// A set of rights that a binding gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Observes.
    Observer,
    /// Observes and stands.
    Participant,
    /// Observes and operates.
    Operator,
    /// Observes, operates and administers. It does not stand: an administrator that could act as any node would be
    /// able to lead in its name. Who must do both is bound twice.
    Administrator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Observer, Self::Participant, Self::Operator, Self::Administrator];

    /// Whether the role holds a right. Nobody is bound to replicate: replicas are known by their certificates.
    #[must_use]
    pub const fn has(self, right: Right) -> bool {
        match (self, right) {
            (_, Right::Observe)
            | (Self::Participant, Right::Stand)
            | (Self::Operator | Self::Administrator, Right::Operate)
            | (Self::Administrator, Right::Administer) => true,
            (_, Right::Replicate)
            | (Self::Observer | Self::Operator | Self::Administrator, Right::Stand)
            | (Self::Observer | Self::Participant, Right::Operate)
            | (Self::Observer | Self::Participant | Self::Operator, Right::Administer) => false,
        }
    }

    /// The word for files and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Participant => "participant",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Role {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let found = Self::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| AccessError::Role(text.chars().take(40).collect()))
    }
}
