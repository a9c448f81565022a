//! JSON schemas of the checked types, for the OpenAPI document.
//!
//! These stand in for the real types with `#[schemars(with = "schema::…")]`; they hold no values.
//! The numbers come from the same limits that the checks use.

use std::borrow::Cow;

use regent_election::Cause;
use regent_election::limits::{
    DIGEST_BYTES_MAX, GROUP_BYTES_MAX, HOME_BYTES_MAX, METADATA_ENTRIES_MAX, NODE_BYTES_MAX,
    REASON_BYTES_MAX, REQUEST_NONCE_BYTES_MAX, RESOURCE_BYTES_MAX, TERM_MAX,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::wire;

macro_rules! schema {
    ($name:ident, $json:expr) => {
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $json
            }
        }
    };
}

const NAME: &str = "^[A-Za-z0-9._:@/-]+$";

schema!(
    GroupName,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": GROUP_BYTES_MAX, "pattern": NAME,
        "description": "The name of an election. In a path, a slash inside it is written %2F. No part between slashes is empty, `.` or `..`.",
        "examples": ["billing", "team/service"],
    })
);
schema!(
    NodeId,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": NODE_BYTES_MAX, "pattern": NAME,
        "description": "A participant's stable label. It grants nothing.",
        "examples": ["web-1"],
    })
);
schema!(
    ResourceName,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": RESOURCE_BYTES_MAX, "pattern": NAME,
        "description": "Something that leaders write to, and that refuses terms lower than it has seen.",
        "examples": ["db/orders"],
    })
);
schema!(
    SessionSecret,
    json_schema!({
        "type": "string", "pattern": "^[0-9A-Fa-f]{32}$",
        "description": "The secret of one session: 128 random bits. Who knows it may renew, resign and transfer. Never shown to anybody but its owner.",
    })
);
schema!(
    RequestName,
    json_schema!({
        "type": "string",
        "pattern": format!("^[0-9]+-[A-Za-z0-9]{{1,{REQUEST_NONCE_BYTES_MAX}}}$"),
        "description": "Names one request so that repeating it takes effect once: the highest revision its sender has seen (or 0), a dash, and a part of its own.",
        "examples": ["17-8c1f0a"],
    })
);
schema!(
    Term,
    json_schema!({
        "type": "integer", "minimum": 0, "maximum": TERM_MAX,
        "description": "The fencing token: one higher for every tenure of a group, never reused. 0 means that none was ever granted.",
    })
);
schema!(
    Revision,
    json_schema!({
        "type": "integer", "minimum": 0,
        "description": "How many changes the store had applied.",
    })
);
schema!(
    Millis,
    json_schema!({
        "type": "integer", "minimum": 0, "maximum": TERM_MAX,
        "description": "A duration in milliseconds.",
    })
);
schema!(
    Cursor,
    json_schema!({
        "type": "string",
        "description": "A place in everything that ever happened. Opaque: take it from an answer or from the id of an event.",
    })
);
schema!(
    Metadata,
    json_schema!({
        "type": "object", "additionalProperties": {"type": "string"},
        "maxProperties": METADATA_ENTRIES_MAX,
        "description": "What a candidate tells the world about itself: address, version, zone.",
        "examples": [{"address": "10.0.0.7:8080", "zone": "b"}],
    })
);
schema!(
    Reason,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": REASON_BYTES_MAX,
        "description": "A sentence for the history.",
    })
);
schema!(
    Home,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": HOME_BYTES_MAX,
        "description": "The URL of a store, as participants reach it.",
        "examples": ["postgres://db/regent"],
    })
);
schema!(
    NodePattern,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": NODE_BYTES_MAX,
        "pattern": "^[A-Za-z0-9._:@/*-]+$",
        "description": "A node id in which `*` stands for any run of characters.",
        "examples": ["web-*"],
    })
);
schema!(
    StateDigest,
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": DIGEST_BYTES_MAX,
        "pattern": "^[A-Za-z0-9._:@/-]+$",
        "description": "What an application's state looks like: equal states have equal digests.",
        "examples": ["sha256:9f86d081"],
    })
);
schema!(
    CauseWord,
    json_schema!({
        "type": "string", "enum": Cause::ALL.map(Cause::word),
        "description": "Why the leader changed, or what was found: split_brain, stale_attempt, near_miss and failing change nobody's office.",
    })
);
schema!(
    StateWord,
    json_schema!({
        "type": "string", "enum": wire::state::ALL.map(|state| state.word()),
        "description": "How the office stands: nobody leads; nobody leads until the lock delay is over; promoted but not accepted yet; leading; told to stop.",
    })
);
