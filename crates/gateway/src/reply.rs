//! Answers of the gateway's own.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use regent_api::Problem;
use regent_api::problem::PROBLEM_JSON;

use crate::body::GatewayAnswer;

/// A problem as an answer.
pub(crate) fn problem(problem: &Problem) -> Response<GatewayAnswer> {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = Response::new(GatewayAnswer::whole(body));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(millis) = problem.retry_after_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000).max(1)));
    }
    response
}
