//! The doorkeeper told event by event, and through any history of a world that delays what it was sent.

use proptest::prelude::*;

use super::*;

const RULES: DoorRules = DoorRules {
    drain_for: Duration::from_secs(10),
    settle_for: Duration::from_secs(5),
    waiting_max: 4,
};

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

fn second(number: u64) -> Moment {
    Moment::from_millis(number * 1000)
}

fn arrive(door: &mut Doorkeeper, at: u64, ticket: u64, number: u64) -> Vec<Action> {
    door.on(second(at), Event::Arrived { ticket: Ticket(ticket), term: term(number) })
}

fn over(door: &mut Doorkeeper, at: u64, ticket: u64, ended: RequestEnd) -> Vec<Action> {
    door.on(second(at), Event::Over { ticket: Ticket(ticket), ended })
}

fn admit(ticket: u64) -> Action {
    Action::Admit { ticket: Ticket(ticket) }
}

fn stale(ticket: u64, given: u64, current: u64) -> Action {
    let why = FenceError::Stale { given: term(given), current: term(current) }.into();
    Action::Refuse { ticket: Ticket(ticket), why }
}

/// A door at which term 100 is kept, with request 1 of that term inside and sent in full.
fn door_with_one_sent() -> Doorkeeper {
    let mut door = Doorkeeper::new(RULES, term(100), Moment::ZERO);
    assert_eq!(arrive(&mut door, 0, 1, 100), [admit(1)]);
    door.on(second(0), Event::Sent { ticket: Ticket(1) });
    door
}

#[test]
fn a_higher_term_enters_when_its_mark_is_kept_and_not_before() {
    let mut door = Doorkeeper::new(RULES, Term::NONE, Moment::ZERO);
    assert_eq!(arrive(&mut door, 0, 1, 7), [Action::Keep { mark: term(7) }]);
    assert_eq!(arrive(&mut door, 0, 2, 7), [], "one mark is kept once, and both wait for it");
    let kept = door.on(second(1), Event::Kept { mark: term(7) });
    assert_eq!(kept, [admit(1), admit(2)]);
    assert_eq!(arrive(&mut door, 1, 3, 7), [admit(3)], "one leader writes more than once");
}

#[test]
fn a_lower_term_is_refused_at_once_even_while_the_mark_is_being_kept() {
    let mut door = Doorkeeper::new(RULES, term(100), Moment::ZERO);
    arrive(&mut door, 0, 1, 101);
    assert_eq!(arrive(&mut door, 0, 2, 100), [stale(2, 100, 101)]);
}

#[test]
fn a_term_that_nobody_holds_is_refused_at_the_door() {
    let mut door = Doorkeeper::new(RULES, Term::NONE, Moment::ZERO);
    let why = FenceError::NeverGranted.into();
    assert_eq!(arrive(&mut door, 0, 1, 0), [Action::Refuse { ticket: Ticket(1), why }]);
}

/// S3: a request on its way is not overtaken.
#[test]
fn a_higher_term_waits_for_the_whole_answer_of_a_lower_one() {
    let mut door = door_with_one_sent();
    let hurry = Action::Hurry { ticket: Ticket(1), current: term(101) };
    assert_eq!(arrive(&mut door, 1, 2, 101), [hurry, Action::Keep { mark: term(101) }]);
    assert_eq!(door.on(second(2), Event::Kept { mark: term(101) }), []);
    assert_eq!(over(&mut door, 3, 1, RequestEnd::Settled), [admit(2)]);
}

#[test]
fn a_request_whose_body_still_comes_is_cut_and_its_traces_are_given_time() {
    let mut door = Doorkeeper::new(RULES, term(100), Moment::ZERO);
    arrive(&mut door, 0, 1, 100);
    let close = Action::Close { ticket: Ticket(1), current: term(101) };
    assert_eq!(arrive(&mut door, 1, 2, 101), [close, Action::Keep { mark: term(101) }]);
    door.on(second(1), Event::Kept { mark: term(101) });
    assert_eq!(over(&mut door, 2, 1, RequestEnd::Unknown), []);
    assert_eq!(door.wake_at(), Some(second(7)));
    assert_eq!(door.on(second(6), Event::Woken), []);
    assert_eq!(door.on(second(7), Event::Woken), [admit(2)]);
}

