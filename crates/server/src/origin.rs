//! No other web site's requests.
//!
//! A browser lets any page send requests to any address, also to a server on the operator's own
//! machine or network. Three things keep them out: bodies must be labelled `application/json`,
//! which a page cannot do across sites without permission that is never given (see [`crate::body`]);
//! a request that says it comes from elsewhere may change nothing; and a host name nobody told this
//! server about is refused where a browser may be asking, since an attacker can point a name of
//! their own at any address (DNS rebinding), and the browser then believes to be at home.
//!
//! Programs that are no browsers send none of these headers and are served under any name, unless
//! they reach this server on its loopback address, where a rebound name cannot be told from a
//! program's.

use std::net::{IpAddr, SocketAddr};

use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Uri, header};
use regent_api::{Code, Problem};

/// Refuses what a browser sends on behalf of another site.
pub(crate) fn check(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    local: SocketAddr,
    hosts_allowed: &[String],
) -> Result<(), Problem> {
    let origin = headers.get(header::ORIGIN);
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    let is_browser = origin.is_some() || site.is_some();
    let host = host(uri, headers)?;
    if (is_browser || local.ip().to_canonical().is_loopback())
        && let Some(host) = &host
        && !is_ours(host, hosts_allowed)
    {
        return Err(refuse(format!(
            "{} is not a name of this server; use its address, or add the name to the allowed hosts",
            host.host()
        )));
    }
    if method.is_safe() {
        return Ok(());
    }
    if let Some(origin) = origin {
        let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
        let is_same = origin.as_ref().and_then(Uri::authority) == host.as_ref();
        if !is_same {
            return Err(refuse("a page of another site may change nothing here".to_owned()));
        }
    }
    if matches!(site, Some(site) if site != b"same-origin" && site != b"none") {
        return Err(refuse("a page of another site may change nothing here".to_owned()));
    }
    Ok(())
}

fn refuse(detail: String) -> Problem {
    Problem::new(Code::CrossOrigin, detail)
}

/// The host a request is meant for: the `:authority` of HTTP/2, the `Host` of HTTP/1.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.clone()));
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let Some(host) = hosts.next() else { return Ok(None) };
    if hosts.next().is_some() {
        return Err(refuse("there is more than one Host header".to_owned()));
    }
    match Authority::try_from(host.as_bytes()) {
        Ok(authority) => Ok(Some(authority)),
        Err(_) => Err(refuse("the Host header is no host".to_owned())),
    }
}

fn is_ours(host: &Authority, hosts_allowed: &[String]) -> bool {
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok()
        || name == "localhost"
        || name.ends_with(".localhost")
        || hosts_allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: Method, local: &str, headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = Uri::from_static("/v1/groups");
        check(&method, &uri, &map, local.parse().unwrap(), &["regent.example".to_owned()]).is_ok()
    }

    const PUBLIC: &str = "10.0.0.5:7000";
    const LOOPBACK: &str = "127.0.0.1:7000";

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        for headers in [
            &[("host", "10.0.0.5:7000"), ("origin", "http://evil.example")][..],
            &[("host", "10.0.0.5:7000"), ("origin", "null")],
            &[("host", "10.0.0.5:7000"), ("origin", "http://10.0.0.5:8000")],
            &[("host", "10.0.0.5:7000"), ("sec-fetch-site", "cross-site")],
            &[("host", "10.0.0.5:7000"), ("sec-fetch-site", "same-site")],
            &[("origin", "http://10.0.0.5:7000")],
        ] {
            assert!(!ask(Method::POST, PUBLIC, headers), "{headers:?}");
        }
    }

    #[test]
    fn a_rebound_name_is_refused_even_to_read() {
        let rebound = [("host", "evil.example:7000"), ("origin", "http://evil.example:7000")];
        assert!(!ask(Method::POST, PUBLIC, &rebound));
        assert!(!ask(Method::GET, PUBLIC, &rebound));
        assert!(!ask(Method::GET, LOOPBACK, &[("host", "evil.example:7000")]));
        assert!(!ask(Method::GET, LOOPBACK, &[("host", "localhost"), ("host", "x")]));
        assert!(!ask(Method::GET, LOOPBACK, &[("host", "a b")]));
    }

    #[test]
    fn the_own_page_and_programs_are_served() {
        for (local, headers) in [
            (PUBLIC, &[("host", "10.0.0.5:7000"), ("origin", "http://10.0.0.5:7000")][..]),
            (PUBLIC, &[("host", "regent.example"), ("origin", "https://regent.example")]),
            (PUBLIC, &[("host", "regent.svc.cluster.local:7000")]),
            (PUBLIC, &[]),
            (LOOPBACK, &[("host", "localhost:7000"), ("origin", "http://localhost:7000")]),
            (LOOPBACK, &[("host", "[::1]:7000"), ("sec-fetch-site", "same-origin")]),
            (LOOPBACK, &[("host", "127.0.0.1:7000")]),
        ] {
            assert!(ask(Method::POST, local, headers), "{headers:?}");
        }
    }
}
