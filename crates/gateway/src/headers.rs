//! Which headers go on and which end here.
//!
//! What `Connection` names belongs to one connection and is not passed on (RFC 9110, 7.6.1). Bodies are
//! framed anew for the next connection, from what was read and not from what was said: so two headers that
//! contradict each other about a length mean one thing here and the same thing upstream.

use std::borrow::Cow;

use hyper::body::Body;
use hyper::header::{
    ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::{Method, Request, Uri, Version};
use regent_api::{Code, Problem};

use crate::limits::HEAD_BYTES_MAX;

/// Headers of one connection that need not be named by `Connection`.
const OF_ONE_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
const VIA_US: HeaderValue = HeaderValue::from_static("1.1 regent");

/// Refuses what cannot be passed on.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    let bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > HEAD_BYTES_MAX {
        let detail = format!("headers of {bytes} bytes are more than {HEAD_BYTES_MAX}");
        return Err(Problem::new(Code::BadRequest, detail));
    }
    if *request.method() == Method::CONNECT {
        return Err(Problem::new(Code::MethodNotAllowed, "the gateway opens no tunnels"));
    }
    if request.headers().contains_key(UPGRADE) {
        let detail = "the gateway passes no upgrades on: what goes through one cannot be fenced";
        return Err(Problem::new(Code::BadRequest, detail).at("Upgrade"));
    }
    if request.version() != Version::HTTP_11 && request.version() != Version::HTTP_10 {
        return Err(Problem::new(Code::BadRequest, "speak HTTP/1.1"));
    }
    let hosts = request.headers().get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        return Err(Problem::new(Code::BadRequest, "a request names its host once").at("Host"));
    }
    if request.uri().path_and_query().is_none_or(|path| !path.as_str().starts_with('/')) {
        return Err(Problem::new(Code::BadRequest, "this asks about no path; write it like /path"));
    }
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    if let Some(authority) = request.uri().authority()
        && !authority.as_str().as_bytes().eq_ignore_ascii_case(host)
    {
        let detail = "the request line and the header Host name different hosts";
        return Err(Problem::new(Code::BadRequest, detail).at("Host"));
    }
    Ok(())
}

/// Refuses what a storage could take for a write although it says that it reads. Only what passes
/// without a term is asked: everything else is fenced, whatever it does.
///
/// A body is refused because a storage that does not expect one reads it as the next request. A header or
/// a parameter that names a method is refused because there are storages that obey it.
pub(crate) fn check_read<B: Body>(request: &Request<B>) -> Result<(), Problem> {
    if !request.body().is_end_stream() {
        let detail = "a read without a term has no body; leave it out, or send the term";
        return Err(Problem::new(Code::BadRequest, detail));
    }
    let header = request.headers().keys().map(HeaderName::as_str).find(|name| names_method(name));
    let parameter = parameters(request.uri()).find(|(name, value)| names_write(name, value));
    match header.map(str::to_owned).or(parameter.map(|(name, _)| name.into_owned())) {
        None => Ok(()),
        Some(name) => {
            let detail =
                "a read without a term names no other method; leave that out, or send the term";
            Err(Problem::new(Code::BadRequest, detail).at(&name))
        }
    }
}

/// Whether a header names a method, as `X-HTTP-Method-Override` and its many cousins do. A browser's
/// question whether it may use one does not.
fn names_method(header: &str) -> bool {
    header != ACCESS_CONTROL_REQUEST_METHOD.as_str() && header.contains("method")
}

/// The parameters of an address, as any storage may see them: those of the query, which some divide by semicolons,
/// and those that some take out of the path.
fn parameters(uri: &Uri) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let of_path = uri.path().split('/').flat_map(|part| part.split(';').skip(1));
    let of_query = uri.query().unwrap_or_default().split(['&', ';']);
    of_path.chain(of_query).flat_map(|part| form_urlencoded::parse(part.as_bytes()))
}

