//! `PUT`, `GET`, `DELETE /v1/groups/{group}` and `GET /v1/groups`: groups and their policies.

use regent_election::limits::TTL_MS_CEILING;
use regent_election::store::{GroupView, GroupsPage, StandbyView};
use regent_election::{
    Cause, Group, Home, Node, NodePattern, Policy, PolicyError, Priority, RequestId, Revision,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leader::Office;
use crate::move_group::DoorBody;
use crate::{schema, wire};

/// What an operator allows in a group. Everything left out has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyBody {
    /// Shortest ttl a candidate's session may have.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms_min: u64,
    /// Longest ttl a candidate's session may have.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms_max: u64,
    /// Shortest pause a losing candidate is told.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub retry_ms_min: u64,
    /// Longest pause a losing candidate is told; null means half its own ttl.
    #[serde(with = "wire::millis_option")]
    #[schemars(with = "Option<schema::Millis>")]
    pub retry_ms_max: Option<u64>,
    /// How long an office stays empty after a leader was lost (not after it resigned).
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub lock_delay_ms: u64,
    /// How long a leader is left alone before a better candidate may be offered its office; 0 is off.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub minimum_tenure_ms: u64,
    /// Whether a better candidate is offered the office once the minimum tenure is served.
    pub prefer_priority: bool,
    /// Who may campaign; empty means everybody.
    #[serde(with = "wire::text_list")]
    #[schemars(with = "Vec<schema::NodePattern>")]
    pub allow: Vec<NodePattern>,
    /// Priorities that override what candidates claim; the first match counts.
    #[serde(deserialize_with = "wire::object_list")]
    pub priorities: Vec<PriorityRule>,
    /// Most standbys in line.
    pub standbys_max: u32,
    /// Whether a forced step-down, another policy, the deletion, the stop for recovery and the move away of the group each
    /// need two principals. Left out if not, so that older clients can read the policy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
}

/// One line of a policy's priority table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityRule {
    /// Whom it concerns.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodePattern")]
    pub nodes: NodePattern,
    /// The priority that the nodes matched have.
    pub priority: Priority,
}

impl std::str::FromStr for PriorityRule {
    type Err = String;

    /// A rule as people write it: `web-*=10`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is no rule; write it like 'web-*=10'");
        let (nodes, priority) = text.rsplit_once('=').ok_or_else(refused)?;
        let priority: Priority = priority.parse().map_err(|_| {
            format!("{priority:?} is no priority from {} to {}", Priority::MIN, Priority::MAX)
        })?;
        let nodes = NodePattern::new(nodes).map_err(|error| error.to_string())?;
        Ok(Self { nodes, priority })
    }
}

impl Default for PolicyBody {
    fn default() -> Self {
        Policy::default().into()
    }
}

impl From<Policy> for PolicyBody {
    fn from(policy: Policy) -> Self {
        Self {
            ttl_ms_min: policy.ttl_ms_min,
            ttl_ms_max: policy.ttl_ms_max,
            retry_ms_min: policy.retry_ms_min,
            retry_ms_max: policy.retry_ms_max,
            lock_delay_ms: policy.lock_delay_ms,
            minimum_tenure_ms: policy.minimum_tenure_ms,
            prefer_priority: policy.prefer_priority,
            allow: policy.allow,
            priorities: policy
                .priorities
                .into_iter()
                .map(|(nodes, priority)| PriorityRule { nodes, priority })
                .collect(),
            standbys_max: policy.standbys_max,
            four_eyes: policy.four_eyes,
        }
    }
}

impl TryFrom<PolicyBody> for Policy {
    type Error = PolicyError;

    /// Checks against the bounds of every store; a store checks against its own beside.
    fn try_from(body: PolicyBody) -> Result<Self, PolicyError> {
        Self {
            ttl_ms_min: body.ttl_ms_min,
            ttl_ms_max: body.ttl_ms_max,
            retry_ms_min: body.retry_ms_min,
            retry_ms_max: body.retry_ms_max,
            lock_delay_ms: body.lock_delay_ms,
            minimum_tenure_ms: body.minimum_tenure_ms,
            prefer_priority: body.prefer_priority,
            allow: body.allow,
            priorities: body
                .priorities
                .into_iter()
                .map(|rule| (rule.nodes, rule.priority))
                .collect(),
            standbys_max: body.standbys_max,
            four_eyes: body.four_eyes,
        }
        .check(TTL_MS_CEILING)
    }
}

