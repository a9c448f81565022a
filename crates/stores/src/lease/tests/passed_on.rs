//! What a verb found and passed on, and what happens meanwhile: a verb that acts on what it read a moment ago must
//! be refused by the write, or read again, whenever another process came in between.
//!
//! A process is staged: just before one of its calls something else happens, or the reply of that call is lost.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{Consistency, Description, Heartbeat, Open, Store, StoreError};
use regent_election::{Node, Refusal};
use tokio::time::Instant;

use super::directed::{Paused, bid, group, heartbeat, secret, step_down, waiting, win};
use crate::lease::entries::SETTLES_MAX;
use crate::lease::{LeaseStore, Shared};
use crate::register::memory::MemoryRegister;
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, ServerSessions, Swapped,
    Version,
};
use crate::time::Time;

/// A call of the staged process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Begins a session and creates its entry.
    Begin,
    /// Hears a session, after its entry was read.
    Heartbeat,
    /// Replaces the entry of a session.
    SwapSession,
    /// Reads the entry of a group.
    LoadGroup,
    /// Replaces the entry of a group.
    SwapGroup,
}

/// What happens at a call, once.
pub(super) enum Scene {
    /// Others act first.
    Before(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It is done, and its reply is lost.
    ReplyLost,
    /// It never arrives, and nobody can tell.
    RequestLost,
    /// The same, and that takes so long.
    RequestLostAfter(Duration),
    /// This is its answer, and it is not done.
    Refused(RegisterError),
    /// It is done and its reply is lost, and nothing is answered from then on.
    CutAfter,
}

/// The way of one process to a register in memory.
#[derive(Clone)]
struct Staged {
    inner: MemoryRegister,
    /// One after the other.
    scenes: Arc<Mutex<VecDeque<(Call, Scene)>>>,
    is_cut: Arc<Mutex<bool>>,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staged({:?})", self.inner)
    }
}

fn lost() -> RegisterError {
    RegisterError::uncertain("no answer")
}

impl Staged {
    fn check_cut(&self) -> RegisterResult<()> {
        match *self.is_cut.lock().unwrap() {
            true => Err(RegisterError::unavailable("cut")),
            false => Ok(()),
        }
    }

    /// A call, with what happens at it.
    async fn at<T>(
        &self,
        call: Call,
        asked: impl Future<Output = RegisterResult<T>>,
    ) -> RegisterResult<T> {
        self.check_cut()?;
        let scene = self.scenes.lock().unwrap().pop_front_if(|(at, _)| *at == call);
        match scene.map(|(_, scene)| scene) {
            None => asked.await,
            Some(Scene::Before(others)) => {
                others.await;
                asked.await
            }
            Some(Scene::ReplyLost) => {
                asked.await?;
                Err(lost())
            }
            Some(Scene::RequestLost) => Err(lost()),
            Some(Scene::RequestLostAfter(time)) => {
                tokio::time::sleep(time).await;
                Err(lost())
            }
            Some(Scene::Refused(error)) => Err(error),
            Some(Scene::CutAfter) => {
                asked.await?;
                *self.is_cut.lock().unwrap() = true;
                Err(lost())
            }
        }
    }
}

#[async_trait]
impl Register for Staged {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.inner.examine().await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let loaded = self.inner.load(key);
        match key.kind() {
            KeyKind::Group => self.at(Call::LoadGroup, loaded).await,
            KeyKind::Session | KeyKind::Setting => {
                self.check_cut()?;
                loaded.await
            }
        }
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let swapped = self.inner.swap(key, expected, record);
        match key.kind() {
            KeyKind::Session => self.at(Call::SwapSession, swapped).await,
            KeyKind::Group => self.at(Call::SwapGroup, swapped).await,
            KeyKind::Setting => {
                self.check_cut()?;
                swapped.await
            }
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        self.inner.wait(key, seen, patience).await
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        self.inner.list(kind, prefix, after, count).await
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        self.inner.sessions().map(|_| self as &dyn ServerSessions)
    }
}