/// Whether a parameter may make a storage take a read for a write. A plain `method` is also what a form asks for, so
/// there its value decides.
fn names_write(name: &str, value: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace('_', "-");
    let is_override =
        ["-method", "$httpmethod", "x-http-method", "x-http-method-override", "x-method-override"]
            .contains(&&*name);
    let writes = ["put", "post", "patch", "delete", "copy", "move", "lock", "unlock", "mkcol"];
    let value = value.trim().to_ascii_lowercase();
    let is_plain = ["method", "httpmethod", "http-method"].contains(&&*name);
    is_override || (is_plain && writes.contains(&&*value))
}

/// Takes out what belongs to one connection.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION) {
        // Whoever names a length or a host here wants it to be forgotten by one side only.
        if *name != CONTENT_LENGTH && *name != HOST {
            headers.remove(name);
        }
    }
}

/// A request's headers as the upstream gets them.
pub(crate) fn towards_upstream(headers: &mut HeaderMap, host: Option<&HeaderValue>) {
    let wants_trailers = headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case("trailers")));
    strip(headers);
    headers.remove(EXPECT);
    // Written anew from the body itself.
    headers.remove(CONTENT_LENGTH);
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(host) = host {
        headers.insert(HOST, host.clone());
    }
    headers.append(VIA, VIA_US);
}

/// An answer's headers as the client gets them.
pub(crate) fn towards_client(headers: &mut HeaderMap) {
    strip(headers);
    headers.append(VIA, VIA_US);
}

/// Judges a head as the gateway does, and makes that of the request upstream, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(request: &mut Request<http_body_util::Empty<hyper::body::Bytes>>) -> bool {
    let is_passed = check(request).and_then(|()| check_read(request)).is_ok();
    towards_upstream(request.headers_mut(), None);
    for name in &OF_ONE_CONNECTION {
        assert!(*name == TE || !request.headers().contains_key(name), "{name} goes on");
    }
    is_passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_belongs_to_one_connection_is_not_passed_on() {
        let mut headers = map(&[
            ("connection", "close, x-mine"),
            ("connection", "content-length, host"),
            ("x-mine", "1"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers, deflate"),
            ("expect", "100-continue"),
            ("content-length", "3"),
            ("accept", "*/*"),
            ("regent-term", "7"),
            ("host", "gateway"),
        ]);
        towards_upstream(&mut headers, Some(&HeaderValue::from_static("upstream:80")));
        let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value)).collect();
        assert_eq!(headers.get("host").unwrap(), "upstream:80");
        assert_eq!(headers.get("te").unwrap(), "trailers");
        assert_eq!(headers.get("regent-term").unwrap(), "7");
        assert_eq!(left.len(), 5, "{left:?}");
    }

    #[test]
    fn a_host_that_connection_names_is_kept() {
        let mut headers = map(&[("connection", "host"), ("host", "gateway")]);
        towards_upstream(&mut headers, None);
        assert_eq!(headers.get("host").unwrap(), "gateway");
    }

    #[test]
    fn an_answer_keeps_its_length_whatever_connection_says() {
        let mut headers = map(&[("connection", "content-length"), ("content-length", "3")]);
        towards_client(&mut headers);
        assert_eq!(headers.get("content-length").unwrap(), "3");
        assert!(headers.get("connection").is_none());
    }

    #[test]
    fn tunnels_and_upgrades_are_refused() {
        let request = |method: &str, uri: &str, upgrade: bool| {
            let mut request = Request::builder().method(method).uri(uri).header("host", "x");
            if upgrade {
                request = request.header("upgrade", "websocket");
            }
            check(&request.body(()).unwrap())
        };
        assert!(request("GET", "/", false).is_ok());
        assert!(
            request("PUT", "http://x/a?b", false).is_ok(),
            "a client that takes us for a proxy"
        );
        assert_eq!(request("CONNECT", "x:80", false).unwrap_err().code, Code::MethodNotAllowed);
        assert_eq!(request("GET", "/", true).unwrap_err().code, Code::BadRequest);
        assert_eq!(request("OPTIONS", "*", false).unwrap_err().code, Code::BadRequest);
    }
}
