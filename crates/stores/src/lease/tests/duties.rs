//! Who has to do what in a group, and when.

use std::time::Duration;

use regent_election::{Command, Group, Moment, Node, Reason, Revision, SessionId, Term};

use crate::lease::duty::{Duty, Post, Timers, duty};
use crate::lease::observed::ObservedSessions;
use crate::lease::record::GroupRecord;
use crate::lease::session::SessionRecord;
use crate::lease::turn::{Known, LeaseRequest, turn};
use crate::register::Version;

const TTL_MS: u64 = 10_000;

pub(super) fn group() -> Group {
    Group::new("g").unwrap()
}

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

pub(super) fn apply(record: &GroupRecord, command: Command) -> GroupRecord {
    let known = Known {
        group: &group(),
        seen_term: Term::NONE,
        highest: Revision(0),
        ended: &[],
        silent: &[],
        holds: &[],
        wall_ms: 0,
        nonce: 1,
    };
    turn(record, &known, Some(LeaseRequest { command, request: None, asker: None })).record
}

/// A group that session 1 leads and in which the others stand.
pub(super) fn led(standbys: &[u128]) -> GroupRecord {
    let mut record = GroupRecord::new();
    for session in [1].iter().chain(standbys) {
        record = apply(&record, campaign(*session, 0));
    }
    record
}

/// A session's wish to lead or stand, with this priority.
pub(super) fn campaign(session: u128, priority: i16) -> Command {
    let opening = regent_election::Opening {
        node: Node::new(&format!("n{session}")).unwrap(),
        ttl_ms: Some(TTL_MS),
        passing: false,
    };
    Command::Campaign {
        group: group(),
        session: SessionId::new(session).unwrap(),
        opening: Some(opening),
        if_lost: regent_election::IfLost::Stand,
        priority,
        metadata: regent_election::Metadata::NONE,
    }
}

pub(super) fn ending(standbys: &[u128]) -> GroupRecord {
    let command = Command::StepDown {
        group: group(),
        reason: Reason::new("").unwrap(),
        to: None,
        immediate: false,
    };
    apply(&led(standbys), command)
}

/// A process with some sessions of its own.
struct Process {
    locals: Vec<u128>,
    told: Vec<u128>,
    observed: ObservedSessions,
    timers: Timers,
}

impl Process {
    fn of(locals: &[u128]) -> Self {
        let observed = ObservedSessions::new(0, false);
        Self { locals: locals.to_vec(), told: Vec::new(), observed, timers: Timers::default() }
    }

    fn sees(&mut self, session: u128, hold_ms: u64, now: Moment) {
        let node = Node::new("n").unwrap();
        let record = SessionRecord::open(session, node, hold_ms, false);
        self.observed.see(session, Some((&record, &Version::from(1))), now);
    }

    /// It looks at a session as it was told to.
    fn looks(&mut self, session: u128, hold_ms: u64, now: Moment) {
        self.sees(session, hold_ms, now);
        self.timers.looked(hold_ms);
    }

    fn duty(&mut self, record: &GroupRecord, now: Moment) -> Duty {
        let post = Post {
            group: &group(),
            record,
            locals: &self.locals,
            told: &self.told,
            observed: &self.observed,
            now,
        };
        duty(&post, &mut self.timers)
    }
}

#[test]
fn the_first_in_line_watches_the_leader_and_ends_it_when_it_is_due() {
    let record = led(&[2, 3]);
    let mut first = Process::of(&[2]);
    assert_eq!(first.duty(&record, at(0)), Duty::Look(1));
    first.sees(1, TTL_MS, at(0));
    let rest = Duty::Rest { watch: Some(1), until: Some(at(TTL_MS)) };
    assert_eq!(first.duty(&record, at(1)), rest);
    assert_eq!(first.duty(&record, at(TTL_MS)), Duty::End(1));
    let ended = SessionRecord::ended(9, Vec::new());
    first.observed.see(1, Some((&ended, &Version::from(9))), at(TTL_MS + 1));
    assert_eq!(first.duty(&record, at(TTL_MS + 1)), Duty::Expire(1));
    // One who is not there may only come late; whoever looks after reading the group will tell.
    first.observed.see(1, None, at(TTL_MS + 2));
    assert_eq!(first.duty(&record, at(TTL_MS + 2)), Duty::Look(1));
}