#[async_trait]
impl ServerSessions for Staged {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.inner.begin(session, ttl).await
    }

    async fn begin_with_entry(
        &self,
        session: u128,
        ttl: Duration,
        record: Record,
    ) -> RegisterResult<Option<Swapped>> {
        self.at(Call::Begin, self.inner.begin_with_entry(session, ttl, record)).await
    }

    // HeartbeatOutcome with the entry is the trait's own: two steps, and others may come between them.
    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.at(Call::Heartbeat, self.inner.heartbeat(session, ttl)).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        self.check_cut()?;
        self.inner.is_alive(session).await
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        self.check_cut()?;
        self.inner.end(session).await
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        self.inner.wait_for_end(session, patience).await
    }
}

/// Two processes on one register; the first is staged.
pub(super) struct Stage {
    staged: Staged,
    pub(super) one: Arc<dyn Store>,
    pub(super) two: Arc<dyn Store>,
    /// What the first is made of.
    pub(super) shared: Arc<Shared>,
}

impl Stage {
    pub(super) fn on(times_sessions: bool) -> Self {
        let time: Arc<dyn Time> = Arc::new(Paused(Instant::now()));
        let inner = match times_sessions {
            true => MemoryRegister::with_sessions(Arc::clone(&time)),
            false => MemoryRegister::with_time(Arc::clone(&time)),
        };
        let (scenes, is_cut) = Default::default();
        let staged = Staged { inner: inner.clone(), scenes, is_cut };
        let one = LeaseStore::with_time(Arc::new(staged.clone()), Arc::clone(&time));
        let two = LeaseStore::with_time(Arc::new(inner), time);
        let shared = Arc::clone(&one.shared);
        Self { staged, one: Arc::new(one), two: Arc::new(two), shared }
    }

    pub(super) fn play(&self, call: Call, scene: Scene) {
        self.staged.scenes.lock().unwrap().push_back((call, scene));
    }

    /// Lets the other process act just before a call of the first.
    pub(super) fn before<F: Future<Output = ()> + Send + 'static>(
        &self,
        call: Call,
        acts: impl FnOnce(Arc<dyn Store>) -> F,
    ) {
        self.play(call, Scene::Before(Box::pin(acts(Arc::clone(&self.two)))));
    }

    pub(super) async fn leader(&self, name: &str) -> Option<Node> {
        self.two.leader(&group(name), Consistency::Linearizable).await.unwrap().leader
    }

    /// How many scenes are still to be played.
    fn left(&self) -> usize {
        self.staged.scenes.lock().unwrap().len()
    }

    /// Every scene was played: a test whose call never came shows nothing.
    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }
}

fn opening(node: &str, number: u128, ttl_ms: u64) -> Open {
    Open { node: Node::new(node).unwrap(), ttl_ms, session: secret(number) }
}

fn numbered(number: u128, sequence: u64) -> Heartbeat {
    Heartbeat { sequence: Some(sequence), ..heartbeat(number) }
}

pub(super) fn is_unknown<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Refused(Refusal::SessionUnknown)))
}

