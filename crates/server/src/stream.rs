//! A watch as a stream of events, and such a stream as server-sent events.
//!
//! One task per stream takes items from the store's watch and hands events to the connection
//! through a short queue. A reader that takes none for `write_timeout` is left, connection and all,
//! so that what waits for it holds no memory: the store keeps the events, and the reader resumes
//! from its last cursor.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use regent_api::{Bookmark, Closing, Code, LeaderChanged, Present, Problem, Stale, WatchEvent};
use regent_election::limits::{GROUPS_PAGE_MAX, TTL_MS_DEFAULT};
use regent_election::store::{Scope, Watch, WatchItem};
use regent_election::{Cursor, Group, Revision};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::app::{Ask, Phase, dice};
use crate::reply::{self, Response};
use crate::watch::{gap, present};

/// Events between the task and the connection.
const EVENTS_MAX: usize = 32;
/// Within which time the watchers of a closing server come back.
const CLOSING_SPREAD_MS: u64 = 1000;
/// Without a quorum for this long, the ttl of a session that does not say otherwise, leaders that were told may be over.
const STALE_AFTER: Duration = Duration::from_millis(TTL_MS_DEFAULT);
/// How often a stream looks at its age.
const AGE_EVERY: Duration = Duration::from_secs(1);
/// How long a browser waits before it connects again, as the first line of a stream.
const RETRY_LINE: &[u8] = b"retry: 1000\n\n";

/// How a stream treats its reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Whether a reader that takes nothing is waited for: only if somebody else looks after it.
    pub(crate) waits_for_ever: bool,
    /// Most groups in one state.
    pub(crate) state_page_max: usize,
}

impl Patience {
    /// That of a stream which is its reader's only one.
    pub(crate) const USUAL: Self = Self { waits_for_ever: false, state_page_max: GROUPS_PAGE_MAX };
}

/// Opens a stream; `tells_state` makes the present state its first event.
pub(crate) async fn open(
    ask: Ask,
    scope: Scope,
    watch: Box<dyn Watch>,
    tells_state: bool,
    patience: Patience,
) -> Result<mpsc::Receiver<WatchEvent>, Problem> {
    let (events, queue) = mpsc::channel(EVENTS_MAX);
    let freshness = Freshness::default();
    let newer = BTreeMap::new();
    let mut stream = Stream { ask, scope, watch, events, told: None, newer, patience, freshness };
    // The first event fits the queue, so that errors of the first read are still answers.
    if tells_state {
        let (at, page_max) = (stream.watch.cursor(), patience.state_page_max);
        let present = present(&stream.ask, &stream.scope, at, page_max).await?;
        stream.tells(&present);
        stream.events.try_send(WatchEvent::State(present)).map_err(|_| broken())?;
    }
    tokio::spawn(stream.run());
    Ok(queue)
}

fn broken() -> Problem {
    Problem::new(Code::Internal, "the stream broke before it began")
}

/// How long ago a quorum last confirmed what this server tells; none over a store without replicas.
pub(crate) fn confirmed_ago(ask: &Ask) -> Option<Duration> {
    ask.app.cluster.as_ref().map(|cluster| cluster.confirmed_ago())
}

/// The stream as server-sent events.
pub(crate) fn response(queue: mpsc::Receiver<WatchEvent>) -> Response {
    let frames = Frames { queue, is_begun: false };
    let mut response = reply::dressed("text/event-stream", reply::streamed(frames));
    // Asks proxies not to gather events before they pass them on.
    response.headers_mut().insert("x-accel-buffering", "no".parse().expect("`no` is a value"));
    response
}

/// The queue as a body.
struct Frames {
    queue: mpsc::Receiver<WatchEvent>,
    is_begun: bool,
}

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.is_begun {
            self.is_begun = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(RETRY_LINE)))));
        }
        // An event that cannot be written ends the stream: its reader resumes before it.
        self.queue
            .poll_recv(cx)
            .map(|event| event.as_ref().and_then(frame).map(Frame::data).map(Ok))
    }
}

fn frame(event: &WatchEvent) -> Option<Bytes> {
    let data = event.data().ok()?;
    Some(format!("event: {}\nid: {}\ndata: {data}\n\n", event.name(), event.cursor()).into())
}

struct Stream {
    ask: Ask,
    scope: Scope,
    watch: Box<dyn Watch>,
    events: mpsc::Sender<WatchEvent>,
    /// Changes up to here are in a state that was told.
    told: Option<Cursor>,
    /// Groups whose state was newer than that, and up to where. Only over a register, which cannot read several groups at
    /// once; at most as many as one state has.
    newer: BTreeMap<Group, Revision>,
    patience: Patience,
    freshness: Freshness,
}

