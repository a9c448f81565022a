//! Beliefs: what every node holds itself for, and who finds out that two hold themselves for the same.
//!
//! The store knows to whom it gave an office. It does not know who *acts*: a process whose clock lies, whose stop
//! was ignored, that obeys another store or a client that nobody tested may go on under a term that is over, and as
//! long as it writes to nothing that is fenced, nobody sees it. So a heartbeat may carry the terms its node acts
//! under ([`Beliefs`]), and whoever hears heartbeats compares them with the offices ([`Detector`]).
//!
//! A belief grants nothing and takes nothing: it is a witness's word, read by people and by alarms.

mod detector;

pub use detector::{
    Accusation, Answered, Asked, Believer, ClaimFault, ClaimStanding, ClaimedGroup, Detector,
};

use crate::name::{Digest, Group, Node};
use crate::term::Term;

/// What one node holds itself for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beliefs {
    pub node: Node,
    /// The ttl it counts by.
    pub ttl_ms: u64,
    /// The smallest time that was left before a leader would have had to stop, of the renewals since the last heartbeat
    /// that told; none if there was no renewal. Who stands by without leading tells it with no claims.
    pub margin_ms: Option<u64>,
    /// The terms it acts under. A node that leads very many groups tells some of them each time, in turn.
    pub claims: Vec<Claim>,
    /// Terms that a fence refused to it since the last heartbeat that told.
    pub refused: Vec<(Group, Term)>,
}

/// One term that a node acts under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub group: Group,
    pub term: Term,
    /// How long it holds itself entitled to; zero says that its work runs on though its time is over.
    pub left_ms: u64,
    /// What its state looks like, if the application tells: two that act and differ have diverged.
    pub digest: Option<Digest>,
}
