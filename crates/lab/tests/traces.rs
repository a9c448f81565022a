//! Recorded courses, acted again by the real parts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use regent_election::deed::{Deed, Party};
use regent_election::{Cause, Group, Node, Reason, Revision, SessionNo, Term};
use regent_lab::trace::{
    GROUPS_MAX, LINES_MAX, REPLICAS_MAX, Reenactment, SESSIONS_MAX, Trace, reenact,
};
use regent_recording::{LineContent, RecordedLine};

/// Writes a recording line by line.
#[derive(Default)]
struct Pen {
    lines: Vec<RecordedLine>,
    now_ms: u64,
    revision: u64,
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn node(name: &str) -> Node {
    Node::new(name).unwrap()
}

fn term(term: u64) -> Term {
    Term::new(term).unwrap()
}

fn party(session: u64, name: &str, ttl_ms: u64) -> Option<Party> {
    Some(Party { session: SessionNo(session), node: node(name), ttl_ms })
}

fn of(verb: &'static str, place: &str) -> Deed {
    Deed { verb, group: Some(group(place)), ..Deed::default() }
}

fn about(verb: &'static str, place: &str, at: u64) -> Deed {
    Deed { term: Some(term(at)), ..of(verb, place) }
}

fn bare(verb: &'static str) -> Deed {
    Deed { verb, ..Deed::default() }
}

impl Pen {
    fn line(&mut self, told: LineContent) {
        let number = self.lines.len() + 1;
        self.lines.push(RecordedLine { number, at_ms: 1_000_000 + self.now_ms, told });
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    fn deed(&mut self, deed: Deed, party: Option<Party>) {
        self.revision += 1;
        self.line(LineContent::Deed { revision: Revision(self.revision), deed, party });
    }

    /// A session leads under a term, or stands in line.
    fn stand(&mut self, place: &str, party: Option<Party>, leads: Option<Term>) {
        self.deed(Deed { term: leads, ..of("campaign", place) }, party);
    }

    fn change(&mut self, place: &str, leader: Option<&str>, at: u64, cause: Cause) {
        let (group, leader, term) = (group(place), leader.map(node), term(at));
        let revision = Revision(self.revision);
        self.line(LineContent::Change { revision, group, term, leader, cause });
    }

    fn act(self, seed: u64) -> Reenactment {
        reenact(&Trace::new(self.lines).unwrap(), seed)
    }
}

/// What a service with three replicas might have recorded of one group: an election, a resignation, a
/// crash, a hand-over, a step-down and a lost Raft leader.
fn a_day() -> Pen {
    let mut pen = Pen::default();
    let (a, b, c) = (party(1, "a", 3_000), party(2, "b", 3_000), party(3, "c", 5_000));
    pen.line(LineContent::Begin { replica: 1 });
    pen.line(LineContent::LogLeader { leader: Some(1), voters: 3 });
    pen.stand("billing", a.clone(), Some(term(1)));
    pen.change("billing", Some("a"), 1, Cause::Elected);
    pen.wait(40);
    pen.stand("billing", b.clone(), None);
    pen.wait(2_000);
    pen.deed(about("resign", "billing", 1), a.clone());
    pen.change("billing", Some("b"), 2, Cause::Resigned);
    pen.deed(about("accept", "billing", 2), b.clone());
    pen.wait(500);
    pen.stand("billing", a.clone(), None);
    // Eleven hours without a word.
    pen.wait(11 * 3_600_000);
    pen.line(LineContent::LogLeader { leader: Some(3), voters: 3 });
    pen.wait(9_000);
    // It stands a moment before the leader that fell silent expires.
    pen.stand("billing", c.clone(), None);
    pen.wait(100);
    pen.deed(bare("expire"), b);
    pen.change("billing", Some("a"), 3, Cause::Expired);
    pen.deed(about("accept", "billing", 3), a.clone());
    pen.wait(4_000);
    pen.deed(Deed { to: Some(node("c")), ..about("transfer", "billing", 3) }, a);
    pen.change("billing", Some("c"), 4, Cause::Transferred);
    pen.deed(about("accept", "billing", 4), c.clone());
    pen.wait(1_000);
    let reason = Reason::new("maintenance").ok();
    pen.deed(Deed { reason, ..of("step_down", "billing") }, None);
    pen.wait(300);
    pen.deed(about("resign", "billing", 4), c);
    pen.change("billing", None, 4, Cause::SteppedDown);
    pen
}

#[test]
fn a_recorded_course_is_acted_again_with_every_cause_and_every_promise_kept() {
    for seed in 1..=5 {
        let acted = a_day().act(seed);
        assert_eq!(acted.trial.violations(), [], "seed {seed}");
        assert!(acted.course.is_same(), "seed {seed}: {:#?}", acted.course);
        assert_eq!(acted.course.rows.len(), 5);
        assert!(acted.shortened_ms > 10 * 3_600_000, "{} ms", acted.shortened_ms);
        assert_eq!(acted.remarks, Vec::<String>::new());
        assert!(acted.trial.stats.raft_elections >= 2, "the leader of the log fell");
    }
}

#[test]
fn the_same_trace_and_seed_give_the_same_history() {
    let history = |seed| a_day().act(seed).trial.history;
    assert_eq!(history(7), history(7));
    assert_ne!(history(7).events, history(8).events);
}

#[test]
fn a_course_that_the_rules_would_not_take_is_shown_as_different() {
    let mut pen = Pen::default();
    pen.stand("g", party(1, "a", 2_000), Some(term(1)));
    pen.change("g", Some("a"), 1, Cause::Elected);
    pen.wait(100);
    pen.stand("g", party(2, "b", 2_000), None);
    pen.wait(100);
    pen.stand("g", party(3, "c", 2_000), None);
    pen.wait(100);
    pen.deed(about("resign", "g", 1), party(1, "a", 2_000));
    // The line is first come, first served: it is b's turn.
    pen.change("g", Some("c"), 2, Cause::Resigned);
    let acted = pen.act(1);
    assert_eq!(acted.trial.violations(), []);
    let told: Vec<bool> = acted.course.rows.iter().map(|row| row.is_same).collect();
    assert_eq!(told, [true, false]);
    let (_, came) = acted.course.rows[1].acted.clone().unwrap();
    assert_eq!(came.leader, Some(node("b")));
}

#[test]
fn a_recording_that_begins_in_the_middle_is_acted_from_there() {
    let mut pen = Pen { revision: 400, ..Pen::default() };
    pen.line(LineContent::Gap { to: Revision(400) });
    pen.deed(about("accept", "g", 71), party(9, "b", 2_000));
    pen.change("g", Some("b"), 71, Cause::Expired);
    pen.wait(700);
    pen.deed(about("resign", "g", 71), party(9, "b", 2_000));
    pen.change("g", None, 71, Cause::Resigned);
    let acted = pen.act(3);
    assert_eq!(acted.trial.violations(), []);
    assert!(acted.course.is_same(), "{:#?}", acted.course);
    assert_eq!(acted.remarks.len(), 2, "{:?}", acted.remarks);
}

#[test]
fn a_restart_of_a_store_of_one_replica_is_acted_and_ends_no_tenure() {
    let mut pen = Pen::default();
    pen.line(LineContent::Begin { replica: 1 });
    pen.stand("g", party(1, "a", 5_000), Some(term(1)));
    pen.change("g", Some("a"), 1, Cause::Elected);
    pen.wait(1_000);
    pen.line(LineContent::Begin { replica: 1 });
    pen.wait(3_000);
    pen.deed(bare("close"), party(1, "a", 5_000));
    pen.change("g", None, 1, Cause::Resigned);
    let acted = pen.act(2);
    assert_eq!(acted.trial.violations(), []);
    assert!(acted.course.is_same(), "{:#?}", acted.course);
    assert_eq!(acted.trial.plan.replicas, 1);
}

#[test]
fn what_is_too_large_or_in_no_order_is_refused_at_its_line() {
    let mut pen = Pen::default();
    pen.revision = 8;
    pen.change("g", Some("a"), 1, Cause::Elected);
    pen.revision = 7;
    pen.change("g", None, 1, Cause::Resigned);
    let error = Trace::new(pen.lines).unwrap_err();
    assert!(error.to_string().starts_with("line 2: revision 7 comes after 8"), "{error}");

    let mut pen = Pen::default();
    (0..=LINES_MAX).for_each(|_| pen.line(LineContent::End));
    let error = Trace::new(pen.lines).unwrap_err();
    assert_eq!(error.number, LINES_MAX + 1);
    assert!(error.what.contains("more than 100000 lines"), "{error}");

    let mut pen = Pen::default();
    (0..=GROUPS_MAX).for_each(|at| pen.change(&format!("g{at}"), None, 1, Cause::Deleted));
    assert!(Trace::new(pen.lines).unwrap_err().what.contains("groups"));
    let mut pen = Pen::default();
    (0..=SESSIONS_MAX as u64).for_each(|at| pen.deed(bare("open"), party(at, "a", 1_000)));
    assert!(Trace::new(pen.lines).unwrap_err().what.contains("sessions"));
    let mut pen = Pen::default();
    pen.line(LineContent::LogLeader { leader: None, voters: 1_000 });
    assert_eq!(Trace::new(pen.lines).unwrap().replicas(), REPLICAS_MAX);
}

/// The replay leaves out a verb that the simulator cannot repeat, and says so.
#[test]
fn a_deed_that_is_not_acted_is_remarked_upon() {
    let mut pen = Pen::default();
    pen.stand("g", party(1, "a", 2_000), Some(term(1)));
    pen.change("g", Some("a"), 1, Cause::Elected);
    pen.deed(of("yawn", "g"), party(1, "a", 2_000));
    pen.deed(bare("put_settings"), None);
    let acted = pen.act(1);
    assert!(acted.course.is_same(), "{:#?}", acted.course);
    let remarks =
        ["1 changes of the store's settings are not acted", "1 deeds \"yawn\" are not acted"];
    assert_eq!(acted.remarks[..2], remarks, "{:?}", acted.remarks);
}

#[test]
fn times_that_go_back_are_notes_and_do_not_change_the_order() {
    let mut pen = Pen::default();
    pen.wait(5_000);
    pen.stand("g", party(1, "a", 2_000), Some(term(1)));
    pen.change("g", Some("a"), 1, Cause::Elected);
    pen.now_ms = 1_000;
    pen.deed(bare("close"), party(1, "a", 2_000));
    pen.change("g", None, 1, Cause::Resigned);
    let acted = pen.act(1);
    assert!(acted.course.is_same(), "{:#?}", acted.course);
    assert!(acted.remarks[0].contains("4000 ms"), "{:?}", acted.remarks);
}
