//! Where a server is: `http://host:port[/prefix]` or `https://…`, one or several; or `unix:///path/to.sock` on this
//! machine.
//!
//! A build without TLS refuses `https://` rather than speak in the clear.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hyper::Uri;

use super::credential::Credential;
use crate::limits::ADDRESSES_MAX;

/// The base of every address of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `http://host:port` and, perhaps, a path without a slash at its end.
    base: String,
    is_tls: bool,
    /// The Unix socket of this machine at which it is; `base` is then only what is written into requests.
    socket: Option<PathBuf>,
}

/// Why a text is no address. The message is a clause for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not a URL, or none with a host.
    #[error("{given:?} is no address of a server; write it like http://127.0.0.1:7400")]
    Malformed { given: String },
    /// A scheme that is not spoken.
    #[error("{scheme}:// is not spoken; write an address like http://127.0.0.1:7400")]
    Scheme { scheme: String },
    /// TLS, in a build that has none.
    #[error(
        "https:// is not spoken: this build has no TLS; build with the feature \"tls\", or use http:// on a network you trust"
    )]
    NoTls,
    /// TLS that cannot be had here.
    #[error("no TLS: {why}")]
    Tls { why: String },
    /// Parts that a base must not have.
    #[error("the address of a server has no {part}; write it like http://127.0.0.1:7400")]
    Extra { part: &'static str },
    /// The credential that was named cannot be used.
    #[error("the credential cannot be used: {why}")]
    Credential { why: String },
    /// A socket beside other addresses.
    #[error("unix:// names the one server of this machine, and stands alone")]
    NotAlone,
    /// A server elsewhere, named by one that was asked over a socket, or over loopback with a token.
    #[error(
        "{given} is on another machine, and nothing says that it is spoken to by TLS; name it with https://"
    )]
    InTheClear { given: String },
    /// Some by TLS and some in the clear.
    #[error("either all addresses of a service are https:// or none is")]
    Mixed,
    /// None, or too many.
    #[error("a remote has 1 to {ADDRESSES_MAX} addresses; this has {count}")]
    Count { count: usize },
}

impl Address {
    /// The address of something on this server; `path_and_query` opens with a slash.
    pub(crate) fn of(&self, path_and_query: &str) -> Result<Uri, AddressError> {
        let text = format!("{}{path_and_query}", self.base);
        text.parse().map_err(|_| AddressError::Malformed { given: shorten(&text) })
    }

    /// Whether it is spoken to by TLS.
    #[cfg(feature = "tls")]
    pub(crate) const fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The Unix socket at which it is, if it is at one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Another server, `host:port`, spoken to in the same way.
    ///
    /// A socket does not say whether the network is spoken to by TLS, and a token and the ids of sessions go with every
    /// request: beside a socket there are only servers of this machine. Loopback says no more: a client that shows a token
    /// there did not choose to show it to a network in the clear.
    pub(crate) fn beside(&self, authority: &str, shows_token: bool) -> Result<Self, AddressError> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let there: Self = format!("{scheme}://{authority}").parse()?;
        let leaves = || {
            let is_here = self.socket.is_some() || (shows_token && self.is_on_loopback());
            is_here && !self.is_tls && !there.is_on_loopback()
        };
        if leaves() {
            return Err(AddressError::InTheClear { given: shorten(authority) });
        }
        Ok(there)
    }

    fn is_on_loopback(&self) -> bool {
        let uri: Option<Uri> = self.base.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// Whether this is the server at `host:port`.
    pub(crate) fn is_at(&self, authority: &str) -> bool {
        let rest = self.base.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next() == Some(authority)
    }

    /// Addresses with commas between.
    pub fn list(text: &str) -> Result<Vec<Self>, AddressError> {
        let addresses: Vec<Self> = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        check_list(&addresses)?;
        Ok(addresses)
    }
}

/// Refuses no address at all, and more than a replica set can have; and some that are spoken to by TLS
/// beside others that are not, since a server names the others without saying how to speak to them.
pub(crate) fn check_list(addresses: &[Address]) -> Result<(), AddressError> {
    let count = addresses.len();
    if !(1..=ADDRESSES_MAX).contains(&count) {
        return Err(AddressError::Count { count });
    }
    if count > 1 && addresses.iter().any(|address| address.socket.is_some()) {
        return Err(AddressError::NotAlone);
    }
    let tls = addresses.iter().filter(|address| address.is_tls).count();
    if tls != 0 && tls != count {
        return Err(AddressError::Mixed);
    }
    Ok(())
}

