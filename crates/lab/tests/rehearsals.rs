//! Applications of a user's own in the lab, and the example that shows how.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]
#![allow(unreachable_pub, reason = "the example is a program of its own, too")]
#![allow(dead_code, reason = "the example's own main function is not called")]

#[path = "../../../examples/rehearsed_job.rs"]
mod rehearsed_job;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use regent_election::{Group, Node, Term};
use regent_lab::{Application, Context, Rehearsal};
use rehearsed_job::{Habit, rehearse, sweep};

const TTL: Duration = Duration::from_secs(2);

fn billing() -> Group {
    Group::new("billing").unwrap()
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Diary(Rc<RefCell<Vec<String>>>);

impl Diary {
    fn note(&self, cx: &Context<'_>, what: &str) {
        self.0.borrow_mut().push(format!("{} {what}", cx.node()));
    }
}

impl Application for Diary {
    fn on_start(&mut self, cx: &mut Context<'_>) {
        self.note(cx, "starts");
    }

    fn on_gained(&mut self, cx: &mut Context<'_>, _group: &Group, term: Term) {
        self.note(cx, &format!("gained {term}"));
    }

    fn on_stop(&mut self, cx: &mut Context<'_>, group: &Group, term: Term, _left: Duration) {
        self.note(cx, &format!("stops {term}"));
        cx.stopped(group);
    }

    fn on_lost(&mut self, cx: &mut Context<'_>, _group: &Group, term: Term) {
        self.note(cx, &format!("lost {term}"));
    }

    fn on_tick(&mut self, cx: &mut Context<'_>) {
        if let Some((term, _)) = cx.check(&billing()) {
            cx.write(&billing(), term, "tick");
        }
    }
}

/// Two that keep a diary, of whom somebody leads.
fn two(seed: u64) -> (Rehearsal, Diary, String, String) {
    let mut lab = Rehearsal::new(seed, 3);
    let diary = Diary::default();
    for name in ["ann", "bob"] {
        lab.participant(name, TTL, &["billing"], diary.clone());
    }
    let first = lab.await_leader("billing", Duration::from_secs(10)).unwrap();
    let second = if first == "ann" { "bob" } else { "ann" }.to_owned();
    (lab, diary, first, second)
}

#[test]
fn a_careless_job_is_caught_and_the_careful_one_passes_a_hundred_seeds() {
    let (broken, late) = sweep(Habit::Careless, 20);
    assert!(!broken.is_empty(), "a pause between check and write falls within twenty seeds");
    for outcome in &broken {
        assert_eq!(outcome.violations.len(), 1, "{:?}", outcome.violations);
        assert_eq!(outcome.violations[0].promise, "guard");
    }
    assert!(late > 0, "some of them land after the next leader's");
    let fenced_off = broken.iter().flat_map(|outcome| outcome.late_writes("invoices"));
    assert!(fenced_off.into_iter().all(|write| !write.is_admitted), "a fence refuses every one");

    let (broken, _) = sweep(Habit::Careful, 100);
    let first = broken.first().map(|outcome| (&outcome.history.setup.seed, &outcome.violations));
    assert_eq!(first, None);
}

#[test]
fn the_same_seed_rehearses_the_same_history() {
    let one = rehearse(Habit::Careful, 5);
    assert_eq!(one.history, rehearse(Habit::Careful, 5).history);
    assert_ne!(one.history.events, rehearse(Habit::Careful, 6).history.events);
    assert!(one.written("invoices").len() > 20, "{}", one.written("invoices").len());
}

#[test]
fn an_application_is_told_of_its_terms_in_order_and_each_once() {
    let (mut lab, diary, first, second) = two(3);
    lab.pause(&first);
    lab.run_for(2 * TTL);
    assert_eq!(lab.leader("billing"), Some(second.clone()));
    lab.resume(&first);
    lab.run_for(TTL);
    lab.kill(&second);
    lab.run_for(2 * TTL);
    lab.restart(&second);
    lab.run_for(TTL);
    let told = diary.0.borrow().clone();
    let wanted = [
        format!("{first} gained 1"),
        format!("{second} gained 2"),
        format!("{first} lost 1"),
        format!("{first} gained 3"),
        format!("{second} starts"),
    ];
    let main: Vec<&String> = told.iter().skip(2).filter(|it| !it.contains("stops")).collect();
    assert_eq!(main, wanted.iter().collect::<Vec<_>>(), "{told:?}");
    lab.finish().assert_kept();
}

#[test]
fn whoever_is_cut_off_from_the_store_stops_before_another_leads() {
    for seed in 0..5 {
        let (mut lab, _, first, second) = two(seed);
        lab.cut_off(&first);
        lab.run_for(2 * TTL);
        assert_eq!(lab.leader("billing"), Some(second));
        lab.heal(&first);
        lab.run_for(TTL);
        let outcome = lab.finish();
        outcome.assert_kept();
        assert_eq!(outcome.late_writes("billing"), Vec::<&regent_lab::Written>::new());
    }
}

#[test]
fn an_office_is_handed_over_and_a_cluster_is_parted_by_name() {
    /// Hands over to the other one as soon as it leads for the first time.
    struct Polite;
    impl Application for Polite {
        fn on_gained(&mut self, cx: &mut Context<'_>, group: &Group, term: Term) {
            if term == Term::new(1).unwrap() {
                let to = if cx.node().as_str() == "ann" { "bob" } else { "ann" };
                cx.hand_over(group, &Node::new(to).unwrap());
            }
        }
        fn on_tick(&mut self, _cx: &mut Context<'_>) {}
    }
    let mut lab = Rehearsal::new(1, 3);
    lab.participant("bob", TTL, &["billing"], Polite);
    lab.run_for(Duration::from_millis(200));
    lab.participant("ann", TTL, &["billing"], Polite);
    lab.run_for(4 * TTL);
    let terms: Vec<u64> =
        lab.world().changes().iter().map(|(_, change)| change.term.get()).collect();
    assert!(!terms.is_empty());
    lab.partition(&["replica-1", "ann"], &["replica-2", "replica-3", "bob"]);
    lab.run_for(2 * TTL);
    assert_eq!(lab.leader("billing").as_deref(), Some("bob"), "the majority's side goes on");
    lab.heal("replica-1");
    lab.heal("ann");
    lab.run_for(TTL);
    lab.finish().assert_kept();
}

#[test]
#[should_panic(expected = "nobody is called \"carl\"; there are ann, bob, replica-1")]
fn a_name_that_nobody_has_is_a_mistake_in_the_test() {
    let (mut lab, _, _, _) = two(1);
    lab.pause("carl");
}
