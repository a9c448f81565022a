//! `/v1/cluster`: the replicas of our own store, as an operator sees and changes them.
//!
//! Raft's words stay in that store; what is told here is who is there, who leads the log, how many
//! failures that survives, and how far everybody is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::BindingBody;

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
    /// How many of them were heard lately, the answering replica included: by the one that leads, if it answered its
    /// messages; by any other, if it answers its pings. Null from servers that do not say.
    #[serde(default)]
    pub voters_heard: Option<u64>,
    /// Whether a quorum decides, as far as the answering replica knows: it leads and a quorum answers it, or it hears the
    /// one that leads. Null from servers that do not say.
    #[serde(default)]
    pub has_quorum: Option<bool>,
    /// How many more of those that were heard may fail before the rest can no longer decide; 0 without a quorum.
    pub failures_survived: u64,
    /// Whether the answering replica was removed from this cluster: `members` are those that it has now.
    #[serde(default)]
    pub removed: bool,
    /// For how long a restored cluster still grants nothing, because leases from before may still run; null if it was
    /// not restored, or that is over. A replica that does not lead estimates.
    #[serde(default)]
    pub grants_paused_for_ms: Option<u64>,
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
    /// How the answering replica's time-outs suit the network it measures; null while too little was
    /// measured, where it has no peers, and where that is turned off.
    #[serde(default)]
    pub tuning: Option<ClusterTuning>,
    /// Whether callers of the answering server are authenticated: `off` or `required`; null from servers that do not
    /// say.
    #[serde(default)]
    pub auth: Option<String>,
    /// Who asks, by what the answering server believes; null where callers are not authenticated.
    #[serde(default)]
    pub caller: Option<CallerBody>,
}

impl ClusterResponse {
    /// Whether a quorum decides, as far as the answering replica knows.
    #[must_use]
    pub fn can_decide(&self) -> bool {
        self.has_quorum.unwrap_or(self.leader.is_some())
    }

    /// How many voters were heard and how many more may fail, in words: `2 of 3 heard, survives no further failure`.
    #[must_use]
    pub fn health(&self) -> String {
        let Self { replica, voters, voters_heard, failures_survived, .. } = self;
        if self.removed {
            return format!("replica {replica} was removed from this cluster");
        }
        let heard =
            voters_heard.map_or_else(String::new, |heard| format!("{heard} of {voters} heard, "));
        if !self.can_decide() {
            return format!("{heard}no quorum");
        }
        let further =
            if voters_heard.is_some_and(|heard| heard < *voters) { "further " } else { "" };
        match failures_survived {
            0 => format!("{heard}survives no {further}failure"),
            1 => format!("{heard}survives 1 {further}failure"),
            more => format!("{heard}survives {more} {further}failures"),
        }
    }
}

impl ClusterMember {
    /// Whether it is heard, in a word; none if that is not known.
    #[must_use]
    pub const fn state(&self) -> Option<&'static str> {
        match (self.heard, self.connected) {
            (Some(true), _) | (None, Some(true)) => Some("heard"),
            // It answers pings and no messages: its disk or its processor does not keep up.
            (Some(false), Some(true)) => Some("late"),
            (Some(false) | None, Some(false)) | (Some(false), None) => Some("silent"),
            (None, None) => None,
        }
    }
}

/// A caller as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerBody {
    /// Like `node:web-1` or `user:alice`.
    pub principal: String,
    /// The bindings that name it, from which its rights come. A caller on the Unix socket of the server (`local:…`)
    /// needs none.
    pub bindings: Vec<BindingBody>,
}

