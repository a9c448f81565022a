//! Single stories that must go one way: what was forgotten, left undone, or done elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{
    Campaign, CampaignSession, Campaigned, Consistency, Description, Heartbeat, OfficeState, Open,
    Scope, StepDown, SteppedDown, Store, StoreError,
};
use regent_election::{Group, Metadata, Moment, Node, Policy, Reason, Resource, SessionId, Term};
use tokio::time::Instant;

use crate::lease::LeaseStore;
use crate::lease::mutant::{Mutant, plant};
use crate::register::memory::MemoryRegister;
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped, Version,
};
use crate::time::{Pause, SystemTime, Time};

/// The runtime's own time, which stands still while nobody sleeps.
#[derive(Debug)]
pub(super) struct Paused(pub(super) Instant);

impl Time for Paused {
    fn now(&self) -> Moment {
        Moment::ZERO + self.0.elapsed()
    }

    fn drift_ppm(&self) -> u32 {
        10_000
    }

    fn sleep(&self, for_how_long: Duration) -> Pause {
        Box::pin(tokio::time::sleep(for_how_long))
    }

    fn wall_ms(&self) -> u64 {
        SystemTime.wall_ms()
    }

    fn chance(&self) -> u128 {
        SystemTime.chance()
    }
}

/// A register that can lose everything, and that can refuse to write sessions and to read settings.
#[derive(Clone, Debug)]
struct Frail {
    inner: Arc<Mutex<MemoryRegister>>,
    time: Arc<Paused>,
    refuses_sessions: Arc<AtomicBool>,
    refuses_settings: Arc<AtomicBool>,
}

impl Frail {
    fn new() -> Self {
        let time = Arc::new(Paused(Instant::now()));
        let inner = MemoryRegister::with_time(Arc::clone(&time) as Arc<dyn Time>);
        Self {
            inner: Arc::new(Mutex::new(inner)),
            time,
            refuses_sessions: Arc::default(),
            refuses_settings: Arc::default(),
        }
    }

    fn inner(&self) -> MemoryRegister {
        self.inner.lock().unwrap().clone()
    }

    fn lose_everything(&self) {
        let time = Arc::clone(&self.time) as Arc<dyn Time>;
        *self.inner.lock().unwrap() = MemoryRegister::with_time(time);
    }

    fn refuse_sessions(&self, refuses: bool) {
        self.refuses_sessions.store(refuses, Ordering::Relaxed);
    }

    fn refuse_settings(&self, refuses: bool) {
        self.refuses_settings.store(refuses, Ordering::Relaxed);
    }

    fn store(&self) -> Box<dyn Store> {
        let time = Arc::clone(&self.time) as Arc<dyn Time>;
        Box::new(LeaseStore::with_time(Arc::new(self.clone()), time))
    }
}

#[async_trait]
impl Register for Frail {
    fn describe(&self) -> Description {
        self.inner().describe()
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.inner().examine().await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        if key.kind() == KeyKind::Setting && self.refuses_settings.load(Ordering::Relaxed) {
            return Err(RegisterError::unavailable("not now"));
        }
        self.inner().load(key).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        if key.kind() == KeyKind::Session && self.refuses_sessions.load(Ordering::Relaxed) {
            return Err(RegisterError::unavailable("not now"));
        }
        self.inner().swap(key, expected, record).await
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        // Nobody is told when everything is lost.
        self.inner().wait(key, seen, patience.min(Duration::from_millis(100))).await
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        self.inner().list(kind, prefix, after, count).await
    }
}

pub(super) fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

pub(super) fn secret(number: u128) -> SessionId {
    SessionId::new(0x5ec2_e75e_c2e7_0000_5ec2_e75e_c2e7_0000 | number).unwrap()
}

