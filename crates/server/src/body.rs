//! Reading a request's body: labelled as JSON, bounded in bytes, bounded in time.
//!
//! The label is a lock, not a formality: a web page can make a browser send `text/plain` to any
//! address without asking, but not `application/json`.

use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap};
use regent_api::limits::BODY_BYTES_MAX;
use regent_api::{Code, Problem};

use crate::admission::Class;
use crate::app::App;
use crate::held::{Ungathered, gather};
use crate::socket::ConnectionActivity;

/// The whole body of a request of this class.
pub(crate) async fn read(
    app: &App,
    activity: &ConnectionActivity,
    class: Option<Class>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Bytes, Problem> {
    let timeout = app.config.body_timeout;
    check_label(headers)?;
    // A body that says it is too large is refused before a byte of it is read.
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|text| text.parse::<u64>().ok()) > Some(BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let gathered = gather(app, activity, class, body, BODY_BYTES_MAX);
    match tokio::time::timeout(timeout, gathered).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(Ungathered::TooLarge)) => Err(too_large()),
        Ok(Err(Ungathered::BrokenOff)) => Err(Problem::new(Code::BadRequest, "the body broke off")),
        Ok(Err(Ungathered::Crowded)) => Err(app.shed(class.unwrap_or(Class::Admin))),
        Err(_) => Err(Problem::new(
            Code::RequestTimeout,
            format!("the body did not come within {} ms; nothing happened", timeout.as_millis()),
        )),
    }
}

fn check_label(headers: &HeaderMap) -> Result<(), Problem> {
    let label = headers.get(header::CONTENT_TYPE).and_then(|label| label.to_str().ok());
    let kind = label.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Code::UnsupportedMediaType,
        "send the body as JSON, with the header content-type: application/json",
    ))
}

fn too_large() -> Problem {
    Problem::new(
        Code::PayloadTooLarge,
        format!("the body has more than {BODY_BYTES_MAX} bytes, the most this server reads"),
    )
}
