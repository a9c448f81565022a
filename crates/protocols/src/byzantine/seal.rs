//! Signatures that nobody can forge, simulated: a sealed statement can only be made by a node's own pen.
//!
//! There is no cryptography: the field is private, and the one function that fills it takes the pen, which the
//! stage gives to each node for itself. What a liar has of others are their seals, to keep and to repeat. The
//! road not taken is real signatures, which would make runs slow and show nothing more.

use crate::{NodeId, Setup};

/// A statement, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sealed<T> {
    by: NodeId,
    statement: T,
}

/// What a node signs with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen(NodeId);

impl Pen {
    /// A node's own.
    pub(super) const fn of(setup: &Setup) -> Self {
        Self(setup.me)
    }

    pub(super) const fn sign<T>(self, statement: T) -> Sealed<T> {
        Sealed { by: self.0, statement }
    }
}

impl<T> Sealed<T> {
    /// Who made it: as sure as a signature.
    pub const fn by(&self) -> NodeId {
        self.by
    }

    /// What was said.
    pub const fn statement(&self) -> &T {
        &self.statement
    }
}
