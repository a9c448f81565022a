//! The lease clock against a naive model (a plain list that is scanned), and at full size.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use regent_election::deadlines::{Deadlines, HeartbeatOutcome, Turn};
use regent_election::{Group, Moment, Revision, SessionNo, WaitKind};

const ALL: usize = usize::MAX;

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn group(name: &str) -> Group {
    Group::new(name).expect("a test's own name")
}

#[path = "deadlines/rules.rs"]
mod rules;

/// The same rules as a list that is scanned.
mod model {
    use super::*;

    #[derive(Clone, Debug, Default)]
    pub(super) struct Model {
        pub(super) sessions: Vec<Session>,
        pub(super) promotions: Vec<Moment>,
        pub(super) turned_at: Option<Moment>,
        pub(super) waits: Vec<(Group, WaitKind, Revision, Moment, u64)>,
    }

    #[derive(Clone, Debug)]
    pub(super) struct Session {
        pub(super) no: SessionNo,
        pub(super) ttl_ms: u64,
        /// Every change: the ttl before it, and until when that still counts if it is larger.
        changes: Vec<(u64, Moment)>,
        /// Every arrival, the opening, and every change of ttl, with the ttl that counted.
        signs: Vec<(Moment, u64)>,
        /// The least and most that promotions gave before the last change of ttl.
        given: (Moment, Moment),
        heard_at: Moment,
        /// How many promotions there had been by then.
        heard_in: usize,
        last: Option<u64>,
        pub(super) silent: bool,
        pub(super) expiring: bool,
        heard_silently: bool,
    }

    impl Session {
        fn ttl_longest(&self) -> u64 {
            self.changes.last().map_or(0, |(former, _)| *former).max(self.ttl_ms)
        }

        fn ttl_at(&self, at: Moment) -> u64 {
            let former = self.changes.last().filter(|(_, until)| at < *until);
            former.map_or(self.ttl_ms, |(former, _)| self.ttl_ms.max(*former))
        }
    }

    impl Model {
        fn get(&mut self, no: SessionNo) -> Option<&mut Session> {
            self.sessions.iter_mut().find(|session| session.no == no)
        }

        pub(super) fn open(&mut self, no: SessionNo, ttl_ms: u64, now: Moment) {
            if self.get(no).is_some() {
                self.change_ttl(no, ttl_ms, now);
                self.heartbeat(no, None, now);
                return;
            }
            if self.sessions.is_empty() && self.waits.is_empty() {
                self.turned_at = Some(now);
            }
            self.sessions.push(Session {
                no,
                ttl_ms,
                changes: vec![],
                signs: vec![(now, ttl_ms)],
                given: (now, now),
                heard_at: now,
                heard_in: self.promotions.len(),
                last: None,
                silent: false,
                expiring: false,
                heard_silently: false,
            });
        }

        pub(super) fn change_ttl(&mut self, no: SessionNo, ttl_ms: u64, now: Moment) {
            let Some(index) = self.sessions.iter().position(|s| s.no == no) else { return };
            let given = self.bounds(&self.sessions[index]);
            let session = &mut self.sessions[index];
            session.given = given;
            let old = session.ttl_at(now);
            let until = (now + ms(old)).max(session.changes.last().map_or(now, |(_, u)| *u));
            session.changes.push((old, until));
            session.ttl_ms = ttl_ms;
            let larger = session.ttl_at(now);
            session.signs.push((now, larger));
        }

        pub(super) fn close(&mut self, no: SessionNo) {
            self.sessions.retain(|session| session.no != no);
        }

        pub(super) fn heartbeat(
            &mut self,
            no: SessionNo,
            sequence: Option<u64>,
            now: Moment,
        ) -> HeartbeatOutcome {
            let heard_in = self.promotions.len();
            let Some(session) = self.get(no) else { return HeartbeatOutcome::Unknown };
            match (sequence, session.last) {
                (Some(given), Some(last)) if given <= last => {
                    return HeartbeatOutcome::NotNewer { last };
                }
                (Some(given), _) => session.last = Some(given),
                (None, _) => {}
            }
            let ttl = session.ttl_at(now);
            session.signs.push((now, ttl));
            session.heard_at = now;
            session.heard_in = heard_in;
            if session.expiring {
                session.heard_silently = true;
                return HeartbeatOutcome::Expiring;
            }
            if session.silent {
                session.silent = false;
            }
            HeartbeatOutcome::Extended
        }

        /// The spread is the structure's own affair: the model only bounds it.
        pub(super) fn bounds(&self, session: &Session) -> (Moment, Moment) {
            let own = session.signs.iter().map(|(at, ttl)| *at + ms(*ttl)).max();
            let own = own.unwrap_or(Moment::ZERO);
            let (least, most) = (own.max(session.given.0), own.max(session.given.1));
            let Some(promoted_at) = self.promotions.last().copied() else { return (least, most) };
            let ttl = ms(session.ttl_longest());
            let restarted = promoted_at + ttl;
            let spread_max = if session.heard_in == self.promotions.len() {
                Duration::ZERO
            } else {
                (ttl / 10).min(ms(1000))
            };
            (least.max(restarted), most.max(restarted + spread_max))
        }

