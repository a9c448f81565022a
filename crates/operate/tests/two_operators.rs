//! A group whose policy says `four_eyes` is moved by two operators, each of whom only repeats the command.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::time::Duration;

use regent_api::Code;
use regent_election::access::{Binding, Caller, GuardedStore, Role};
use regent_election::store::Store;
use regent_election::{Door, Group, Home, Policy};
use regent_operate::migrate::{MigrateError, MigrateOptions, Mover, Side};
use regent_stores::MemoryStore;

fn home(name: &str) -> Home {
    Home::new(&format!("memory:{name}")).unwrap()
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

async fn store() -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let administrator = Binding {
        who: "user:*".parse().unwrap(),
        role: Role::Administrator,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    };
    store.put_bindings(0, vec![administrator]).await.unwrap();
    store
}

fn as_user(store: &Arc<dyn Store>, name: &str) -> Arc<dyn Store> {
    let who = format!("user:{name}").parse().unwrap();
    let caller = Caller { who, token: None, voucher: None, wall_ms: || 1 };
    Arc::new(GuardedStore::new(Arc::clone(store), caller, Arc::default()))
}

/// Runs `regent migrate` by turns as Alice and as Bob until one of them finishes, and says how often it was run.
async fn by_turns(from: (&Arc<dyn Store>, &str), to: (&Arc<dyn Store>, &str)) -> usize {
    for run in 1..=8 {
        let name = if run % 2 == 1 { "alice" } else { "bob" };
        let side =
            |(store, at): (&Arc<dyn Store>, &str)| Side::over(as_user(store, name), home(at));
        let heir_wait = Duration::from_millis(10);
        let options = MigrateOptions { heir_wait, ..MigrateOptions::default() };
        let mover = Mover::new(side(from), side(to), options, |_| {}).unwrap();
        match mover.migrate(&group()).await {
            Ok(_) => return run,
            Err(MigrateError::Stopped(stopped)) => {
                assert_eq!(stopped.problem.code, Code::SecondApprovalNeeded, "{stopped}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("two operators do not come to an end")
}

#[tokio::test]
async fn two_operators_move_a_guarded_group_there_and_back_by_the_same_command() {
    let (old, new) = (store().await, store().await);
    let policy = Policy { four_eyes: true, ..Policy::default() };
    as_user(&old, "alice").put_policy(&group(), Some(policy), None).await.unwrap();
    assert_eq!(by_turns((&old, "old"), (&new, "new")).await, 2, "the departure takes two");
    let moved = new.group(&group()).await.unwrap();
    assert!(moved.door == Door::Open && moved.policy.four_eyes, "{moved:?}");
    // Back, the expectation takes two as well.
    assert_eq!(by_turns((&new, "new"), (&old, "old")).await, 3);
    assert_eq!(old.group(&group()).await.unwrap().door, Door::Open);
    assert_eq!(new.group(&group()).await.unwrap().door, Door::Moved { to: home("old") });
}
