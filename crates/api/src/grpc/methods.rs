//! Which method mirrors which row of the table of routes.

use crate::route::Operation;

/// Where a row of the table is found over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// A method of [`SERVICE`](super::SERVICE).
    Method(&'static str),
    /// `grpc.health.v1.Health`, asked for this service name.
    Health(&'static str),
    /// `grpc.reflection.v1.ServerReflection`.
    Reflection,
    /// Only over HTTP, for this reason.
    HttpOnly(&'static str),
}

/// Where `operation` is found over gRPC.
#[must_use]
pub const fn face(operation: Operation) -> Face {
    match operation {
        Operation::Campaign => Face::Method("Campaign"),
        Operation::Renew => Face::Method("Renew"),
        Operation::Resign => Face::Method("Resign"),
        Operation::Withdraw => Face::Method("Withdraw"),
        Operation::Accept => Face::Method("Accept"),
        Operation::Offer => Face::Method("Offer"),
        Operation::Warm => Face::Method("Warm"),
        Operation::Transfer => Face::Method("Transfer"),
        Operation::Leader => Face::Method("Leader"),
        Operation::Watch => Face::Method("Watch"),
        Operation::WatchMany => Face::Method("WatchMany"),
        Operation::StepDown => Face::Method("StepDown"),
        Operation::MoveGroup => Face::Method("MoveGroup"),
        Operation::History => Face::Method("History"),
        Operation::Token => Face::Method("Token"),
        Operation::ValidateToken => Face::Method("ValidateToken"),
        Operation::ListFences => Face::Method("ListFences"),
        Operation::DeleteFence => Face::Method("DeleteFence"),
        Operation::Claims => Face::Method("Claims"),
        Operation::PutGroup => Face::Method("PutGroup"),
        Operation::ShowGroup => Face::Method("ShowGroup"),
        Operation::DeleteGroup => Face::Method("DeleteGroup"),
        Operation::ListGroups => Face::Method("ListGroups"),
        Operation::OpenSession => Face::Method("OpenSession"),
        Operation::RenewSession => Face::Method("RenewSession"),
        Operation::ShowSession => Face::Method("ShowSession"),
        Operation::CloseSession => Face::Method("CloseSession"),
        Operation::ShowCluster => Face::Method("ShowCluster"),
        Operation::AddMember => Face::Method("AddMember"),
        Operation::PromoteMember => Face::Method("PromoteMember"),
        Operation::RemoveMember => Face::Method("RemoveMember"),
        Operation::TransferCluster => Face::Method("TransferCluster"),
        Operation::Backup => Face::Method("Backup"),
        Operation::Keys => Face::HttpOnly("JOSE libraries fetch keys by HTTP"),
        Operation::Healthz => Face::Health(""),
        Operation::Readyz => Face::Health(super::SERVICE),
        Operation::Metrics => Face::HttpOnly("its readers scrape text over HTTP"),
        Operation::OpenApi => Face::Reflection,
        Operation::Dashboard => Face::HttpOnly("it is a page for browsers"),
    }
}

/// The method beside those of the table.
pub const SESSION: &str = "Session";

/// The path of a method of the service.
#[must_use]
pub fn path(method: &str) -> String {
    format!("/{}/{method}", super::SERVICE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;

    use super::*;
    use crate::ROUTES;

    /// The part of a descriptor that names services and methods, as its own format says.
    #[derive(Clone, PartialEq, Message)]
    struct Files {
        #[prost(message, repeated, tag = "1")]
        file: Vec<File>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct File {
        #[prost(string, tag = "2")]
        package: String,
        #[prost(message, repeated, tag = "6")]
        service: Vec<Named>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, repeated, tag = "2")]
        method: Vec<MethodName>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct MethodName {
        #[prost(string, tag = "1")]
        name: String,
    }

    fn served() -> BTreeSet<String> {
        let files = Files::decode(super::super::DESCRIPTORS).unwrap();
        let mut methods = BTreeSet::new();
        for file in files.file {
            for service in file.service {
                assert_eq!(format!("{}.{}", file.package, service.name), super::super::SERVICE);
                methods.extend(service.method.into_iter().map(|method| method.name));
            }
        }
        methods
    }

    #[test]
    fn every_verb_of_the_table_has_its_method_and_no_method_is_without_a_verb() {
        let mut named = BTreeSet::from([SESSION.to_owned()]);
        for route in ROUTES {
            match face(route.operation) {
                Face::Method(method) => {
                    let mut id: Vec<char> = route.id.chars().collect();
                    id[0] = id[0].to_ascii_uppercase();
                    assert_eq!(id.into_iter().collect::<String>(), method);
                    assert!(named.insert(method.to_owned()), "{method} twice");
                }
                // What is not under /v1/ is about the process, not a verb.
                Face::Health(_) | Face::Reflection | Face::HttpOnly(_) => {
                    assert!(!route.path.starts_with("/v1/"), "{} has no method", route.id);
                }
            }
        }
        assert_eq!(named, served());
    }
}
