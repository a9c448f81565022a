//! The algorithms that the stage plays: those of `regent-protocols`, and two that wrap what Regent runs.
//!
//! [`raft`] drives the real replica and [`session`] the real participant and the real rules, each behind
//! the [`Protocol`] of the others. They need the replica and stand in for a store, so they stay beside the
//! simulator.

pub mod raft;
pub mod session;

pub use regent_protocols::{
    Belief, Message, NODES_MAX, NodeId, Out, Pace, Protocol, Setup, bully, byzantine, gossip,
    hierarchy, lease, paxos, ring,
};
