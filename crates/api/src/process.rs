//! `/healthz` and `/readyz`: what the process says about itself.

use regent_election::store::Description;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The process turns. It says nothing about the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthResponse {
    /// Always true: a process that does not turn does not answer.
    pub alive: bool,
    /// The version of the server.
    pub version: String,
}

/// The store can serve. If it cannot, the answer is a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadyResponse {
    /// Always true: a no is a problem, never `false`.
    pub ready: bool,
    /// The kind of store.
    pub store: String,
    /// What it claims: `strict`, `lease-only` or `best-effort`.
    pub level: String,
    /// Why not more, or what a restart costs.
    pub caveat: Option<String>,
}

impl From<Description> for ReadyResponse {
    /// The place of the data is left out: it is nobody's business but the operator's.
    fn from(description: Description) -> Self {
        Self {
            ready: true,
            store: description.name.to_owned(),
            level: description.level.to_string(),
            caveat: description.caveat,
        }
    }
}
