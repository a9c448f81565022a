//! `GET /v1/claims`, and what heartbeats say of their nodes: who acts under which term.
//!
//! A server tells what *it* has heard; ask every server of a cluster to know what all have heard.

use regent_election::belief::{Beliefs, Believer, Claim, ClaimedGroup};
use regent_election::{Digest, Group, Moment, Node, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Disowned, schema, wire};

/// What a node holds itself for: part of its heartbeat. It grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeliefsBody {
    /// The node's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// The ttl it counts by.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms: u64,
    /// The smallest time that was left before it would have had to stop, of its renewals since it last said so.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub margin_ms: Option<u64>,
    /// The terms it acts under; the first 64 are read.
    #[serde(
        default,
        deserialize_with = "wire::object_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub claims: Vec<ClaimBody>,
    /// Terms that a fence refused to it since it last said so; the first 16 are read.
    #[serde(
        default,
        deserialize_with = "wire::object_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub refused: Vec<Disowned>,
}

/// One term that a node acts under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The fencing term.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// How long it holds itself entitled to; zero says that its work runs on though its time is over.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub left_ms: u64,
    /// What its state looks like, if it tells: two that act and differ have diverged.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::StateDigest>")]
    pub digest: Option<Digest>,
}

impl From<BeliefsBody> for Beliefs {
    fn from(body: BeliefsBody) -> Self {
        let claim =
            |ClaimBody { group, term, left_ms, digest }| Claim { group, term, left_ms, digest };
        Self {
            node: body.node_id,
            ttl_ms: body.ttl_ms,
            margin_ms: body.margin_ms,
            claims: body.claims.into_iter().map(claim).collect(),
            refused: body.refused.into_iter().map(|lost| (lost.group, lost.term)).collect(),
        }
    }
}

impl From<Beliefs> for BeliefsBody {
    fn from(beliefs: Beliefs) -> Self {
        let claim =
            |Claim { group, term, left_ms, digest }| ClaimBody { group, term, left_ms, digest };
        let refused = |(group, term)| Disowned { group, term };
        Self {
            node_id: beliefs.node,
            ttl_ms: beliefs.ttl_ms,
            margin_ms: beliefs.margin_ms,
            claims: beliefs.claims.into_iter().map(claim).collect(),
            refused: beliefs.refused.into_iter().map(refused).collect(),
        }
    }
}

/// What may stand behind the `?` of a list of claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimsQuery {
    /// Only this group.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub group: Option<Group>,
    /// Only groups in which somebody claims what is not its.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disputed: bool,
    /// Only groups after this one: the `next` of the page before.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub after: Option<Group>,
}

/// Who acts, as this server has heard it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimsResponse {
    /// In the order of their names.
    pub groups: Vec<ClaimedBody>,
    /// Ask for the page after this group, if there is more.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub next: Option<Group>,
}

/// Who acts in one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimedBody {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The term in office or the last one granted, as far as this server knows.
    #[serde(default, with = "wire::term_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Term>")]
    pub term: Option<Term>,
    /// Who leads, as far as this server knows.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub leader: Option<Node>,
    /// Everybody that acts, or says so.
    pub believers: Vec<BelieverBody>,
}

/// One that acts, or says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BelieverBody {
    /// The node's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// Under which term.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// How long it held itself entitled to; zero: its work ran on though its time was over.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub left_ms: u64,
    /// The ttl it counts by.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms: u64,
    /// How long ago it was heard.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub heard_ms_ago: u64,
    /// `unchecked`, `agrees` with the office, `contradicted` by it, or `accused`: for certain.
    pub standing: String,
    /// What is wrong: its term is `over`, it is in office but `another` holds it, or `never_granted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// What its state looks like, if it tells.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::StateDigest>")]
    pub digest: Option<Digest>,
}

impl ClaimedBody {
    /// One group, as it is told at `now`.
    #[must_use]
    pub fn new(claimed: ClaimedGroup, now: Moment) -> Self {
        let (term, leader) = claimed.office.map_or((None, None), |(term, who)| (Some(term), who));
        let believers = claimed.believers.into_iter();
        let believers = believers.map(|it| BelieverBody::new(it, now)).collect();
        Self { group: claimed.group, term, leader, believers }
    }
}

impl BelieverBody {
    fn new(believer: Believer, now: Moment) -> Self {
        let ago = believer.heard_at.until(now).as_millis();
        Self {
            node_id: believer.node,
            term: believer.term,
            left_ms: believer.left_ms,
            ttl_ms: believer.ttl_ms,
            heard_ms_ago: u64::try_from(ago).unwrap_or(u64::MAX),
            standing: believer.standing.word().to_owned(),
            fault: believer.standing.fault().map(|fault| fault.word().to_owned()),
            digest: believer.digest,
        }
    }
}
