//! Where this process may follow a group that has moved.
//!
//! The old store says where a group went, and who can write there can say anything: a process that follows
//! goes to that place with its credentials and acts on the terms that it grants. So it follows only to where
//! its own operator allows: by default to the hosts that it began at, and beyond that to what is listed.
//!
//! A host is allowed for plain addresses only, of engines that are reached by hosts. What stands behind `?` may
//! name another endpoint or a local file, and a bucket is not a host: such an address must be listed as a whole.

use std::net::IpAddr;

/// Allows every place.
const ANY: &str = "*";
/// What every address of this machine's loopback is called here.
const LOOPBACK: &str = "localhost";

/// Schemes whose address names the hosts that are connected to. In every other one it names something else
/// (a bucket, a table, a file), which anybody may have registered or made under any name.
const OF_HOSTS: &[&str] = &[
    "http",
    "https",
    "etcd",
    "etcds",
    "zk",
    "zookeeper",
    "consul",
    "nats",
    "tls",
    "redis",
    "rediss",
    "redlock",
    "postgres",
    "postgresql",
    "mysql",
];

/// Those of them that are reached by TLS alone.
const OF_TLS: &[&str] = &["https", "etcds", "tls", "rediss"];

/// Parameters of stores that ask for TLS, by what they open with or are.
const TLS_PARAMETERS: &[&str] = &[
    "ssl",
    "tls",
    "ca=",
    "ca-file=",
    "cacert=",
    "cert=",
    "client-cert=",
    "key=",
    "client-key=",
    "sni=",
];

/// Whether the operator's own URL asks for TLS, by its scheme or behind the `?`. One that turns it off by a parameter
/// counts, too: then an address must be listed, which is no more than a nuisance.
fn asks_for_tls(url: &str) -> bool {
    let is_of_tls =
        |scheme: &&str| url.strip_prefix(*scheme).is_some_and(|rest| rest.starts_with("://"));
    let mut options = url.split_once('?').map_or("", |(_, options)| options).split('&');
    OF_TLS.iter().any(is_of_tls)
        || options.any(|option| TLS_PARAMETERS.iter().any(|name| option.starts_with(name)))
}

/// The places that a process may follow to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Hosts and whole addresses, as listed.
    listed: Vec<String>,
}

impl Places {
    /// Allows one more: a host, a host and its port, a whole address, or `*` for all.
    pub(crate) fn allow(&mut self, place: String) {
        self.listed.push(place);
    }

    /// Whether a process that began at `began` (none: a store in the process itself) may follow to `to`.
    pub(crate) fn allows(&self, began: Option<&str>, to: &str) -> bool {
        if self.listed.iter().any(|place| place == ANY || place == to) {
            return true;
        }
        let Some(there) = Address::parse(to) else { return false };
        let hosts = || vec![(LOOPBACK.to_owned(), None)];
        let local = || Address { scheme: "", hosts: hosts(), path: "" };
        let own = match began {
            None => Some(local()),
            // What the operator wrote may have parameters.
            Some(url) => Address::parse(url.split(['?', '#']).next().unwrap_or_default()),
        };
        // Who began with TLS is not led away from it, unless the whole address is listed.
        if !OF_TLS.contains(&there.scheme) && began.is_some_and(asks_for_tls) {
            return false;
        }
        let listed: Vec<Host> = self.listed.iter().filter_map(|place| host(place)).collect();
        there.hosts.iter().all(|(name, port)| {
            let is_own = own.iter().flat_map(|own| &own.hosts).any(|(known, _)| known == name);
            let matches = |(known, only): &Host| known == name && (only.is_none() || only == port);
            is_own || listed.iter().any(matches)
        })
    }
}

/// Whether two addresses name one store, as far as their texts tell: they have a host with its port and the path in
/// common; or, if they name no hosts, all but logins and parameters. One store may have names that share nothing.
pub(crate) fn is_same_store(one: &str, other: &str) -> bool {
    let bare = |url: &str| {
        let url = url.split(['?', '#']).next().unwrap_or_default();
        match url.split_once("://") {
            Some((scheme, rest)) if scheme != "file" => {
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                format!("{scheme}://{place}")
            }
            Some(_) | None => url.to_owned(),
        }
    };
    let (one, other) = (bare(one), bare(other));
    match (Address::parse(&one), Address::parse(&other)) {
        (Some(one), Some(other)) => {
            one.path == other.path && one.hosts.iter().any(|host| other.hosts.contains(host))
        }
        (None, None) => one == other,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The name of a host in one spelling, and its port if there is one.
type Host = (String, Option<u16>);

/// An address in the one plain form that all openers read alike: `scheme://[user@]host[:port],…[/path]`, where an HTTP
/// list may repeat its scheme, as in `http://a:7400,http://b:7400`. Whatever else could be read in two ways is no
/// address here: this one decides, and another parser connects.
struct Address<'a> {
    scheme: &'a str,
    hosts: Vec<Host>,
    /// What of the store is meant: a database, a prefix. Without the slash at its end.
    path: &'a str,
}

impl<'a> Address<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if !OF_HOSTS.contains(&scheme) {
            return None;
        }
        let (authority, path) = match rest.char_indices().find(|(at, char)| {
            // The slashes of a scheme that is repeated begin no path.
            *char == '/' && !rest[..*at].ends_with([':', '/']) && !rest[*at..].starts_with("//")
        }) {
            Some((at, _)) => rest.split_at(at),
            None => (rest, ""),
        };
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-".contains(char);
        if !path.chars().all(is_plain) || path.contains("//") {
            return None;
        }
        let mut hosts = Vec::new();
        for (number, part) in authority.split(',').enumerate() {
            let part = match part.split_once("://") {
                Some((again, part)) if number > 0 && scheme.starts_with("http") => {
                    (again == scheme).then_some(part)?
                }
                Some(_) => return None,
                None => part,
            };
            let part = match part.split_once('@') {
                Some((user, part)) if number == 0 => user.chars().all(is_name).then_some(part)?,
                Some(_) => return None,
                None => part,
            };
            hosts.push(host(part)?);
        }
        Some(Self { scheme, hosts, path: path.trim_end_matches('/') })
    }
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || "._-".contains(char)
}

