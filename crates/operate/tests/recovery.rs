//! Recovery from a split brain, at a server in this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use regent::Regent;
use regent::remote::Remote;
use regent_api::{DoorBody, PolicyBody, PutGroupRequest};
use regent_election::state::{Query, View};
use regent_election::store::{
    self, Consistency, Description, HeartbeatView, Scope, Store, StoreError, StoreResult, Time,
    Watch,
};
use regent_election::{Command, Cursor, Group, NodePattern, RequestId, SessionId, Step, Term};
use regent_operate::recovery::{
    Operator, Question, Reconciled, Recovery, RecoveryError, RecoveryProgress, SavedPolicyError,
    Unfinished, recover,
};
use regent_operate::split_brain::{CombinedView, Servers, survey};
use regent_server::ServerConfig;
use regent_stores::MemoryStore;
use tokio::net::TcpListener;

const TTL: Duration = Duration::from_secs(2);

/// A server over a store in memory; it ends with the test's runtime.
struct Site {
    store: Arc<dyn Store>,
    remote: Remote,
    servers: Servers,
    room: tempfile::TempDir,
}

async fn site() -> Site {
    site_over(Arc::new(MemoryStore::new().unwrap())).await
}

async fn site_over(store: Arc<dyn Store>) -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::clone(&store);
    tokio::spawn(async move {
        let config = ServerConfig::default();
        regent_server::serve(vec![listener], served, config, std::future::pending()).await
    });
    let remote = Remote::new(&url).unwrap();
    let servers = Servers::new(remote.clone(), vec![(url, remote.clone())]);
    Site { store, remote, servers, room: tempfile::tempdir().unwrap() }
}

impl Site {
    fn recovery(&self) -> Recovery {
        let saved_policy = self.room.path().join("saved.json");
        Recovery { group: group(), wait: Duration::from_secs(60), saved_policy }
    }

    async fn door(&self) -> DoorBody {
        self.remote.show_group(&group()).await.unwrap().door
    }

    async fn put(&self, policy: Option<PolicyBody>) {
        let request = PutGroupRequest { policy, request_id: None };
        self.remote.put_group(&group(), &request).await.unwrap();
    }
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

/// An operator who writes down what happens and may give up at a question.
#[derive(Default)]
struct Scribe {
    told: Vec<String>,
    gives_up_at: Option<Question>,
}

#[derive(Debug)]
enum End {
    GaveUp,
    Failed(RecoveryError),
}

impl From<RecoveryError> for End {
    fn from(error: RecoveryError) -> Self {
        Self::Failed(error)
    }
}

impl Operator for Scribe {
    type Error = End;

    fn report(&mut self, progress: RecoveryProgress<'_>) -> Result<(), End> {
        let told = match progress {
            RecoveryProgress::Began { step, goes_on: true } => format!("{} goes on", step.word()),
            RecoveryProgress::Began { step, goes_on: false } => step.word().to_owned(),
            RecoveryProgress::Stopped => "stopped".to_owned(),
            RecoveryProgress::Compared(sight) => format!("compared {}", sight.group),
            RecoveryProgress::Reconciled(_) => "reconciled".to_owned(),
            RecoveryProgress::Waits { .. } => "waits".to_owned(),
            RecoveryProgress::Opened => "opened".to_owned(),
            RecoveryProgress::Resumed { leader, term } => format!("{leader} leads under {term}"),
            RecoveryProgress::NoCandidate => "no candidate".to_owned(),
        };
        self.told.push(told);
        Ok(())
    }

    fn agree(&mut self, question: Question) -> Result<(), End> {
        if self.gives_up_at == Some(question) { Err(End::GaveUp) } else { Ok(()) }
    }

