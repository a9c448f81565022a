//! The seam between a process and the world: its time, its chance, and its way to the engine.
//!
//! The lease asks for a pause or for an entry by awaiting it. Here every such wish becomes a number that
//! the world is told, and the future is ready when the world has answered under that number. So the lease
//! runs as it is, and nothing happens in it but by the world's doing.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::store::{Description, Level};
use regent_stores::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, ServerSessions, Swapped,
    Version,
};
use regent_stores::time::{Pause, Time};

use super::engine::{EngineAnswer, Question};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::world::net::Address;
use crate::world::parcel::Parcel;

/// Timers are not exact; and never zero, so that virtual time moves.
const PAUSE_MIN: Duration = Duration::from_micros(50);

/// What a process and the world hand each other.
#[derive(Debug)]
pub(super) struct Port {
    /// True time, which only the clock may read.
    pub(super) now: u64,
    pub(super) clock: Clock,
    drift_ppm: u32,
    dice: Dice,
    tokens: u64,
    /// Pauses under way.
    sleepers: BTreeMap<u64, Sleeper>,
    /// Questions under way; with an answer, if it came and was not taken yet.
    slots: BTreeMap<u64, Slot>,
    /// What the world has not been told yet.
    pub(super) fresh: Fresh,
}

/// What a process has said since it was last heard.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// Wishes to be woken.
    pub(super) sleeps: Vec<u64>,
    /// Questions to the engine.
    pub(super) questions: Vec<(u64, Question)>,
    /// What clients are told.
    pub(super) said: Vec<(Address, Parcel)>,
    /// A panic of something that runs here.
    pub(super) panicked: Option<String>,
}

#[derive(Debug)]
struct Sleeper {
    until: Moment,
    is_over: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Slot {
    answer: Option<RegisterResult<EngineAnswer>>,
    waker: Option<Waker>,
    /// Whether it changes something: without an answer nobody knows whether it did.
    is_write: bool,
    /// Whether no answer is an answer, too: a wait has an end of its own.
    is_wait: bool,
}

/// One end of the seam; clones are the same end.
pub(super) type SharedPort = Arc<Mutex<Port>>;

pub(super) fn lock(port: &SharedPort) -> MutexGuard<'_, Port> {
    // Nothing is left half done under this lock.
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port {
    pub(super) fn new(now: u64, clock: Clock, drift_ppm: u32, dice: Dice) -> Self {
        Self {
            now,
            clock,
            drift_ppm,
            dice,
            tokens: 0,
            sleepers: BTreeMap::new(),
            slots: BTreeMap::new(),
            fresh: Fresh::default(),
        }
    }

    fn own_now(&self) -> Moment {
        self.clock.read(self.now)
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// When a pause is over in true time, if it is not over and not forgotten.
    pub(super) fn wakes_at(&self, token: u64) -> Option<u64> {
        let sleeper = self.sleepers.get(&token).filter(|sleeper| !sleeper.is_over)?;
        Some(self.clock.when(sleeper.until))
    }

    /// Every pause under way: a clock that was changed ends them at other times.
    pub(super) fn sleeping(&self) -> Vec<u64> {
        self.sleepers.keys().copied().collect()
    }

    /// Ends a pause, unless its time has not come by this process's clock.
    pub(super) fn wake(&mut self, token: u64) {
        let now = self.own_now();
        let Some(sleeper) = self.sleepers.get_mut(&token) else { return };
        if now < sleeper.until {
            self.fresh.sleeps.push(token);
            return;
        }
        sleeper.is_over = true;
        if let Some(waker) = sleeper.waker.take() {
            waker.wake();
        }
    }

    /// An answer has come; one that comes too late is not missed by anybody.
    pub(super) fn answered(&mut self, token: u64, answer: RegisterResult<EngineAnswer>) {
        let Some(slot) = self.slots.get_mut(&token) else { return };
        slot.answer.get_or_insert(answer);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    /// No answer has come in time.
    pub(super) fn timed_out(&mut self, token: u64) {
        let Some(slot) = self.slots.get(&token) else { return };
        let answer = match (slot.is_wait, slot.is_write) {
            (true, _) => Ok(EngineAnswer::Done),
            (false, true) => Err(RegisterError::uncertain("no answer in time")),
            (false, false) => Err(RegisterError::unavailable("no answer in time")),
        };
        self.answered(token, answer);
    }
}

/// A pause under way.
struct Sleeping {
    port: SharedPort,
    token: u64,
}

impl Future for Sleeping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut port = lock(&self.port);
        let Some(sleeper) = port.sleepers.get_mut(&self.token) else { return Poll::Ready(()) };
        if sleeper.is_over {
            return Poll::Ready(());
        }
        sleeper.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        lock(&self.port).sleepers.remove(&self.token);
    }
}

/// A question under way. Dropped, it may still be answered, and nobody hears it.
struct Asking {
    port: SharedPort,
    token: u64,
}

impl Future for Asking {
    type Output = RegisterResult<EngineAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut port = lock(&self.port);
        let Some(slot) = port.slots.get_mut(&self.token) else {
            return Poll::Ready(Err(RegisterError::unavailable("nobody asked")));
        };
        if let Some(answer) = slot.answer.take() {
            return Poll::Ready(answer);
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        lock(&self.port).slots.remove(&self.token);
    }
}

/// The time of one process.
#[derive(Clone, Debug)]
pub(super) struct WorldTime(pub(super) SharedPort);

impl Time for WorldTime {
    fn now(&self) -> Moment {
        lock(&self.0).own_now()
    }

