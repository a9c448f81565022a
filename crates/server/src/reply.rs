//! From answers and problems to responses.

use std::error::Error;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use regent_api::problem::PROBLEM_JSON;
use regent_api::{Code, Problem};
use serde::Serialize;

/// The body of an answer: whole, or as it comes.
pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>>;

/// An answer on its way out.
pub(crate) type Response = hyper::Response<Body>;

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

/// A body that is all there.
pub(crate) fn body(bytes: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(bytes.into()))
}

/// A body that comes bit by bit.
pub(crate) fn streamed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Either::Right(body.map_err(Into::into).boxed_unsync())
}

/// A yes of another kind.
pub(crate) fn labelled(label: &'static str, bytes: impl Into<Bytes>) -> Response {
    dressed(label, body(bytes))
}

/// A yes with this body.
pub(crate) fn dressed(label: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    dress(&mut response, label);
    response
}

/// A no, or a perhaps.
pub(crate) fn problem(problem: &Problem) -> Response {
    // A problem is made of strings and numbers, which JSON can always hold.
    let bytes = serde_json::to_vec(problem).expect("a problem can be written as JSON");
    let mut response = Response::new(body(bytes));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    dress(&mut response, PROBLEM_JSON);
    if problem.status == StatusCode::UNAUTHORIZED.as_u16() {
        let bearer = HeaderValue::from_static("Bearer realm=\"regent\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
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
