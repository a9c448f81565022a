//! What waits to be sent on a session stream: heartbeats first.
//!
//! Each kind has a lane of its own and the connection takes from the first that holds something, so
//! that a heartbeat never stands behind a request. Lanes are bounded: whoever finds no room sends by
//! another way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use regent_api::grpc as pb;
use regent_api::grpc::session_up::Message;
use tonic::codegen::tokio_stream::Stream;

/// Heartbeats that wait: one and its retries.
const HEARTBEATS_MAX: usize = 4;
/// Requests that wait. A server serves as many of one stream at once.
const ASKS_MAX: usize = 32;

/// The lanes of one stream.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    hello: Option<pb::Hello>,
    heartbeats: VecDeque<pb::Heartbeat>,
    asks: VecDeque<pb::Ask>,
    /// The newest wish; older ones that were not sent are forgotten.
    follow: Option<pb::Follow>,
    taken: u64,
    taken_told: u64,
    is_over: bool,
    waker: Option<Waker>,
}

/// There is no room, or the stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Lanes {
    pub(super) fn new(hello: pb::Hello) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner { hello: Some(hello), ..Inner::default() })))
    }

    pub(super) fn heartbeat(&self, heartbeat: pb::Heartbeat) -> Result<(), NoRoom> {
        self.push(|inner| {
            let has_room = inner.heartbeats.len() < HEARTBEATS_MAX;
            has_room.then(|| inner.heartbeats.push_back(heartbeat))
        })
    }

    pub(super) fn ask(&self, ask: pb::Ask) -> Result<(), NoRoom> {
        self.push(|inner| {
            let has_room = inner.asks.len() < ASKS_MAX;
            has_room.then(|| inner.asks.push_back(ask))
        })
    }

    pub(super) fn follow(&self, follow: pb::Follow) -> Result<(), NoRoom> {
        self.push(|inner| {
            inner.follow = Some(follow);
            Some(())
        })
    }

    /// One more event was taken.
    pub(super) fn took_event(&self) {
        let _ = self.push(|inner| {
            inner.taken += 1;
            Some(())
        });
    }

    /// Nothing more is sent.
    pub(super) fn end(&self) {
        let _ = self.push(|inner| {
            inner.is_over = true;
            Some(())
        });
    }

    fn push(&self, change: impl FnOnce(&mut Inner) -> Option<()>) -> Result<(), NoRoom> {
        let mut inner = self.lock();
        if inner.is_over {
            return Err(NoRoom);
        }
        let changed = change(&mut inner).ok_or(NoRoom);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        changed
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next(&mut self) -> Option<Message> {
        if let Some(hello) = self.hello.take() {
            return Some(Message::Hello(hello));
        }
        if let Some(heartbeat) = self.heartbeats.pop_front() {
            return Some(Message::Heartbeat(heartbeat));
        }
        if let Some(ask) = self.asks.pop_front() {
            return Some(Message::Ask(ask));
        }
        if let Some(follow) = self.follow.take() {
            return Some(Message::Follow(follow));
        }
        if self.taken > self.taken_told {
            self.taken_told = self.taken;
            return Some(Message::Taken(pb::Taken { events: self.taken }));
        }
        None
    }
}

/// The lanes as the connection sees them. Dropping it is the end of them.
#[derive(Debug)]
pub(super) struct Upward(pub(super) Arc<Lanes>);

impl Stream for Upward {
    type Item = pb::SessionUp;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<pb::SessionUp>> {
        let mut inner = self.0.lock();
        if inner.is_over {
            return Poll::Ready(None);
        }
        match inner.next() {
            Some(message) => Poll::Ready(Some(pb::SessionUp { message: Some(message) })),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Upward {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(upward: &mut Upward) -> Option<Message> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(upward).poll_next(&mut cx) {
            Poll::Ready(up) => up.and_then(|up| up.message),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_heartbeat_overtakes_every_request_that_waits() {
        let lanes = Lanes::new(pb::Hello::default());
        let mut upward = Upward(Arc::clone(&lanes));
        while lanes.ask(pb::Ask::default()).is_ok() {}
        lanes.follow(pb::Follow::default()).unwrap();
        lanes.took_event();
        lanes.heartbeat(pb::Heartbeat { sequence: 7, ..pb::Heartbeat::default() }).unwrap();
        assert!(matches!(take(&mut upward), Some(Message::Hello(_))));
        assert!(
            matches!(take(&mut upward), Some(Message::Heartbeat(heartbeat)) if heartbeat.sequence == 7)
        );
        for _ in 0..ASKS_MAX {
            assert!(matches!(take(&mut upward), Some(Message::Ask(_))));
        }
        assert!(matches!(take(&mut upward), Some(Message::Follow(_))));
        assert!(matches!(take(&mut upward), Some(Message::Taken(taken)) if taken.events == 1));
        assert!(take(&mut upward).is_none());
    }

    #[test]
    fn lanes_are_bounded_and_end_with_their_connection() {
        let lanes = Lanes::new(pb::Hello::default());
        let upward = Upward(Arc::clone(&lanes));
        for _ in 0..HEARTBEATS_MAX {
            lanes.heartbeat(pb::Heartbeat::default()).unwrap();
        }
        assert_eq!(lanes.heartbeat(pb::Heartbeat::default()), Err(NoRoom));
        drop(upward);
        assert_eq!(lanes.ask(pb::Ask::default()), Err(NoRoom));
    }
}
