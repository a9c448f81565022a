//! What a store that is over its budget still takes, and that nothing grows it without being counted.

#![allow(clippy::unwrap_used, reason = "a test may")]

use regent_election::limits::METADATA_BYTES_MAX;
use regent_election::{
    Answer, Command, Entry, Group, Home, IfLost, Metadata, Node, Refusal, RequestId, SessionId,
    Settings, State, StateBudget, StateGrowth, Step, Term,
};

const TTL_MS: u64 = 10_000;
/// Nothing is proposed that is not applied.
const NONE: StateGrowth = StateGrowth { state: 0, share: 0 };

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn open(number: u128) -> Command {
    let node = Node::new(&format!("n{number}")).unwrap();
    Command::Open { session: session(number), node, ttl_ms: TTL_MS }
}

fn campaign(number: u128, name: &str, metadata: Metadata) -> Command {
    Command::Campaign {
        group: group(name),
        session: session(number),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata,
    }
}

/// As much as one candidate may tell.
fn large() -> Metadata {
    let key = |number: usize| (format!("k{number}"), "x".repeat(200));
    Metadata::new((0..METADATA_BYTES_MAX / 256).map(key)).unwrap()
}

fn withdraw(number: u128, name: &str) -> Command {
    Command::Withdraw { group: group(name), session: session(number) }
}

fn step(name: &str, step: Step) -> Command {
    Command::Move { group: group(name), step }
}

/// A store with a budget.
struct Store(State);

impl Store {
    /// A state in which session 1 leads "billing".
    fn led() -> (Self, Term) {
        let mut store = Self(State::new(Settings::default()));
        store.apply(open(1), None).unwrap();
        let won = store.apply(campaign(1, "billing", Metadata::NONE), None).unwrap();
        let Answer::Elected { term, .. } = won else { panic!("{won:?}") };
        (store, term)
    }

    fn apply(&mut self, command: Command, request: Option<RequestId>) -> Result<Answer, Refusal> {
        let applied = self.0.apply(Entry { request, ..Entry::bare(command) });
        assert_eq!(self.0.check_invariants(), Ok(()));
        applied.answer
    }

    fn request(&self, number: u32) -> RequestId {
        RequestId::new(self.0.revision(), &format!("r{number}")).unwrap()
    }

    /// A store that is far over its budget, also over its reserve, asks this first.
    fn submit(&mut self, command: Command, request: Option<RequestId>) -> Result<Answer, Refusal> {
        self.0.check_budget(
            &command,
            request.as_ref(),
            NONE,
            StateBudget::whole(self.0.bytes() / 2),
        )?;
        self.apply(command, request)
    }
}

/// A leader that repeats what is free of charge, under another request id each time, adds nothing that is not counted.
#[test]
fn request_ids_do_not_grow_a_store_that_is_full() {
    let (mut store, term) = Store::led();
    store.apply(open(2), None).unwrap();
    store.apply(campaign(2, "billing", Metadata::NONE), None).unwrap();
    let resign = Command::Resign { group: group("billing"), session: session(1), term };
    assert_eq!(store.submit(resign, None), Ok(Answer::Done));
    // The standby that follows must be able to accept, also if its answer is lost.
    let term = term.next().unwrap();
    let accept = || Command::Accept { group: group("billing"), session: session(2), term };
    let request = store.request(0);
    assert_eq!(store.submit(accept(), Some(request.clone())), Ok(Answer::Done));
    assert_eq!(store.submit(accept(), Some(request)), Ok(Answer::Done), "a repeat");
    assert_eq!(store.submit(accept(), None), Ok(Answer::Done), "it adds no id");
    let before = store.0.bytes();
    for number in 1..200 {
        let other = store.request(number);
        let refused = store.submit(accept(), Some(other));
        assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
    }
    assert_eq!(store.0.bytes(), before);
    // The first one ends the tenure; those that follow have nothing to end.
    let request = store.request(900);
    assert!(store.submit(withdraw(2, "billing"), Some(request.clone())).is_ok());
    let after = store.0.bytes();
    for number in 901..1000 {
        let other = store.request(number);
        let refused = store.submit(withdraw(2, "billing"), Some(other));
        assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
    }
    assert!(store.submit(withdraw(2, "billing"), Some(request)).is_ok(), "a repeat");
    assert!(store.submit(withdraw(2, "billing"), None).is_ok(), "it adds no id");
    assert_eq!(store.0.bytes(), after);
}

