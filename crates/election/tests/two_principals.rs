//! Four eyes (semantics 38) against principals that use its rules: who repeats, replaces, displaces and fills up.

#![allow(clippy::unwrap_used, reason = "a test may")]

use regent_election::access::{Binding, Role};
use regent_election::limits::TERM_MAX;
use regent_election::{
    Answer, Command, Door, Entry, Group, Home, Incarnation, Policy, Reason, Refusal, Settings,
    State, StateBudget, StateGrowth, Step, Term,
};

/// A state of version 6, as it was written when a group had one proposal: alice wants to delete "billing".
const VERSION_6: &str = "0680dddb010180897af40380dddb01640000b0ea01000000904e030000010762696c6c696e670001f40380dddb016400\
    00b0ea01020000070100000000000000000001050a757365723a616c6963650401012a010473656c6608757365723a62\
    6f620401012a010473656c660a757365723a6361726f6c0401012a010473656c6609757365723a646f72610401012a01\
    0473656c6608757365723a6576650401012a010473656c6600010762696c6c696e670a757365723a616c696365ee9fd1\
    78c50f879bb160977549908bba5ebe8ef7a0cecdad7c48c6ad9b73422e03";

fn group() -> Group {
    Group::new("billing").unwrap()
}

fn home(name: &str) -> Home {
    Home::new(&format!("memory:{name}")).unwrap()
}

fn put(four_eyes: bool) -> Command {
    let policy = Policy { four_eyes, standbys_max: 7, ..Policy::default() };
    Command::PutPolicy { group: group(), policy: Some(Box::new(policy)) }
}

fn step(step: Step) -> Command {
    Command::Move { group: group(), step }
}

fn down(reason: &str) -> Command {
    let (reason, to) = (Reason::new(reason).unwrap(), None);
    Command::StepDown { group: group(), reason, to, immediate: true }
}

fn delete() -> Command {
    Command::Delete { group: group() }
}

/// A store with these operators, by their roles.
fn store(operators: &[(&str, Role)]) -> State {
    let mut state = State::new(Settings::default());
    let bindings = operators.iter().map(|(who, role)| Binding {
        who: who.parse().unwrap(),
        role: *role,
        groups: vec!["*".parse().unwrap()],
        nodes: vec!["self".parse().unwrap()],
    });
    let bindings = bindings.collect();
    let put = Command::PutBindings { expected_version: 0, bindings };
    state.apply(Entry::bare(put)).answer.unwrap();
    state
}

fn administrators() -> State {
    let names = ["user:alice", "user:bob", "user:carol", "user:dora", "user:eve"];
    store(&names.map(|name| (name, Role::Administrator)))
}

/// The same with a group that needs two of them.
fn guarded() -> State {
    let mut state = administrators();
    ask(&mut state, "user:alice", put(true)).unwrap();
    state
}

fn ask(state: &mut State, who: &str, command: Command) -> Result<Answer, Refusal> {
    let answer = state.apply(Entry::bare(command.on_behalf_of(who.parse().unwrap(), None))).answer;
    assert_eq!(state.check_invariants(), Ok(()));
    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&*state));
    answer
}

fn is_noted(answer: &Result<Answer, Refusal>, by: &str) -> bool {
    matches!(answer, Err(Refusal::SecondApprovalNeeded { by: found, is_other: false, .. })
        if found.to_string() == by)
}

/// The steps of `regent migrate`, up to the first that is refused.
fn migrate(old: &mut State, new: &mut State, who: &str) -> Result<(), Refusal> {
    let policy = Some(Box::new(old.policy(&group()).clone()));
    ask(new, who, step(Step::Expect { from: home("old") }))?;
    let Door::Expected { since, .. } = *new.door(&group()) else { panic!("not expected") };
    ask(new, who, Command::PutPolicy { group: group(), policy })?;
    ask(old, who, step(Step::Depart { to: home("new") }))?;
    let above = old.leader_view(&group(), Incarnation(0)).term;
    ask(new, who, step(Step::Arrive { since, above, heir: None }))?;
    Ok(())
}