#[test]
fn without_an_answer_the_door_stays_shut_until_the_outcome_is_settled() {
    let mut door = door_with_one_sent();
    arrive(&mut door, 1, 2, 101);
    door.on(second(1), Event::Kept { mark: term(101) });
    assert_eq!(door.wake_at(), Some(second(11)));
    let why = TurnedAway::NotOver { retry_after: Duration::from_secs(5) };
    let told = [
        Action::Close { ticket: Ticket(1), current: term(101) },
        Action::Refuse { ticket: Ticket(2), why },
    ];
    assert_eq!(door.on(second(11), Event::Woken), told);
    assert_eq!(over(&mut door, 12, 1, RequestEnd::Unknown), []);
    assert_eq!(arrive(&mut door, 13, 3, 101), [], "it waits");
    assert_eq!(door.on(second(17), Event::Woken), [admit(3)]);
}

#[test]
fn an_outcome_that_was_unknown_before_the_mark_rose_counts_too() {
    let mut door = door_with_one_sent();
    over(&mut door, 1, 1, RequestEnd::Unknown);
    assert_eq!(arrive(&mut door, 2, 2, 100), [admit(2)], "its own term goes on");
    over(&mut door, 2, 2, RequestEnd::Settled);
    arrive(&mut door, 3, 3, 101);
    assert_eq!(door.on(second(3), Event::Kept { mark: term(101) }), []);
    assert_eq!(door.on(second(6), Event::Woken), [admit(3)]);
}

#[test]
fn what_an_earlier_doorkeeper_admitted_is_given_time() {
    let mut door = Doorkeeper::new(RULES, term(100), second(5));
    assert_eq!(arrive(&mut door, 0, 1, 100), [], "the mark may have risen over requests inside");
    assert_eq!(door.on(second(5), Event::Woken), [admit(1)]);
}

#[test]
fn a_mark_that_cannot_be_kept_lets_nobody_in_and_is_tried_again() {
    let mut door = Doorkeeper::new(RULES, term(100), Moment::ZERO);
    arrive(&mut door, 0, 1, 101);
    let refused = Action::Refuse { ticket: Ticket(1), why: TurnedAway::NotKept };
    assert_eq!(door.on(second(0), Event::NotKept), [refused]);
    assert_eq!(arrive(&mut door, 1, 2, 100), [stale(2, 100, 101)], "it is not lowered again");
    assert_eq!(arrive(&mut door, 1, 3, 101), [Action::Keep { mark: term(101) }]);
}

#[test]
fn a_mark_that_somebody_else_raised_turns_those_who_wait_away() {
    let mut door = Doorkeeper::new(RULES, term(100), Moment::ZERO);
    arrive(&mut door, 0, 1, 101);
    let told = door.on(second(1), Event::Kept { mark: term(103) });
    assert_eq!(told, [stale(1, 101, 103)]);
    assert_eq!(door.mark(), term(103));
}

#[test]
fn only_so_many_wait() {
    let mut door = door_with_one_sent();
    for ticket in 2..6 {
        arrive(&mut door, 1, ticket, 101);
    }
    let told = arrive(&mut door, 1, 6, 101);
    let full = |action: &Action| {
        matches!(action, Action::Refuse { ticket: Ticket(6), why: TurnedAway::Full { .. } })
    };
    assert!(told.iter().any(full), "{told:?}");
    assert_eq!(door.waiting_count(), 4);
    door.on(second(1), Event::Left { ticket: Ticket(2) });
    assert_eq!(door.waiting_count(), 3);
}

