//! What waits to be sent on a session stream: heartbeats' answers first, whatever else there is.
//!
//! One queue would make an answer to a heartbeat wait behind a burst of events, and that wait would
//! be taken from the lease. So each kind has a lane, and the connection takes from the first lane that
//! holds something. Every lane is bounded: answers by the requests that may be open, notes by being
//! overwritten by newer ones, events by [`EVENTS_MAX`] and the peer's window. An event that finds no
//! room is not taken from the store at all; the store tells a watcher that falls too far behind of a
//! gap.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use regent_api::Problem;
use regent_api::grpc as pb;
use regent_api::grpc::session_down::Message;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::Status;

use super::limits::{ASKS_MAX, EVENTS_MAX, HEARTBEATS_MAX, REFUSALS_MAX};

/// The lanes, shared by everything that has something to send.
#[derive(Debug)]
pub(super) struct Outbox {
    lanes: Mutex<Lanes>,
    /// There may be room for an event.
    room: Notify,
    gone: watch::Sender<bool>,
}

#[derive(Debug)]
struct Lanes {
    heartbeats: VecDeque<pb::HeartbeatAnswer>,
    holds: Option<pb::SessionResponse>,
    jeopardy: Option<pb::Jeopardy>,
    log_leader: Option<pb::LogLeader>,
    answers: VecDeque<(pb::Answer, IsRefusal)>,
    events: VecDeque<pb::WatchEvent>,
    /// Heartbeats, requests and refusals whose answers were not taken yet.
    heartbeats_open: usize,
    asks_open: usize,
    refusals_open: usize,
    /// Events queued so far, events the peer says it took, and how far the one may be ahead.
    events_queued: u64,
    events_taken: u64,
    window: Option<u32>,
    end: Option<End>,
    waker: Option<Waker>,
    /// Since when something has waited that nobody took.
    waits_since: Option<Instant>,
}

/// Whether an answer is a refusal for want of a place.
type IsRefusal = bool;

#[derive(Debug)]
enum End {
    /// After everything that waits.
    Due(Option<Box<Status>>),
    /// It was told.
    Told,
}

/// No room: the peer sends without reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowded;

