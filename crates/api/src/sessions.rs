//! `POST /v1/sessions/…`: one run of one node, the unit of liveness.
//!
//! The secret always travels in a body: addresses end up in logs of every proxy on the way.

use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::store::{Heartbeat, OfferView, OfficeState, Open, SessionView, TenureView};
use regent_election::{Group, Home, Node, Revision, SessionId, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BeliefsBody, Problem, schema, wire};

/// A wish to open a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenSessionRequest {
    /// The participant's label.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// How long the session lives unheard; 10 s if not said.
    #[serde(default, with = "wire::millis_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Millis>")]
    pub ttl_ms: Option<u64>,
    /// A secret of the caller's choice, so that repeating a lost request is safe; otherwise the
    /// server makes one. It must be random: an id with fewer than 8 different bytes, with two equal halves, or
    /// whose bytes rise by equal steps is refused.
    #[serde(default, with = "wire::secret_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::SessionSecret>")]
    pub session_id: Option<SessionId>,
}

impl OpenSessionRequest {
    /// What to ask of a store; `fresh` draws the secret if the caller chose none.
    pub fn into_open(
        self,
        fresh: impl FnOnce() -> Result<SessionId, Problem>,
    ) -> Result<Open, Problem> {
        Ok(Open {
            node: self.node_id,
            ttl_ms: self.ttl_ms.unwrap_or(TTL_MS_DEFAULT),
            session: self.session_id.map_or_else(fresh, Ok)?,
        })
    }
}

/// A sign of life for all tenures of a session at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// The session's secret id; whoever knows it can act for the session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// A rising number; a retry takes a higher one. A number that is not above the last one seen
    /// is refused, which shows that two processes share one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Terms that the holder has declared lost: they are resigned.
    #[serde(
        default,
        deserialize_with = "wire::object_list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub disown: Vec<Disowned>,
    /// What the node holds itself for, so that two that act at once are found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beliefs: Option<BeliefsBody>,
}

/// A term that its holder has declared lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disowned {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The fencing term.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
}

impl From<HeartbeatRequest> for Heartbeat {
    fn from(request: HeartbeatRequest) -> Self {
        Self {
            session: request.session_id,
            sequence: request.sequence,
            disowned: request.disown.into_iter().map(|lost| (lost.group, lost.term)).collect(),
            beliefs: request.beliefs.map(|body| Box::new(body.into())),
        }
    }
}

impl From<Heartbeat> for HeartbeatRequest {
    fn from(heartbeat: Heartbeat) -> Self {
        Self {
            session_id: heartbeat.session,
            sequence: heartbeat.sequence,
            disown: heartbeat
                .disowned
                .into_iter()
                .map(|(group, term)| Disowned { group, term })
                .collect(),
            beliefs: heartbeat.beliefs.map(|beliefs| BeliefsBody::from(*beliefs)),
        }
    }
}

/// A wish to see one's own session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowSessionRequest {
    /// The session's secret id; whoever knows it can act for the session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
}

/// A wish to end a session: its tenures end as resigned, its candidacies are withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseSessionRequest {
    /// The session's secret id; whoever knows it can act for the session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
}

/// An open session, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionResponse {
    /// The session's secret id; whoever knows it can act for the session.
    #[serde(with = "wire::secret")]
    #[schemars(with = "schema::SessionSecret")]
    pub session_id: SessionId,
    /// The participant's label.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub node_id: Node,
    /// How long it lives unheard.
    #[serde(with = "wire::millis")]
    #[schemars(with = "schema::Millis")]
    pub ttl_ms: u64,
    /// Rises with every change to its tenures that it did not ask for.
    pub epoch: u64,
    /// Everything it holds or was promoted to.
    pub tenures: Vec<Tenure>,
    /// The groups in whose line it stands.
    #[serde(with = "wire::text_list")]
    #[schemars(with = "Vec<schema::GroupName>")]
    pub standing: Vec<Group>,
    /// The offices that their leaders have offered to it: it gets ready, and says `warm`.
    #[serde(default)]
    pub offers: Vec<Offer>,
    /// The revision at which this was true.
    #[serde(with = "wire::revision")]
    #[schemars(with = "schema::Revision")]
    pub revision: Revision,
}

/// One tenure of a session, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tenure {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The fencing term.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// How it stands.
    #[serde(with = "wire::state")]
    #[schemars(with = "schema::StateWord")]
    pub state: OfficeState,
    /// The standby that was offered this office, if any.
    #[serde(with = "wire::text_option")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub offered_to: Option<Node>,
    /// Whether that standby has said that it is warm.
    #[serde(default)]
    pub is_warm: bool,
    /// The store that the group moves to, if that is why the tenure ends.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub moves_to: Option<Home>,
}

/// An office that was offered to a standby, as that standby sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offer {
    /// The group's name.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::GroupName")]
    pub group: Group,
    /// The term of the leader that offers.
    #[serde(with = "wire::term")]
    #[schemars(with = "schema::Term")]
    pub term: Term,
    /// The leader that made the offer.
    #[serde(with = "wire::text")]
    #[schemars(with = "schema::NodeId")]
    pub by: Node,
    /// Whether the standby has said that it is warm.
    pub is_warm: bool,
}

impl SessionResponse {
    /// The answer to the owner of `session_id`.
    #[must_use]
    pub fn new(session_id: SessionId, view: SessionView) -> Self {
        Self {
            session_id,
            node_id: view.node,
            ttl_ms: view.ttl_ms,
            epoch: view.epoch,
            tenures: view.tenures.into_iter().map(Tenure::from).collect(),
            standing: view.standing,
            offers: view.offers.into_iter().map(Offer::from).collect(),
            revision: view.revision,
        }
    }
}

impl From<SessionResponse> for SessionView {
    fn from(response: SessionResponse) -> Self {
        Self {
            node: response.node_id,
            ttl_ms: response.ttl_ms,
            epoch: response.epoch,
            tenures: response.tenures.into_iter().map(TenureView::from).collect(),
            standing: response.standing,
            offers: response.offers.into_iter().map(OfferView::from).collect(),
            revision: response.revision,
        }
    }
}

impl From<TenureView> for Tenure {
    fn from(view: TenureView) -> Self {
        let TenureView { group, term, state, offered_to, is_warm, moves_to } = view;
        Self { group, term, state, offered_to, is_warm, moves_to }
    }
}

impl From<Tenure> for TenureView {
    fn from(tenure: Tenure) -> Self {
        let Tenure { group, term, state, offered_to, is_warm, moves_to } = tenure;
        Self { group, term, state, offered_to, is_warm, moves_to }
    }
}

impl From<OfferView> for Offer {
    fn from(view: OfferView) -> Self {
        let OfferView { group, term, by, is_warm } = view;
        Self { group, term, by, is_warm }
    }
}

impl From<Offer> for OfferView {
    fn from(offer: Offer) -> Self {
        let Offer { group, term, by, is_warm } = offer;
        Self { group, term, by, is_warm }
    }
}
