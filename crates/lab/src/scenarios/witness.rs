//! Two full replicas and a witness, which votes and keeps the log, but no state.

use super::Scenario;
use crate::world::World;

const TTL_MS: u64 = 2_000;
/// A witness leads only after three times the others' patience, and then hands over.
const ELECTED_MS_MAX: u64 = 15_000;

/// Any one may go.
pub(super) const SURVIVES_ONE: Scenario = Scenario {
    name: "two replicas and a witness survive the loss of any one",
    replicas: 3,
    plan: |plan| plan.witness = Some(3),
    script: survives_one,
};

fn survives_one(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(2, TTL_MS, &groups);
    for lost in [3, 1, 2, 1, 3] {
        world.crash_replica(lost);
        world.run_for_ms(1_000);
        assert!(world.writes_within(ELECTED_MS_MAX), "without replica {lost} it goes on");
        assert!(world.await_until(ELECTED_MS_MAX, World::is_led), "and the group is led");
        assert!(!world.serving().contains(&3), "a witness never serves");
        world.start_replica(lost);
        world.run_for_ms(1_000);
    }
    world.finish();
}

/// The interleaving of semantics 35. The witness has the lowest id and B the highest.
pub(super) const OLDER_TAIL: Scenario = Scenario {
    name: "a longer tail of an older Raft term gives way to what the witness helped to commit",
    replicas: 3,
    plan: |plan| plan.witness = Some(1),
    script: older_tail,
};

fn older_tail(world: &mut World) {
    const WITNESS: u64 = 1;
    const A: u64 = 2;
    const B: u64 = 3;
    let groups = world.group_names(1);
    world.settle(2, TTL_MS, &groups);
    world.let_lead(B);
    // B appends what nobody else hears of, until it notices that it is alone.
    world.part(B, A);
    world.part(B, WITNESS);
    world.flood(B, 40);
    world.run_for_ms(1_000);
    assert!(!world.believes_to_lead(B), "alone, it steps down");
    // A and the witness commit something in a later Raft term, less than B has.
    let elected = world.await_leader(ELECTED_MS_MAX);
    assert_eq!(elected, Some(A), "of the two only A serves");
    assert!(world.writes_within(ELECTED_MS_MAX), "A and the witness commit");
    let committed = world.committed();
    world.crash_replica(A);
    world.join(B, A);
    world.join(B, WITNESS);
    // The witness alone knows what was committed: it must lead, bring B up to date and hand over.
    let served = world.await_until(ELECTED_MS_MAX, |world| world.serving() == [B]);
    assert!(served, "B and the witness go on");
    assert!(world.writes_within(ELECTED_MS_MAX), "and serve");
    assert!(world.committed() > committed, "and commit more");
    world.start_replica(A);
    world.finish();
}