/// A host with or without a port; none if it is anything else.
fn host(text: &str) -> Option<Host> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
        }
        None => {
            let (name, port) = text.split_once(':').unwrap_or((text, ""));
            (!name.is_empty() && name.chars().all(is_name)).then_some(())?;
            if text.ends_with(':') {
                return None;
            }
            (name, port)
        }
    };
    let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
    let name = name.to_ascii_lowercase();
    let name = match name.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => LOOPBACK.to_owned(),
        Ok(address) => address.to_string(),
        Err(_) => name,
    };
    Some((name, port))
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
            "http://evil.example/://a.example",
            "etcd://evil.example/://a.example",
            "postgres://a.example/@evil.example/db",
            "postgres://u@a.example@evil.example/db",
            "http://a.example:7400,etcd://b.example:7400",
            "etcd://a.example:2379,http://b.example:2379",
            "s3://KEY:SECRET@a.example",
            "gs://a.example",
            "dynamodb://a.example",
            "file://a.example/tmp/x",
            "unix://a.example",
            "http://a.example\\@evil.example",
            "http://a.example%2eevil.example",
            "http://a.example:",
            "http://a.example:x",
            "http://a.example /",
            "",
        ] {
            assert!(!allowed(&[], began, to), "{to}");
        }
    }

    #[test]
    fn a_user_and_a_path_are_plain() {
        let began = Some("postgres://a.example/elections?connect_timeout=5");
        assert!(allowed(&[], began, "postgres://regent@a.example:5432/elections"));
        assert!(!allowed(&[], began, "postgres://regent:secret@a.example/elections"));
        assert!(!allowed(&[], began, "postgres://a.example/elections%2f"));
    }

    #[test]
    fn a_process_that_began_with_tls_keeps_it_and_a_listed_port_is_that_port() {
        assert!(!allowed(&[], Some("https://a.example"), "http://a.example"));
        assert!(allowed(&[], Some("http://a.example"), "https://a.example"));
        for began in [
            "https://a.example",
            "etcds://a.example",
            "rediss://a.example",
            "tls://a.example",
            "postgres://a.example/elections?sslmode=require",
            "postgres://a.example/elections?connect_timeout=5&sslrootcert=/ca",
            "mysql://a.example/elections?ssl-mode=VERIFY_IDENTITY",
            "consul://a.example?ca-file=/ca",
            "zk://a.example?tls=true",
        ] {
            for to in ["http://a.example", "postgres://a.example/elections", "etcd://a.example"] {
                assert!(!allowed(&[], Some(began), to), "{began} {to}");
                assert!(!allowed(&["a.example"], Some(began), to), "{began} {to}");
                assert!(allowed(&[to], Some(began), to), "{began} {to}");
            }
            assert!(allowed(&[], Some(began), "etcds://a.example"), "{began}");
        }
        let began = Some("http://a.example:7400");
        assert!(allowed(&["b.example:7400"], began, "http://b.example:7400"));
        assert!(!allowed(&["b.example:7400"], began, "http://b.example:7401"));
    }

    #[test]
    fn addresses_of_one_store_share_a_host_with_its_port_and_the_path() {
        for (one, other) in [
            ("http://a.example:7400", "http://A.example:7400/"),
            ("http://a.example:7400,http://b.example:7400", "http://b.example:7400,c.example:7400"),
            ("http://localhost:7400", "https://127.0.0.1:7400"),
            ("postgres://u:secret@db.example/x?sslmode=require", "postgres://u@db.example/x"),
            ("s3://bucket/prefix?region=eu-1", "s3://bucket/prefix"),
            ("file:///var/lib/x:y@z", "file:///var/lib/x:y@z"),
        ] {
            assert!(is_same_store(one, other) && is_same_store(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("http://a.example:7400", "http://a.example:7401"),
            ("http://a.example:7400", "http://b.example:7400"),
            ("postgres://db.example/x", "postgres://db.example/y"),
            ("s3://bucket/one", "s3://bucket/two"),
            ("file:///a", "file:///b"),
            ("memory:a", "http://a.example"),
            ("unix:///run/regent.sock", "http://127.0.0.1:7400"),
        ] {
            assert!(!is_same_store(one, other) && !is_same_store(other, one), "{one} {other}");
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
        assert!(allowed(&["b.example"], began, "postgres://u@b.example:5432/elections"));
        assert!(!allowed(&["b.example"], began, "s3://b.example?endpoint=http://evil.example"));
        let bucket = "s3://bucket?region=eu-1";
        assert!(allowed(&[bucket], began, bucket));
        assert!(!allowed(&[bucket], began, "s3://bucket?region=eu-2"));
        assert!(allowed(&["*"], began, "kubernetes://default?kubeconfig=/etc/k"));
    }
}