#[test]
fn two_operators_that_repeat_each_others_steps_finish_a_move() {
    let (mut old, mut new) = (guarded(), administrators());
    let first = migrate(&mut old, &mut new, "user:alice").map(|()| Answer::Done);
    assert!(is_noted(&first, "user:alice"), "its departure: {first:?}");
    assert_eq!(migrate(&mut old, &mut new, "user:bob"), Ok(()));
    assert_eq!(*old.door(&group()), Door::Moved { to: home("new") });
    assert!(new.door(&group()).is_open() && new.policy(&group()).four_eyes);
    // A step that was taken is no change, whoever repeats it.
    let depart = step(Step::Depart { to: home("new") });
    assert_eq!(ask(&mut old, "user:alice", depart), Ok(Answer::Done));
    assert_eq!(ask(&mut new, "user:carol", put(true)), Ok(Answer::Done));
    assert!(old.waits().next().is_none() && new.waits().next().is_none(), "nothing is proposed");
}

#[test]
fn one_administrator_neither_brings_a_group_back_nor_closes_it() {
    let mut state = guarded();
    let expect = || step(Step::Expect { from: home("new") });
    for _ in 0..2 {
        let closed = ask(&mut state, "user:alice", expect());
        assert!(is_noted(&closed, "user:alice"), "{closed:?}");
        assert!(state.door(&group()).is_open());
    }
    let depart = || step(Step::Depart { to: home("new") });
    assert!(ask(&mut state, "user:bob", depart()).is_err());
    assert_eq!(ask(&mut state, "user:carol", depart()), Ok(Answer::Done));
    let back = ask(&mut state, "user:carol", step(Step::Expect { from: home("new") }));
    assert_eq!(back, Ok(Answer::Done), "alice asked for the same");
    let Door::Expected { since, .. } = *state.door(&group()) else { panic!("not expected") };
    let arrive = Step::Arrive { since, above: Term::NONE, heir: None };
    assert_eq!(ask(&mut state, "user:carol", step(arrive)), Ok(Answer::Done), "two expect it");
    assert!(state.door(&group()).is_open());
}

/// Alice may delete groups and may not move them. Her proposal of a deletion counts, whatever others ask for.
#[test]
fn the_maker_of_a_proposal_is_judged_by_what_it_proposed() {
    let operators = [
        ("user:alice", Role::Operator),
        ("user:bob", Role::Administrator),
        ("user:carol", Role::Operator),
    ];
    let mut state = store(&operators);
    ask(&mut state, "user:alice", put(true)).unwrap();
    let asked = ask(&mut state, "user:alice", delete());
    assert!(is_noted(&asked, "user:alice"), "{asked:?}");
    assert!(ask(&mut state, "user:bob", step(Step::Stop)).is_err());
    assert_eq!(ask(&mut state, "user:carol", delete()), Ok(Answer::Done));
}

#[test]
fn a_principal_that_asks_again_and_again_keeps_no_other_from_proposing() {
    let mut state = guarded();
    for round in 0..20 {
        assert!(ask(&mut state, "user:alice", down(&format!("round {round}"))).is_err());
        assert!(ask(&mut state, "user:alice", step(Step::Stop)).is_err());
    }
    assert_eq!(state.waits().count(), 1, "one place, with the time of the first request");
    let began_at = state.waits().next().unwrap().since;
    assert!(began_at.0 < 5, "{began_at}");
    let asked = ask(&mut state, "user:bob", delete());
    assert!(is_noted(&asked, "user:bob"), "{asked:?}");
    assert!(ask(&mut state, "user:alice", down("once more")).is_err());
    assert_eq!(ask(&mut state, "user:carol", delete()), Ok(Answer::Done));
    assert!(state.waits().next().is_none(), "the group is gone, and what was proposed about it");
}

#[test]
fn a_group_has_a_bounded_number_of_places() {
    let mut state = guarded();
    let names = ["user:alice", "user:bob", "user:carol", "user:dora"];
    for name in names {
        let asked = ask(&mut state, name, down(name));
        assert!(is_noted(&asked, name), "{asked:?}");
    }
    let bytes = state.bytes();
    let full = ask(&mut state, "user:eve", down("one more"));
    let Err(Refusal::SecondApprovalNeeded { by, is_other: true, .. }) = full else {
        panic!("{full:?}")
    };
    assert_eq!(by.to_string(), "user:alice", "the oldest");
    assert_eq!(state.bytes(), bytes);
    // Two machines' users are one principal, and confirm nothing of their own.
    assert!(ask(&mut state, "local:root", delete()).is_err());
    assert_eq!(ask(&mut state, "user:eve", down("user:dora")), Err(nobody_leads()));
}

fn nobody_leads() -> Refusal {
    Refusal::NobodyLeads { group: group() }
}

