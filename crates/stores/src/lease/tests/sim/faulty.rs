//! A register with faults, and clocks that stray: what one process sees of the world.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Moment;
use regent_election::store::Description;
use tokio::time::{Instant, sleep, sleep_until};

use crate::register::memory::MemoryRegister;
use crate::register::{
    Found, Key, Kind, Record, Register, RegisterError, RegisterResult, ServerSessions, Swapped,
    Version,
};
use crate::time::{Pause, Time};

/// Chance, from a seed.
#[derive(Debug)]
pub(super) struct Dice(Mutex<u64>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1))
    }

    pub(super) fn roll(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    pub(super) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// One process: its clock, its luck, and whether it runs at all.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) dice: Dice,
    started: Instant,
    /// Parts per million by which its clock runs fast.
    pace_ppm: i64,
    stops: Mutex<Stops>,
}

#[derive(Debug)]
struct Stops {
    paused_until: Instant,
    cut_off_until: Instant,
    is_calm: bool,
}

/// How far the clocks may stray.
pub(super) const DRIFT_PPM: u32 = 10_000;

impl Process {
    pub(super) fn new(seed: u64, pace_ppm: i64) -> Arc<Self> {
        let now = Instant::now();
        let stops = Stops { paused_until: now, cut_off_until: now, is_calm: false };
        Arc::new(Self { dice: Dice::new(seed), started: now, pace_ppm, stops: Mutex::new(stops) })
    }

    pub(super) fn pause_for(&self, span: Duration) {
        self.stops.lock().unwrap().paused_until = Instant::now() + span;
    }

    pub(super) fn cut_off_for(&self, span: Duration) {
        self.stops.lock().unwrap().cut_off_until = Instant::now() + span;
    }

    pub(super) fn calm_down(&self) {
        let mut stops = self.stops.lock().unwrap();
        stops.is_calm = true;
        stops.cut_off_until = Instant::now();
        stops.paused_until = Instant::now();
    }

    fn is_calm(&self) -> bool {
        self.stops.lock().unwrap().is_calm
    }

    fn is_cut_off(&self) -> bool {
        Instant::now() < self.stops.lock().unwrap().cut_off_until
    }

