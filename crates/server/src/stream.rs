//! A watch as a stream of server-sent events.
//!
//! One task per stream takes items from the store's watch and hands frames to the connection
//! through a short queue. A reader that takes none for `write_timeout` is left, connection and all,
//! so that what waits for it holds no memory: the store keeps the events, and the reader resumes
//! from its last cursor.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use hyper::body::{Bytes, Frame};
use regent_api::{Bookmark, Closing, Code, LeaderChanged, Problem, WatchEvent};
use regent_election::Cursor;
use regent_election::store::{Scope, Watch, WatchItem};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::app::{Call, Phase, dice};
use crate::reply::{self, Reply};
use crate::watch::{gap, present};

/// Frames between the task and the connection.
const FRAMES_MAX: usize = 32;
/// Within which time the watchers of a closing server come back.
const CLOSING_SPREAD_MS: u64 = 1000;
/// How long a browser waits before it connects again, as the first line of a stream.
const RETRY_LINE: &[u8] = b"retry: 1000\n\n";

/// Answers with a stream; `tells_state` makes the present state its first event.
pub(crate) async fn open(
    call: Call,
    scope: Scope,
    watch: Box<dyn Watch>,
    tells_state: bool,
) -> Reply {
    let (frames, queue) = mpsc::channel(FRAMES_MAX);
    let mut stream = Stream { call, scope, watch, frames, told: None };
    // The first frames fit the queue, so that errors of the first read are still answers.
    stream.frames.try_send(Bytes::from_static(RETRY_LINE)).map_err(|_| broken())?;
    if tells_state {
        let present = present(&stream.call, &stream.scope, stream.watch.cursor()).await?;
        stream.told = Some(present.cursor);
        let frame = frame(&WatchEvent::State(present)).ok_or_else(broken)?;
        stream.frames.try_send(frame).map_err(|_| broken())?;
    }
    tokio::spawn(stream.run());
    Ok(response(queue))
}

fn broken() -> Problem {
    Problem::new(Code::Internal, "the stream broke before it began")
}

fn response(queue: mpsc::Receiver<Bytes>) -> Response {
    let mut response = reply::labelled("text/event-stream", Body::new(Frames(queue)));
    // Asks proxies not to gather events before they pass them on.
    response.headers_mut().insert("x-accel-buffering", "no".parse().expect("`no` is a value"));
    response
}

/// The queue as a body.
struct Frames(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn frame(event: &WatchEvent) -> Option<Bytes> {
    let data = event.data().ok()?;
    Some(format!("event: {}\nid: {}\ndata: {data}\n\n", event.name(), event.cursor()).into())
}

struct Stream {
    call: Call,
    scope: Scope,
    watch: Box<dyn Watch>,
    frames: mpsc::Sender<Bytes>,
    /// Changes up to here are in a state that was told.
    told: Option<Cursor>,
}

/// Whether a stream goes on.
enum Next {
    GoOn,
    End,
}

impl Stream {
    async fn run(mut self) {
        let every = self.call.app.config.watch_bookmark_every;
        let mut bookmarks = interval_at(Instant::now() + every, every);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                biased;
                () = self.frames.closed() => Next::End,
                () = self.call.app.reached(Phase::Closing) => self.farewell().await,
                // Dropping this future loses nothing: an item is taken only when it is ready.
                item = self.watch.next() => match item {
                    Some(item) => self.tell(item).await,
                    None => self.farewell().await,
                },
                _ = bookmarks.tick() => self.bookmark().await,
            };
            match next {
                Next::GoOn => {}
                Next::End => return,
            }
        }
    }

    async fn tell(&mut self, item: WatchItem) -> Next {
        match item {
            WatchItem::Changed(event) => {
                let changed = LeaderChanged::new(event, self.watch.cursor().incarnation);
                if self.told.is_some_and(|told| changed.cursor <= told) {
                    return Next::GoOn;
                }
                self.send(WatchEvent::LeaderChanged(changed)).await
            }
            WatchItem::Gap { oldest, at } => {
                match gap(&self.call, &self.scope, oldest, at).await {
                    Ok(gap) => {
                        self.told = Some(gap.present.cursor);
                        self.send(WatchEvent::Gap(gap)).await
                    }
                    // Without the state the gap cannot be bridged: the watcher must come again, and
                    // with its old cursor, so that it meets the gap again.
                    Err(problem) => {
                        tracing::debug!(%problem, "a watch ended in a gap");
                        Next::End
                    }
                }
            }
        }
    }

    async fn bookmark(&mut self) -> Next {
        let cursor = self.place();
        self.send(WatchEvent::Bookmark(Bookmark { revision: cursor.revision, cursor })).await
    }

    async fn farewell(&mut self) -> Next {
        let retry_after_ms = dice() % CLOSING_SPREAD_MS;
        let closing = Closing { cursor: self.place(), retry_after_ms };
        self.send(WatchEvent::Closing(closing)).await;
        Next::End
    }

    /// Up to where everything has been told, as a change or in a state.
    fn place(&self) -> Cursor {
        let at = self.watch.cursor();
        self.told.map_or(at, |told| told.max(at))
    }

    async fn send(&mut self, event: WatchEvent) -> Next {
        let Some(frame) = frame(&event) else { return Next::End };
        let patience = self.call.app.config.write_timeout;
        match timeout(patience, self.frames.send(frame)).await {
            Ok(Ok(())) => Next::GoOn,
            Ok(Err(_)) => Next::End,
            Err(_) => {
                self.call.talk.give_up();
                Next::End
            }
        }
    }
}
