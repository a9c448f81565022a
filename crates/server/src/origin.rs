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
use std::sync::OnceLock;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Uri, header};
use regent_api::{Code, Problem};

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a browser sends on behalf of another site.
///
/// `known` is the host under which a program has been served on this connection: it names the same one with every
/// request, and is not judged again.
pub(crate) fn check(
    parts: &Parts,
    local: SocketAddr,
    hosts_allowed: &[String],
    known: &OnceLock<HeaderValue>,
) -> Result<(), Problem> {
    let Parts { method, uri, headers, .. } = parts;
    let origin = headers.get(header::ORIGIN);
    let site = headers.get(&SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let is_browser = origin.is_some() || site.is_some();
    let shown = only_host(uri, headers);
    if !is_browser && shown.is_some() && shown == known.get() {
        return Ok(());
    }
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
    if let Some(shown) = shown.filter(|_| !is_browser) {
        let _ = known.set(shown.clone());
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

/// The `Host` of a request of HTTP/1 that has exactly one.
fn only_host<'a>(uri: &Uri, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().filter(|_| uri.authority().is_none())?;
    hosts.next().is_none().then_some(host)
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
    use hyper::{Method, Request};

    use super::*;

    fn ask(method: Method, local: &str, headers: &[(&'static str, &'static str)]) -> bool {
        ask_again(method, local, headers, &OnceLock::new())
    }

    /// Asks on a connection under whose known host others may have asked before.
    fn ask_again(
        method: Method,
        local: &str,
        headers: &[(&'static str, &'static str)],
        known: &OnceLock<HeaderValue>,
    ) -> bool {
        let mut request = Request::builder().method(method).uri("/v1/groups");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts, local.parse().unwrap(), &["regent.example".to_owned()], known).is_ok()
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

    /// What is known of a connection serves no one but a program that names the same host.
    #[test]
    fn a_host_that_was_served_once_lets_no_page_in() {
        let known = OnceLock::new();
        let host = ("host", "10.0.0.5:7000");
        assert!(ask_again(Method::POST, PUBLIC, &[host], &known));
        assert!(known.get().is_some());
        for headers in [
            &[host, ("origin", "http://evil.example")][..],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("host", "evil.example")],
        ] {
            assert!(!ask_again(Method::POST, PUBLIC, headers, &known), "{headers:?}");
        }
        let known = OnceLock::new();
        assert!(ask_again(Method::GET, LOOPBACK, &[("host", "127.0.0.1")], &known));
        assert!(!ask_again(Method::GET, LOOPBACK, &[("host", "evil.example")], &known));
        let evil = OnceLock::new();
        assert!(!ask_again(Method::GET, LOOPBACK, &[("host", "evil.example")], &evil));
        assert_eq!(evil.get(), None, "what was refused is not known");
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