#[test]
fn everybody_else_watches_the_one_before() {
    let record = led(&[2, 3, 4]);
    for (local, before) in [(3, 2), (4, 3)] {
        let mut process = Process::of(&[local]);
        assert_eq!(process.duty(&record, at(0)), Duty::Look(before));
    }
    // Without a place of its own a process leaves it to those who have one.
    let mut watcher = Process::of(&[]);
    assert_eq!(watcher.duty(&record, at(0)), Duty::Rest { watch: None, until: None });
    assert_eq!(Process::of(&[]).duty(&led(&[]), at(0)), Duty::Look(1));
}

#[test]
fn an_ending_counts_from_when_its_holder_was_told_and_by_its_longest_ttl() {
    let record = ending(&[2]);
    let mut first = Process::of(&[2]);
    first.sees(1, TTL_MS, at(0));
    assert_eq!(first.duty(&record, at(5)), Duty::Tell(1));
    assert_eq!(first.duty(&record, at(900)), Duty::Tell(1));
    first.told.push(1);
    // It looks once more: the ttl may have grown before the holder was told.
    assert_eq!(first.duty(&record, at(1000)), Duty::Look(1));
    first.looks(1, 3 * TTL_MS, at(1000));
    let rest = first.duty(&record, at(1000));
    assert!(matches!(rest, Duty::Rest { .. }), "{rest:?}");
    let almost = first.duty(&record, at(1000 + 3 * TTL_MS - 1));
    assert!(!matches!(almost, Duty::Run(_)), "{almost:?}");
    // It was heard in the meantime, so that only the ending ends its tenure.
    let heard = SessionRecord::open(99, Node::new("n").unwrap(), 3 * TTL_MS, false);
    first.observed.see(1, Some((&heard, &Version::from(2))), at(2 * TTL_MS));
    let over = first.duty(&record, at(1000 + 3 * TTL_MS));
    assert!(matches!(over, Duty::Run(Command::Elapsed { .. })), "{over:?}");
}

#[test]
fn those_further_back_leave_the_first_one_time_to_act() {
    let record = ending(&[2, 3]);
    let mut second = Process::of(&[3]);
    second.told.push(1);
    second.sees(2, 1000 * TTL_MS, at(0));
    assert_eq!(second.duty(&record, at(0)), Duty::Look(1));
    second.looks(1, TTL_MS, at(0));
    let Duty::Rest { until: Some(until), .. } = second.duty(&record, at(0)) else {
        panic!("it has something to do");
    };
    assert!(until > at(TTL_MS) + Duration::from_millis(100), "{until}");
}

/// The holder may have lengthened its ttl through another process: what was seen before it was told is too short.
#[test]
fn a_look_that_failed_is_taken_again_before_an_ending_counts() {
    let record = ending(&[2]);
    let mut first = Process::of(&[2]);
    first.sees(1, TTL_MS, at(0));
    first.told.push(1);
    for now in [1000, 2000, 1000 + TTL_MS - 2000] {
        assert_eq!(first.duty(&record, at(now)), Duty::Look(1), "at {now}");
    }
    first.looks(1, 3 * TTL_MS, at(9000));
    let rest = first.duty(&record, at(9000));
    assert!(matches!(rest, Duty::Rest { .. }), "{rest:?}");
}

/// A read that began before the look is noted after it: the entry was a shorter one then.
#[test]
fn what_is_noted_late_does_not_shorten_an_ending_that_is_counted() {
    let record = ending(&[2, 3]);
    let mut second = Process::of(&[3]);
    second.told.push(1);
    second.sees(2, 1000 * TTL_MS, at(0));
    assert_eq!(second.duty(&record, at(1000)), Duty::Look(1));
    second.looks(1, 3 * TTL_MS, at(1000));
    second.sees(1, TTL_MS, at(1000));
    for now in [1000, 1000 + TTL_MS + 400, 1000 + 3 * TTL_MS] {
        let rest = second.duty(&record, at(now));
        assert!(matches!(rest, Duty::Rest { .. }), "at {now}: {rest:?}");
    }
    let over = second.duty(&record, at(1000 + 3 * TTL_MS + 400));
    assert!(matches!(over, Duty::Run(Command::Elapsed { .. })), "{over:?}");
}
