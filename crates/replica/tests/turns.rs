//! How much one turn of the core may do, however many groups there are (semantics 24, 25).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::collections::BTreeMap;

use raft::eraftpb::{ConfState, HardState, SnapshotMetadata};
use regent_election::{
    Cause, Command, Entry, Group, IfLost, Metadata, Moment, Node, SessionId, Settings,
};
use regent_replica::io::Input;
use regent_replica::limits::{APPLY_EFFECTS_PER_SLICE, APPLY_GROUPS_PER_SLICE};
use regent_replica::{Core, CoreConfig, Member, Recovered, ReplicaId, ReplicatedState, Role};

/// Groups of the session that expires. Optimised, the store holds a million beside them.
const LED: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
const OTHERS: usize = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
/// Sessions that lead the others.
const SESSIONS: usize = 10;

fn session(number: u128) -> SessionId {
    SessionId::new(number).unwrap()
}

fn node(text: &str) -> Node {
    Node::new(text).unwrap()
}

fn run(replicated: &mut ReplicatedState, command: Command) {
    let entry = Entry { command, request: None, silent: Vec::new(), wall_ms: 0 };
    replicated.state.apply(entry).answer.unwrap();
}

fn campaign(replicated: &mut ReplicatedState, group: &str, who: u128) {
    let command = Command::Campaign {
        group: Group::new(group).unwrap(),
        session: session(who),
        opening: None,
        if_lost: IfLost::Stand,
        priority: 0,
        metadata: Metadata::NONE,
    };
    run(replicated, command);
}

/// A store in which session 1 leads many groups, session 2 stands in all of them, and others lead a
/// great many more.
fn crowded() -> ReplicatedState {
    let id = ReplicaId::new(1).unwrap();
    let member = Member {
        peer_address: "peer-1".into(),
        client_address: "client-1".into(),
        is_witness: false,
    };
    let mut replicated =
        ReplicatedState::found(Settings::default(), BTreeMap::from([(id, member)]));
    let open = |number: u128, ttl_ms| Command::Open {
        session: session(number),
        node: node(&format!("n{number}")),
        ttl_ms,
    };
    run(&mut replicated, open(1, 1000));
    for number in 2..3 + SESSIONS as u128 {
        run(&mut replicated, open(number, 3_600_000));
    }
    for at in 0..LED {
        campaign(&mut replicated, &format!("led/{at}"), 1);
        campaign(&mut replicated, &format!("led/{at}"), 2);
    }
    for at in 0..OTHERS {
        campaign(&mut replicated, &format!("other/{at}"), 3 + (at % SESSIONS) as u128);
    }
    replicated
}

/// The only voter, which therefore leads as soon as its patience is over.
fn alone(replicated: ReplicatedState, now: Moment) -> Core {
    let mut place = SnapshotMetadata::default();
    place.index = 1;
    place.term = 1;
    place.set_conf_state(ConfState { voters: vec![1], ..ConfState::default() });
    let mut hard_state = HardState::default();
    (hard_state.term, hard_state.commit) = (1, 1);
    let recovered = Recovered { hard_state, place, replicated, entries: Vec::new() };
    Core::new(CoreConfig::new(ReplicaId::new(1).unwrap(), 1, 7), recovered, now).unwrap()
}

/// S-promises need whole entries, heartbeats need short turns: so a crashed leader's groups are
/// succeeded in one entry, over as many turns as its size asks for.
#[test]
fn no_turn_does_more_than_a_slice_of_a_large_entry() {
    let mut now = Moment::from_millis(1000);
    let mut core = alone(crowded(), now);
    let mut turns_with_work_left = 0;
    let succeeded = loop {
        let outputs = core.turn(now);
        for batch in &outputs.batches {
            core.on(now, Input::Persisted { batch: batch.number });
        }
        let expired = outputs
            .events
            .iter()
            .map(|(_, events)| events.iter().filter(|event| event.cause == Cause::Expired).count())
            .sum::<usize>();
        if expired > 0 {
            break expired;
        }
        if core.next_at() > now {
            turns_with_work_left = 0;
            now = core.next_at();
        } else {
            turns_with_work_left += 1;
        }
        assert!(now < Moment::from_millis(60_000), "nobody was succeeded in a minute");
    };
    assert_eq!(core.status().role, Role::Leader);
    assert_eq!(succeeded, LED, "all of them, at one revision");
    // Every promotion is a change of the state, and then a wait for its acceptance to be timed.
    let least = LED / APPLY_GROUPS_PER_SLICE + LED / APPLY_EFFECTS_PER_SLICE;
    assert!(
        turns_with_work_left >= least,
        "{LED} groups in {turns_with_work_left} turns: more than a slice in one"
    );
}
