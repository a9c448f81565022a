//! What comes from other replicas, as a fuzzer feeds it: as it is, and with checksums set right.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::frame::{Greeting, Kind, put_frame, take_frame};
use crate::io::PeerMessage;

/// What a future has come to that never waits: its bytes are all there.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("bytes that are all there were waited for"),
    }
}

/// A greeting and the frames behind it.
pub fn link(bytes: &[u8]) {
    let mut greeting = bytes;
    let _ = at_once(Greeting::receive(&mut greeting));
    // The same with the checksum that belongs to it.
    if let Some((body, _)) = bytes.split_at_checked(50) {
        let sum = crc32fast::hash(body).to_le_bytes();
        let mut whole = &[body, &sum[..]].concat()[..];
        let _ = at_once(Greeting::receive(&mut whole));
    }
    let (mut frames, mut buffer) = (bytes, Vec::new());
    while let Ok(kind) = at_once(take_frame(&mut frames, &mut buffer)) {
        receive(kind, &buffer);
    }
    let mut whole = Vec::new();
    put_frame(Kind::Message, &mut whole, |out| out.extend(bytes));
    let kind = at_once(take_frame(&mut whole.as_slice(), &mut buffer));
    assert_eq!((kind.ok(), buffer.as_slice()), (Some(Kind::Message), bytes));
    receive(Kind::Message, &buffer);
}

fn receive(kind: Kind, payload: &[u8]) {
    match kind {
        Kind::Message | Kind::Announcement => {
            let _ = PeerMessage::decode(payload);
        }
        Kind::Ping | Kind::Pong | Kind::Chunk | Kind::End => {}
    }
}