impl Outbox {
    pub(super) fn new(window: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::new(Lanes {
                heartbeats: VecDeque::new(),
                holds: None,
                jeopardy: None,
                log_leader: None,
                answers: VecDeque::new(),
                events: VecDeque::new(),
                heartbeats_open: 0,
                asks_open: 0,
                refusals_open: 0,
                events_queued: 0,
                events_taken: 0,
                window,
                end: None,
                waker: None,
                waits_since: None,
            }),
            room: Notify::new(),
            gone: watch::Sender::new(false),
        })
    }

    /// A heartbeat came.
    pub(super) fn begin_heartbeat(&self) -> Result<(), Crowded> {
        let mut lanes = self.lock();
        take_one(&mut lanes.heartbeats_open, HEARTBEATS_MAX)
    }

    /// A heartbeat that began is answered.
    pub(super) fn answer_heartbeat(&self, answer: pb::HeartbeatAnswer) {
        self.push(|lanes| lanes.heartbeats.push_back(answer));
    }

    /// A request came.
    pub(super) fn begin_ask(&self) -> Result<(), Crowded> {
        let mut lanes = self.lock();
        take_one(&mut lanes.asks_open, ASKS_MAX)
    }

    /// A request that began is answered.
    pub(super) fn answer(&self, answer: pb::Answer) {
        self.push(|lanes| lanes.answers.push_back((answer, false)));
    }

    /// A request that found no place is refused.
    pub(super) fn refuse(&self, answer: pb::Answer) -> Result<(), Crowded> {
        take_one(&mut self.lock().refusals_open, REFUSALS_MAX)?;
        self.push(|lanes| lanes.answers.push_back((answer, true)));
        Ok(())
    }

    /// What the session holds; replaces what was not taken yet.
    pub(super) fn note_holds(&self, holds: pb::SessionResponse) {
        self.push(|lanes| lanes.holds = Some(holds));
    }

    /// How long nothing was heard; replaces what was not taken yet.
    pub(super) fn note_jeopardy(&self, jeopardy: pb::Jeopardy) {
        self.push(|lanes| lanes.jeopardy = Some(jeopardy));
    }

    /// Who leads the log; replaces what was not taken yet.
    pub(super) fn note_log_leader(&self, leader: pb::LogLeader) {
        self.push(|lanes| lanes.log_leader = Some(leader));
    }

    /// Queues an event as soon as there is room; never returns if there will be none.
    pub(super) async fn event(&self, event: pb::WatchEvent) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before the lanes are looked at, so that no room is missed.
            room.as_mut().enable();
            // Only one task queues events, so the room that was seen is still there.
            if self.lock().has_room() {
                self.push(|lanes| {
                    lanes.events_queued += 1;
                    lanes.events.push_back(event);
                });
                return;
            }
            room.await;
        }
    }

    /// The peer took so many events in all; more than were sent counts as all.
    pub(super) fn taken(&self, events: u64) {
        let mut lanes = self.lock();
        lanes.events_taken = lanes.events_taken.max(events.min(lanes.events_queued));
        drop(lanes);
        self.room.notify_waiters();
    }

    /// Ends the stream after everything that waits; the first end counts.
    pub(super) fn end(&self, why: Option<Problem>) {
        self.push(|lanes| {
            let status = why.map(|problem| Box::new(Status::from(problem)));
            lanes.end.get_or_insert(End::Due(status));
        });
    }

    /// Since when something has waited without anything being taken.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.lock().waits_since
    }

    /// Returns once the connection wants nothing more.
    pub(super) async fn gone(&self) {
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    fn push(&self, change: impl FnOnce(&mut Lanes)) {
        let mut lanes = self.lock();
        change(&mut lanes);
        lanes.waits_since.get_or_insert_with(Instant::now);
        let waker = lanes.waker.take();
        drop(lanes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        // Every change of the lanes is whole before anything that could panic.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_one(open: &mut usize, max: usize) -> Result<(), Crowded> {
    if *open >= max {
        return Err(Crowded);
    }
    *open += 1;
    Ok(())
}

impl Lanes {
    fn has_room(&self) -> bool {
        let ahead = self.events_queued - self.events_taken;
        self.events.len() < EVENTS_MAX && self.window.is_none_or(|window| ahead < u64::from(window))
    }

    /// The next message, most urgent first.
    fn next(&mut self) -> Option<Message> {
        if let Some(answer) = self.heartbeats.pop_front() {
            self.heartbeats_open -= 1;
            return Some(Message::Heartbeat(answer));
        }
        if let Some(holds) = self.holds.take() {
            return Some(Message::Holds(holds));
        }
        if let Some(jeopardy) = self.jeopardy.take() {
            return Some(Message::Jeopardy(jeopardy));
        }
        if let Some(leader) = self.log_leader.take() {
            return Some(Message::LogLeader(leader));
        }
        if let Some((answer, is_refusal)) = self.answers.pop_front() {
            let open = if is_refusal { &mut self.refusals_open } else { &mut self.asks_open };
            *open -= 1;
            return Some(Message::Answer(answer));
        }
        self.events.pop_front().map(Message::Event)
    }
}

/// The sending half as the connection sees it. Dropping it ends everything behind the stream.
#[derive(Debug)]
pub(in crate::grpc) struct Outgoing {
    pub(super) outbox: Arc<Outbox>,
    /// Told before anything else.
    pub(super) welcome: Option<Box<pb::Welcome>>,
}

impl Stream for Outgoing {
    type Item = Result<pb::SessionDown, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let told = |message| Poll::Ready(Some(Ok(pb::SessionDown { message: Some(message) })));
        if let Some(welcome) = self.welcome.take() {
            return told(Message::Welcome(*welcome));
        }
        let mut lanes = self.outbox.lock();
        if let Some(message) = lanes.next() {
            lanes.waits_since = Some(Instant::now());
            drop(lanes);
            self.outbox.room.notify_waiters();
            return told(message);
        }
        lanes.waits_since = None;
        match lanes.end.replace(End::Told) {
            Some(End::Due(Some(status))) => Poll::Ready(Some(Err(*status))),
            Some(End::Due(None) | End::Told) => Poll::Ready(None),
            None => {
                lanes.end = None;
                lanes.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.outbox.gone.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use regent_api::Code;

    use super::*;

    fn heartbeat(sequence: u64) -> pb::HeartbeatAnswer {
        pb::HeartbeatAnswer { sequence, outcome: None }
    }

    fn answer(number: u64) -> pb::Answer {
        pb::Answer { number, outcome: None }
    }

    fn event() -> pb::WatchEvent {
        pb::WatchEvent { event: None }
    }

    fn outgoing(window: Option<u32>) -> Outgoing {
        Outgoing { outbox: Outbox::new(window), welcome: None }
    }

    /// What the connection would take now; none if it would wait.
    fn take(outgoing: &mut Outgoing) -> Option<Option<Message>> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(outgoing).poll_next(&mut cx) {
            Poll::Ready(Some(Ok(down))) => Some(down.message),
            Poll::Ready(Some(Err(_)) | None) => Some(None),
            Poll::Pending => None,
        }
    }

    /// Whether the event was queued at once.
    fn queue(outbox: &Outbox) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        std::pin::pin!(outbox.event(event())).poll(&mut cx).is_ready()
    }

    #[test]
    fn an_answer_to_a_heartbeat_overtakes_everything_that_waits() {
        let mut outgoing = outgoing(None);
        let outbox = Arc::clone(&outgoing.outbox);
        while queue(&outbox) {}
        while outbox.begin_ask().is_ok() {
            outbox.answer(answer(1));
        }
        outbox.note_holds(pb::SessionResponse::default());
        outbox.note_jeopardy(pb::Jeopardy::default());
        outbox.begin_heartbeat().unwrap();
        outbox.answer_heartbeat(heartbeat(7));
        let first = take(&mut outgoing).unwrap().unwrap();
        assert!(matches!(first, Message::Heartbeat(answer) if answer.sequence == 7));
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Holds(_)))));
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Jeopardy(_)))));
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Answer(_)))));
        outbox.begin_heartbeat().unwrap();
        outbox.answer_heartbeat(heartbeat(8));
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Heartbeat(_)))));
    }

    #[test]
    fn every_lane_is_bounded() {
        let mut outgoing = outgoing(None);
        let outbox = Arc::clone(&outgoing.outbox);
        for _ in 0..HEARTBEATS_MAX {
            outbox.begin_heartbeat().unwrap();
        }
        assert_eq!(outbox.begin_heartbeat(), Err(Crowded));
        for _ in 0..ASKS_MAX {
            outbox.begin_ask().unwrap();
        }
        assert_eq!(outbox.begin_ask(), Err(Crowded));
        for _ in 0..REFUSALS_MAX {
            outbox.refuse(answer(1)).unwrap();
        }
        assert_eq!(outbox.refuse(answer(1)), Err(Crowded));
        let queued = std::iter::repeat_with(|| queue(&outbox)).take_while(|queued| *queued).count();
        assert_eq!(queued, EVENTS_MAX);
        // Taking makes room again, in the lane it was taken from.
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Answer(_)))));
        assert!(outbox.refuse(answer(1)).is_ok());
        assert_eq!(outbox.begin_ask(), Err(Crowded));
    }

    #[test]
    fn a_window_holds_events_back_until_the_peer_took_some() {
        let mut outgoing = outgoing(Some(2));
        let outbox = Arc::clone(&outgoing.outbox);
        assert!(queue(&outbox) && queue(&outbox));
        assert!(!queue(&outbox));
        // Sent is not taken.
        while let Some(Some(_)) = take(&mut outgoing) {}
        assert!(!queue(&outbox));
        outbox.taken(1);
        assert!(queue(&outbox));
        assert!(!queue(&outbox));
        // A peer that claims more than it was sent gains nothing.
        outbox.taken(u64::MAX);
        assert!(queue(&outbox) && queue(&outbox));
        assert!(!queue(&outbox));
    }

    #[test]
    fn the_end_comes_last_and_once() {
        let mut outgoing = outgoing(None);
        let outbox = Arc::clone(&outgoing.outbox);
        assert!(take(&mut outgoing).is_none());
        outbox.end(Some(Problem::new(Code::SessionExpired, "over")));
        outbox.end(None);
        outbox.begin_ask().unwrap();
        outbox.answer(answer(1));
        assert!(matches!(take(&mut outgoing), Some(Some(Message::Answer(_)))));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Err(status))) = Pin::new(&mut outgoing).poll_next(&mut cx) else {
            panic!("it did not end with its problem");
        };
        assert_eq!(status.code(), tonic::Code::NotFound);
        assert!(matches!(take(&mut outgoing), Some(None)));
    }

    #[test]
    fn only_what_nobody_takes_waits() {
        let mut outgoing = outgoing(None);
        let outbox = Arc::clone(&outgoing.outbox);
        assert!(outbox.waits_since().is_none());
        outbox.note_jeopardy(pb::Jeopardy::default());
        assert!(outbox.waits_since().is_some());
        assert!(take(&mut outgoing).is_some());
        assert!(take(&mut outgoing).is_none());
        assert!(outbox.waits_since().is_none());
    }
}