/// The credential of this process, if it has one.
pub(crate) fn credential() -> Result<Option<Credential>, AddressError> {
    Credential::of_process().map_err(|error| AddressError::Credential { why: error.to_string() })
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let malformed = || AddressError::Malformed { given: shorten(text) };
        if let Some(path) = text.strip_prefix("unix://") {
            let socket = Some(PathBuf::from(path)).filter(|path| path.is_absolute());
            let socket = Some(socket.ok_or_else(malformed)?);
            return Ok(Self { base: "http://localhost".to_owned(), is_tls: false, socket });
        }
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") if cfg!(feature = "tls") => true,
            Some("https") => return Err(AddressError::NoTls),
            Some(scheme) => return Err(AddressError::Scheme { scheme: shorten(scheme) }),
            None => return Err(malformed()),
        };
        let authority = uri.authority().ok_or_else(malformed)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::Extra { part: "user or password" });
        }
        if uri.query().is_some() {
            return Err(AddressError::Extra { part: "query" });
        }
        // `http::Uri` drops a fragment without a word.
        if text.contains('#') {
            return Err(AddressError::Extra { part: "fragment" });
        }
        if authority.host().is_empty() {
            return Err(malformed());
        }
        let path = uri.path().trim_end_matches('/');
        let scheme = if is_tls { "https" } else { "http" };
        Ok(Self { base: format!("{scheme}://{authority}{path}"), is_tls, socket: None })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => write!(f, "unix://{}", socket.display()),
            None => f.pad(&self.base),
        }
    }
}

fn shorten(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_may_have_a_path_and_a_slash_at_its_end() {
        for (text, expected) in [
            ("http://127.0.0.1:7400", "http://127.0.0.1:7400/v1/groups"),
            ("http://127.0.0.1:7400/", "http://127.0.0.1:7400/v1/groups"),
            ("http://[::1]:7400", "http://[::1]:7400/v1/groups"),
            ("http://proxy/regent/", "http://proxy/regent/v1/groups"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.of("/v1/groups").unwrap().to_string(), expected, "{text}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_that_is_not_built_in_is_refused_with_the_way_out() {
        let error = "https://regent:7400".parse::<Address>().unwrap_err().to_string();
        assert!(error.contains("\"tls\"") && error.contains("http://"), "{error}");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_never_left_out() {
        let address = "https://regent:7400/x/".parse::<Address>().unwrap();
        assert_eq!(address.of("/v1").unwrap().to_string(), "https://regent:7400/x/v1");
        assert!(address.is_tls() && address.is_at("regent:7400"));
        assert_eq!(Address::list("http://a,https://b"), Err(AddressError::Mixed));
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in [
            "",
            "127.0.0.1:7400",
            "localhost",
            "/v1",
            "http://",
            "http:///x",
            "ftp://host",
            "http://user:secret@host",
            "http://host?x=1",
            "http://host/#x",
            "http://ho st",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_socket_of_this_machine_is_named_by_its_whole_path_and_stands_alone() {
        let address: Address = "unix:///run/regent.sock".parse().unwrap();
        assert_eq!(address.socket(), Some(Path::new("/run/regent.sock")));
        assert_eq!(address.to_string(), "unix:///run/regent.sock");
        assert_eq!(address.of("/v1").unwrap().to_string(), "http://localhost/v1");
        assert!("unix://regent.sock".parse::<Address>().is_err());
        assert_eq!(Address::list("unix:///a,http://b"), Err(AddressError::NotAlone));
    }

    /// The one who answers on the socket names where the log's leader is, and the token goes there.
    #[test]
    fn nothing_goes_from_a_socket_to_another_machine_in_the_clear() {
        let socket: Address = "unix:///run/regent.sock".parse().unwrap();
        for here in ["127.0.0.1:7400", "[::1]:7400", "localhost:7400"] {
            let there = socket.beside(here, true).unwrap();
            assert_eq!(there.to_string(), format!("http://{here}"));
        }
        for elsewhere in ["10.0.0.5:7400", "localhost.example:7400", "[fe80::1]:7400", "a:127"] {
            let error = socket.beside(elsewhere, false).unwrap_err();
            assert!(matches!(error, AddressError::InTheClear { .. }), "{elsewhere}: {error}");
        }
        let plain: Address = "http://10.0.0.4:7400".parse().unwrap();
        assert!(plain.beside("10.0.0.5:7400", true).is_ok());
    }

    /// The same for a server of this machine that is asked by TCP. Without a token there is none to lose.
    #[test]
    fn no_token_goes_from_loopback_to_another_machine_in_the_clear() {
        for here in ["127.0.0.1:7400", "[::1]:7400", "localhost:7400", "LOCALHOST:7400"] {
            let plain: Address = format!("http://{here}").parse().unwrap();
            for elsewhere in ["10.0.0.5:7400", "localhost.example:7400", "[fe80::1]:7400"] {
                let error = plain.beside(elsewhere, true).unwrap_err();
                assert!(matches!(error, AddressError::InTheClear { .. }), "{elsewhere}: {error}");
                assert!(plain.beside(elsewhere, false).is_ok());
            }
            assert!(plain.beside("127.0.0.1:7402", true).is_ok());
            #[cfg(feature = "tls")]
            {
                let tls: Address = format!("https://{here}").parse().unwrap();
                let there = tls.beside("10.0.0.5:7400", true).unwrap();
                assert_eq!(there.to_string(), "https://10.0.0.5:7400");
            }
        }
    }

    #[test]
    fn lists_are_split_at_commas_and_bounded() {
        let list = Address::list("http://a:1, http://b:2,").unwrap();
        assert_eq!(
            list.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["http://a:1", "http://b:2"]
        );
        assert_eq!(Address::list(" , "), Err(AddressError::Count { count: 0 }));
        let many = vec!["http://a"; ADDRESSES_MAX + 1].join(",");
        assert!(Address::list(&many).is_err());
    }
}