#[test]
fn a_default_policy_guards_groups_that_have_no_state() {
    let mut state = administrators();
    let mut settings = Settings::default();
    settings.default_policy.four_eyes = true;
    let settings = Command::PutSettings { settings: Box::new(settings) };
    ask(&mut state, "user:alice", settings).unwrap();
    for command in [
        put(false),
        Command::PutPolicy { group: group(), policy: None },
        step(Step::Expect { from: home("new") }),
        step(Step::Depart { to: home("new") }),
        step(Step::Stop),
    ] {
        let asked = ask(&mut state, "user:alice", command.clone());
        assert!(is_noted(&asked, "user:alice"), "{command:?}: {asked:?}");
        assert!(!state.knows(&group()));
    }
    // What needs the group is refused, and nothing is kept of it.
    let unknown = Err(Refusal::GroupUnknown { group: group() });
    assert_eq!(ask(&mut state, "user:bob", delete()), unknown);
    assert_eq!(ask(&mut state, "user:bob", step(Step::Stop)), Ok(Answer::Done));
    assert!(state.knows(&group()) && state.waits().next().is_none());
}

/// A proposal is kept by the store like everything else: in an over-full store it is refused, except for a deletion.
#[test]
fn proposals_are_counted_by_the_budget() {
    let mut state = guarded();
    let full = state.bytes() / 2;
    let check = |command: Command| {
        let command = command.on_behalf_of("user:alice".parse().unwrap(), None);
        state.check_budget(&command, None, StateGrowth::default(), StateBudget::whole(full))
    };
    let refused = check(down("x"));
    assert!(matches!(refused, Err(Refusal::StateFull { adds, .. }) if adds > 700), "{refused:?}");
    let refused = check(step(Step::Stop));
    assert!(matches!(refused, Err(Refusal::StateFull { adds, .. }) if adds > 700), "{refused:?}");
    assert!(check(delete()).unwrap().state > 700, "taken, and counted");
    // Bob would confirm it, and Alice asks again: neither adds a proposal.
    let (bytes, adds) = (state.bytes(), check(delete()).unwrap().state);
    assert!(ask(&mut state, "user:alice", delete()).is_err());
    assert!((700..=adds).contains(&(state.bytes() - bytes)));
    for name in ["user:alice", "user:bob"] {
        let command = delete().on_behalf_of(name.parse().unwrap(), None);
        let none = StateGrowth::default();
        let taken = state.check_budget(&command, None, none, StateBudget::whole(full));
        assert_eq!(taken, Ok(none), "{name}");
    }
}

/// One arrival with the highest term would leave none, and its deletion none to any group.
#[test]
fn an_arrival_leaves_at_least_half_of_all_terms() {
    let mut state = administrators();
    let arrive = |state: &mut State, above: u64| {
        ask(state, "user:alice", step(Step::Expect { from: home("new") })).unwrap();
        let Door::Expected { since, .. } = *state.door(&group()) else { panic!("not expected") };
        let above = Term::new(above).unwrap();
        ask(state, "user:alice", step(Step::Arrive { since, above, heir: None }))
    };
    for above in [TERM_MAX, TERM_MAX - 1, TERM_MAX / 2 + 2] {
        let refused = arrive(&mut state, above).unwrap_err().to_string();
        assert!(refused.contains(&format!("term {above} is above")), "{refused}");
        assert_eq!(state.leader_view(&group(), Incarnation(0)).term, Term::NONE);
    }
    assert_eq!(arrive(&mut state, TERM_MAX / 2), Ok(Answer::Done));
    assert_eq!(state.leader_view(&group(), Incarnation(0)).term.get(), TERM_MAX / 2);
}

/// Snapshots of the version before are read, and written as they were while nothing needs the later one.
#[test]
fn a_state_of_version_6_keeps_its_proposal() {
    let digits = VERSION_6.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.map(byte).collect();
    assert_eq!(bytes[0], 6);
    let mut state = State::decode(&bytes).unwrap();
    assert!(state.encode() == bytes, "it is told in the version that it was");
    let mut made = guarded();
    assert!(ask(&mut made, "user:alice", delete()).is_err());
    // It says who proposed what, and not who made the group: nobody is charged for that.
    assert!(state.waits().eq(made.waits()) && state.access() == made.access());
    let alice = "user:alice".parse().unwrap();
    assert!(state.bytes_of(&alice) > 1000 && made.bytes_of(&alice) > state.bytes_of(&alice));
    let other = ask(&mut state, "user:bob", down("x"));
    assert!(is_noted(&other, "user:bob"), "{other:?}");
    assert_eq!(state.encode()[0], 7, "two proposals of one group");
    assert_eq!(ask(&mut state, "user:carol", delete()), Ok(Answer::Done));
}
