//! URLs that name several servers: `scheme://user:password@h1:1,h2:2/path?key=value`.
//!
//! The crates of this world that read URLs know one host; a list of them is older than they are and
//! simple enough to be cut by hand.

use std::fmt;

use super::UrlError;
use super::limits::SERVERS_MAX;

/// Where a store lies, cut into its parts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreAddress {
    /// Who asks, and the password.
    pub(crate) login: Option<(String, String)>,
    /// `host:port` of each server, in the order given; never empty.
    pub(crate) servers: Vec<String>,
    /// What follows the servers, without slashes at its ends.
    pub(crate) path: String,
    /// What follows the question mark.
    pub(crate) options: Vec<(String, String)>,
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreAddress({self})")
    }
}

impl fmt::Display for StoreAddress {
    /// For people: everything but the login and the options, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.servers.join(","))?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

impl StoreAddress {
    /// Cuts a URL; servers without a port get `port`.
    pub(crate) fn parse(url: &str, port: u16) -> Result<Self, UrlError> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| UrlError::new("no \"://\" after the scheme"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let login = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            (decoded(user), decoded(password))
        });
        let servers = hosts
            .split(',')
            .map(|host| server(scheme, host, port))
            .collect::<Result<Vec<_>, _>>()?;
        if servers.len() > SERVERS_MAX {
            return Err(UrlError::new(format_args!(
                "{} servers; at most {SERVERS_MAX}",
                servers.len()
            )));
        }
        let path = decoded(path.trim_matches('/'));
        Ok(Self { login, servers, path, options: self::options(options) })
    }

    /// Refuses options that nobody reads: a misspelt one would be silently ignored.
    pub(crate) fn knows_only(&self, known: &[&str]) -> Result<(), UrlError> {
        match self.options.iter().find(|(given, _)| !known.contains(&given.as_str())) {
            None => Ok(()),
            Some((given, _)) if known.is_empty() => {
                Err(UrlError::new(format_args!("unknown option {given:?}; it takes none")))
            }
            Some((given, _)) => Err(UrlError::new(format_args!(
                "unknown option {given:?}; known are {}",
                known.join(", ")
            ))),
        }
    }
}

/// What follows the question mark of a URL.
pub(crate) fn options(text: &str) -> Vec<(String, String)> {
    text.split('&')
        .filter(|option| !option.is_empty())
        .map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// One `host` or `host:port`, with the port.
fn server(scheme: &str, host: &str, port: u16) -> Result<String, UrlError> {
    let bad =
        |why: &str| UrlError::new(format_args!("{why}; write it like {scheme}://host:{port}"));
    // An address of version 6 has colons of its own, and brackets around them.
    let (name, given) = match host.rfind(']') {
        Some(end) => (&host[..=end], host[end + 1..].strip_prefix(':')),
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if name.is_empty() {
        return Err(bad("a server without a name"));
    }
    match given {
        None => Ok(format!("{name}:{port}")),
        Some(given) => match given.parse::<u16>() {
            Ok(given) if given > 0 => Ok(format!("{name}:{given}")),
            Ok(_) | Err(_) => Err(bad("a port that is no number from 1 to 65535")),
        },
    }
}

/// Percent-encoded bytes as what they stand for; what is not encoded properly stands for itself.
pub(crate) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_with_and_without_ports() {
        let place = StoreAddress::parse("etcd://a,b:1,[::1],[::1]:2/some/where/?x=1&y=a%20b", 2379)
            .unwrap();
        assert_eq!(place.servers, ["a:2379", "b:1", "[::1]:2379", "[::1]:2"]);
        assert_eq!(place.path, "some/where");
        assert_eq!(place.options[1], ("y".into(), "a b".into()));
        assert_eq!(place.login, None);
        assert!(place.knows_only(&["x"]).unwrap_err().to_string().contains("\"y\""));
        place.knows_only(&["x", "y"]).unwrap();
    }

    #[test]
    fn a_password_may_hold_anything_and_is_never_shown() {
        let place = StoreAddress::parse("etcd://root:p%40ss:w@rd@a/x", 2379).unwrap();
        assert_eq!(place.login, Some(("root".into(), "p@ss:w@rd".into())));
        assert_eq!(place.to_string(), "a:2379/x");
        assert_eq!(format!("{place:?}"), "StoreAddress(a:2379/x)");
    }

    #[test]
    fn what_names_no_server_is_refused() {
        for url in ["etcd:a", "etcd://", "etcd://a,,b", "etcd://a:0", "etcd://a:x", "etcd://:1"] {
            assert!(StoreAddress::parse(url, 2379).is_err(), "{url}");
        }
        let many = vec!["a"; SERVERS_MAX + 1].join(",");
        assert!(StoreAddress::parse(&format!("etcd://{many}"), 2379).is_err());
    }
}
