//! The examination of a deployment, on registers in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::sync::Arc;

use regent_election::{Budget, Drift};
use regent_operate::examine::{ExamineProgress, ExamineReport, examine};
use regent_stores::register::memory::MemoryRegister;

async fn examined(here: MemoryRegister, there: MemoryRegister) -> (ExamineReport, usize) {
    let budget = Budget::new(60_000, Drift::DEFAULT).unwrap();
    let mut checked = 0;
    let mut count = |progress: ExamineProgress<'_>| {
        if let ExamineProgress::Checked { done, .. } = progress {
            checked = done;
        }
    };
    let report = examine(Arc::new(here), Arc::new(there), &budget, &mut count).await.unwrap();
    (report, checked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_that_does_what_it_says_keeps_the_contract() {
    let register = MemoryRegister::new();
    let (report, checked) = examined(register.clone(), register).await;
    assert!(report.keeps_the_contract, "{report:?}");
    // One check beside those of the contract: whether writes are quick enough.
    assert_eq!(report.checks.len(), checked + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_that_do_not_see_each_others_writes_are_found_out() {
    let (report, _) = examined(MemoryRegister::new(), MemoryRegister::new()).await;
    assert!(!report.keeps_the_contract, "{report:?}");
}