    async fn reconcile(&mut self, _sight: &CombinedView) -> Result<Reconciled, End> {
        Ok(Reconciled::ByHand)
    }
}

/// Leads whenever it can, and stops when it is told to.
async fn participant(store: &Arc<dyn Store>, node: &str) -> tokio::task::JoinHandle<()> {
    let regent = Regent::over(Arc::clone(store)).node(node).ttl(TTL).connect().await.unwrap();
    tokio::spawn(async move {
        while let Ok(leadership) = regent.campaign("billing").await {
            leadership.lost().await;
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_stopped_and_led_again_under_the_next_term_by_a_recovery_that_was_interrupted() {
    let site = site().await;
    let _leader = participant(&site.store, "a").await;
    while site.remote.leader(&group(), Default::default()).await.unwrap().office.leader.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut first = Scribe { gives_up_at: Some(Question::ElectAgain), ..Scribe::default() };
    let ended = recover(&site.recovery(), &site.servers, &mut first).await;
    assert!(matches!(ended, Err(Unfinished { error: End::GaveUp, is_stopped: true })), "{ended:?}");
    let wanted =
        ["stop", "stopped", "compare", "compared billing", "reconcile", "reconciled", "elect"];
    assert_eq!(first.told, wanted);
    // Neither another policy nor a candidate opens the door.
    site.put(Some(PolicyBody { lock_delay_ms: 10, ..PolicyBody::default() })).await;
    let stopped = site.door().await;
    assert!(matches!(stopped, DoorBody::Stopped { .. }), "{stopped:?}");
    let office = site.remote.show_group(&group()).await.unwrap().office;
    assert_eq!((office.leader, office.term.get()), (None, 1));

    let mut second = Scribe::default();
    recover(&site.recovery(), &site.servers, &mut second).await.unwrap();
    assert_eq!(second.told[0], "stop goes on");
    assert_eq!(second.told.last().unwrap(), "a leads under 2");
    let healed = site.remote.show_group(&group()).await.unwrap();
    assert_eq!((healed.door, healed.policy.lock_delay_ms), (DoorBody::Open, 10));
    assert!(!survey(&site.servers, None).await.split_brain);
}

/// As versions did that had no door for it.
fn stopping_policy() -> PolicyBody {
    let nobody = NodePattern::new("nobody/until-the-split-brain-is-healed").unwrap();
    PolicyBody { allow: vec![nobody], ..PolicyBody::default() }
}

fn save(path: &Path) {
    let policy = PolicyBody { lock_delay_ms: 10, ..PolicyBody::default() };
    let saved = serde_json::json!({"group": "billing", "policy": policy});
    fs::write(path, saved.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_an_earlier_version_stopped_by_its_policy_gets_its_own_policy_back() {
    let site = site().await;
    let recovery = Recovery { wait: Duration::ZERO, ..site.recovery() };
    site.put(Some(stopping_policy())).await;
    let ended = recover(&recovery, &site.servers, &mut Scribe::default()).await;
    let Err(Unfinished { error: End::Failed(error), is_stopped: false }) = ended else {
        panic!("{ended:?}")
    };
    let is_missing = matches!(error, RecoveryError::SavedPolicy(SavedPolicyError::Missing { .. }));
    assert!(is_missing, "{error:?}");

    save(&recovery.saved_policy);
    let mut scribe = Scribe::default();
    recover(&recovery, &site.servers, &mut scribe).await.unwrap();
    assert_eq!(
        (scribe.told[0].as_str(), scribe.told.last().unwrap().as_str()),
        ("stop goes on", "no candidate")
    );
    let healed = site.remote.show_group(&group()).await.unwrap();
    assert_eq!((healed.door, healed.policy.lock_delay_ms), (DoorBody::Open, 10));
    assert!(healed.policy.allow.is_empty());
    assert!(!recovery.saved_policy.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_that_another_operator_finished_does_nothing_more() {
    let site = site().await;
    site.put(None).await;
    struct Rival(Scribe, Arc<dyn Store>);
    impl Operator for Rival {
        type Error = End;
        fn report(&mut self, progress: RecoveryProgress<'_>) -> Result<(), End> {
            self.0.report(progress)
        }
        fn agree(&mut self, _question: Question) -> Result<(), End> {
            Ok(())
        }
        async fn reconcile(&mut self, _sight: &CombinedView) -> Result<Reconciled, End> {
            let door = self.1.group(&group()).await.unwrap().door;
            let regent_election::Door::Stopped { since } = door else { panic!("{door:?}") };
            self.1.move_group(&group(), Step::Resume { since }, None).await.unwrap();
            Ok(Reconciled::ByCommand)
        }
    }
    let mut rival = Rival(Scribe::default(), Arc::clone(&site.store));
    let ended = recover(&site.recovery(), &site.servers, &mut rival).await;
    let is_told = matches!(
        ended,
        Err(Unfinished { error: End::Failed(RecoveryError::ResumedByOthers), is_stopped: false })
    );
    assert!(is_told, "{ended:?}");
}

/// A store whose administrative changes are written down, and which does not resume before it was asked so
/// often: as one does that was restored.
#[derive(Debug)]
struct Noted {
    store: MemoryStore,
    changes: Mutex<Vec<(Command, Option<RequestId>)>>,
    refusals_left: AtomicUsize,
}

impl Noted {
    fn new(refusals_left: usize) -> Arc<Self> {
        let (store, changes) = (MemoryStore::new().unwrap(), Mutex::default());
        Arc::new(Self { store, changes, refusals_left: refusals_left.into() })
    }
}

#[async_trait]
impl Store for Noted {
    fn describe(&self) -> Description {
        self.store.describe()
    }

    fn time(&self) -> &dyn Time {
        self.store.time()
    }

    async fn ready(&self) -> StoreResult<()> {
        self.store.ready().await
    }

    async fn submit(
        &self,
        command: Command,
        request: Option<RequestId>,
        then: Option<Query>,
    ) -> StoreResult<store::Done> {
        if matches!(command, Command::Move { .. } | Command::PutPolicy { .. }) {
            self.changes.lock().unwrap().push((command.clone(), request.clone()));
        }
        let is_resumption = matches!(command, Command::Move { step: Step::Resume { .. }, .. });
        let left = self.refusals_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1).filter(|_| is_resumption)
        });
        if left.is_ok() {
            let retry_after = Some(Duration::from_millis(10));
            return Err(StoreError::Unavailable { why: "it was restored".into(), retry_after });
        }
        self.store.submit(command, request, then).await
    }

    async fn count_heartbeat(
        &self,
        session: SessionId,
        sequence: Option<u64>,
        proves: Option<(Group, Term)>,
    ) -> StoreResult<HeartbeatView> {
        self.store.count_heartbeat(session, sequence, proves).await
    }

    async fn read(&self, query: Query, consistency: Consistency) -> StoreResult<View> {
        self.store.read(query, consistency).await
    }

    async fn watch(&self, scope: Scope, cursor: Option<Cursor>) -> StoreResult<Box<dyn Watch>> {
        self.store.watch(scope, cursor).await
    }

    async fn shut_down(&self) {
        self.store.shut_down().await;
    }
}

/// S9: whatever the network delivers again after the group was healed does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_recovery_that_comes_again_late_does_nothing() {
    let store = Noted::new(0);
    let site = site_over(store.clone()).await;
    let recovery = Recovery { wait: Duration::ZERO, ..site.recovery() };
    site.put(Some(stopping_policy())).await;
    save(&recovery.saved_policy);
    store.changes.lock().unwrap().clear();
    recover(&recovery, &site.servers, &mut Scribe::default()).await.unwrap();
    let later = PolicyBody { lock_delay_ms: 20, ..PolicyBody::default() };
    let changes = std::mem::take(&mut *store.changes.lock().unwrap());
    site.put(Some(later)).await;
    assert_eq!(changes.len(), 3, "stop, policy, resume: {changes:?}");
    for (command, request) in changes {
        assert!(request.is_some(), "{command:?}");
        let _ = store.submit(command, request, None).await;
    }
    let healed = site.remote.show_group(&group()).await.unwrap();
    assert_eq!((healed.door, healed.policy.lock_delay_ms), (DoorBody::Open, 20));
}

/// Semantics 23: a restored store grants nothing for a while. The recovery is not given up for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_in_a_restored_store_waits_until_it_may_grant() {
    let site = site_over(Noted::new(3)).await;
    site.put(None).await;
    let recovery = Recovery { wait: Duration::from_secs(5), ..site.recovery() };
    let mut scribe = Scribe::default();
    recover(&recovery, &site.servers, &mut scribe).await.unwrap();
    assert_eq!(scribe.told.iter().filter(|told| *told == "waits").count(), 1);
    assert_eq!(site.door().await, DoorBody::Open);
}

/// `a/b` and `a_b` lead to one file name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_leaves_the_saved_policy_of_another_group_alone() {
    let site = site().await;
    site.put(None).await;
    let recovery = Recovery { wait: Duration::ZERO, ..site.recovery() };
    let other = r#"{"group": "bill/ing", "policy": null}"#;
    fs::write(&recovery.saved_policy, other).unwrap();
    recover(&recovery, &site.servers, &mut Scribe::default()).await.unwrap();
    assert_eq!(fs::read_to_string(&recovery.saved_policy).unwrap(), other);
}
