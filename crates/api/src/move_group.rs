//! `POST /v1/groups/{group}/move`: one step of a group's move between two stores, or of its recovery.
//!
//! `regent migrate` takes the steps in their order: the new store *expects* the group, it *departs* from the
//! old one, and *arrives* in the new one when its old office is vacant. By hand, an arrival before that is
//! two leaders. `regent doctor split-brain --recover` *stops* a group, and *resumes* it when it is healed.

use regent_election::{Door, Home, Node, RequestId, Revision, Step, Term};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Code, Problem};
use crate::{schema, wire};

/// Which step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepWord {
    /// In the new store, first: who wants may stand, nobody is granted.
    Expect,
    /// In the old store: the leader is told to stop, whoever comes later is told where it went.
    Depart,
    /// In the new store, last: the door is opened above the old store's terms.
    Arrive,
    /// For recovery, first: the leader is told to stop, and no office is granted until the group is resumed.
    Stop,
    /// For recovery, last: the door that the stop closed is opened.
    Resume,
}

/// One step of a group's move, or of its recovery. Repeated, it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveGroupRequest {
    /// Which step of the move to take.
    pub step: StepWord,
    /// To expect: the URL of the store it comes from.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub from: Option<Home>,
    /// To depart: the URL of the store it goes to, as its participants reach it. Without a password:
    /// everybody is told.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Home>")]
    pub to: Option<Home>,
    /// To arrive or to resume: the `since` of the door that was closed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Revision>")]
    pub since: Option<u64>,
    /// To arrive: the last term that the old store granted.
    #[serde(default, with = "wire::term_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::Term>")]
    pub above: Option<Term>,
    /// To arrive: the node that led it in the old store, which comes first if it stands here.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::NodeId>")]
    pub heir: Option<Node>,
    /// Makes a repeat take effect once.
    #[serde(default, with = "wire::text_option", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<schema::RequestName>")]
    pub request_id: Option<RequestId>,
}

impl MoveGroupRequest {
    /// This step as a request.
    #[must_use]
    pub fn of(step: Step, request_id: Option<RequestId>) -> Self {
        let bare = |step| Self {
            step,
            from: None,
            to: None,
            since: None,
            above: None,
            heir: None,
            request_id,
        };
        match step {
            Step::Expect { from } => Self { from: Some(from), ..bare(StepWord::Expect) },
            Step::Depart { to } => Self { to: Some(to), ..bare(StepWord::Depart) },
            Step::Arrive { since, above, heir } => {
                Self { since: Some(since.0), above: Some(above), heir, ..bare(StepWord::Arrive) }
            }
            Step::Stop => bare(StepWord::Stop),
            Step::Resume { since } => Self { since: Some(since.0), ..bare(StepWord::Resume) },
        }
    }

    /// The step that is asked for; what belongs to another one is refused.
    pub fn into_step(self) -> Result<Step, Problem> {
        let Self { step, from, to, since, above, heir, request_id: _ } = self;
        match (step, from, to, since, above, heir) {
            (StepWord::Expect, Some(from), None, None, None, None) => Ok(Step::Expect { from }),
            (StepWord::Depart, None, Some(to), None, None, None) => Ok(Step::Depart { to }),
            (StepWord::Arrive, None, None, Some(since), Some(above), heir) => {
                Ok(Step::Arrive { since: Revision(since), above, heir })
            }
            (StepWord::Stop, None, None, None, None, None) => Ok(Step::Stop),
            (StepWord::Resume, None, None, Some(since), None, None) => {
                Ok(Step::Resume { since: Revision(since) })
            }
            (
                StepWord::Expect
                | StepWord::Depart
                | StepWord::Arrive
                | StepWord::Stop
                | StepWord::Resume,
                ..,
            ) => Err(Problem::new(
                Code::BadRequest,
                "to expect takes `from` alone, to depart `to` alone, to arrive `since` and `above`, and \
                 `heir` if there is one; to stop takes nothing, to resume `since` alone",
            )
            .at("step")),
        }
    }
}

/// Whether a group lives in this store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum DoorBody {
    /// It does.
    #[default]
    Open,
    /// It is on its way here: who wants may stand, nobody is granted.
    Expected {
        /// The store it comes from.
        #[serde(with = "wire::text")]
        #[schemars(with = "schema::Home")]
        from: Home,
        /// Names this closing of the door; an arrival must name it.
        #[serde(with = "wire::revision")]
        #[schemars(with = "schema::Revision")]
        since: Revision,
    },
    /// It has moved away, or is about to.
    Moved {
        /// The store it went to.
        #[serde(with = "wire::text")]
        #[schemars(with = "schema::Home")]
        to: Home,
    },
    /// It is stopped for recovery: candidates may stand, no office is granted.
    Stopped {
        /// Names this stop; a resumption must name it.
        #[serde(with = "wire::revision")]
        #[schemars(with = "schema::Revision")]
        since: Revision,
    },
}

impl From<Door> for DoorBody {
    fn from(door: Door) -> Self {
        match door {
            Door::Open => Self::Open,
            Door::Expected { from, since } => Self::Expected { from, since },
            Door::Moved { to } => Self::Moved { to },
            Door::Stopped { since } => Self::Stopped { since },
        }
    }
}

impl From<DoorBody> for Door {
    fn from(door: DoorBody) -> Self {
        match door {
            DoorBody::Open => Self::Open,
            DoorBody::Expected { from, since } => Self::Expected { from, since },
            DoorBody::Moved { to } => Self::Moved { to },
            DoorBody::Stopped { since } => Self::Stopped { since },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_the_wire_and_what_belongs_to_another_is_refused() {
        let home = || Home::new("postgres://db/regent").unwrap();
        let steps = [
            Step::Expect { from: home() },
            Step::Depart { to: home() },
            Step::Arrive { since: Revision(7), above: Term::new(41).unwrap(), heir: None },
            Step::Stop,
            Step::Resume { since: Revision(7) },
        ];
        for step in steps {
            let request = MoveGroupRequest::of(step.clone(), None);
            let json = serde_json::to_string(&request).unwrap();
            let read: MoveGroupRequest = serde_json::from_str(&json).unwrap();
            assert_eq!(read.into_step().unwrap(), step);
        }
        let json = r#"{"step": "depart", "to": "a:", "above": 3}"#;
        let request: MoveGroupRequest = serde_json::from_str(json).unwrap();
        assert_eq!(request.into_step().unwrap_err().code, Code::BadRequest);
    }
}