    /// Nothing of a paused process moves.
    pub(super) async fn runs(&self) {
        loop {
            let until = self.stops.lock().unwrap().paused_until;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// The instant at which its clock will show this.
    pub(super) fn when(&self, moment: Moment) -> Instant {
        let nanos = u128::from(moment.as_nanos()) * 1_000_000
            / u128::from((1_000_000 + self.pace_ppm).unsigned_abs());
        self.started + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The time of one process.
#[derive(Debug)]
pub(super) struct SimTime(pub(super) Arc<Process>);

impl Time for SimTime {
    fn now(&self) -> Moment {
        let nanos = self.0.started.elapsed().as_nanos();
        let paced = nanos * u128::from((1_000_000 + self.0.pace_ppm).unsigned_abs()) / 1_000_000;
        Moment::from_nanos(u64::try_from(paced).unwrap_or(u64::MAX))
    }

    fn drift_ppm(&self) -> u32 {
        DRIFT_PPM
    }

    fn sleep(&self, for_how_long: Duration) -> Pause {
        let process = Arc::clone(&self.0);
        Box::pin(async move {
            // Timers are not exact either; never zero, so that virtual time moves.
            sleep(for_how_long.max(Duration::from_micros(50))).await;
            process.runs().await;
        })
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn chance(&self) -> u128 {
        u128::from(self.0.dice.roll()) << 64 | u128::from(self.0.dice.roll())
    }
}

/// The way of one process to the entries.
#[derive(Clone, Debug)]
pub(super) struct Faulty {
    pub(super) inner: MemoryRegister,
    pub(super) process: Arc<Process>,
    pub(super) is_servers: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    Refused,
    /// It never arrives, and nobody says so.
    Lost,
    ReplyLost,
    /// It arrives after the caller has given up.
    Late,
}

impl Faulty {
    async fn travel(&self) {
        let dice = &self.process.dice;
        let mut micros = 300 + dice.below(3000);
        if !self.process.is_calm() && dice.percent(4) {
            micros += dice.below(250_000);
        }
        sleep(Duration::from_micros(micros)).await;
        self.process.runs().await;
    }

    fn fate(&self) -> Fate {
        let process = &self.process;
        if process.is_calm() {
            return Fate::Fine;
        }
        if process.is_cut_off() {
            return if process.dice.percent(50) { Fate::Refused } else { Fate::Lost };
        }
        match process.dice.below(100) {
            0..3 => Fate::Refused,
            3..5 => Fate::Lost,
            5..8 => Fate::ReplyLost,
            8..10 => Fate::Late,
            _ => Fate::Fine,
        }
    }

    fn refused() -> RegisterError {
        RegisterError::unavailable("refused by the dice")
    }

    fn unknown() -> RegisterError {
        RegisterError::uncertain("the reply was lost by the dice")
    }

    async fn read<T>(&self, answer: impl Future<Output = RegisterResult<T>>) -> RegisterResult<T> {
        self.process.runs().await;
        self.travel().await;
        if self.fate() != Fate::Fine {
            return Err(Self::refused());
        }
        let answer = answer.await;
        self.travel().await;
        answer
    }

    /// A request that changes something; `again` makes it, now or late.
    async fn write<T, F>(&self, again: impl Fn(MemoryRegister) -> F) -> RegisterResult<T>
    where
        T: Send + 'static,
        F: Future<Output = RegisterResult<T>> + Send + 'static,
    {
        self.process.runs().await;
        self.travel().await;
        let fate = self.fate();
        match fate {
            Fate::Fine => {
                let answer = again(self.inner.clone()).await;
                self.travel().await;
                answer
            }
            Fate::Refused => Err(Self::refused()),
            Fate::Lost => Err(Self::unknown()),
            Fate::ReplyLost => {
                let _ = again(self.inner.clone()).await;
                self.travel().await;
                Err(Self::unknown())
            }
            Fate::Late => {
                let late = again(self.inner.clone());
                let after = Duration::from_millis(1 + self.process.dice.below(1500));
                tokio::spawn(async move {
                    sleep(after).await;
                    let _ = late.await;
                });
                sleep(Duration::from_millis(self.process.dice.below(40))).await;
                Err(Self::unknown())
            }
        }
    }
}

#[async_trait]
impl Register for Faulty {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.inner.examine().await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        self.read(self.inner.load(key)).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        if !self.process.is_calm() && self.process.dice.percent(1) {
            self.travel().await;
            return Ok(Swapped::Conflict);
        }
        self.write(|inner| {
            let (key, expected, record) = (key.clone(), expected.cloned(), record.clone());
            async move { inner.swap(&key, expected.as_ref(), record).await }
        })
        .await
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        self.process.runs().await;
        self.travel().await;
        if !self.process.is_calm() && self.process.dice.percent(5) {
            return Err(Self::refused());
        }
        self.inner.wait(key, seen, patience).await?;
        self.travel().await;
        Ok(())
    }

    async fn list(
        &self,
        kind: Kind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        self.read(self.inner.list(kind, prefix, after, count)).await
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        self.is_servers.then_some(self)
    }
}

#[async_trait]
impl ServerSessions for Faulty {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.write(|inner| async move { inner.begin(session, ttl).await }).await
    }

    async fn beat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.write(|inner| async move { inner.beat(session, ttl).await }).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        self.read(self.inner.is_alive(session)).await
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        self.write(|inner| async move { ServerSessions::end(&inner, session).await }).await
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        self.process.runs().await;
        self.travel().await;
        self.inner.wait_for_end(session, patience).await
    }
}