    fn drift_ppm(&self) -> u32 {
        lock(&self.0).drift_ppm
    }

    fn sleep(&self, for_how_long: Duration) -> Pause {
        let mut port = lock(&self.0);
        let token = port.token();
        let until = port.own_now() + for_how_long.max(PAUSE_MIN);
        port.sleepers.insert(token, Sleeper { until, is_over: false, waker: None });
        port.fresh.sleeps.push(token);
        Box::pin(Sleeping { port: Arc::clone(&self.0), token })
    }

    fn wall_ms(&self) -> u64 {
        lock(&self.0).now / 1_000_000
    }

    fn chance(&self) -> u128 {
        let mut port = lock(&self.0);
        u128::from(port.dice.roll()) << 64 | u128::from(port.dice.roll())
    }
}

/// The way of one process to the engine.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) port: SharedPort,
    /// Whether the engine times sessions itself.
    pub(super) times_sessions: bool,
    /// How often an engine that announces nothing is looked at.
    pub(super) poll_every: Option<Duration>,
}

impl Wire {
    fn ask(&self, question: Question) -> Asking {
        let mut port = lock(&self.port);
        let token = port.token();
        let (is_write, is_wait) = (question.is_write(), question.patience().is_some());
        port.slots.insert(token, Slot { answer: None, waker: None, is_write, is_wait });
        port.fresh.questions.push((token, question));
        Asking { port: Arc::clone(&self.port), token }
    }

    async fn is_true(&self, question: Question) -> RegisterResult<bool> {
        match self.ask(question).await? {
            EngineAnswer::Alive(is_alive) => Ok(is_alive),
            other => Err(strange(&other)),
        }
    }

    async fn polled(&self, patience: Duration, every: Duration) -> RegisterResult<()> {
        WorldTime(Arc::clone(&self.port)).sleep(patience.min(every)).await;
        Ok(())
    }
}

fn strange(told: &EngineAnswer) -> RegisterError {
    RegisterError::corrupt(format!("the engine told {told:?}"))
}

#[async_trait]
impl Register for Wire {
    fn describe(&self) -> Description {
        Description {
            name: "lab",
            place: "a simulated engine".into(),
            level: Level::Strict,
            caveat: None,
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        Ok(Vec::new())
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        match self.ask(Question::Load { key: key.clone() }).await? {
            EngineAnswer::Found(found) => Ok(found),
            other => Err(strange(&other)),
        }
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let (key, expected) = (key.clone(), expected.cloned());
        match self.ask(Question::Swap { key, expected, value: record.value }).await? {
            EngineAnswer::Swapped(swapped) => Ok(swapped),
            other => Err(strange(&other)),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        if let Some(every) = self.poll_every {
            return self.polled(patience, every).await;
        }
        self.ask(Question::Wait { key: key.clone(), seen: seen.cloned(), patience }).await?;
        Ok(())
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        match self.ask(Question::List { kind, prefix, after, count }).await? {
            EngineAnswer::Listed(listed) => Ok(listed),
            other => Err(strange(&other)),
        }
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        self.times_sessions.then_some(self)
    }
}

#[async_trait]
impl ServerSessions for Wire {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.is_true(Question::Begin { session, ttl }).await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.is_true(Question::Heartbeat { session, ttl }).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        self.is_true(Question::IsAlive { session }).await
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        self.ask(Question::End { session }).await?;
        Ok(())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        if let Some(every) = self.poll_every {
            return self.polled(patience, every).await;
        }
        self.ask(Question::WaitForEnd { session, patience }).await?;
        Ok(())
    }
}
