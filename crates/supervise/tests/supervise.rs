//! Supervises real programs from Rust, over a store in this process and without the `regent` binary.
//!
//! Programs take a file lock that the kernel frees when the last of them is dead: a program that finds
//! it taken runs beside another one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use regent::backend::{Backend, DirectBackend, ObservedLeaders};
use regent::{Connect, Regent};
use regent_election::participant::{Reply, Request};
use regent_election::store::{Consistency, LeaderView, Scope, Store, StoreError, StoreResult};
use regent_election::{Group, NodePattern, Policy, Refusal};
use regent_supervise::{Contain, Ended, Plan, SuperviseError, Supervisor};

/// Far longer than anything takes on a slow machine; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a program must be gone before another node leads. A twentieth of it is left for the kill: 250 ms, in
/// which a machine that runs five other tests must get round to two processes.
const TTL: Duration = Duration::from_secs(5);

/// A store, and a directory for the programs.
struct Bench {
    store: Arc<dyn Store>,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let store = regent_stores::open_url("memory:").unwrap();
        Self { store, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn at(&self, node: &str) -> Connect {
        Regent::over(Arc::clone(&self.store)).node(node)
    }

    /// Whether no program is alive.
    fn is_quiet(&self) -> bool {
        let lock = fs::File::options().write(true).open(self.path("lock")).unwrap();
        lock.try_lock().is_ok()
    }

    /// A script that runs with the lock, in this directory; 99 if another one has it.
    fn script(&self, text: &str) -> [String; 3] {
        let directory = self.directory.path().display();
        let locked = format!("cd {directory}; exec 9>lock; flock -n 9 || exit 99; {text}");
        ["sh".to_owned(), "-c".to_owned(), locked]
    }
}

fn plan() -> Plan {
    let guard = Some(PathBuf::from(env!("CARGO_BIN_EXE_regent-guard")));
    Plan { guard, ..Plan::new(Group::new("billing").unwrap()) }
}

async fn soon<T>(what: &str, something: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, something).await {
        Ok(it) => it,
        Err(_) => panic!("{what}: not within {} s", PATIENCE.as_secs()),
    }
}

async fn written(path: &Path) -> String {
    soon("a file", async {
        loop {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_program_is_told_its_term_and_its_code_is_the_answer() {
    let bench = Bench::new();
    for term in 1..=2 {
        let script = bench.script("echo $REGENT_GROUP $REGENT_NODE $REGENT_TERM >told; exit 7");
        let running = Supervisor::new(plan()).run(bench.at("a"), script);
        assert_eq!(soon("it ends", running).await.unwrap(), Ended::Program(7));
        let told = written(&bench.path("told")).await;
        assert_eq!(told, format!("billing a {term}\n"), "the office was given up at once");
    }
}

#[tokio::test]
async fn a_caller_that_asks_for_the_end_drains_the_program_and_the_next_one_starts() {
    let bench = Bench::new();
    let supervise = |node: &'static str| {
        let text = "trap 'exit 5' TERM; echo ready >$REGENT_NODE; while :; do sleep 0.01; done";
        let supervisor = Supervisor::new(plan());
        let handle = supervisor.handle();
        let running = tokio::spawn(supervisor.run(bench.at(node), bench.script(text)));
        (handle, running)
    };
    let (a, a_runs) = supervise("a");
    written(&bench.path("a")).await;
    let (b, b_runs) = supervise("b");
    a.terminate(15);
    assert_eq!(soon("a ends", a_runs).await.unwrap().unwrap(), Ended::Program(5));
    written(&bench.path("b")).await;
    b.terminate(15);
    assert_eq!(soon("b ends", b_runs).await.unwrap().unwrap(), Ended::Program(5));
}

/// Semantics 14: the term outlives whatever works under it, also when nobody waits for the supervisor.
#[tokio::test]
async fn a_supervisor_that_is_dropped_leaves_no_program_behind() {
    for contain in [Contain::Auto, Contain::Descendants] {
        let bench = Bench::new();
        let plan = Plan { contain, ..plan() };
        let text = "trap '' TERM; (trap '' TERM; sleep 1000) & echo ready >ready; wait";
        let supervisor = Supervisor::new(plan.clone());
        let running = tokio::spawn(supervisor.run(bench.at("a"), bench.script(text)));
        written(&bench.path("ready")).await;
        running.abort();
        let next = Supervisor::new(plan).run(bench.at("b"), bench.script("exit 0"));
        assert_eq!(soon("b runs", next).await.unwrap(), Ended::Program(0), "{contain:?}");
    }
}

/// The only child of this process.
fn only_child() -> u32 {
    let own = std::process::id().to_string();
    let is_ours = |status: &String| {
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|it| it.trim() == own))
    };
    let children: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|it| is_ours(&it))
        })
        .collect();
    assert_eq!(children.len(), 1, "the guard alone: {children:?}");
    children[0]
}

fn stop(pid: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -STOP {pid}")]).status().unwrap();
    assert!(sent.success());
}