/// Whether a stream has said that it is stale.
#[derive(Debug, Default)]
struct Freshness {
    is_stale: bool,
}

/// What a stream says of its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aged {
    /// What was told may be over.
    Stale,
    /// A quorum confirms again what is told.
    Fresh,
}

impl Freshness {
    /// What is to be said, if a quorum last confirmed that long ago what is told.
    fn judge(&mut self, confirmed_ago: Duration) -> Option<Aged> {
        let is_stale = confirmed_ago >= STALE_AFTER;
        let was_stale = std::mem::replace(&mut self.is_stale, is_stale);
        match (was_stale, is_stale) {
            (false, true) => Some(Aged::Stale),
            (true, false) => Some(Aged::Fresh),
            (false, false) | (true, true) => None,
        }
    }
}

/// Whether a stream goes on.
enum Next {
    GoOn,
    End,
}

impl Stream {
    async fn run(mut self) {
        let every = self.ask.app.config.watch_bookmark_every;
        let mut bookmarks = interval_at(Instant::now() + every, every);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ages = interval_at(Instant::now() + AGE_EVERY, AGE_EVERY);
        ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = tokio::select! {
                biased;
                () = self.events.closed() => Next::End,
                () = self.ask.app.reached(Phase::Closing) => self.farewell().await,
                // Dropping this future loses nothing: an item is taken only when it is ready.
                item = self.watch.next() => match item {
                    Some(item) => self.tell(item).await,
                    None => self.farewell().await,
                },
                _ = bookmarks.tick() => self.bookmark().await,
                _ = ages.tick(), if self.ask.app.cluster.is_some() => self.age().await,
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
                if self.was_told(&changed) {
                    return Next::GoOn;
                }
                self.send(WatchEvent::LeaderChanged(changed)).await
            }
            WatchItem::Gap { oldest, at } => {
                let page_max = self.patience.state_page_max;
                match gap(&self.ask, &self.scope, oldest, at, page_max).await {
                    Ok(gap) => {
                        self.tells(&gap.present);
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

    /// A state is told, which holds changes that will come again.
    fn tells(&mut self, present: &Present) {
        self.told = Some(present.cursor);
        let newer = present.offices.iter().filter(|office| office.cursor > present.cursor);
        self.newer = newer.map(|office| (office.group.clone(), office.revision)).collect();
    }

    /// Whether a change is in a state that was told.
    fn was_told(&mut self, changed: &LeaderChanged) -> bool {
        if self.told.is_some_and(|told| changed.cursor <= told) {
            return true;
        }
        let is_in_state =
            self.newer.get(&changed.group).is_some_and(|up_to| changed.cursor.revision <= *up_to);
        if !is_in_state {
            self.newer.remove(&changed.group);
        }
        is_in_state
    }

    async fn bookmark(&mut self) -> Next {
        let cursor = self.place();
        let confirmed_ago_ms = confirmed_ago(&self.ask).map(|ago| ago.as_millis() as u64);
        let bookmark = Bookmark { revision: cursor.revision, cursor, confirmed_ago_ms };
        self.send(WatchEvent::Bookmark(bookmark)).await
    }

    /// Says once that no quorum confirms any more what was told, and by a bookmark that one does again.
    async fn age(&mut self) -> Next {
        let Some(ago) = confirmed_ago(&self.ask) else { return Next::GoOn };
        match self.freshness.judge(ago) {
            None => Next::GoOn,
            Some(Aged::Fresh) => self.bookmark().await,
            Some(Aged::Stale) => {
                let confirmed_ago_ms = ago.as_millis() as u64;
                self.send(WatchEvent::Stale(Stale { cursor: self.place(), confirmed_ago_ms })).await
            }
        }
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
        if self.patience.waits_for_ever {
            return match self.events.send(event).await {
                Ok(()) => Next::GoOn,
                Err(_) => Next::End,
            };
        }
        let patience = self.ask.app.config.write_timeout;
        match timeout(patience, self.events.send(event)).await {
            Ok(Ok(())) => Next::GoOn,
            Ok(Err(_)) => Next::End,
            Err(_) => {
                self.ask.activity.give_up();
                Next::End
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_says_once_that_it_is_stale_and_once_that_it_is_not() {
        let mut freshness = Freshness::default();
        let told: Vec<_> =
            (0..30).filter_map(|s| Some((s, freshness.judge(Duration::from_secs(s))?))).collect();
        assert_eq!(told, [(10, Aged::Stale)]);
        assert_eq!(freshness.judge(Duration::from_millis(40)), Some(Aged::Fresh));
        assert_eq!(freshness.judge(Duration::ZERO), None);
    }
}