/// How a replica's time-outs suit the network, by the arithmetic of `regent lab tune`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterTuning {
    /// What is done about it: report or apply.
    pub mode: TuneMode,
    /// For how long was measured what is told here.
    pub measured_for_ms: u64,
    /// Round trips to other voters that were measured.
    pub round_trips: u64,
    /// Half of those to the slowest one took no longer, in microseconds.
    pub round_trip_us_p50: u64,
    /// Ninety-nine of a hundred took no longer.
    pub round_trip_us_p99: u64,
    /// How often this replica stood still.
    pub pauses: u64,
    /// For how long at most, rounded up.
    pub pause_ms_max: u64,
    /// The time-outs that hold.
    pub present: ReplicaTimers,
    /// How often a year a living leader would lose the lead by them, if it is and stays as measured.
    pub false_elections_per_year: u64,
    /// Better ones; null if these are good.
    pub better: Option<ReplicaTimers>,
    /// The shortest ttl that would suit what was measured between replicas; the ways of clients are not
    /// measured. Null if none would.
    pub ttl_ms_min: Option<u64>,
    /// The arithmetic, for people.
    pub why: String,
}

/// Time-outs of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaTimers {
    /// How often a leader shows itself.
    pub heartbeat_ms: u64,
    /// The shortest silence after which a replica stands for election.
    pub election_ms_min: u64,
    /// The longest such silence.
    pub election_ms_max: u64,
    /// The two of them in per cent of what is configured.
    pub patience_percent: u64,
}

/// What is done about time-outs that do not suit the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TuneMode {
    /// Operators are told.
    Report,
    /// Patience is stretched within its bounds, too.
    Apply,
}

impl TuneMode {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Apply => "apply",
        }
    }
}

/// One member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMember {
    /// The replica's number.
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
    /// Whether it answered the leading replica lately; only that one knows, and null in the moment after its election.
    pub heard: Option<bool>,
    /// Whether it answers the pings of the answering replica, whatever it is; null from a replica that was removed, and
    /// from servers that do not say.
    #[serde(default)]
    pub connected: Option<bool>,
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
    /// The replica's number.
    #[schemars(range(min = 1))]
    pub id: u64,
}

/// Removes a replica, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveMemberRequest {
    /// The replica's number.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(voters: u64, heard: u64, survives: u64, has_quorum: bool) -> ClusterResponse {
        let json = serde_json::json!({
            "cluster_id": "c", "replica": 1, "role": "leader", "raft_term": 1, "leader": null,
            "leader_address": null, "leader_changes": 0, "voters": voters, "quorum": voters / 2 + 1,
            "voters_heard": heard, "has_quorum": has_quorum, "failures_survived": survives,
            "changing": false, "last_index": 0, "committed_index": 0, "applied_index": 0,
            "snapshot_index": 0, "log_bytes": 0, "snapshot_bytes": 0, "members": [], "warnings": [],
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn health_counts_the_voters_that_were_heard() {
        let told = |voters, heard, survives, has_quorum| {
            cluster(voters, heard, survives, has_quorum).health()
        };
        assert_eq!(told(3, 3, 1, true), "3 of 3 heard, survives 1 failure");
        assert_eq!(told(3, 2, 0, true), "2 of 3 heard, survives no further failure");
        assert_eq!(told(5, 4, 1, true), "4 of 5 heard, survives 1 further failure");
        assert_eq!(told(7, 7, 3, true), "7 of 7 heard, survives 3 failures");
        assert_eq!(told(1, 1, 0, true), "1 of 1 heard, survives no failure");
        assert_eq!(told(3, 1, 0, false), "1 of 3 heard, no quorum");
        let removed = ClusterResponse { removed: true, ..cluster(3, 1, 0, false) };
        assert_eq!(removed.health(), "replica 1 was removed from this cluster");
    }

    #[test]
    fn a_member_is_silent_only_if_it_answers_nothing() {
        let state = |heard, connected| {
            let member = ClusterMember {
                id: 2,
                kind: MemberKind::Voter,
                leads: false,
                peer_address: String::new(),
                client_address: String::new(),
                matched_index: None,
                heard,
                connected,
                round_trip_us: None,
            };
            member.state()
        };
        assert_eq!(state(Some(true), Some(true)), Some("heard"));
        assert_eq!(state(None, Some(true)), Some("heard"), "asked of a replica that does not lead");
        assert_eq!(state(Some(false), Some(true)), Some("late"));
        assert_eq!(state(Some(false), Some(false)), Some("silent"));
        assert_eq!(state(None, None), None);
    }
}