pub(super) fn bid(name: &str, node: &str, number: u128, ttl_ms: u64) -> Campaign {
    Campaign {
        group: group(name),
        node: Node::new(node).unwrap(),
        session: CampaignSession::Own(secret(number)),
        ttl_ms: Some(ttl_ms),
        wait: None,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

pub(super) fn waiting(campaign: Campaign) -> Campaign {
    Campaign { wait: Some(Duration::from_secs(600)), ..campaign }
}

pub(super) fn heartbeat(number: u128) -> Heartbeat {
    Heartbeat { session: secret(number), sequence: None, disowned: Vec::new(), beliefs: None }
}

pub(super) fn step_down(name: &str) -> StepDown {
    let (reason, to, request) = (Reason::new("").unwrap(), None, None);
    StepDown { group: group(name), reason, to, immediate: false, request }
}

pub(super) async fn win(
    store: &dyn Store,
    name: &str,
    node: &str,
    number: u128,
    ttl_ms: u64,
) -> Term {
    store.campaign(bid(name, node, number, ttl_ms)).await.unwrap().elected.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_everything_repeats_no_term_that_was_seen() {
    let register = Frail::new();
    let store = register.store();
    let mut last = Term::NONE;
    for _ in 0..5 {
        last = win(&*store, "g", "a", 1, 10_000).await;
        store.resign(&group("g"), secret(1), last, None).await.unwrap();
    }
    register.lose_everything();
    let gone = store.heartbeat(heartbeat(1)).await;
    assert!(matches!(gone, Err(StoreError::Refused(_))), "{gone:?}");
    assert!(win(&*store, "g", "b", 2, 10_000).await > last);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_entry_hides_no_other_group_from_the_counts() {
    let register = Frail::new();
    let store = register.store();
    win(&*store, "g", "a", 1, 10_000).await;
    let damaged = Record::bare(b"no entry of ours".to_vec());
    register.swap(&Key::group(&group("damaged")), None, damaged).await.unwrap();
    let offices = store.offices(vec![group("damaged"), group("g")]).await.unwrap();
    assert_eq!((offices.led, offices.wanted), (1, 1));
    assert_eq!(offices.offices[0], None);
    assert!(offices.offices[1].is_some_and(|note| note.is_led));
    let asked = store.leader(&group("damaged"), Consistency::Linearizable).await;
    assert!(matches!(asked, Err(StoreError::Corrupt(_))), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn who_was_left_untold_is_told_by_whoever_comes_next_and_has_its_whole_time_then() {
    let register = Frail::new();
    let (one, two) = (register.store(), register.store());
    let ttl_ms = 10_000;
    let term = win(&*one, "g", "a", 1, ttl_ms).await;
    let open = Open { node: Node::new("b").unwrap(), ttl_ms: 60_000, session: secret(2) };
    two.open(open).await.unwrap();
    let before = one.heartbeat(heartbeat(1)).await.unwrap().epoch;
    register.refuse_sessions(true);
    let answer = one.step_down(step_down("g")).await;
    assert!(matches!(answer, Err(StoreError::Uncertain { .. })), "{answer:?}");
    let office = one.leader(&group("g"), Consistency::Linearizable).await.unwrap();
    assert_eq!((office.state, office.term), (OfficeState::Ending, term));
    // It dies before it could tell anybody.
    drop(one);
    register.refuse_sessions(false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told_at = Instant::now();
    let standing = two.campaign(bid("g", "b", 2, 60_000)).await.unwrap();
    assert!(standing.standing && standing.elected.is_none(), "{standing:?}");
    let heard = two.heartbeat(heartbeat(1)).await.unwrap();
    assert!(heard.epoch > before, "{heard:?}");
    // The holder's session lives on; its tenure ends a whole ttl after it was told.
    let holder = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let _ = two.heartbeat(heartbeat(1)).await;
        }
    };
    let successor = two.campaign(waiting(bid("g", "b", 2, 60_000)));
    let elected = tokio::select! {
        () = holder => None,
        answer = successor => answer.unwrap().elected,
    };
    assert_eq!(elected, term.next());
    let waited = told_at.elapsed();
    assert!(waited >= Duration::from_millis(ttl_ms), "granted after {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_was_lengthened_in_one_group_counts_in_all() {
    let register = Frail::new();
    let (one, two) = (register.store(), register.store());
    let term = win(&*one, "g", "a", 1, 1000).await;
    let there = win(&*one, "h", "a", 1, 1000).await;
    let stands = two.campaign(bid("h", "b", 2, 600_000)).await.unwrap();
    assert!(stands.standing);
    one.renew(&group("g"), secret(1), term, Some(30_000)).await.unwrap();
    let asked_at = Instant::now();
    let answer = two.step_down(step_down("h")).await.unwrap();
    assert_eq!(answer, SteppedDown::Ending(Duration::from_secs(30)));
    let answer = two.campaign(waiting(bid("h", "b", 2, 600_000))).await.unwrap();
    assert_eq!(answer.elected, there.next());
    assert!(asked_at.elapsed() >= Duration::from_secs(30), "{:?}", asked_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_heard_elsewhere_is_kept_watch_for_there() {
    let register = Frail::new();
    let (one, two) = (register.store(), register.store());
    let term = win(&*one, "g", "a", 1, 3000).await;
    assert!(two.campaign(bid("g", "b", 2, 4000)).await.unwrap().standing);
    drop(two);
    let three = register.store();
    let mut office = None;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        three.heartbeat(heartbeat(2)).await.unwrap();
        let tenures = three.session(secret(2)).await.unwrap().tenures;
        if let Some(tenure) = tenures.first() {
            office = Some((tenure.term, tenure.state));
            break;
        }
    }
    assert_eq!(office, term.next().map(|term| (term, OfficeState::Elected)));
}

#[tokio::test(start_paused = true)]
async fn no_secret_lies_in_the_store() {
    let register = Frail::new();
    let store = register.store();
    let term = win(&*store, "g", "a", 1, 10_000).await;
    let Campaigned { standing, .. } = store.campaign(bid("g", "b", 2, 10_000)).await.unwrap();
    assert!(standing);
    store.resign(&group("g"), secret(1), term, None).await.unwrap();
    let mut seen = 0;
    for kind in [KeyKind::Group, KeyKind::Session, KeyKind::Setting] {
        for (key, found) in register.inner().list(kind, "", None, 100).await.unwrap() {
            seen += 1;
            for number in [1, 2] {
                let secret = secret(number).get();
                let hexadecimal = format!("{secret:032x}");
                assert!(!key.name().contains(&hexadecimal), "{key}");
                for bytes in [
                    secret.to_be_bytes().to_vec(),
                    secret.to_le_bytes().to_vec(),
                    hexadecimal.clone().into_bytes(),
                ] {
                    let is_there = found.value.windows(bytes.len()).any(|window| window == bytes);
                    assert!(!is_there, "{key} holds a secret");
                }
            }
        }
    }
    assert!(seen >= 3, "only {seen} entries");
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_the_deed_is_never_told_as_if_nothing_had_happened() {
    let register = Frail::new();
    register.refuse_settings(true);
    let store = register.store();
    let won = store.campaign(bid("g", "a", 1, 10_000)).await;
    assert!(matches!(won, Err(StoreError::Uncertain { .. })), "{won:?}");
    let put = store.put_policy(&group("h"), Some(Policy::default()), None).await;
    assert!(matches!(put, Err(StoreError::Uncertain { .. })), "{put:?}");
    register.refuse_settings(false);
    let office = store.leader(&group("g"), Consistency::Linearizable).await.unwrap();
    assert_eq!(office.leader, Some(Node::new("a").unwrap()), "it was done all the same");
    assert!(store.group(&group("h")).await.unwrap().own_policy);
}

/// Who leads in the end if one process, which follows the group, looked for the leader's session before
/// that was opened through another one.
async fn looked_for_too_early() -> Option<Node> {
    let register = Frail::new();
    let (early, other) = (register.store(), register.store());
    let _watch = early.watch(Scope::Group(group("g")), None).await.unwrap();
    let unknown = early.session(secret(1)).await;
    assert!(matches!(unknown, Err(StoreError::Refused(_))), "{unknown:?}");
    win(&*other, "g", "a", 1, 10_000).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    other.heartbeat(heartbeat(1)).await.unwrap();
    other.leader(&group("g"), Consistency::Linearizable).await.unwrap().leader
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_looked_for_before_it_was_opened_is_not_taken_for_ended() {
    assert_eq!(looked_for_too_early().await, Some(Node::new("a").unwrap()));
    plant(Some(Mutant::AbsenceRemembered));
    assert_eq!(looked_for_too_early().await, None, "the mistake would show");
    plant(None);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_joined_through_a_process_that_is_gone_is_kept_watch_for_where_it_is_heard()
{
    let register = Frail::new();
    let (stays, goes) = (register.store(), register.store());
    let open = Open { node: Node::new("b").unwrap(), ttl_ms: 10_000, session: secret(2) };
    stays.open(open).await.unwrap();
    let first = win(&*goes, "g", "a", 1, 10_000).await;
    let stands = goes.campaign(bid("g", "b", 2, 10_000)).await.unwrap();
    assert!(stands.standing, "{stands:?}");
    drop(goes);
    // The leader is silent from here on. A ttl until the group is followed, one until it is ended.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stays.heartbeat(heartbeat(2)).await.unwrap();
    }
    let office = stays.leader(&group("g"), Consistency::Linearizable).await.unwrap();
    assert!(office.term > first, "nobody watched the leader: {office:?}");
}

/// An engine that was emptied or restored under a process that has seen more: what it reads back is not taken for
/// the present.
#[tokio::test(start_paused = true)]
async fn what_an_engine_has_forgotten_is_not_read_back_as_the_present() {
    let frail = Frail::new();
    let store = frail.store();
    let (group, rows) = (Group::new("billing").unwrap(), Resource::new("rows").unwrap());
    for number in [1, 2] {
        let won = store.campaign(bid("billing", "a", number, 10_000)).await.unwrap();
        let term = won.elected.unwrap();
        store.admit(&group, &rows, term).await.unwrap();
        store.resign(&group, secret(number), term, None).await.unwrap();
    }
    frail.lose_everything();
    let second = Term::new(2).unwrap();
    let page = store.fences(&group, "rows", None, 1).await.unwrap();
    assert_eq!(page.term, second, "{page:?}");
}
