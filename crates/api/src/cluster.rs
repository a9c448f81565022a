//! `/v1/cluster`: the replicas of our own store, as an operator sees and changes them.
//!
//! Raft's words stay in that store; what is told here is who is there, who leads the log, how many
//! failures that survives, and how far everybody is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaRole {
    /// It leads the log.
    Leader,
    /// It follows, or waits for somebody to follow.
    Follower,
    /// It asks for votes.
    Candidate,
}

/// How much a member counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberKind {
    /// It votes and keeps state.
    Voter,
    /// It votes and keeps the log, but no state.
    Witness,
    /// It receives everything and counts for nothing yet.
    Learner,
}

impl MemberKind {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Voter => "voter",
            Self::Witness => "witness",
            Self::Learner => "learner",
        }
    }
}

impl ReplicaRole {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
        }
    }
}

/// The cluster as the replica that answers knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterResponse {
    /// Names this life of the cluster, in 32 hexadecimal digits; a restored one has another.
    pub cluster_id: String,
    /// Which replica answers.
    pub replica: u64,
    /// What it is at the moment.
    pub role: ReplicaRole,
    /// Raft's own term; nothing to do with any group's.
    pub raft_term: u64,
    /// Which replica leads the log; null if that is not known here.
    pub leader: Option<u64>,
    /// Where clients reach that one.
    pub leader_address: Option<String>,
    /// How often this replica has seen the leader of the log change since it started.
    pub leader_changes: u64,
    /// How many replicas vote.
    pub voters: u64,
    /// How many of them must agree.
    pub quorum: u64,
    /// How many of them may fail before the rest can no longer decide.
    pub failures_survived: u64,
    /// Whether a change of members is under way.
    pub changing: bool,
    /// The last entry of this replica's log.
    pub last_index: u64,
    /// The last entry it knows to be committed.
    pub committed_index: u64,
    /// The last entry it has applied.
    pub applied_index: u64,
    /// Where its newest snapshot stands.
    pub snapshot_index: u64,
    /// Bytes of log on its disk, room made in advance included.
    pub log_bytes: u64,
    /// Bytes of its newest snapshot.
    pub snapshot_bytes: u64,
    /// Everybody, in the order of their numbers.
    pub members: Vec<ClusterMember>,
    /// What an operator should not overlook.
    pub warnings: Vec<String>,
}

/// One member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMember {
    /// Its number.
    pub id: u64,
    /// How much it counts.
    pub kind: MemberKind,
    /// Whether it leads the log, as far as the answering replica knows.
    pub leads: bool,
    /// Where other replicas reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// Up to where its log agrees; only the leading replica knows.
    pub matched_index: Option<u64>,
    /// Whether it was heard lately; only the leading replica knows.
    pub heard: Option<bool>,
    /// The last measured round trip to it from the answering replica, in microseconds.
    pub round_trip_us: Option<u64>,
}

/// Takes a replica in as a learner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMemberRequest {
    /// Its number: above that of every member, and never used before.
    #[schemars(range(min = 1))]
    pub id: u64,
    /// Where other replicas reach it, as `host:port`.
    pub peer_address: String,
    /// Where clients reach it, as `host:port`.
    pub client_address: String,
    /// Whether it shall vote and keep the log, but no state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub witness: bool,
}

/// Makes a learner that has caught up a voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteMemberRequest {
    /// Which.
    #[schemars(range(min = 1))]
    pub id: u64,
}

/// Removes a replica, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveMemberRequest {
    /// Which.
    #[schemars(range(min = 1))]
    pub id: u64,
}

/// Hands the lead of the log to another replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferClusterRequest {
    /// To which; left out, to the most advanced voter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub to: Option<u64>,
}