#[tokio::test(start_paused = true)]
async fn a_session_that_others_opened_and_let_expire_after_it_was_looked_for_wins_nothing() {
    let stage = Stage::on(true);
    stage.before(Call::Begin, async |two: Arc<dyn Store>| {
        two.open(opening("a", 1, 1000)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
    });
    let answer = stage.one.campaign(bid("g", "a", 1, 1000)).await;
    assert!(stage.is_over() && is_unknown(&answer), "{answer:?}");
    assert_eq!(stage.leader("g").await, None);
    assert!(is_unknown(&stage.two.heartbeat(heartbeat(1)).await));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_others_opened_and_closed_after_it_was_looked_for_stays_closed() {
    let stage = Stage::on(true);
    stage.before(Call::Begin, async |two: Arc<dyn Store>| {
        two.open(opening("a", 1, 10_000)).await.unwrap();
        two.close(secret(1)).await.unwrap();
    });
    let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(stage.is_over() && is_unknown(&answer), "{answer:?}");
    assert_eq!(stage.leader("g").await, None);
    let again = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(is_unknown(&again), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_others_opened_after_it_was_looked_for_is_heard_and_lists_the_group() {
    let stage = Stage::on(true);
    stage.before(Call::Begin, async |two: Arc<dyn Store>| {
        two.open(opening("a", 1, 10_000)).await.unwrap();
    });
    win(&*stage.one, "g", "a", 1, 10_000).await;
    assert!(stage.is_over());
    assert_eq!(stage.two.session(secret(1)).await.unwrap().tenures.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_others_opened_under_another_name_is_not_taken_for_ones_own() {
    let stage = Stage::on(true);
    stage.before(Call::Begin, async |two: Arc<dyn Store>| {
        two.open(opening("b", 1, 20_000)).await.unwrap();
    });
    let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    let mismatch = matches!(answer, Err(StoreError::Refused(Refusal::SessionMismatch)));
    assert!(stage.is_over() && mismatch, "{answer:?}");
    assert_eq!(stage.leader("g").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_expires_after_its_entry_was_read_wins_nothing_and_is_not_heard() {
    for is_campaign in [true, false] {
        let stage = Stage::on(true);
        stage.one.open(opening("a", 1, 1000)).await.unwrap();
        stage.before(Call::Heartbeat, async |_| tokio::time::sleep(Duration::from_secs(2)).await);
        let is_refused = match is_campaign {
            true => is_unknown(&stage.one.campaign(bid("g", "a", 1, 1000)).await),
            false => is_unknown(&stage.one.heartbeat(heartbeat(1)).await),
        };
        assert!(stage.is_over() && is_refused, "campaign: {is_campaign}");
        assert_eq!(stage.leader("g").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_beginning_whose_request_or_reply_is_lost_is_settled_by_hearing_the_session() {
    for scene in [Scene::ReplyLost, Scene::RequestLost] {
        let stage = Stage::on(true);
        stage.play(Call::Begin, scene);
        let term = win(&*stage.one, "g", "a", 1, 10_000).await;
        assert!(stage.is_over());
        assert_eq!(stage.two.session(secret(1)).await.unwrap().tenures[0].term, term);
        stage.one.heartbeat(heartbeat(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_beginning_that_cannot_be_settled_is_told_as_a_doubt() {
    let stage = Stage::on(true);
    stage.play(Call::Begin, Scene::CutAfter);
    let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(matches!(answer, Err(StoreError::Uncertain { .. })), "{answer:?}");
    assert!(stage.is_over());
    assert_eq!(stage.leader("g").await, None);
    // It was done all the same, and the same id goes on with it.
    win(&*stage.two, "g", "a", 1, 10_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_beginning_in_doubt_stays_one_though_the_server_is_found_unfit_later() {
    let stage = Stage::on(true);
    stage.play(Call::Begin, Scene::RequestLost);
    for _ in 1..SETTLES_MAX {
        stage.play(Call::Begin, Scene::Refused(RegisterError::unfit("another server answers")));
    }
    let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(matches!(answer, Err(StoreError::Uncertain { .. })), "{answer:?}");
    assert!(stage.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_beginning_is_not_settled_any_more_when_its_lease_would_be_over() {
    let stage = Stage::on(true);
    for _ in 0..SETTLES_MAX {
        stage.play(Call::Begin, Scene::RequestLostAfter(Duration::from_secs(6)));
    }
    let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(matches!(answer, Err(StoreError::Uncertain { .. })), "{answer:?}");
    assert_eq!(stage.left(), SETTLES_MAX as usize - 2);
}

/// S14 within a process: a number is taken when a heartbeat is sent, not when it is answered.
#[tokio::test(start_paused = true)]
async fn of_two_heartbeats_with_one_number_only_the_first_counts_and_a_slow_one_takes_none_back() {
    for is_heard_before in [true, false] {
        let stage = Stage::on(true);
        let opener = if is_heard_before { &stage.one } else { &stage.two };
        opener.open(opening("a", 1, 10_000)).await.unwrap();
        let (twin, answers) = (Arc::clone(&stage.one), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&answers);
        stage.before(Call::Heartbeat, async move |_| {
            let same = twin.heartbeat(numbered(1, 5)).await;
            let next = twin.heartbeat(numbered(1, 6)).await;
            *noted.lock().unwrap() = vec![same.map(drop), next.map(drop)];
        });
        stage.one.heartbeat(numbered(1, 5)).await.unwrap();
        assert!(stage.is_over());
        let not_newer =
            |given, last| Err(StoreError::Refused(Refusal::HeartbeatNotNewer { given, last }));
        assert_eq!(*answers.lock().unwrap(), [not_newer(5, 5), Ok(())], "{is_heard_before}");
        let again = stage.one.heartbeat(numbered(1, 6)).await.map(drop);
        assert_eq!(again, not_newer(6, 6), "{is_heard_before}");
    }
}

/// S1: a heartbeat that read its entry before the holder was told to stop carries the old epoch. It was sent before
/// that, so what it extends is over before a successor is granted; the next one carries the new epoch.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_read_its_entry_before_the_holder_was_told_reaches_no_successor() {
    let stage = Stage::on(true);
    let ttl = Duration::from_secs(10);
    let term = win(&*stage.one, "g", "a", 1, 10_000).await;
    assert!(stage.two.campaign(bid("g", "b", 2, 60_000)).await.unwrap().standing);
    let before = stage.one.heartbeat(heartbeat(1)).await.unwrap().epoch;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.before(Call::Heartbeat, async |two: Arc<dyn Store>| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        two.step_down(step_down("g")).await.unwrap();
    });
    let sent_at = Instant::now();
    let heard = stage.one.heartbeat(heartbeat(1)).await.unwrap();
    assert!(stage.is_over());
    assert_eq!(heard.epoch, before, "read before it was told");
    assert!(stage.one.heartbeat(heartbeat(1)).await.unwrap().epoch > before);
    let won = stage.two.campaign(waiting(bid("g", "b", 2, 60_000))).await.unwrap();
    assert_eq!(won.elected, term.next());
    assert!(sent_at.elapsed() >= ttl, "granted {:?} after the send", sent_at.elapsed());
}

/// Without a server's sessions the entry that a campaign read is the one it replaces: a heartbeat through another
/// process makes it stale, and it is read again before anything is written.
#[tokio::test(start_paused = true)]
async fn a_campaign_takes_back_no_heartbeat_that_came_after_its_session_was_read() {
    let stage = Stage::on(false);
    stage.one.open(opening("a", 1, 10_000)).await.unwrap();
    stage.before(Call::SwapSession, async |two: Arc<dyn Store>| {
        two.heartbeat(numbered(1, 7)).await.unwrap();
    });
    win(&*stage.one, "g", "a", 1, 10_000).await;
    assert!(stage.is_over());
    let late = stage.one.heartbeat(numbered(1, 7)).await;
    let is_known =
        matches!(late, Err(StoreError::Refused(Refusal::HeartbeatNotNewer { given: 7, last: 7 })));
    assert!(is_known, "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_campaign_does_not_open_a_session_again_that_was_closed_after_it_was_read() {
    for is_open_before in [true, false] {
        let stage = Stage::on(false);
        if is_open_before {
            stage.one.open(opening("a", 1, 10_000)).await.unwrap();
        }
        stage.before(Call::SwapSession, async |two: Arc<dyn Store>| {
            two.close(secret(1)).await.unwrap();
        });
        let answer = stage.one.campaign(bid("g", "a", 1, 10_000)).await;
        assert!(stage.is_over() && is_unknown(&answer), "{answer:?}");
        assert_eq!(stage.leader("g").await, None);
    }
}
