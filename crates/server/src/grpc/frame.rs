//! The one message of a call that is no stream: whole, bounded in bytes, bounded in time.
//!
//! tonic would wait for it without end and call some of its faults `INTERNAL`, which leaves open
//! whether something happened. Here nothing has happened yet, and the answer says so.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap};
use regent_api::limits::BODY_BYTES_MAX;
use regent_api::{Code, Problem};
use tonic::Status;
use tonic::body::Body as GrpcBody;

use crate::admission::Class;
use crate::app::App;
use crate::count::Entered;
use crate::held::{Ungathered, gather};
use crate::socket::ConnectionActivity;

/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Refuses a coding of messages other than protocol buffers, and every compression: the longest
/// honest message is shorter than a packet or two, and a bomb inflates.
pub(super) fn check_label(headers: &HeaderMap) -> Result<(), Problem> {
    let label = headers.get(header::CONTENT_TYPE).and_then(|label| label.to_str().ok());
    let kind = label.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !matches!(kind, "application/grpc" | "application/grpc+proto") {
        let why = "messages are protocol buffers; send the label application/grpc";
        return Err(Problem::new(Code::UnsupportedMediaType, why));
    }
    match headers.get("grpc-encoding").map(|encoding| encoding.as_bytes()) {
        None | Some(b"identity") => Ok(()),
        Some(_) => Err(compressed()),
    }
}

fn compressed() -> Problem {
    Problem::new(Code::UnsupportedMediaType, "messages are sent uncompressed here")
}

/// The whole body, if it is one message.
pub(super) async fn read(
    app: &App,
    activity: &ConnectionActivity,
    class: Option<Class>,
    body: Incoming,
) -> Result<Full<Bytes>, Problem> {
    let timeout = app.config.body_timeout;
    let gathered = gather(app, activity, class, body, PREFIX_BYTES + BODY_BYTES_MAX);
    let bytes = match tokio::time::timeout(timeout, gathered).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(Ungathered::TooLarge)) => return Err(too_large()),
        Ok(Err(Ungathered::BrokenOff)) => {
            return Err(Problem::new(Code::BadRequest, "the message broke off"));
        }
        Ok(Err(Ungathered::Crowded)) => return Err(app.shed(class.unwrap_or(Class::Admin))),
        Err(_) => {
            let why = format!(
                "the message did not come within {} ms; nothing happened",
                timeout.as_millis()
            );
            return Err(Problem::new(Code::RequestTimeout, why));
        }
    };
    check_one(&bytes)?;
    Ok(Full::new(bytes))
}

/// Refuses bytes that are not exactly one uncompressed message.
fn check_one(bytes: &[u8]) -> Result<(), Problem> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Problem::new(Code::BadRequest, "there is no message; send one"));
    };
    let [flag, length @ ..] = *prefix;
    if flag != 0 {
        return Err(compressed());
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > BODY_BYTES_MAX {
        return Err(too_large());
    }
    if length != rest.len() {
        let detail = format!(
            "the message says it has {length} bytes and {} followed; send exactly one",
            rest.len()
        );
        return Err(Problem::new(Code::BadRequest, detail));
    }
    Ok(())
}

/// The refusal of a message that is too large.
pub(super) fn too_large() -> Problem {
    Problem::new(
        Code::PayloadTooLarge,
        format!("the message has more than {BODY_BYTES_MAX} bytes, the most this server reads"),
    )
}

/// A body that holds a place until its end.
#[derive(Debug)]
pub(super) struct Held {
    body: GrpcBody,
    _place: Entered,
}

impl Held {
    pub(super) fn new(body: GrpcBody, place: Entered) -> Self {
        Self { body, _place: place }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Option<Code> {
        check_one(bytes).err().map(|problem| problem.code)
    }

    #[test]
    fn exactly_one_uncompressed_message_is_taken() {
        assert_eq!(code(b"\0\0\0\0\0"), None);
        assert_eq!(code(b"\0\0\0\0\x02ab"), None);
        assert_eq!(code(b""), Some(Code::BadRequest));
        assert_eq!(code(b"\0\0\0"), Some(Code::BadRequest));
        assert_eq!(code(b"\0\0\0\0\x02a"), Some(Code::BadRequest));
        assert_eq!(code(b"\0\0\0\0\x02abc"), Some(Code::BadRequest));
        assert_eq!(code(b"\0\0\0\0\0\0\0\0\0\0"), Some(Code::BadRequest));
        assert_eq!(code(b"\x01\0\0\0\0"), Some(Code::UnsupportedMediaType));
        assert_eq!(code(b"\0\xff\xff\xff\xff"), Some(Code::PayloadTooLarge));
    }
}
