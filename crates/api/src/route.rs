//! What one row of the table of routes holds.

use std::fmt;

use regent_election::Group;
use regent_election::access::{Extent, Right};
use schemars::{Schema, SchemaGenerator};

use crate::operation::Operation;
use crate::problem::Code;

/// How a route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Get,
    Post,
    /// Creates or replaces.
    Put,
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

/// Where a row of the table is found over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// A method of the service, named by [`Route::method_name`].
    Method,
    /// `grpc.health.v1.Health`, about the whole process.
    HealthOfAll,
    /// `grpc.health.v1.Health`, about the service.
    HealthOfService,
    /// `grpc.reflection.v1.ServerReflection`.
    Reflection,
    /// Only over HTTP, for this reason.
    HttpOnly(&'static str),
}

/// Who may ask, where callers are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everybody, without any credential: it tells nothing about elections.
    Open,
    /// Whoever has this right.
    Needs(Right),
}

/// One row: a method on an address.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// What it does.
    pub operation: Operation,
    /// Who may ask. There is no default: a row that does not say so does not compile.
    pub gate: Gate,
    /// Whether it only gives up what the caller's own session holds, which is always allowed.
    pub gives_up: bool,
    /// Whether it tells about all groups at once, so that its right is needed in all of them.
    pub tells_all: bool,
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
    /// Whether it changes nothing, so that sending it twice is as good as once.
    pub only_reads: bool,
    /// Where it is found over gRPC.
    pub face: Face,
}

impl Route {
    /// Its address for this group.
    #[must_use]
    pub fn of_group(&self, group: &Group) -> String {
        // Of the characters a group name may hold, only the slash means something in a path.
        self.path.replace("{group}", &group.as_str().replace('/', "%2F"))
    }

    /// The method that serves it over gRPC, if one does: its own name with a capital.
    #[must_use]
    pub fn method_name(&self) -> Option<String> {
        let mut letters = self.id.chars();
        match self.face {
            Face::Method => letters.next().map(|first| {
                let first = first.to_ascii_uppercase();
                format!("{first}{}", letters.as_str())
            }),
            Face::HealthOfAll | Face::HealthOfService | Face::Reflection | Face::HttpOnly(_) => {
                None
            }
        }
    }

    /// Where the right is needed: in the group that the request names, or else in some group for what shows or touches
    /// only what is the caller's own, and in all of the cluster for the rest.
    #[must_use]
    pub fn extent<'a>(&self, group: Option<&'a Group>) -> Extent<'a> {
        match (group, self.gate) {
            (Some(group), _) => Extent::Group(group),
            // Over gRPC the group stands in the message, which is judged when it is read.
            (None, _) if self.path.contains("{group}") => Extent::SomeGroup,
            (None, _) if self.tells_all => Extent::Cluster,
            (None, Gate::Open | Gate::Needs(Right::Observe | Right::Stand)) => Extent::SomeGroup,
            (None, Gate::Needs(Right::Operate | Right::Administer | Right::Replicate)) => {
                Extent::Cluster
            }
        }
    }

    /// Every problem it may give.
    #[must_use]
    pub fn codes_all(&self) -> Vec<Code> {
        let mut codes = vec![Code::CrossOrigin];
        codes.extend(self.codes);
        if let Gate::Needs(right) = self.gate {
            codes.extend([
                Code::Unauthenticated,
                Code::CredentialOver,
                Code::Forbidden,
                Code::RateLimited,
            ]);
            if right == Right::Stand {
                codes.push(Code::SessionOfAnother);
            }
        }
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
    /// A row that is asked by `method`. What is read by GET changes nothing.
    pub(crate) const fn new(
        method: Method,
        operation: Operation,
        gate: Gate,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            operation,
            gate,
            gives_up: false,
            tells_all: false,
            method,
            path,
            id,
            summary,
            query: None,
            request: None,
            reply: Reply::Other("text/plain"),
            codes: &[],
            only_reads: matches!(method, Method::Get),
            face: Face::Method,
        }
    }

    pub(crate) const fn get(
        operation: Operation,
        gate: Gate,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::Get, operation, gate, path, id, summary)
    }

    pub(crate) const fn post(
        operation: Operation,
        gate: Gate,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self::new(Method::Post, operation, gate, path, id, summary)
    }

    /// The same, which only gives up what the caller's own session holds.
    pub(crate) const fn gives_up(self) -> Self {
        Self { gives_up: true, ..self }
    }

    /// The same, which tells about all groups at once.
    pub(crate) const fn tells_all(self) -> Self {
        Self { tells_all: true, ..self }
    }

    /// The same, which changes nothing though its method does not say so.
    pub(crate) const fn only_reads(self) -> Self {
        Self { only_reads: true, ..self }
    }

    pub(crate) const fn face(self, face: Face) -> Self {
        Self { face, ..self }
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