/// Creates a group or replaces its policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutGroupRequest {
    /// The whole policy; left out or null, the group follows the store's default.
    #[serde(default, deserialize_with = "wire::object_option")]
    pub policy: Option<PolicyBody>,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

/// What may stand behind the `?` of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteGroupQuery {
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

/// What may stand behind the `?` of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupsQuery {
    /// Only groups whose names open with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only groups after this name: the `next` of the page before.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub after: Option<Group>,
    /// How many at most: 1 to 512, 100 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A group as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupResponse {
    /// Who leads it.
    #[serde(flatten)]
    pub office: Office,
    /// The policy that holds.
    pub policy: PolicyBody,
    /// Whether that policy is the group's own, not the store's default.
    pub own_policy: bool,
    /// Whether it lives in this store.
    #[serde(default)]
    pub door: DoorBody,
    /// The store from which it arrived last, if it did, by the name that the move gave it.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub came_from: Option<Home>,
    /// Why the tenure is ending, if it is.
    #[serde(with = "wire::cause_option")]
    #[schemars(with = "Option<schema::CauseWord>")]
    pub ending: Option<Cause>,
    /// The line, next one first; at most a page of it.
    pub standbys: Vec<Standby>,
    /// How many stand in all.
    pub standbys_count: u64,
}

/// One standby as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Standby {
    /// The node's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// The priority that counts.
    pub priority: Priority,
    /// Whether it has not been heard for half its ttl.
    pub silent: bool,
}

impl From<GroupView> for GroupResponse {
    fn from(view: GroupView) -> Self {
        Self {
            office: view.office.into(),
            policy: view.policy.into(),
            own_policy: view.own_policy,
            door: view.door.into(),
            came_from: view.came_from,
            ending: view.ending,
            standbys: view.standbys.into_iter().map(Standby::from).collect(),
            standbys_count: view.standbys_count as u64,
        }
    }
}

impl From<StandbyView> for Standby {
    fn from(view: StandbyView) -> Self {
        Self { node_id: view.node, priority: view.priority, silent: view.silent }
    }
}

impl From<Standby> for StandbyView {
    fn from(standby: Standby) -> Self {
        Self { node: standby.node_id, priority: standby.priority, silent: standby.silent }
    }
}

impl TryFrom<GroupResponse> for GroupView {
    type Error = PolicyError;

    fn try_from(response: GroupResponse) -> Result<Self, PolicyError> {
        Ok(Self {
            office: response.office.into(),
            policy: response.policy.try_into()?,
            own_policy: response.own_policy,
            door: response.door.into(),
            came_from: response.came_from,
            ending: response.ending,
            standbys: response.standbys.into_iter().map(StandbyView::from).collect(),
            standbys_count: usize::try_from(response.standbys_count).unwrap_or(usize::MAX),
        })
    }
}

/// One page of groups in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupsResponse {
    /// The groups of this page, in the order of their names.
    pub groups: Vec<Office>,
    /// Ask for the page after this name; null if there is no more.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::GroupName>")]
    pub next: Option<Group>,
    /// The revision at which this was true.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
}

impl From<GroupsPage> for GroupsResponse {
    fn from(page: GroupsPage) -> Self {
        Self {
            groups: page.groups.into_iter().map(Office::from).collect(),
            next: page.next,
            revision: page.revision,
        }
    }
}

impl From<GroupsResponse> for GroupsPage {
    fn from(response: GroupsResponse) -> Self {
        Self {
            groups: response.groups.into_iter().map(Into::into).collect(),
            next: response.next,
            revision: response.revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_apart_from_nonsense() {
        assert_eq!("web-*=-3".parse::<PriorityRule>().unwrap().priority, -3);
        for text in ["web", "web=x", "=3", "web=99999", "we b=1"] {
            assert!(text.parse::<PriorityRule>().is_err(), "{text}");
        }
    }
}
