//! The moment at which a session ends, and what may arrive around it.

use super::{Scenario, as_it_is};
use crate::world::{Address, World};

/// A slow holder and a fast store.
pub(super) const CLOCKS_APART: Scenario = Scenario {
    name: "a holder with the slowest clock stops before the fastest store grants again",
    replicas: 3,
    plan: as_it_is,
    script: clocks_apart,
};

fn clocks_apart(world: &mut World) {
    const TTL_MS: u64 = 8_000;
    let bound = i64::from(world.history().setup.drift_ppm);
    let groups = world.group_names(1);
    let people = world.settle(2, TTL_MS, &groups);
    for id in world.up() {
        world.set_clock_rate(Address::Replica(id), bound);
    }
    for number in people {
        world.set_clock_rate(Address::Client(number), -bound);
    }
    for _ in 0..2 {
        world.run_for_ms(TTL_MS);
        let holder = world.leader_of(&groups[0]).expect("the group is led");
        // It falls silent right after an acknowledged heartbeat; its clock runs on, and so does its
        // right to act.
        world.pause_client(holder);
        let is_taken = world.await_until(3 * TTL_MS, |world| {
            world.leader_of(&world.group_names(1)[0]).is_some_and(|number| number != holder)
        });
        assert!(is_taken, "another one leads after the ttl");
        world.resume_client(holder);
    }
    world.finish();
}

/// A heartbeat between the proposal of an expiry and its commit.
pub(super) const MEETS_ITS_EXPIRY: Scenario = Scenario {
    name: "a heartbeat that meets a proposed expiry is not acknowledged",
    replicas: 3,
    // A slow disk lies between the proposal and the commit.
    plan: |plan| plan.disk.sync_ns = 15_000_000..=40_000_000,
    script: meets_its_expiry,
};

fn meets_its_expiry(world: &mut World) {
    world.be_quiet();
    for at_ms in (995..1_045).step_by(5) {
        late_heartbeat(world, at_ms, None);
    }
    world.finish();
}

/// A heartbeat that waits in the inbox of a slow loop while its deadline passes.
pub(super) const IN_THE_INBOX: Scenario = Scenario {
    name: "a heartbeat that has arrived counts although its loop comes round after the deadline",
    replicas: 3,
    plan: as_it_is,
    script: in_the_inbox,
};

fn in_the_inbox(world: &mut World) {
    world.be_quiet();
    for at_ms in (900..990).step_by(10) {
        late_heartbeat(world, at_ms, Some(200));
    }
    world.finish();
}

/// A bare session of ttl 1 s renews so long after it was opened, with the Raft leader perhaps paused
/// from just before. Nobody else has a ttl so short that the pause counts as sleep.
fn late_heartbeat(world: &mut World, at_ms: u64, pause_ms: Option<u64>) {
    let groups = world.group_names(1);
    let caller = world.add_caller();
    let rival = world.add_caller();
    assert!(world.await_leader(5_000).is_some(), "a healthy cluster elects");
    let opened_at = world.now();
    let Some(won) = world.win_bare(caller, &groups[0]) else {
        world.run_for_ms(1_500);
        return;
    };
    let leader = world.serving()[0];
    if pause_ms.is_some() {
        world.run_until(opened_at + (at_ms - 20) * 1_000_000);
        world.pause_replica(leader);
    }
    world.run_until(opened_at + at_ms * 1_000_000);
    world.renew_bare(caller, &groups[0], won);
    if let Some(ms) = pause_ms {
        world.run_for_ms(ms);
        world.resume_replica(leader);
    }
    world.run_for_ms(20);
    // Whether the session has ended is for the store to say; a rival asks it again and again.
    for _ in 0..20 {
        let _ = world.win_bare(rival, &groups[0]);
        world.run_for_ms(100);
    }
}

/// One node leads many groups and dies.
pub(super) const CROWD: Scenario = Scenario {
    name: "a node that led many groups is succeeded in all of them at once",
    replicas: 3,
    plan: as_it_is,
    script: crowd,
};

fn crowd(world: &mut World) {
    const GROUPS: u32 = 80;
    const TTL_MS: u64 = 4_000;
    let groups = world.group_names(GROUPS);
    let first = world.settle(1, TTL_MS, &groups)[0];
    let standbys: Vec<u32> = (0..2).map(|_| world.add_member(TTL_MS, groups.clone())).collect();
    for number in &standbys {
        world.give_ears(*number);
    }
    world.run_for_ms(TTL_MS);
    let led = world.acting();
    assert!(led.iter().all(|(number, _)| *number == first), "standbys depose nobody");
    let died_at = world.now();
    world.kill_client(first);
    let is_taken = world.await_until(3 * TTL_MS, |world| world.acting().len() == led.len());
    assert!(is_taken, "only {} of {} groups are led again", world.acting().len(), led.len());
    let after_ms = (world.now() - died_at) / 1_000_000;
    // One entry ends them all; acceptances follow, a session each.
    assert!(after_ms < TTL_MS + 2_000, "all were succeeded only after {after_ms} ms");
    world.resign_all();
    assert!(world.await_until(2 * TTL_MS, World::is_led), "all are handed over");
    world.finish();
}
