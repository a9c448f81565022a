//! Windows of request ids that overflow: what is forgotten is refused, never run again (S9).
//!
//! Random sequences are too short to fill a window; these fill it and then agree with the model on
//! every entry as the sequences do.

use regent_election::limits::{REQUESTS_PER_SESSION, REQUESTS_WITHOUT_SESSION};
use regent_election::{
    Answer, Command, Entry, IfLost, Metadata, Opening, Policy, Refusal, RequestId, Revision,
    Settings, State,
};

use super::world::{World, group, node, secret};

fn with_id(command: Command, seen: u64, nonce: &str) -> Entry {
    let request = Some(RequestId::new(Revision(seen), nonce).unwrap());
    Entry { request, ..Entry::bare(command) }
}

#[test]
fn a_session_remembers_so_many_requests_and_refuses_what_it_forgot() {
    let mut world = World::new();
    let open = Command::Open { session: secret(0, 0), node: node(0), ttl_ms: 1000 };
    world.take(Entry::bare(open)).unwrap();
    let campaign = Command::Campaign {
        group: group(0),
        session: secret(0, 0),
        opening: Some(Opening { node: node(0), ttl_ms: None, passing: false }),
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    };
    let first = with_id(campaign, 1, "first");
    world.take(first.clone()).unwrap();
    let withdraw = |at: u64| {
        let command = Command::Withdraw { group: group(1), session: secret(0, 0) };
        with_id(command, at, &format!("w{at}"))
    };
    for at in 2..=REQUESTS_PER_SESSION as u64 + 3 {
        world.take(withdraw(at)).unwrap();
        world.take(first.clone()).unwrap();
    }
    let state = &mut world.state.clone();
    let again = state.apply(first.clone()).answer;
    assert!(matches!(again, Err(Refusal::RequestTooOld { .. })), "{again:?}");
    // It goes with the session, and so does the office it had won.
    world.take(Entry::bare(Command::Close { session: secret(0, 0) })).unwrap();
    world.take(first).unwrap();
}

#[test]
fn the_store_remembers_so_many_requests_without_a_session() {
    let mut state = State::new(Settings::default());
    let put = |standbys_max: u32| Command::PutPolicy {
        group: group(0),
        policy: Some(Box::new(Policy { standbys_max, ..Policy::default() })),
    };
    let first = with_id(put(1), 0, "first");
    assert_eq!(state.apply(first.clone()).answer, Ok(Answer::Done));
    for number in 1..REQUESTS_WITHOUT_SESSION as u64 {
        let later = with_id(put(2), number, "later");
        assert_eq!(state.apply(later).answer, Ok(Answer::Done));
    }
    assert_eq!(state.apply(first.clone()).answer, Ok(Answer::Done), "the last one it remembers");
    assert_eq!(state.policy(&group(0)).standbys_max, 2, "and it does not run again");

    let mut restored = State::decode(&state.encode()).unwrap();
    assert_eq!(restored, state);
    for state in [&mut state, &mut restored] {
        let seen = state.revision().0;
        state.apply(with_id(put(2), seen, "last"));
        let again = state.apply(first.clone()).answer;
        assert!(matches!(again, Err(Refusal::RequestTooOld { .. })), "{again:?}");
        assert_eq!(state.policy(&group(0)).standbys_max, 2);
    }
    assert_eq!(restored, state);
}
