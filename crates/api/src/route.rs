//! What one row of the table of routes holds.

use std::fmt;

use regent_election::Group;
use schemars::{Schema, SchemaGenerator};

use crate::problem::Code;
use crate::routes::ROUTES;

/// How a route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Reads.
    Get,
    /// Does.
    Post,
    /// Creates or replaces.
    Put,
    /// Removes.
    Delete,
}

impl Method {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What a route does. Matching on it in full is how the server knows that it forgot none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Wins a vacant office or says who holds it.
    Campaign,
    /// Keeps a session alive and proves a tenure.
    Renew,
    /// Gives an office up.
    Resign,
    /// Leaves the line or the office.
    Withdraw,
    /// A promoted standby accepts.
    Accept,
    /// A leader asks a standby to get warm.
    Offer,
    /// A standby says that it is warm.
    Warm,
    /// Hands an office over.
    Transfer,
    /// Says who leads.
    Leader,
    /// Watches one group.
    Watch,
    /// Watches many groups.
    WatchMany,
    /// An administrator ends a tenure.
    StepDown,
    /// One step of a group's move between two stores.
    MoveGroup,
    /// The last changes of a group.
    History,
    /// The current fencing token.
    Token,
    /// Judges a token, and raises a fence.
    ValidateToken,
    /// Lists fences.
    ListFences,
    /// Forgets a fence.
    DeleteFence,
    /// Who acts, as far as this server has heard.
    Claims,
    /// Creates a group or replaces its policy.
    PutGroup,
    /// Shows a group.
    ShowGroup,
    /// Deletes a group.
    DeleteGroup,
    /// Lists groups.
    ListGroups,
    /// Opens a session.
    OpenSession,
    /// Keeps a session alive.
    RenewSession,
    /// Shows a session to its owner.
    ShowSession,
    /// Ends a session.
    CloseSession,
    /// Shows the replicas of our own store.
    ShowCluster,
    /// Takes a replica in as a learner.
    AddMember,
    /// Makes a learner a voter.
    PromoteMember,
    /// Removes a replica.
    RemoveMember,
    /// Hands the lead of the log over.
    TransferCluster,
    /// Everything that must outlive the machines, in one file.
    Backup,
    /// The public keys that sign terms.
    Keys,
    /// Whether the process turns.
    Healthz,
    /// Whether the store serves.
    Readyz,
    /// Numbers for Prometheus.
    Metrics,
    /// This table as an OpenAPI document.
    OpenApi,
    /// A page for people.
    Dashboard,
}

impl Operation {
    /// Its row of the table.
    #[must_use]
    pub fn route(self) -> &'static Route {
        // The table has one row per operation in the same order; the compiler checked it.
        &ROUTES[self as usize]
    }
}

/// Adds a type to a document and refers to it.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a route answers when all is well.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// JSON of this type.
    Json(SchemaOf),
    /// JSON of this type, or a stream of server-sent events.
    JsonOrEvents(SchemaOf),
    /// Something else, labelled so.
    Other(&'static str),
}

/// One row: a method on an address.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// What it does.
    pub operation: Operation,
    /// How it is asked.
    pub method: Method,
    /// Where; `{group}` stands for a group name with `/` written as `%2F`.
    pub path: &'static str,
    /// Its name for generated clients.
    pub id: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// What may stand behind the `?`.
    pub query: Option<SchemaOf>,
    /// The body it needs.
    pub request: Option<SchemaOf>,
    /// What it answers when all is well.
    pub reply: Reply,
    /// The problems of its own, beside those that every route may give.
    pub codes: &'static [Code],
}

impl Route {
    /// Its address for this group.
    #[must_use]
    pub fn of_group(&self, group: &Group) -> String {
        // Of the characters a group name may hold, only the slash means something in a path.
        self.path.replace("{group}", &group.as_str().replace('/', "%2F"))
    }

    /// Every problem it may give.
    #[must_use]
    pub fn codes_all(&self) -> Vec<Code> {
        let mut codes = vec![Code::CrossOrigin];
        codes.extend(self.codes);
        if self.request.is_some() {
            codes.extend([
                Code::BadRequest,
                Code::PayloadTooLarge,
                Code::UnsupportedMediaType,
                Code::RequestTimeout,
            ]);
        }
        if self.query.is_some() || self.path.contains("{group}") {
            codes.push(Code::BadRequest);
        }
        if self.path.starts_with("/v1/") {
            codes.extend([
                Code::RateLimited,
                Code::Internal,
                Code::StoreCorrupt,
                Code::Unsupported,
                Code::StoreUnavailable,
            ]);
            if self.method != Method::Get {
                codes.push(Code::Uncertain);
            }
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

impl Route {
    pub(crate) const fn new(
        method: Method,
        operation: Operation,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        let reply = Reply::Other("text/plain");
        Self { operation, method, path, id, summary, query: None, request: None, reply, codes: &[] }
    }

    pub(crate) const fn query(self, query: SchemaOf) -> Self {
        Self { query: Some(query), ..self }
    }

    pub(crate) const fn takes(self, request: SchemaOf) -> Self {
        Self { request: Some(request), ..self }
    }

    pub(crate) const fn answers(self, reply: SchemaOf) -> Self {
        Self { reply: Reply::Json(reply), ..self }
    }

    pub(crate) const fn streams(self, reply: SchemaOf) -> Self {
        Self { reply: Reply::JsonOrEvents(reply), ..self }
    }

    pub(crate) const fn shows(self, label: &'static str) -> Self {
        Self { reply: Reply::Other(label), ..self }
    }

    pub(crate) const fn may(self, codes: &'static [Code]) -> Self {
        Self { codes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_in_a_group_name_is_escaped_in_its_address() {
        let group = Group::new("team/svc:1@b").unwrap();
        let address = Operation::Leader.route().of_group(&group);
        assert_eq!(address, "/v1/groups/team%2Fsvc:1@b/leader");
    }
}