/// A request as the world sees it: what the doorkeeper was told of it, and until when it may land.
#[derive(Clone, Copy, Debug)]
struct Passed {
    ticket: u64,
    term: u64,
    has_begun: bool,
    is_sent: bool,
    must_close: bool,
    /// Not over: `None`; over: from when on it takes no effect.
    lands_until: Option<Moment>,
}

/// One step of a history; numbers pick among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u64),
    Leave(usize),
    Begin(usize),
    Send(usize),
    Answer(usize),
    Break(usize),
    Obey,
    Keep(bool),
    Wait(u64),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u64..4).prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Leave),
        4 => any::<usize>().prop_map(Step::Begin),
        4 => any::<usize>().prop_map(Step::Send),
        3 => any::<usize>().prop_map(Step::Answer),
        1 => any::<usize>().prop_map(Step::Break),
        3 => Just(Step::Obey),
        4 => prop::bool::weighted(0.85).prop_map(Step::Keep),
        3 => (0_u64..4000).prop_map(Step::Wait),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 0..120)
}

/// The world around a doorkeeper.
struct World {
    door: Doorkeeper,
    now: Moment,
    /// What a crash does not take.
    kept: u64,
    asked: Option<u64>,
    terms: BTreeMap<u64, u64>,
    passed: Vec<Passed>,
    next: u64,
    highest: u64,
    admitted: usize,
}

