//! Five replicas in parts.

use super::{Scenario, as_it_is};
use crate::world::{Address, World};

/// By then a Raft leader that has lost its quorum has noticed.
const NOTICED_MS: u64 = 700;
/// By then a majority that lost its Raft leader has another one, split votes included.
const ELECTED_MS_MAX: u64 = 5_000;
const TTL_MS: u64 = 2_000;

/// \[A,B\] | \[C,D,E\].
pub(super) const MAJORITY_SIDE: Scenario = Scenario {
    name: "the majority side of a partition elects and the minority never does",
    replicas: 5,
    plan: as_it_is,
    script: majority_side,
};

fn majority_side(world: &mut World) {
    let groups = world.group_names(1);
    let people = world.settle(2, TTL_MS, &groups);
    let (left, right) = ([1, 2], [3, 4, 5]);
    world.let_lead(1);
    let parted_at = world.now();
    world.split(&[&left, &right]);
    // The group's leader is on the left, too; its rival on the right.
    let holder = world.leader_of(&groups[0]).expect("the group is led");
    let rival = people.into_iter().find(|number| *number != holder).expect("there are two");
    for id in right {
        part_client(world, holder, id);
    }
    for id in left {
        part_client(world, rival, id);
    }
    let taken_over = world.await_until(ELECTED_MS_MAX + 3 * TTL_MS, |world| {
        world.leader_of(&group(world)) == Some(rival)
    });
    assert!(taken_over, "the right side elects, and its candidate wins");
    world.run_for_ms(3_000);
    assert!(world.serving().iter().all(|id| right.contains(id)), "{:?} serve", world.serving());
    let elected = world.raft_leaders_since(parted_at);
    assert!(elected.iter().all(|id| right.contains(id)), "{elected:?} began to lead");
    assert!(!world.believes_to_lead(1) && !world.believes_to_lead(2), "the left has noticed");
    assert_eq!(world.leader_of(&groups[0]), Some(rival));
    world.finish();
}

fn group(world: &World) -> regent_election::Group {
    world.group_names(1).remove(0)
}

fn part_client(world: &mut World, number: u32, id: u64) {
    world.cut(Address::Client(number), Address::Replica(id));
    world.cut(Address::Replica(id), Address::Client(number));
}

/// \[A,B\] | \[C\] | \[D,E\].
pub(super) const THREE_PARTS: Scenario = Scenario {
    name: "without a majority nobody is elected until the partition heals",
    replicas: 5,
    plan: as_it_is,
    script: three_parts,
};

fn three_parts(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(2, TTL_MS, &groups);
    world.split(&[&[1, 2], &[3], &[4, 5]]);
    world.run_for_ms(NOTICED_MS);
    let (noticed_at, committed) = (world.now(), world.committed());
    world.run_for_ms(3 * TTL_MS);
    assert_eq!(world.raft_leaders_since(noticed_at), [0; 0], "nobody has a majority");
    assert_eq!(world.serving(), [0; 0], "nobody serves");
    assert_eq!(world.committed(), committed, "nothing is committed");
    assert_eq!(world.leader_of(&groups[0]), None, "the leader has stopped, nobody has followed");
    world.heal_links();
    assert!(world.await_leader(ELECTED_MS_MAX).is_some(), "healed, they elect");
    assert!(world.await_until(ELECTED_MS_MAX + 3 * TTL_MS, World::is_led), "the group is led");
    world.finish();
}

/// A-B-x-C-D-E.
pub(super) const CHAIN: Scenario = Scenario {
    name: "a chain with a flapping middle keeps its stable leader",
    replicas: 5,
    plan: as_it_is,
    script: chain,
};

fn chain(world: &mut World) {
    const FLAPS: usize = 8;
    let groups = world.group_names(1);
    world.settle(2, 2 * TTL_MS, &groups);
    for one in 1..=5 {
        for other in one + 2..=5 {
            world.part(one, other);
        }
    }
    world.run_for_ms(NOTICED_MS);
    assert!(world.await_leader(ELECTED_MS_MAX).is_some(), "a chain of five elects");
    let begun_at = world.now();
    for flap in 0..FLAPS {
        let flapped_at = world.now();
        world.part(2, 3);
        world.run_for_ms(NOTICED_MS);
        world.join(2, 3);
        world.run_for_ms(NOTICED_MS);
        let changes = world.raft_leaders_since(flapped_at).len();
        assert!(changes <= 1, "{changes} changes of the Raft leader in flap {flap}");
        assert!(world.await_leader(ELECTED_MS_MAX).is_some(), "somebody always leads again");
    }
    // D reaches C and E whatever B-C does: once it leads, nothing is a reason to change.
    let elected = world.raft_leaders_since(begun_at);
    if let Some(stable) = elected.iter().position(|id| *id == 4) {
        assert_eq!(elected.len(), stable + 1, "{elected:?}: the stable leader is kept");
    }
    world.finish();
}

/// \[leader\] | all others.
pub(super) const ISOLATED: Scenario = Scenario {
    name: "an isolated Raft leader steps down and no group changes hands",
    replicas: 5,
    plan: as_it_is,
    script: isolated,
};

fn isolated(world: &mut World) {
    let groups = world.group_names(2);
    world.settle(3, 4_000, &groups);
    let before = world.acting();
    let leader = world.await_leader(ELECTED_MS_MAX).expect("a healthy cluster has one");
    let isolated_at = world.now();
    for other in (1..=5).filter(|other| *other != leader) {
        world.part(leader, other);
    }
    world.run_for_ms(NOTICED_MS);
    assert!(!world.believes_to_lead(leader), "it has noticed that nobody follows");
    assert!(world.await_leader(ELECTED_MS_MAX).is_some_and(|id| id != leader), "another one leads");
    world.run_for_ms(4_000);
    let elected = world.raft_leaders_since(isolated_at);
    assert!(!elected.contains(&leader), "{elected:?}: it never leads while it is alone");
    assert_eq!(world.acting(), before, "a change of the Raft leader alone hands no group over");
    world.heal_links();
    world.run_for_ms(2_000);
    assert_eq!(world.raft_leaders_since(isolated_at), elected, "coming back disturbs nobody");
    world.finish();
}
