//! Where the methods of the service are. Which row of the table of routes has one, the row says.

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
            match route.method_name() {
                Some(method) => assert!(named.insert(method.clone()), "{method} twice"),
                // What is not under /v1/ is about the process, not a verb.
                None => assert!(!route.path.starts_with("/v1/"), "{} has no method", route.id),
            }
        }
        assert_eq!(named, served());
    }
}