/// Who leads and asks again adds nothing; but once its tenure is ending it stands in line, with whatever it tells.
#[test]
fn a_holder_whose_tenure_is_ending_is_counted_when_it_stands_again() {
    let (mut store, _) = Store::led();
    let again = || campaign(1, "billing", large());
    assert!(matches!(store.submit(again(), None), Ok(Answer::Elected { .. })));
    store.apply(withdraw(1, "billing"), None).unwrap();
    let before = store.0.bytes();
    let refused = store.submit(again(), None);
    assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
    assert_eq!(store.0.bytes(), before);
    let adds =
        store.0.check_budget(&again(), None, NONE, StateBudget::whole(u64::MAX)).unwrap().state;
    store.apply(again(), None).unwrap();
    assert!(store.0.bytes() - before <= adds, "{} > {adds}", store.0.bytes() - before);
}

/// A group that nobody can lead until a step is made must not wait for room.
#[test]
fn a_full_store_still_resumes_and_takes_in_and_lets_go() {
    let (mut store, term) = Store::led();
    let home = || Home::new("https://other.example:7400").unwrap();
    store.apply(step("billing", Step::Stop), None).unwrap();
    let stopped_at = store.0.revision();
    store.apply(step("coming", Step::Expect { from: home() }), None).unwrap();
    let expected_at = store.0.revision();
    assert!(store.submit(step("billing", Step::Resume { since: stopped_at }), None).is_ok());
    let arrive = Step::Arrive { since: expected_at, above: term, heir: None };
    assert_eq!(store.submit(step("coming", arrive), None), Ok(Answer::Done));
    // It makes room: the office and the line end.
    assert!(store.submit(step("billing", Step::Depart { to: home() }), None).is_ok());
    let refused = store.submit(step("new", Step::Expect { from: home() }), None);
    assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
    let refused = store.submit(step("new", Step::Depart { to: home() }), None);
    assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
}

/// What took effect is not FULL when it is asked for again, whoever asked.
#[test]
fn a_repeat_without_a_session_is_not_refused_for_want_of_room() {
    let (mut store, _) = Store::led();
    let request = store.request(1);
    let put = || Command::PutPolicy { group: group("new"), policy: Some(Box::default()) };
    assert_eq!(store.apply(put(), Some(request.clone())), Ok(Answer::Done));
    store.apply(Command::Delete { group: group("new") }, None).unwrap();
    assert_eq!(store.submit(put(), Some(request)), Ok(Answer::Done));
    let other = store.request(2);
    let refused = store.submit(put(), Some(other));
    assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
}

/// L1: whoever led before can lead again in a store that is filled to the last byte, and histories, which grow by
/// themselves, do not make it outgrow its budget.
#[test]
fn a_leader_that_resigned_can_stand_again_in_a_full_store() {
    let (mut store, mut term) = Store::led();
    store.apply(open(2), None).unwrap();
    for number in 0..100 {
        let other = Command::PutPolicy { group: group(&format!("g{number}")), policy: None };
        store.apply(other, None).unwrap();
    }
    let bytes_max = store.0.bytes();
    for _ in 0..20 {
        let resign = Command::Resign { group: group("billing"), session: session(1), term };
        store.apply(resign, None).unwrap();
        let again = campaign(1, "billing", Metadata::NONE);
        let taken = store.0.check_budget(&again, None, NONE, StateBudget::whole(bytes_max));
        assert!(taken.is_ok(), "{taken:?} of {bytes_max}");
        let before = store.0.bytes();
        let won = store.apply(again, None).unwrap();
        assert!(store.0.bytes() - before <= taken.unwrap().state, "no more than was counted");
        let Answer::Elected { term: next, .. } = won else { panic!("{won:?}") };
        term = next;
    }
    assert!(store.0.bytes() <= bytes_max, "histories have grown within their room");
    for refused in [campaign(2, "billing", Metadata::NONE), campaign(2, "new", Metadata::NONE)] {
        let refused = store.0.check_budget(&refused, None, NONE, StateBudget::whole(bytes_max));
        assert!(matches!(refused, Err(Refusal::StateFull { .. })), "{refused:?}");
    }
}
