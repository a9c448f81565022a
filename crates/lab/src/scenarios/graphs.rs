//! Every way in which three replicas can see each other: 64 directed graphs, one after the other.

use super::Scenario;
use crate::dice::Dice;
use crate::world::{Address, World};

/// The directions between three replicas; a graph is a set of them.
const LINKS: [(u64, u64); 6] = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)];
/// How long a graph that can make progress may take: it begins with whoever led in the last one.
const PROGRESS_MS_MAX: u64 = 30_000;

/// All 64.
pub(super) const ALL_OF_THREE: Scenario = Scenario {
    name: "three replicas make progress in every graph of links that has a connected majority",
    replicas: 3,
    plan: |plan| {
        plan.call_every_ms = 100..=400;
        plan.act_every_ms = 200..=500;
    },
    script: all_of_three,
};

fn all_of_three(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(2, 2_000, &groups);
    let mut order: Vec<u32> = (0..64).collect();
    Dice::new(world.history().setup.seed).fork("graphs").shuffle(&mut order);
    for graph in order {
        let is_there = |at: usize| graph & (1 << at) != 0;
        let absent: Vec<(u64, u64)> =
            (0..6).filter(|at| !is_there(*at)).map(|at| LINKS[at]).collect();
        for (from, to) in &absent {
            world.cut(Address::Replica(*from), Address::Replica(*to));
        }
        // Two that hear each other are a majority of three.
        let is_live = [0, 2, 4].into_iter().any(|at| is_there(at) && is_there(at + 1));
        if is_live {
            let is_done = world.writes_within(PROGRESS_MS_MAX);
            assert!(is_done, "no progress without the links {absent:?}");
        } else {
            world.run_for_ms(1_500);
        }
        world.heal_links();
    }
    assert!(world.await_until(20_000, World::is_led), "healed, the group is led");
    world.finish();
}
