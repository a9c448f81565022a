//! Processes that stand still while their clocks run: garbage collection, SIGSTOP, a suspended machine.

use super::{Scenario, as_it_is};
use crate::world::{Address, World};

const TTL_MS: u64 = 4_000;

/// The Raft leader pauses.
pub(super) const RAFT_LEADER: Scenario = Scenario {
    name: "a paused Raft leader is succeeded and no group changes hands",
    replicas: 3,
    plan: as_it_is,
    script: raft_leader,
};

fn raft_leader(world: &mut World) {
    let groups = world.group_names(2);
    world.settle(3, TTL_MS, &groups);
    let before = world.acting();
    let leader = world.await_leader(5_000).expect("a healthy cluster has one");
    let paused_at = world.now();
    world.pause_replica(leader);
    world.run_for_ms(2_500);
    let elected = world.raft_leaders_since(paused_at);
    assert!(!elected.is_empty() && !elected.contains(&leader), "{elected:?} were elected");
    world.resume_replica(leader);
    // It still believes to lead when it wakes, and is asked before it hears otherwise.
    let caller = world.add_caller();
    world.read_at(caller, leader, &groups[0]);
    world.run_for_ms(2_500);
    assert_eq!(world.acting(), before, "a change of the Raft leader alone hands no group over");
    world.finish();
}

/// The leader of a group pauses.
pub(super) const GROUP_LEADER: Scenario = Scenario {
    name: "a paused group leader is succeeded after a whole ttl and has lost when it wakes",
    replicas: 3,
    plan: as_it_is,
    script: group_leader,
};

fn group_leader(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(3, TTL_MS, &groups);
    let holder = world.leader_of(&groups[0]).expect("the group is led");
    let paused_at = world.now();
    world.pause_client(holder);
    let is_taken = world.await_until(3 * TTL_MS, |world| {
        world.leader_of(&world.group_names(1)[0]).is_some_and(|number| number != holder)
    });
    assert!(is_taken, "another one leads after the ttl");
    let after_ms = (world.now() - paused_at) / 1_000_000;
    // The last heartbeat may have left up to a third of the ttl before the pause.
    assert!(after_ms > TTL_MS / 2, "it was succeeded {after_ms} ms after its pause began");
    let next = world.leader_of(&groups[0]);
    world.run_for_ms(TTL_MS);
    world.resume_client(holder);
    world.run_for_ms(TTL_MS);
    assert_eq!(world.leader_of(&groups[0]), next, "one that wakes up deposes nobody");
    world.finish();
}

/// All replicas sleep.
pub(super) const STORE_SLEPT: Scenario = Scenario {
    name: "a store that slept expires nobody who is alive",
    replicas: 3,
    plan: as_it_is,
    script: store_slept,
};

fn store_slept(world: &mut World) {
    let groups = world.group_names(2);
    let people = world.settle(3, TTL_MS, &groups);
    // Heartbeats are a third of a ttl apart, so with this pause every lease outlives it.
    let before = world.acting();
    for _ in 0..3 {
        sleep(world, TTL_MS * 4 / 10);
        world.run_for_ms(TTL_MS);
        assert_eq!(world.acting(), before, "the store slept for less than a ttl: nothing changes");
    }
    // A longer one ends every lease; a machine that is suspended does not even receive. The store heard
    // nobody, and judges nobody by it.
    let links: Vec<(Address, Address)> = people
        .iter()
        .flat_map(|number| (1..=3).map(|id| (Address::Client(*number), Address::Replica(id))))
        .collect();
    for (client, replica) in &links {
        world.cut(*client, *replica);
    }
    sleep(world, 3 * TTL_MS);
    for (client, replica) in &links {
        world.heal(*client, *replica);
    }
    assert!(world.await_until(4 * TTL_MS, World::is_led), "all groups are led again");
    world.finish();
}

fn sleep(world: &mut World, ms: u64) {
    let all = world.up();
    for id in &all {
        world.pause_replica(*id);
    }
    world.run_for_ms(ms);
    for id in &all {
        world.resume_replica(*id);
    }
}

/// A group's leader hears nothing, but is heard.
pub(super) const DEAF_LEADER: Scenario = Scenario {
    name: "a leader that is heard and hears nothing stops and is succeeded",
    replicas: 3,
    plan: as_it_is,
    script: deaf_leader,
};

fn deaf_leader(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(2, TTL_MS, &groups);
    let holder = world.leader_of(&groups[0]).expect("the group is led");
    let replicas = world.up();
    for id in &replicas {
        world.cut(Address::Replica(*id), Address::Client(holder));
    }
    // Its heartbeats arrive and keep its session, and with it the office, although it has lost it.
    let has_lost =
        world.await_until(2 * TTL_MS, |world| world.leader_of(&world.group_names(1)[0]).is_none());
    assert!(has_lost, "without an answer a lease ends");
    world.run_for_ms(TTL_MS);
    for id in &replicas {
        world.heal(Address::Replica(*id), Address::Client(holder));
    }
    let next = world.await_leader_of(&groups[0], 3 * TTL_MS);
    assert!(next.is_some(), "an office that nobody fills is given to another");
    world.finish();
}