/// S13: a guard that is stopped hears nothing, also not that it is to end everything.
#[tokio::test]
async fn a_supervisor_that_is_dropped_while_its_guard_is_stopped_leaves_no_program_behind() {
    for contain in [Contain::Auto, Contain::Descendants] {
        let bench = Bench::new();
        let plan = Plan { contain, ttl: TTL, ..plan() };
        let text = "trap '' TERM; (trap '' TERM; sleep 1000) & echo ready >ready; wait";
        let a = tokio::spawn(Supervisor::new(plan).run(bench.at("a"), bench.script(text)));
        written(&bench.path("ready")).await;
        let b = bench.at("b").ttl(TTL).connect().await.unwrap();
        let standing = tokio::spawn(b.campaign("billing").into_future());
        stop(only_child());
        a.abort();
        let _leadership = soon("b leads", standing).await.unwrap().unwrap();
        assert!(bench.is_quiet(), "{contain:?}");
    }
}

/// An office that can be cut off.
#[derive(Debug)]
struct Wire {
    office: DirectBackend,
    is_cut: AtomicBool,
}

impl Wire {
    fn check(&self) -> StoreResult<()> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { why: "cut off".to_owned(), retry_after: None });
        }
        Ok(())
    }
}

#[async_trait]
impl Backend for Wire {
    async fn perform(&self, request: Request) -> StoreResult<Reply> {
        self.check()?;
        self.office.perform(request).await
    }

    async fn leader(&self, group: &Group, consistency: Consistency) -> StoreResult<LeaderView> {
        self.check()?;
        self.office.leader(group, consistency).await
    }

    async fn watch(&self, scope: Scope, sights: ObservedLeaders) {
        self.office.watch(scope, sights).await;
    }
}

/// S13: a program that does not want to end has ended when another node leads.
#[tokio::test]
async fn a_leader_that_is_cut_off_ends_its_program_before_another_node_leads() {
    for contain in [Contain::Auto, Contain::Descendants] {
        let bench = Bench::new();
        let plan = Plan { contain, ttl: TTL, exit_on_lost: true, ..plan() };
        let office = DirectBackend::new(Arc::clone(&bench.store), Duration::from_secs(1));
        let wire = Arc::new(Wire { office, is_cut: AtomicBool::new(false) });
        let at = Regent::through(wire.clone()).node("a");
        let text = "trap '' TERM; (trap '' TERM; sleep 1000) & echo ready >ready; wait";
        let a = tokio::spawn(Supervisor::new(plan).run(at, bench.script(text)));
        written(&bench.path("ready")).await;
        // Not supervised here: a guard that is killed takes every descendant of this process along.
        let b = bench.at("b").ttl(TTL).connect().await.unwrap();
        let standing = tokio::spawn(b.campaign("billing").into_future());
        wire.is_cut.store(true, Ordering::SeqCst);
        let _leadership = soon("b leads", standing).await.unwrap().unwrap();
        assert!(bench.is_quiet(), "{contain:?}");
        assert_eq!(soon("a ends", a).await.unwrap().unwrap(), Ended::Lost, "{contain:?}");
    }
}

#[tokio::test]
async fn a_candidate_that_may_never_stand_is_told_and_nothing_runs() {
    let bench = Bench::new();
    let allow = vec![NodePattern::new("web-*").unwrap()];
    let policy = Policy { allow, ..Policy::default() };
    bench.store.put_policy(&plan().group, Some(policy), None).await.unwrap();
    let running = Supervisor::new(plan()).run(bench.at("db-1"), bench.script("echo ran >ran"));
    let refused = soon("refused", running).await.unwrap_err();
    let SuperviseError::Refused(why) = refused else { panic!("{refused:?}") };
    assert!(matches!(why, regent::CampaignError::Refused(Refusal::NotAllowed { .. })), "{why:?}");
    assert!(!bench.path("ran").exists());
}

/// A binary that does not know that it is a guard would start as itself, and supervise once more.
#[tokio::test]
async fn a_binary_that_cannot_be_a_guard_starts_nothing() {
    let bench = Bench::new();
    let plan = Plan { guard: None, ..plan() };
    let running = Supervisor::new(plan).run(bench.at("a"), bench.script("echo ran >ran"));
    assert_eq!(soon("it ends", running).await.unwrap(), Ended::Program(125));
    assert!(!bench.path("ran").exists());
}

/// The page has neither encryption nor authentication.
#[tokio::test]
async fn a_status_page_that_other_machines_reach_is_refused_unless_it_is_accepted() {
    let bench = Bench::new();
    let anywhere = Some("0.0.0.0:0".parse().unwrap());
    let exposed = Plan { status_listen: anywhere, ..plan() };
    let running = Supervisor::new(exposed.clone()).run(bench.at("a"), bench.script("exit 0"));
    let refused = soon("it ends", running).await.unwrap_err();
    assert!(matches!(refused, SuperviseError::StatusExposed { .. }), "{refused:?}");
    let accepted = Plan { status_insecure: true, ..exposed };
    let local = Plan { status_listen: Some("[::1]:0".parse().unwrap()), ..plan() };
    for plan in [accepted, local] {
        let running = Supervisor::new(plan).run(bench.at("a"), bench.script("exit 0"));
        assert_eq!(soon("it ends", running).await.unwrap(), Ended::Program(0));
    }
}
