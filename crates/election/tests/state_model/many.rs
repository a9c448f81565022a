//! A session with 100,000 groups goes in one entry, whole or in slices.

use regent_election::store::OfficeState;
use regent_election::{
    Applied, Cause, Command, Effect, Entry, Group, IfLost, Metadata, Opening, Settings, State,
    WaitKind,
};

use super::world::{node, secret};

const GROUPS: usize = 100_000;
const SLICE: usize = 1_000;

fn campaign(group: &Group, slot: u8) -> Entry {
    Entry::bare(Command::Campaign {
        group: group.clone(),
        session: secret(slot, 0),
        opening: Some(Opening { node: node(slot), ttl_ms: None, passing: false }),
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    })
}

/// One session leads everywhere, another stands everywhere.
fn crowded() -> (State, Vec<Group>) {
    let mut state = State::new(Settings::default());
    let groups: Vec<Group> =
        (0..GROUPS).map(|number| Group::new(&format!("g/{number:06}")).unwrap()).collect();
    for slot in [0, 1] {
        for group in &groups {
            state.apply(campaign(group, slot)).answer.unwrap();
        }
    }
    (state, groups)
}

fn check(state: &State, groups: &[Group], applied: &Applied) {
    let next = state.find_session(secret(1, 0)).unwrap();
    assert_eq!(state.find_session(secret(0, 0)), None);
    assert_eq!(applied.events.len(), GROUPS);
    for ((event, ordinal), group) in applied.events.iter().zip(0..).zip(groups) {
        assert_eq!((&event.group, event.ordinal), (group, ordinal));
        assert_eq!((event.term.get(), event.cause), (2, Cause::Expired));
        assert_eq!(event.leader.as_ref(), Some(&node(1)));
        let holder = state.holder(group).unwrap();
        assert_eq!((holder.session, holder.term.get()), (next, 2));
        assert_eq!(holder.state, OfficeState::Elected);
    }
    let waits = applied.effects.iter().filter(|effect| match effect {
        Effect::Wait { kind, .. } => *kind == WaitKind::Acceptance,
        Effect::SessionOpened { .. }
        | Effect::TtlChanged { .. }
        | Effect::SessionEnded { .. }
        | Effect::WaitDropped { .. }
        | Effect::Office { .. } => false,
    });
    assert_eq!(waits.count(), GROUPS);
    assert_eq!(state.led_by(next).count(), GROUPS);
    assert_eq!(state.check_invariants(), Ok(()));
}

#[test]
fn a_session_with_100_000_groups_is_succeeded_by_one_entry_whole_or_in_slices() {
    let (mut whole, groups) = crowded();
    let mut sliced = whole.clone();
    let expired = whole.find_session(secret(0, 0)).unwrap();
    let entry = Entry::bare(Command::Expire { sessions: vec![expired] });

    let applied = whole.apply(entry.clone());
    check(&whole, &groups, &applied);

    sliced.begin(entry);
    let mut slices = 1;
    let in_slices = loop {
        if let Some(applied) = sliced.advance(SLICE) {
            break applied;
        }
        slices += 1;
    };
    assert!((GROUPS / SLICE..=GROUPS / SLICE + 1).contains(&slices), "{slices} slices");
    // Not `assert_eq`: nobody wants to read the difference of two such states.
    assert!(in_slices == applied, "the entry brought about something else in slices");
    assert!(sliced == whole, "the state differs after slices");
}
