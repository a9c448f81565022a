//! Level 2: campaigns and leaderships.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use regent::metrics::{Metrics, RequestKind};
use regent::{CampaignError, Phase, TransferError, Transition};
use regent_election::Node;
use regent_election::store::StoreError;

use crate::bench::{Bench, leader_of, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_campaigns_alone_leads_and_resigns_at_once() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    assert_eq!(leadership.term().get(), 1);
    assert_eq!(leader_of(&bench, "billing").await.as_deref(), Some("a"));
    let permit = leadership.check().unwrap();
    assert_eq!(permit.fence(7).term(), leadership.term());
    assert!(permit.valid_for() <= regent.budget().valid_for());
    drop(permit);
    soon("resigned", leadership.resign()).await.unwrap();
    assert_eq!(leader_of(&bench, "billing").await, None);
    assert!(soon("closed", regent.close()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_promoted_the_moment_the_leader_resigns() {
    let bench = Bench::start();
    let (a, b) = (bench.at("a").connect().await.unwrap(), bench.over("b").connect().await.unwrap());
    let first = soon("a leads", a.campaign("billing")).await.unwrap();
    let waiting = tokio::spawn(async move { b.campaign("billing").await.unwrap() });
    let store = bench.store.clone();
    until("b stands", async || {
        store.group(&"billing".parse().unwrap()).await.unwrap().standbys_count == 1
    })
    .await;
    assert!(!waiting.is_finished());
    soon("resigned", first.resign()).await.unwrap();
    let second = soon("b leads", waiting).await.unwrap();
    assert_eq!(second.term().get(), 2);
    assert_eq!(second.node().as_str(), "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_campaigns_of_one_process_lead_one_after_the_other() {
    let bench = Bench::start();
    let regent = bench.over("a").ttl(Duration::from_secs(1)).connect().await.unwrap();
    let first = soon("first", regent.campaign("billing")).await.unwrap();
    let (clone, (sender, mut receiver)) = (regent.clone(), tokio::sync::mpsc::channel(1));
    tokio::spawn(async move {
        let second = clone.campaign("billing").await.unwrap();
        sender.send(second.term().get()).await.unwrap();
    });
    assert!(first.check().is_ok());
    soon("resigned", first.resign()).await.unwrap();
    assert_eq!(soon("second", receiver.recv()).await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_that_is_dropped_leaves_nobody_in_line() {
    let bench = Bench::start();
    let (a, b) = (bench.over("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let _leadership = soon("a leads", a.campaign("billing")).await.unwrap();
    let store = bench.store.clone();
    let standbys = async || store.group(&"billing".parse().unwrap()).await.unwrap().standbys_count;
    let waiting = tokio::spawn(b.campaign("billing").into_future());
    until("b stands", async || standbys().await == 1).await;
    waiting.abort();
    until("b is gone", async || standbys().await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_office_is_handed_to_the_one_named_and_back_if_it_cannot_take_over() {
    let bench = Bench::start();
    let (a, b) = (bench.at("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let leadership = soon("a leads", a.campaign("billing")).await.unwrap();
    let nobody = Node::new("nobody").unwrap();
    let refused = soon("refused", leadership.transfer(nobody)).await.unwrap_err();
    let TransferError::Refused { leadership, .. } = refused else { panic!("{refused:?}") };
    assert!(leadership.check().is_ok(), "it leads on under the same term");
    assert_eq!(leadership.term().get(), 1);

    let waiting = tokio::spawn(async move { b.campaign("billing").await.unwrap() });
    let store = bench.store.clone();
    until("b stands", async || {
        store.group(&"billing".parse().unwrap()).await.unwrap().standbys_count == 1
    })
    .await;
    let clone = leadership.clone();
    let worker = tokio::spawn(async move {
        let stop = clone.lost().await;
        assert!(clone.check().is_ok(), "the lease runs while the work is drained");
        stop.why
    });
    soon("handed over", leadership.transfer(Node::new("b").unwrap())).await.unwrap();
    assert_eq!(soon("drained", worker).await.unwrap(), regent::Why::HandOver);
    let second = soon("b leads", waiting).await.unwrap();
    assert_eq!((second.term().get(), second.node().as_str()), (2, "b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_is_given_up_when_nothing_of_it_is_alive() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let clone = leadership.clone();
    let permit = leadership.check().unwrap();
    drop(leadership);
    assert!(clone.check().is_ok(), "a clone keeps it");
    drop(clone);
    // Only the permit is left: the term is kept for it and not renewed, and whoever looks is told.
    assert_eq!(leader_of(&bench, "billing").await.as_deref(), Some("a"));
    drop(permit);
    until("given up", async || leader_of(&bench, "billing").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_task_is_stopped_before_the_term_is_given_up() {
    let bench = Bench::start();
    let regent = bench.at("a").connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let task = leadership.spawn(std::future::pending::<()>());
    drop(leadership);
    assert_eq!(soon("stopped", task).await.unwrap(), None);
    until("given up", async || leader_of(&bench, "billing").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_that_can_never_win_says_so() {
    use regent_election::{NodePattern, Policy, Refusal};
    let bench = Bench::start();
    let allow = vec![NodePattern::new("web-*").unwrap()];
    let policy = Policy { allow, ..Policy::default() };
    bench.store.put_policy(&"billing".parse().unwrap(), Some(policy), None).await.unwrap();
    let regent = bench.at("db-1").connect().await.unwrap();
    let refused = soon("refused", regent.campaign("billing")).await.unwrap_err();
    assert!(matches!(refused, CampaignError::Refused(Refusal::NotAllowed { .. })), "{refused:?}");
    let misnamed = regent.campaign("no such name").await.unwrap_err();
    assert!(matches!(misnamed, CampaignError::Name(_)), "{misnamed:?}");
}

/// Counts what an application may count.
#[derive(Debug, Default)]
struct Counted {
    answered: Mutex<Vec<RequestKind>>,
    moved: Mutex<Vec<Phase>>,
}

impl Metrics for Counted {
    fn answered(&self, kind: RequestKind, _: Duration, error: Option<&StoreError>) {
        assert_eq!(error, None);
        self.answered.lock().unwrap().push(kind);
    }

    fn moved(&self, transition: &Transition) {
        self.moved.lock().unwrap().push(transition.to);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_counts_requests_and_changes_of_phase() {
    let bench = Bench::start();
    let counted = Arc::new(Counted::default());
    let connect = bench.at("a").metrics(counted.clone());
    let regent = connect.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    soon("resigned", leadership.resign()).await.unwrap();
    assert!(soon("closed", regent.close()).await);
    let answered = counted.answered.lock().unwrap().clone();
    for kind in [RequestKind::Open, RequestKind::Campaign, RequestKind::Errand] {
        assert!(answered.contains(&kind), "{kind:?} in {answered:?}");
    }
    let moved = counted.moved.lock().unwrap().clone();
    assert_eq!(moved, [Phase::Leading, Phase::Stopping, Phase::Stopped]);
}
