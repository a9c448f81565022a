//! `GET /`: a page that shows who leads what, live.
//!
//! One file without a single foreign asset, and a policy that lets the browser load nothing else:
//! names of groups and nodes come from strangers, so they are only ever set as text.

use hyper::header::{self, HeaderValue};
use regent_api::{Code, Problem};

use crate::reply::{self, Reply};

const PAGE: &str = include_str!("dashboard.html");

/// The page. Its script and style run because they carry this answer's nonce; nothing injected can.
pub(crate) fn page() -> Reply {
    let broken = || Problem::new(Code::Internal, "this machine gives no random numbers");
    let nonce = format!("{:016x}", getrandom::u64().map_err(|_| broken())?);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response =
        reply::labelled("text/html; charset=utf-8", PAGE.replace("{{nonce}}", &nonce));
    let policy = HeaderValue::from_str(&policy).map_err(|_| broken())?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}
