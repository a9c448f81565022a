//! Level 3: questions and callbacks.

use std::sync::mpsc;
use std::time::Duration;

use regent::LastResort;

use crate::bench::{Bench, leader_of, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_electors_becomes_leader_and_the_other_leaves_nothing_behind() {
    let bench = Bench::start();
    let (a, b) = (bench.at("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let (one, other) = (a.elector("billing").unwrap(), b.elector("billing").unwrap());
    assert!(soon("a tries", one.try_become_leader()).await.unwrap());
    assert!(!soon("b tries", other.try_become_leader()).await.unwrap());
    assert!(one.is_leader() && !other.is_leader());
    let group = bench.store.group(&"billing".parse().unwrap()).await.unwrap();
    assert_eq!(group.standbys_count, 0);
    let told = soon("b asks", other.fresh()).await.unwrap();
    assert_eq!(told.leader.unwrap().as_str(), "a");
    assert!(soon("again", one.try_become_leader()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_come_in_order_and_the_term_is_given_up_after_them() {
    let bench = Bench::start();
    let a = bench.at("a").ttl(Duration::from_secs(2)).connect().await.unwrap();
    let elector = a.elector("billing").unwrap();
    let (sender, told) = mpsc::channel();
    let gained = sender.clone();
    elector.on_leadership_gained(move |term| gained.send(format!("gained {term}")).unwrap());
    let store = bench.store.clone();
    elector.on_leadership_lost(move |_| {
        let group = "billing".parse().unwrap();
        let fresh = regent_election::store::Consistency::Linearizable;
        let view = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(store.leader(&group, fresh)).unwrap()
        });
        sender.send(format!("lost while {:?} leads", view.leader)).unwrap();
    });
    elector.start();
    until("a leads", async || elector.is_leader()).await;
    elector.resign();
    let told = tokio::task::spawn_blocking(move || {
        (0..3).map(|_| told.recv_timeout(crate::bench::PATIENCE).unwrap()).collect::<Vec<_>>()
    });
    let told = soon("told", told).await.unwrap();
    assert_eq!(told, ["gained 1", "lost while Some(\"a\") leads", "gained 2"]);
    drop(elector);
    until("given up", async || leader_of(&bench, "billing").await.is_none()).await;
}

/// A callback of the application's is no part of what keeps it safe: whatever one of them does, the
/// others are told, the loss above all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_panics_silences_no_other() {
    let bench = Bench::start();
    let a = bench.at("a").connect().await.unwrap();
    let elector = a.elector("billing").unwrap();
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    elector.on_leader_changed(|_| panic!("a mistake of the application's"));
    elector.on_leadership_gained(|_| panic!("another one"));
    elector.on_leadership_lost(move |_| sender.send(()).unwrap());
    elector.start();
    until("a leads", async || elector.is_leader()).await;
    elector.resign();
    soon("the loss is told", told.recv()).await.unwrap();
}

/// Whatever it was to stop may run on, so the office is not handed over early, and the last resort is
/// called as for any work that does not stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_whose_callback_panics_is_work_that_did_not_stop() {
    let bench = Bench::start();
    let (sender, mut overran) = tokio::sync::mpsc::unbounded_channel();
    let call = move |_: &_, term| sender.send(term).unwrap();
    let ttl = Duration::from_secs(2);
    let a =
        bench.at("a").ttl(ttl).last_resort(LastResort::call_with(call)).connect().await.unwrap();
    let elector = a.elector("billing").unwrap();
    elector.on_leadership_lost(|_| panic!("a mistake of the application's"));
    assert!(soon("a leads", elector.try_become_leader()).await.unwrap());
    elector.resign();
    assert_eq!(soon("the last resort", overran.recv()).await.unwrap().get(), 1);
    until("given up", async || leader_of(&bench, "billing").await.is_none()).await;
}

/// The callbacks of the loss are the place to stop the work, so they are called when the elector goes,
/// and the term is given up after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elector_that_is_dropped_stops_its_work_before_it_gives_the_term_up() {
    let bench = Bench::start();
    let a = bench.at("a").ttl(Duration::from_secs(30)).connect().await.unwrap();
    for is_stopping in [false, true] {
        let group = format!("billing-{is_stopping}");
        let elector = a.elector(&group).unwrap();
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        elector.on_leadership_lost(move |_| {
            sender.send(()).unwrap();
            tokio::task::block_in_place(|| wait.lock().unwrap().recv().unwrap());
        });
        assert!(soon("a leads", elector.try_become_leader()).await.unwrap());
        if is_stopping {
            elector.resign();
            soon("the loss is told", told.recv()).await.unwrap();
        }
        drop(elector);
        if !is_stopping {
            soon("the loss is told", told.recv()).await.unwrap();
        }
        // Long enough for whoever does not wait.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(leader_of(&bench, &group).await.as_deref(), Some("a"));
        go_on.send(()).unwrap();
        until("given up", async || leader_of(&bench, &group).await.is_none()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_hears_of_every_leader_and_knows_how_old_that_is() {
    let bench = Bench::start();
    let (a, b) = (bench.over("a").connect().await.unwrap(), bench.at("b").connect().await.unwrap());
    let observer = b.elector("billing").unwrap();
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    observer.on_leader_changed(move |now| {
        sender.send(now.leader.map(|leader| leader.to_string())).unwrap();
    });
    assert_eq!(soon("nobody", seen.recv()).await.unwrap(), None);
    let leadership = soon("a leads", a.campaign("billing")).await.unwrap();
    assert_eq!(soon("a is seen", seen.recv()).await.unwrap().as_deref(), Some("a"));
    let current = soon("asked", observer.current_leader()).await.unwrap();
    assert_eq!(current.leader.unwrap().as_str(), "a");
    assert!(current.age <= b.budget().ttl() / 10);
    soon("resigned", leadership.resign()).await.unwrap();
    assert_eq!(soon("nobody again", seen.recv()).await.unwrap(), None);
}
