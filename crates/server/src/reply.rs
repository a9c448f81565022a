//! From answers and problems to responses.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use regent_api::problem::PROBLEM_JSON;
use regent_api::{Code, Problem};
use serde::Serialize;

/// What every verb returns.
pub(crate) type Reply = Result<Response, Problem>;

/// A yes, as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> Reply {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(labelled("application/json", bytes)),
        Err(error) => {
            Err(Problem::new(Code::Internal, format!("the answer cannot be written: {error}")))
        }
    }
}

/// A yes of another kind.
pub(crate) fn labelled(label: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    dress(&mut response, label);
    response
}

/// A no, or a perhaps.
pub(crate) fn problem(problem: &Problem) -> Response {
    // A problem is made of strings and numbers, which JSON can always hold.
    let bytes = serde_json::to_vec(problem).expect("a problem can be written as JSON");
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    dress(&mut response, PROBLEM_JSON);
    if let Some(retry_after_ms) = problem.retry_after_ms {
        let seconds = retry_after_ms.div_ceil(1000).max(1);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Answers are for one reader and one moment: nobody may keep them or guess their kind.
fn dress(response: &mut Response, label: &'static str) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(label));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
