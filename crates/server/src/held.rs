//! What requests hold in memory while they arrive, and answers while they are not read.
//!
//! Both are bounded for each connection and for all of them together: a peer that sends bodies byte by byte, or asks for
//! long answers and reads none, takes no more than that, however many requests it has under way. What arrives is counted
//! as it comes, and not as it was announced.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Either};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};

use crate::admission::Class;
use crate::app::App;
use crate::limits::{
    ANSWER_BYTES_SMALL, ANSWER_PIECE_BYTES, ANSWERS_BYTES_MAX, BODIES_BYTES_MAX,
    BODIES_RESERVED_PART, CONNECTION_ANSWERS_BYTES_MAX, CONNECTION_BODIES_BYTES_MAX,
};
use crate::reply::{self, Response};
use crate::socket::ConnectionActivity;

/// How many bytes are held.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes(AtomicUsize);

impl HeldBytes {
    /// Holds more, if that is not too much.
    fn add(&self, bytes: usize, max: usize) -> bool {
        let with = |held: usize| held.checked_add(bytes).filter(|held| *held <= max);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).is_ok()
    }

    fn sub(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// Bodies and answers that are held: of one connection, or of all.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    bodies: HeldBytes,
    answers: HeldBytes,
}

/// Why a body is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ungathered {
    TooLarge,
    BrokenOff,
    /// The connection, or all of them, hold too much already.
    Crowded,
}

/// What a body that arrives holds; given back when it is whole, or gives up.
struct Gathering<'a> {
    app: &'a App,
    activity: &'a ConnectionActivity,
    bytes: usize,
}

impl Gathering<'_> {
    fn add(&mut self, bytes: usize, all_max: usize) -> bool {
        let (own, all) = (&self.activity.holdings().bodies, &self.app.holdings.bodies);
        if !own.add(bytes, CONNECTION_BODIES_BYTES_MAX) {
            return false;
        }
        if !all.add(bytes, all_max) {
            own.sub(bytes);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.activity.holdings().bodies.sub(self.bytes);
        self.app.holdings.bodies.sub(self.bytes);
    }
}

/// Gathers a body of at most `bytes_max`. The last quarter of the room is for what keeps and frees offices.
pub(crate) async fn gather(
    app: &App,
    activity: &ConnectionActivity,
    class: Option<Class>,
    mut body: Incoming,
    bytes_max: usize,
) -> Result<Bytes, Ungathered> {
    let all_max = if class.is_some_and(Class::is_reserved) {
        BODIES_BYTES_MAX
    } else {
        BODIES_BYTES_MAX - BODIES_BYTES_MAX / BODIES_RESERVED_PART
    };
    let mut held = Gathering { app, activity, bytes: 0 };
    let mut pieces: Vec<Bytes> = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Ungathered::BrokenOff)?.into_data() else { continue };
        if held.bytes + data.len() > bytes_max {
            return Err(Ungathered::TooLarge);
        }
        if !held.add(data.len(), all_max) {
            return Err(Ungathered::Crowded);
        }
        pieces.push(data);
    }
    // One piece is the usual case, and is not copied.
    match pieces.len() {
        1 => Ok(pieces.swap_remove(0)),
        _ => Ok(pieces.concat().into()),
    }
}

/// An answer that counts until its last byte was handed over. None if it is a long one that may be refused, and too much
/// waits already.
pub(crate) fn hold(
    app: &Arc<App>,
    activity: &Arc<ConnectionActivity>,
    response: Response,
    may_refuse: bool,
) -> Option<Response> {
    let Some(bytes) = long_bytes(response.body()) else { return Some(response) };
    let max = |max: usize| if may_refuse { max } else { usize::MAX };
    let own = &activity.holdings().answers;
    if !own.add(bytes, max(CONNECTION_ANSWERS_BYTES_MAX)) {
        return None;
    }
    if !app.holdings.answers.add(bytes, max(ANSWERS_BYTES_MAX)) {
        own.sub(bytes);
        return None;
    }
    let held = HeldAnswer { app: Arc::clone(app), activity: Arc::clone(activity), bytes };
    Some(response.map(|body| reply::streamed(Weighed { body, rest: Bytes::new(), _held: held })))
}

/// The length of an answer that is in memory as a whole, if it is long. One that comes bit by bit, such as a backup, knows
/// its length and holds little of it.
fn long_bytes(body: &reply::Body) -> Option<usize> {
    match body {
        Either::Left(whole) => {
            let bytes = whole.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
            bytes.filter(|bytes| *bytes > ANSWER_BYTES_SMALL)
        }
        Either::Right(_) => None,
    }
}

struct HeldAnswer {
    app: Arc<App>,
    activity: Arc<ConnectionActivity>,
    bytes: usize,
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        self.activity.holdings().answers.sub(self.bytes);
        self.app.holdings.answers.sub(self.bytes);
    }
}

/// An answer in pieces: what is handed over whole would be buffered whole below, where nobody counts it.
struct Weighed {
    body: reply::Body,
    /// What came of the body and was not handed over yet.
    rest: Bytes,
    _held: HeldAnswer,
}

impl HttpBody for Weighed {
    type Data = Bytes;
    type Error = <reply::Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(ANSWER_PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        self.body
            .size_hint()
            .exact()
            .map_or_else(SizeHint::new, |more| SizeHint::with_exact(rest + more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backup of any length is sent, though its length is known.
    #[test]
    fn only_long_answers_that_are_whole_count() {
        let long = || vec![0; CONNECTION_ANSWERS_BYTES_MAX + 1];
        assert_eq!(long_bytes(&reply::body(long())), Some(CONNECTION_ANSWERS_BYTES_MAX + 1));
        assert_eq!(long_bytes(&reply::streamed(reply::body(long()))), None);
        assert_eq!(long_bytes(&reply::body("short")), None);
    }

    #[test]
    fn what_is_held_is_bounded_and_given_back() {
        let held = HeldBytes::default();
        assert!(held.add(60, 100) && !held.add(41, 100) && held.add(40, 100));
        assert!(!held.add(usize::MAX, usize::MAX), "a sum that does not fit a number is too much");
        held.sub(100);
        assert!(held.add(100, 100));
    }
}
