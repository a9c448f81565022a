//! `POST /v1/groups/{group}/step-down`: an administrator ends a tenure.
//!
//! The holder is told and has one ttl to stop, so nobody overlaps. With `immediate` the office is
//! free at once, the old holder may go on acting for a while, and only fencing protects.

use std::time::Duration;

use regent_election::store::{self, StepDown};
use regent_election::{Group, Node, Reason, RequestId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leader::millis;
use crate::problem::{Code, Problem};
use crate::{schema, wire};

/// An administrator's wish to end a tenure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDownRequest {
    /// Why; it is kept in the history and must not be empty.
    #[serde(with = "wire::reason")]
    #[schemars(with = "schema::Reason")]
    pub reason: Reason,
    /// The node id of the standby that shall follow, if one in particular.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub to: Option<Node>,
    /// Break glass: do not wait for the holder to stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub immediate: bool,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

impl StepDownRequest {
    /// The step-down to ask of a store.
    pub fn into_step_down(self, group: Group) -> Result<StepDown, Problem> {
        if self.reason.as_str().trim().is_empty() {
            return Err(Problem::new(
                Code::BadRequest,
                "a step-down needs a reason: say in a few words why, the history keeps it",
            )
            .at("reason"));
        }
        Ok(StepDown {
            group,
            reason: self.reason,
            to: self.to,
            immediate: self.immediate,
            request: self.request_id,
        })
    }
}

/// What became of a tenure that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum SteppedDown {
    /// The office is vacant or has its successor already.
    Over,
    /// The holder has been told.
    Ending {
        /// It has at most this long to stop.
        #[serde(with = "wire::millis")]
        #[schemars(with = "schema::Millis")]
        within_ms: u64,
    },
    /// It was forced.
    Forced {
        /// The old holder may go on acting for this long; only fencing protects.
        #[serde(with = "wire::millis")]
        #[schemars(with = "schema::Millis")]
        overlap_possible_ms: u64,
    },
}

impl From<store::SteppedDown> for SteppedDown {
    fn from(stepped_down: store::SteppedDown) -> Self {
        match stepped_down {
            store::SteppedDown::Over => Self::Over,
            store::SteppedDown::Ending(within) => Self::Ending { within_ms: millis(within) },
            store::SteppedDown::Forced(overlap) => {
                Self::Forced { overlap_possible_ms: millis(overlap) }
            }
        }
    }
}

impl From<SteppedDown> for store::SteppedDown {
    fn from(stepped_down: SteppedDown) -> Self {
        match stepped_down {
            SteppedDown::Over => Self::Over,
            SteppedDown::Ending { within_ms } => Self::Ending(Duration::from_millis(within_ms)),
            SteppedDown::Forced { overlap_possible_ms } => {
                Self::Forced(Duration::from_millis(overlap_possible_ms))
            }
        }
    }
}