impl World {
    fn new() -> Self {
        Self {
            door: Doorkeeper::new(RULES, Term::NONE, Moment::ZERO),
            now: second(1),
            kept: 0,
            asked: None,
            terms: BTreeMap::new(),
            passed: Vec::new(),
            next: 1,
            highest: 1,
            admitted: 0,
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        for action in self.door.on(self.now, event) {
            match action {
                Action::Keep { mark } => self.asked = Some(mark.get()),
                Action::Admit { ticket } => self.admit(ticket.0)?,
                Action::Refuse { ticket, why } => {
                    let given = self.terms.remove(&ticket.0).expect("it waits");
                    if let TurnedAway::Term(FenceError::Stale { current, given: told }) = why {
                        prop_assert_eq!(told.get(), given);
                        prop_assert!(given < current.get());
                    }
                }
                Action::Hurry { .. } => {}
                Action::Close { ticket, .. } => {
                    for passed in self.passed.iter_mut().filter(|it| it.ticket == ticket.0) {
                        passed.must_close = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// S3, as the world can judge it.
    fn admit(&mut self, ticket: u64) -> Result<(), TestCaseError> {
        let term = self.terms.remove(&ticket).expect("it was waiting");
        prop_assert!(self.kept >= term, "admitted before its mark was kept");
        for passed in &self.passed {
            prop_assert!(passed.term <= term, "{passed:?} came before {term}");
            if passed.term < term {
                let is_over = passed.lands_until.is_some_and(|until| until <= self.now);
                prop_assert!(is_over, "{passed:?} may still land after {term}");
            }
        }
        self.admitted += 1;
        self.passed.push(Passed {
            ticket,
            term,
            has_begun: false,
            is_sent: false,
            must_close: false,
            lands_until: None,
        });
        Ok(())
    }

    fn pick(&mut self, number: usize) -> Option<&mut Passed> {
        let mut alive: Vec<_> =
            self.passed.iter_mut().filter(|it| it.lands_until.is_none()).collect();
        let count = alive.len();
        (count > 0).then(|| alive.swap_remove(number % count))
    }

    fn end(&mut self, ticket: u64, ended: RequestEnd) -> Result<(), TestCaseError> {
        let until = match ended {
            RequestEnd::Settled => self.now,
            RequestEnd::Unknown => self.now + RULES.settle_for,
        };
        for passed in self.passed.iter_mut().filter(|it| it.ticket == ticket) {
            passed.lands_until = Some(until);
        }
        self.tell(Event::Over { ticket: Ticket(ticket), ended })
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Arrive(above) => {
                // Mostly the present leader, sometimes its predecessor, sometimes the next one.
                let number = (self.highest + above).saturating_sub(2).max(1);
                self.highest = self.highest.max(number);
                let ticket = self.next;
                self.next += 1;
                self.terms.insert(ticket, number);
                self.tell(Event::Arrived { ticket: Ticket(ticket), term: term(number) })
            }
            Step::Leave(number) => {
                let tickets: Vec<u64> = self.terms.keys().copied().collect();
                let Some(&ticket) = tickets.get(number % tickets.len().max(1)) else {
                    return Ok(());
                };
                self.terms.remove(&ticket);
                self.tell(Event::Left { ticket: Ticket(ticket) })
            }
            Step::Begin(number) => {
                let Some(passed) = self.pick(number) else { return Ok(()) };
                passed.has_begun = true;
                Ok(())
            }
            Step::Send(number) => {
                let Some(passed) = self.pick(number).filter(|it| it.has_begun) else {
                    return Ok(());
                };
                passed.is_sent = true;
                let ticket = Ticket(passed.ticket);
                self.tell(Event::Sent { ticket })
            }
            Step::Answer(number) => match self.pick(number).map(|it| (it.ticket, it.is_sent)) {
                Some((ticket, true)) => self.end(ticket, RequestEnd::Settled),
                Some((_, false)) | None => Ok(()),
            },
            Step::Break(number) => match self.pick(number).map(|it| (it.ticket, it.has_begun)) {
                Some((ticket, true)) => self.end(ticket, RequestEnd::Unknown),
                Some((ticket, false)) => self.end(ticket, RequestEnd::Settled),
                None => Ok(()),
            },
            Step::Obey => {
                let told: Vec<_> = self
                    .passed
                    .iter()
                    .filter(|it| it.must_close && it.lands_until.is_none())
                    .map(|it| (it.ticket, it.has_begun))
                    .collect();
                for (ticket, has_begun) in told {
                    self.end(
                        ticket,
                        if has_begun { RequestEnd::Unknown } else { RequestEnd::Settled },
                    )?;
                }
                Ok(())
            }
            Step::Keep(works) => match self.asked.take() {
                Some(mark) if works => {
                    self.kept = self.kept.max(mark);
                    self.tell(Event::Kept { mark: term(mark) })
                }
                Some(_) => self.tell(Event::NotKept),
                None => Ok(()),
            },
            Step::Wait(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.tell(Event::Woken)
            }
            Step::Crash => {
                let settled_at = self.now + RULES.settle_for;
                for passed in self.passed.iter_mut().filter(|it| it.lands_until.is_none()) {
                    passed.lands_until = Some(settled_at);
                }
                self.terms.clear();
                self.asked = None;
                self.door = Doorkeeper::new(RULES, term(self.kept), settled_at);
                Ok(())
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// S3, in front of a resource: whenever a request enters, no request of a lower term can land any more,
    /// through delays, broken connections, marks that cannot be kept, and crashes.
    #[test]
    fn through_any_history_nobody_enters_before_those_below_are_over(history in steps()) {
        let mut world = World::new();
        for step in history {
            world.step(step)?;
        }
    }

    /// The door is never shut for good: once everything below is over and the mark can be kept, whoever
    /// waits or comes under the mark enters.
    #[test]
    fn after_any_history_the_highest_term_enters_in_the_end(history in steps()) {
        let mut world = World::new();
        for step in history {
            world.step(step)?;
        }
        for _ in 0..4 {
            world.step(Step::Wait(20_000))?;
            world.step(Step::Keep(true))?;
            world.step(Step::Obey)?;
        }
        world.step(Step::Wait(20_000))?;
        let before = world.admitted;
        let number = world.door.mark().get().max(1);
        let ticket = world.next;
        world.terms.insert(ticket, number);
        world.tell(Event::Arrived { ticket: Ticket(ticket), term: term(number) })?;
        world.step(Step::Keep(true))?;
        prop_assert_eq!(world.admitted, before + 1);
    }
}
