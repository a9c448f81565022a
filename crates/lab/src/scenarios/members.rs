//! Replicas that come and go.

use super::{Scenario, as_it_is};
use crate::history::Stage;
use crate::world::World;

/// A lost disk under load.
pub(super) const REPLACED: Scenario = Scenario {
    name: "a replica whose disk is lost is replaced under load",
    replicas: 3,
    plan: as_it_is,
    script: replaced,
};

fn replaced(world: &mut World) {
    let groups = world.group_names(2);
    world.settle(3, 2_000, &groups);
    world.add_caller();
    world.enter(Stage::Chaos, Vec::new());
    for lost in [1, 2, 3] {
        let fresh = world.lose_disk(lost).expect("there is an operator");
        let is_done = world.await_until(30_000, World::is_replaced);
        assert!(is_done, "replica {lost} is replaced by {fresh}");
        world.run_for_ms(500);
    }
    let status = world.leading_status().expect("the cluster has a leader");
    let voters: Vec<u64> = status.voters.iter().map(|id| id.get()).collect();
    assert_eq!(voters, [4, 5, 6], "nobody of the founders is left");
    world.enter(Stage::Core, Vec::new());
    assert!(world.await_until(20_000, World::is_led), "every group is led");
    world.finish();
}

/// The Raft leader itself.
pub(super) const WALK: Scenario = Scenario {
    name: "Raft leadership is handed round and round and no group changes hands",
    replicas: 5,
    plan: as_it_is,
    script: walk,
};

fn walk(world: &mut World) {
    let groups = world.group_names(2);
    world.settle(3, 4_000, &groups);
    let before = world.acting();
    for id in [1, 2, 3, 4, 5, 1] {
        world.let_lead(id);
        world.run_for_ms(300);
    }
    world.run_for_ms(4_000);
    assert_eq!(world.acting(), before, "a change of the Raft leader alone hands no group over");
    world.finish();
}
