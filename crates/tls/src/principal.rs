//! Which principal a client certificate names.
//!
//! | name in the certificate | principal |
//! |---|---|
//! | URI `regent://CLUSTER/node/NAME` | `node:NAME` |
//! | URI `regent://CLUSTER/user/NAME` | `user:NAME` |
//! | URI `spiffe://DOMAIN/PATH` | `node:spiffe:DOMAIN/PATH` |
//! | DNS name `NAME` | `node:NAME` |
//! | common name `NAME`, if that is asked for | `node:NAME` |
//!
//! A certificate names one principal or is refused. URIs count first: with one of these two schemes, in whatever
//! spelling, DNS names and common names are not looked at, and several such URIs are refused. A replica's name is
//! always refused: replicas are known on the peer port only. One principal has one spelling, so upper case in domains,
//! percent-encoding, wildcards and control characters are refused and not normalised.

use regent_election::access::Principal;
use regent_election::{Account, Node};

use crate::facts::Facts;

/// What a SPIFFE id becomes begins with this, and nothing else does: DNS names and common names hold no colon.
const SPIFFE: &str = "spiffe:";

/// Which names of client certificates count, and for which cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNames {
    /// The cluster that `regent://` names must be of; none are good if there is none.
    pub cluster: Option<u128>,
    /// Whether the DNS name counts if there is no URI.
    pub dns: bool,
    /// Whether the common name counts if there is neither a URI nor a DNS name that counts.
    pub common_name: bool,
}

/// The principal that a certificate names.
pub(crate) fn principal(facts: &Facts, names: ClientNames) -> Result<Principal, String> {
    let uris: Vec<&str> = facts.uris.iter().map(String::as_str).filter(|uri| counts(uri)).collect();
    match uris.as_slice() {
        [] => {}
        [one] => return of_uri(one, names.cluster),
        _ => return Err("it has several URIs that name a principal".to_owned()),
    }
    if names.dns && !facts.hosts.is_empty() {
        return of_one("DNS name", &facts.hosts);
    }
    if names.common_name && !facts.common_names.is_empty() {
        return of_one("common name", &facts.common_names);
    }
    Err("it names no principal (a URI like regent://CLUSTER/node/NAME)".to_owned())
}

/// Whether a URI has a scheme that counts. In any spelling: a name that is overlooked would let another one count.
fn counts(uri: &str) -> bool {
    let scheme = uri.split(':').next().unwrap_or_default();
    scheme.eq_ignore_ascii_case("regent") || scheme.eq_ignore_ascii_case("spiffe")
}

fn of_uri(uri: &str, cluster: Option<u128>) -> Result<Principal, String> {
    if let Some(id) = uri.strip_prefix("spiffe://") {
        return spiffe(id).ok_or_else(|| format!("{} is no SPIFFE id of a workload", shown(uri)));
    }
    let malformed = || {
        format!(
            "{} is no name like regent://CLUSTER/node/NAME or regent://CLUSTER/user/NAME",
            shown(uri)
        )
    };
    let rest = uri.strip_prefix("regent://").ok_or_else(malformed)?;
    let (of, rest) = rest.split_once('/').ok_or_else(malformed)?;
    let (kind, name) = rest.split_once('/').ok_or_else(malformed)?;
    if kind == "replica" {
        return Err(format!(
            "{} is a replica, which is known on the peer port and not here",
            shown(uri)
        ));
    }
    match cluster {
        Some(cluster) if of == format!("{cluster:032x}") => {}
        Some(cluster) => {
            return Err(format!("{} belongs to another cluster than {cluster:032x}", shown(uri)));
        }
        None => {
            return Err(format!("{}: this server belongs to no cluster", shown(uri)));
        }
    }
    let named = match kind {
        "node" if !name.starts_with(SPIFFE) => Node::new(name).map(Principal::Node),
        "user" => Account::new(name).map(Principal::User),
        _ => return Err(malformed()),
    };
    named.map_err(|error| format!("{}: {error}", shown(uri)))
}

/// `DOMAIN/PATH` as the SPIFFE standard spells them.
fn spiffe(id: &str) -> Option<Principal> {
    let (domain, path) = id.split_once('/')?;
    let is_domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    let is_path = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    if domain.is_empty() || !domain.chars().all(is_domain) || !path.chars().all(is_path) {
        return None;
    }
    // The check of a node's name refuses empty parts and dots.
    Some(Principal::Node(Node::new(&format!("{SPIFFE}{domain}/{path}")).ok()?))
}

/// The one name of a list, as a node.
fn of_one(kind: &str, names: &[String]) -> Result<Principal, String> {
    let [name] = names else {
        return Err(format!("it has {} {kind}s; one names a node", names.len()));
    };
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    let has_empty_label = name.split('.').any(str::is_empty);
    if !name.chars().all(is_plain) || has_empty_label {
        return Err(format!(
            "its {kind} {} names no node: lower-case letters, digits and - _ . do",
            shown(name)
        ));
    }
    Node::new(name).map(Principal::Node).map_err(|error| format!("its {kind}: {error}"))
}