        pub(super) fn mark_silent(&mut self, now: Moment) {
            let (promoted_at, number) = (self.promotions.last().copied(), self.promotions.len());
            for session in self.sessions.iter_mut().filter(|s| !s.silent && !s.expiring) {
                let silent_at = match promoted_at {
                    Some(at) if session.heard_in < number => at + ms(session.ttl_longest()) / 2,
                    Some(_) | None => session.heard_at + ms(session.ttl_at(session.heard_at)) / 2,
                };
                if silent_at <= now {
                    session.silent = true;
                }
            }
        }

        pub(super) fn spare(&mut self, no: SessionNo) {
            let Some(session) = self.get(no).filter(|session| session.expiring) else { return };
            session.expiring = false;
            if std::mem::take(&mut session.heard_silently) {
                session.silent = false;
            }
        }

        pub(super) fn turn(&mut self, now: Moment) -> Turn {
            let idle = self.sessions.is_empty() && self.waits.is_empty();
            let smallest = self.sessions.iter().map(|session| session.ttl_ms).min();
            let limit = smallest.map_or(ms(500), |ttl| ms(500).min(ms(ttl) / 4));
            let away = self.turned_at.map_or(Duration::ZERO, |at| now.since(at));
            self.turned_at = (!idle).then_some(now);
            if idle || away <= limit {
                return Turn::Steady;
            }
            self.promotions.push(now);
            Turn::Restarted { away }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open(u64, u64),
    ChangeTtl(u64, u64),
    Close(u64),
    Heartbeat(u64, Option<u64>),
    Promote,
    Turns(u64),
    Sleep(u64),
    Spare(u64),
    CloseExpiring,
    Wait(u8, u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let no = 0..12_u64;
    let ttl = prop_oneof![Just(500_u64), Just(1000), 500..20_000_u64];
    prop_oneof![
        3 => (no.clone(), ttl.clone()).prop_map(|(no, ttl)| Step::Open(no, ttl)),
        1 => (no.clone(), ttl).prop_map(|(no, ttl)| Step::ChangeTtl(no, ttl)),
        1 => no.clone().prop_map(Step::Close),
        8 => (no.clone(), prop::option::of(0..40_u64)).prop_map(|(no, n)| Step::Heartbeat(no, n)),
        1 => Just(Step::Promote),
        8 => (1..60_u64).prop_map(Step::Turns),
        1 => (1..30_000_u64).prop_map(Step::Sleep),
        1 => no.prop_map(Step::Spare),
        1 => Just(Step::CloseExpiring),
        1 => (0..3_u8, 0..99_u64, 0..5_000_u64).prop_map(|(g, r, ms)| Step::Wait(g, r, ms)),
    ]
}

/// Drives structure and model alike and compares everything that can be seen.
struct Pair {
    now_ms: u64,
    real: Deadlines,
    model: model::Model,
}

impl Pair {
    fn now(&self) -> Moment {
        at(self.now_ms)
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.now();
        match step {
            Step::Open(no, ttl) => {
                self.real.open(SessionNo(*no), *ttl, now);
                self.model.open(SessionNo(*no), *ttl, now);
            }
            Step::ChangeTtl(no, ttl) => {
                self.real.change_ttl(SessionNo(*no), *ttl, now);
                self.model.change_ttl(SessionNo(*no), *ttl, now);
            }
            Step::Close(no) => {
                self.real.close(SessionNo(*no));
                self.model.close(SessionNo(*no));
            }
            Step::Heartbeat(no, sequence) => {
                let no = SessionNo(*no);
                let heard = self.real.heartbeat(no, *sequence, now);
                prop_assert_eq!(heard, self.model.heartbeat(no, *sequence, now));
            }
            Step::Promote => {
                self.real.promote(now);
                self.model.promotions.push(now);
                self.model.turned_at = Some(now);
            }
            Step::Turns(count) => {
                for _ in 0..*count {
                    self.now_ms += 50;
                    self.turn()?;
                }
            }
            Step::Sleep(for_ms) => {
                self.now_ms += for_ms;
                self.turn()?;
            }
            Step::Spare(no) => {
                self.real.spare(SessionNo(*no));
                self.model.spare(SessionNo(*no));
            }
            Step::CloseExpiring => {
                let gone: Vec<SessionNo> =
                    self.model.sessions.iter().filter(|s| s.expiring).map(|s| s.no).collect();
                for no in gone {
                    self.real.close(no);
                    self.model.close(no);
                }
            }
            Step::Wait(name, revision, for_ms) => {
                let (name, since) = (group(&format!("g{name}")), Revision(*revision));
                let idle = self.model.sessions.is_empty() && self.model.waits.is_empty();
                if idle {
                    self.model.turned_at = Some(now);
                }
                self.real.wait(name.clone(), WaitKind::Ending, since, *for_ms, now);
                let newer = self.model.waits.iter().any(|w| w.0 == name && w.2 > since);
                if !newer {
                    self.model.waits.retain(|wait| wait.0 != name);
                    self.model.waits.push((name, WaitKind::Ending, since, now, *for_ms));
                }
            }
        }
        self.compare()
    }

    fn turn(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        prop_assert_eq!(self.real.turn(now), self.model.turn(now));
        self.elapsed()?;
        // In small helpings, as a driver with short turns would.
        let mut due = BTreeSet::new();
        let mut helpings = 0;
        loop {
            due.extend(self.real.due(now, 3));
            helpings += 1;
            prop_assert!(helpings < 100, "the queue is worked off");
            if self.real.next_at().is_none_or(|next_at| next_at > now) {
                break;
            }
        }
        self.model.mark_silent(now);
        for index in 0..self.model.sessions.len() {
            let (earliest, latest) = self.model.bounds(&self.model.sessions[index]);
            let session = &mut self.model.sessions[index];
            let told = due.remove(&session.no);
            prop_assert!(!told || !session.expiring, "{:?} told twice", session.no);
            prop_assert!(!told || earliest <= now, "{:?} expired too soon", session.no);
            prop_assert!(told || session.expiring || latest > now, "{:?} forgotten", session.no);
            if told {
                session.expiring = true;
            }
        }
        prop_assert!(due.is_empty(), "{:?} are not open", due);
        Ok(())
    }

    fn elapsed(&mut self) -> Result<(), TestCaseError> {
        let (now, promoted_at) = (self.now(), self.model.promotions.last().copied());
        let over_at = |began_at: Moment, for_ms: u64| {
            promoted_at.map_or(began_at, |at| at.max(began_at)) + ms(for_ms)
        };
        let mut expected: Vec<(Group, WaitKind, Revision)> = Vec::new();
        self.model.waits.retain(|(name, kind, since, began_at, for_ms)| {
            let is_over = over_at(*began_at, *for_ms) <= now;
            if is_over {
                expected.push((name.clone(), *kind, *since));
            }
            !is_over
        });
        let mut over = self.real.elapsed(now, ALL);
        over.sort();
        expected.sort();
        prop_assert_eq!(over, expected);
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let now = self.now();
        prop_assert_eq!(self.real.len(), self.model.sessions.len());
        let silent: BTreeSet<SessionNo> =
            self.model.sessions.iter().filter(|s| s.silent).map(|s| s.no).collect();
        prop_assert_eq!(self.real.silent(), &silent);
        for session in &self.model.sessions {
            let remaining = self.real.remaining(session.no, now);
            let (earliest, latest) = self.model.bounds(session);
            let allowed = if session.expiring {
                Duration::ZERO..=Duration::ZERO
            } else {
                now.until(earliest)..=now.until(latest)
            };
            prop_assert!(remaining.is_some_and(|r| allowed.contains(&r)), "{remaining:?}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_queue_agrees_with_a_scan(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair {
            now_ms: 1000,
            real: Deadlines::new(),
            model: model::Model::default(),
        };
        for step in &steps {
            pair.run(step)?;
        }
    }
}

/// A million sessions, opened, heard and expired (`cargo test --release`; an unoptimised build takes
/// a quarter of them, to stay quick). The bound is on work per session, not on time: a structure that
/// touched its queue per heartbeat, or scanned, would exceed it many times over.
#[test]
fn a_million_sessions_cost_a_few_checks_each() {
    const SESSIONS: u64 = if cfg!(debug_assertions) { 250_000 } else { 1_000_000 };
    const TTL_MS: u64 = 12_000;
    let mut deadlines = Deadlines::new();
    for no in 0..SESSIONS {
        deadlines.open(SessionNo(no), TTL_MS, at(0));
    }
    for no in 0..SESSIONS {
        assert_eq!(
            deadlines.heartbeat(SessionNo(no), Some(1), at(100 + no % 100)),
            HeartbeatOutcome::Extended
        );
    }
    assert_eq!(deadlines.checks_made(), 0, "being heard touches no queue");
    deadlines.promote(at(200));
    let mut expired = 0_u64;
    for now_ms in (200..).step_by(250) {
        assert_eq!(deadlines.turn(at(now_ms)), Turn::Steady);
        for session in deadlines.due(at(now_ms), ALL) {
            deadlines.close(session);
            expired += 1;
        }
        if deadlines.is_empty() {
            break;
        }
        assert!(now_ms < 200 + TTL_MS + 1000 + 250, "{expired} of {SESSIONS} expired in time");
    }
    assert_eq!(expired, SESSIONS);
    assert!(deadlines.checks_made() <= 4 * SESSIONS, "{} checks", deadlines.checks_made());
}

/// Sessions that come and go within a long ttl leave no trail in the queue.
#[test]
fn sessions_that_come_and_go_leave_nothing_behind() {
    let mut deadlines = Deadlines::new();
    for no in 0..200_000 {
        deadlines.open(SessionNo(no), 3_600_000, at(no));
        deadlines.close(SessionNo(no));
    }
    assert_eq!(deadlines.next_at(), None);
    deadlines.open(SessionNo(0), 3_600_000, at(200_000));
    let checks_before = deadlines.checks_made();
    deadlines.due(at(10_000_000), ALL);
    assert!(deadlines.checks_made() - checks_before < 2_000);
}
