//! Addresses that other machines use, and that this one does.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address by which a client on this machine reaches what listens there.
#[must_use]
pub fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::from((Ipv4Addr::LOCALHOST, v4.port()))
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::from((Ipv6Addr::LOCALHOST, v6.port()))
        }
        other => other,
    }
}

/// Whether a text is an address that another machine could use, or a clause that says why not.
pub fn host_and_port(text: &str) -> Result<(), String> {
    let is_good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_good = !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b));
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        host_is_good
            && (is_bracketed || !host.contains([':', '[', ']']))
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if is_good {
        return Ok(());
    }
    let shown: String = text.chars().take(80).collect();
    Err(format!("{shown:?} is no host and port; write it like 10.0.0.1:7401 or db-1:7401"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_others_has_a_host_and_a_port() {
        for good in ["10.0.0.1:7401", "db-1.example:1", "[::1]:7401", "localhost:65535"] {
            assert_eq!(host_and_port(good), Ok(()), "{good}");
        }
        for bad in ["", "db-1", ":7401", "db-1:0", "db-1:65536", "::1:7401", "a b:1", "a/b:1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