/// A foreign text for a log: bounded, and nothing in it is obeyed by a terminal.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: u128 = 0xc1;
    const HERE: &str = "regent://000000000000000000000000000000c1";

    fn named(uris: &[&str], hosts: &[&str], common: &[&str]) -> Result<String, String> {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let facts = Facts {
            uris: all(uris),
            hosts: all(hosts),
            common_names: all(common),
            ..Facts::default()
        };
        let names = ClientNames { cluster: Some(CLUSTER), dns: true, common_name: false };
        principal(&facts, names).map(|who| who.to_string())
    }

    fn uri(uri: &str) -> Result<String, String> {
        named(&[uri], &["web-9"], &["web-8"])
    }

    #[test]
    fn every_kind_of_name_has_its_principal() {
        assert_eq!(uri(&format!("{HERE}/node/web-1")).unwrap(), "node:web-1");
        assert_eq!(uri(&format!("{HERE}/node/shop/web:1")).unwrap(), "node:shop/web:1");
        assert_eq!(uri(&format!("{HERE}/user/alice@x.org")).unwrap(), "user:alice@x.org");
        assert_eq!(uri("spiffe://prod.x/ns/a/sa/B").unwrap(), "node:spiffe:prod.x/ns/a/sa/B");
        assert_eq!(named(&[], &["web-1.x"], &["web-8"]).unwrap(), "node:web-1.x");
        // Other URIs name nobody here.
        assert_eq!(named(&["https://x"], &["web-1"], &[]).unwrap(), "node:web-1");
    }

    #[test]
    fn a_replica_and_another_cluster_are_never_a_client_whatever_else_the_certificate_says() {
        let error = uri(&format!("{HERE}/replica/1")).unwrap_err();
        assert!(error.contains("is a replica"), "{error}");
        for other in [
            "regent://000000000000000000000000000000c2/node/web-1",
            "regent://000000000000000000000000000000C1/node/web-1",
            "regent://c1/node/web-1",
            "regent:///node/web-1",
        ] {
            let error = uri(other).unwrap_err();
            assert!(error.contains("another cluster"), "{error}");
        }
        let facts = Facts { uris: vec![format!("{HERE}/node/a")], ..Facts::default() };
        let nowhere = ClientNames { cluster: None, dns: true, common_name: true };
        assert!(principal(&facts, nowhere).unwrap_err().contains("no cluster"));
    }

    #[test]
    fn a_name_with_another_spelling_is_refused_and_no_other_name_counts_instead() {
        for tail in [
            "",
            "/",
            "/node",
            "/node/",
            "/node//a",
            "/node/a/",
            "/node/..",
            "/node/a%2fb",
            "/node/a\0.evil",
            "/node/a b",
            "/node/*",
            "/node/spiffe:x/y",
            "/Node/a",
            "/admin/a",
            "/local/root",
            "/node/a?x",
            "/node/a#x",
            "/user/",
            "/user/a\n",
        ] {
            assert!(uri(&format!("{HERE}{tail}")).is_err(), "{tail:?}");
        }
        for text in [
            "REGENT://000000000000000000000000000000c1/node/a",
            "regent:000000000000000000000000000000c1/node/a",
            "spiffe://x",
            "spiffe://x/",
            "spiffe://X/a",
            "SPIFFE://x/a",
            "spiffe://x/a//b",
            "spiffe://x/../b",
            "spiffe://x/a%62",
            "spiffe://x:80/a",
            "spiffe://u@x/a",
            "spiffe://x/a?b",
            "spiffe:///a",
        ] {
            assert!(uri(text).is_err(), "{text}");
        }
        assert!(uri(&format!("spiffe://x/{}", "a".repeat(200))).is_err());
        for host in ["*.x", "Web-1", "web-1.", ".x", "a..b", "a\0b", "a b", "a/b", "a:b", ""] {
            assert!(named(&[], &[host], &[]).is_err(), "{host:?}");
        }
    }

    #[test]
    fn several_names_that_count_are_refused() {
        let (a, b) = (format!("{HERE}/node/a"), format!("{HERE}/user/a"));
        assert!(named(&[&a, &b], &[], &[]).is_err());
        assert!(named(&[&a, &a], &[], &[]).is_err());
        assert!(named(&[&a, "spiffe://x/y"], &[], &[]).is_err());
        assert!(named(&[&a, "REGENT:x"], &[], &[]).is_err());
        assert!(named(&[], &["a", "b"], &["c"]).is_err());
        // A workload of SPIRE has one URI and may have DNS names.
        assert!(named(&["spiffe://x/y"], &["a", "b"], &[]).is_ok());
    }

    #[test]
    fn a_common_name_counts_only_if_it_is_asked_for() {
        assert!(named(&[], &[], &["web-1"]).is_err());
        let common = |names: &[&str], hosts: &[&str]| -> Result<String, String> {
            let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let facts = Facts { common_names: all(names), hosts: all(hosts), ..Facts::default() };
            let names = ClientNames { cluster: Some(CLUSTER), dns: true, common_name: true };
            principal(&facts, names).map(|who| who.to_string())
        };
        assert_eq!(common(&["web-1"], &[]).unwrap(), "node:web-1");
        assert!(common(&["web-1", "web-2"], &[]).is_err());
        assert!(common(&["spiffe:x/y"], &[]).is_err());
        assert!(common(&["\u{fffd}"], &[]).is_err());
        assert!(common(&["web-1"], &["a", "b"]).is_err(), "DNS names count before it");
    }
}
