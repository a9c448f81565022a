//! Where this process may follow a group that has moved.
//!
//! The old store says where a group went, and who can write there can say anything: a process that follows
//! goes to that place with its credentials and acts on the terms that it grants. So it follows only to where
//! its own operator allows: by default to the hosts that it began at, and beyond that to what is listed.
//!
//! A host is allowed for plain addresses only. What stands behind `?` may name another endpoint or a local
//! file, so an address with such parameters must be listed as a whole.

use std::net::IpAddr;

/// Allows every place.
const ANY: &str = "*";
/// What every address of this machine's loopback is called here.
const LOOPBACK: &str = "localhost";

/// The places that a process may follow to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Hosts and whole addresses, as listed.
    listed: Vec<String>,
}

impl Places {
    /// Allows one more: a host, a whole address, or `*` for all.
    pub(crate) fn allow(&mut self, place: String) {
        self.listed.push(place);
    }

    /// Whether a process that began at `began` (none: a store in the process itself) may follow to `to`.
    pub(crate) fn allows(&self, began: Option<&str>, to: &str) -> bool {
        if self.listed.iter().any(|place| place == ANY || place == to) {
            return true;
        }
        let own = match began {
            None => vec![LOOPBACK.to_owned()],
            Some(url) => hosts(url),
        };
        let is_allowed = |host: &String| {
            own.contains(host) || self.listed.iter().any(|place| named(place) == *host)
        };
        let there = hosts(to);
        !to.contains(['?', '#']) && !there.is_empty() && there.iter().all(is_allowed)
    }
}

/// The hosts of an address, which may be a list, as in `etcd://a:2379,b:2379` and `http://a:7400,http://b:7400`. None
/// if it has no host, as a file.
fn hosts(url: &str) -> Vec<String> {
    let Some((_, rest)) = url.split_once("://") else { return Vec::new() };
    let mut hosts = Vec::new();
    for part in rest.split(',') {
        let part = part.split_once("://").map_or(part, |(_, rest)| rest);
        let authority = part.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        if host.is_empty() {
            return Vec::new();
        }
        hosts.push(named(host));
    }
    hosts
}

/// The name of a host without its port, in one spelling.
fn named(host: &str) -> String {
    let bare = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => match host.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') && port.parse::<u16>().is_ok() => name,
            Some(_) | None => host,
        },
    };
    let name = bare.to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => LOOPBACK.to_owned(),
        Ok(address) => address.to_string(),
        Err(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(listed: &[&str], began: Option<&str>, to: &str) -> bool {
        let mut places = Places::default();
        for place in listed {
            places.allow((*place).to_owned());
        }
        places.allows(began, to)
    }

    #[test]
    fn the_hosts_that_a_process_began_at_are_allowed_and_no_others() {
        let began = Some("http://a.example:7400,http://b.example:7400");
        assert!(allowed(&[], began, "http://B.example:9999/"));
        assert!(allowed(&[], began, "etcd://a.example:2379,b.example:2379"));
        for to in [
            "http://evil.example:7400",
            "etcd://a.example:2379,evil.example:2379",
            "http://a.example:7400@evil.example:7400",
            "http://a.example:7400,http://evil.example:7400",
            "http://a.example.evil.example:7400",
            "http://127.0.0.1:7400",
            "file:///tmp/elections",
            "memory:",
            "s3://a.example?endpoint=http://evil.example",
            "kubernetes://a.example?kubeconfig=/tmp/evil",
            "http://evil.example#@a.example",
            "http:///",
            "",
        ] {
            assert!(!allowed(&[], began, to), "{to}");
        }
    }

    #[test]
    fn all_of_loopback_is_one_host() {
        for began in [None, Some("http://127.0.0.1:7400"), Some("http://[::1]:7400")] {
            assert!(allowed(&[], began, "http://127.9.8.7:7401"), "{began:?}");
            assert!(allowed(&[], began, "etcd://localhost:2379"), "{began:?}");
            assert!(!allowed(&[], began, "http://10.0.0.1:7400"), "{began:?}");
        }
    }

    #[test]
    fn a_listed_host_a_listed_address_and_a_star_allow_more() {
        let began = Some("http://a.example:7400");
        assert!(allowed(&["b.example"], began, "postgres://u:p@b.example:5432/elections"));
        assert!(!allowed(&["b.example"], began, "s3://b.example?endpoint=http://evil.example"));
        let bucket = "s3://bucket?region=eu-1";
        assert!(allowed(&[bucket], began, bucket));
        assert!(!allowed(&[bucket], began, "s3://bucket?region=eu-2"));
        assert!(allowed(&["*"], began, "kubernetes://default?kubeconfig=/etc/k"));
    }
}
