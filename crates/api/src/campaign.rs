//! `POST /v1/groups/{group}/campaign`: wins a vacant office, or says who holds it.
//!
//! Losing is an answer, not an error: `elected` is false and the status 200.
//!
//! | sent | if it loses |
//! |---|---|
//! | neither `session_id` nor `wait_ms` | one shot: no session, no standby |
//! | `wait_ms` | stands while the request is open, then leaves nothing behind |
//! | `session_id` | stands until it withdraws or its session ends; `wait_ms` only delays the answer |

use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Campaigned};
use regent_election::{Group, Metadata, Node, Priority, RequestId, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leader::{Office, millis};
use crate::limits::WAIT_MS_MAX;
use crate::problem::{Code, Problem};
use crate::{schema, wire};

/// A wish to lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CampaignRequest {
    /// The candidate's label.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// How long the session lives unheard; with an open session it must equal that session's.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub ttl_ms: Option<u64>,
    /// The caller's own session, open or yet to be opened; as random as one that is opened. Without one, a session
    /// is made for this campaign alone.
    #[serde(default, with = "wire::secret_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::SessionSecret>")]
    pub session_id: Option<SessionId>,
    /// How long to wait in line for the answer; more than 30 s counts as 30 s, and without a
    /// `session_id` more than a third of the ttl counts as that.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub wait_ms: Option<u64>,
    /// The claim in the line: higher first. A policy may override it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: Priority,
    /// What the candidate tells the world as leader.
    #[serde(default, with = "wire::metadata", skip_serializing_if = "Metadata::is_empty")]
    #[schemars(with = "Option<schema::Metadata>")]
    pub metadata: Metadata,
    /// Makes a repeat take effect once. Needs a `session_id`.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if hands a reference"
)]
fn is_zero(priority: &Priority) -> bool {
    *priority == 0
}

impl CampaignRequest {
    /// The shortest campaign: this node, everything else left to the server.
    #[must_use]
    pub fn of(node_id: Node) -> Self {
        Self {
            node_id,
            ttl_ms: None,
            session_id: None,
            wait_ms: None,
            priority: 0,
            metadata: Metadata::NONE,
            request_id: None,
        }
    }

    /// The campaign to ask of a store. `fresh` draws the secret of a session made for it alone, if the caller
    /// brought none.
    pub fn into_campaign(
        self,
        group: Group,
        fresh: impl FnOnce() -> Result<SessionId, Problem>,
    ) -> Result<Campaign, Problem> {
        if self.request_id.is_some() && self.session_id.is_none() {
            return Err(Problem::new(
                Code::BadRequest,
                "request_id without session_id protects nothing: if this answer were lost, the \
                 session it made would be lost with it; choose a session_id too, and repeat both",
            )
            .at("request_id"));
        }
        let wait = self.wait_ms.map(|wait_ms| wait_ms.min(WAIT_MS_MAX));
        Ok(Campaign {
            group,
            node: self.node_id,
            session: match self.session_id {
                Some(session) => CampaignSession::Own(session),
                None => CampaignSession::Passing(fresh()?),
            },
            ttl_ms: self.ttl_ms,
            wait: wait.filter(|wait_ms| *wait_ms > 0).map(Duration::from_millis),
            priority: self.priority,
            metadata: self.metadata,
            request: self.request_id,
        })
    }
}

impl From<Campaign> for CampaignRequest {
    fn from(campaign: Campaign) -> Self {
        Self {
            node_id: campaign.node,
            ttl_ms: campaign.ttl_ms,
            session_id: match campaign.session {
                CampaignSession::Own(session) => Some(session),
                CampaignSession::Passing(_) => None,
            },
            wait_ms: campaign.wait.map(millis),
            priority: campaign.priority,
            metadata: campaign.metadata,
            request_id: campaign.request,
        }
    }
}

/// What became of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignResponse {
    /// Whether the caller leads, under `term`.
    pub elected: bool,
    /// Whether the caller stands in line after this answer.
    pub standing: bool,
    /// The caller's session, if one is open after this answer. Keep it secret: whoever knows it
    /// can renew and resign.
    #[serde(with = "wire::secret_option")]
    #[schemars(with = "Option<schema::SessionSecret>")]
    pub session_id: Option<SessionId>,
    /// That session's ttl.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms: u64,
    /// When to try again, if neither elected nor standing.
    #[serde(with = "wire::millis_option")]
    #[schemars(with = "Option<schema::Millis>")]
    pub retry_after_ms: Option<u64>,
    /// The office as it is.
    #[serde(flatten)]
    pub office: Office,
}

impl From<Campaigned> for CampaignResponse {
    fn from(campaigned: Campaigned) -> Self {
        let mut office = Office::from(campaigned.office);
        if let Some(term) = campaigned.elected {
            office.term = term;
        }
        Self {
            elected: campaigned.elected.is_some(),
            standing: campaigned.standing,
            session_id: campaigned.session,
            ttl_ms: campaigned.ttl_ms,
            retry_after_ms: campaigned.retry_after.map(millis),
            office,
        }
    }
}

impl From<CampaignResponse> for Campaigned {
    fn from(response: CampaignResponse) -> Self {
        Self {
            elected: response.elected.then_some(response.office.term),
            standing: response.standing,
            office: response.office.into(),
            session: response.session_id,
            ttl_ms: response.ttl_ms,
            retry_after: response.retry_after_ms.map(Duration::from_millis),
        }
    }
}
