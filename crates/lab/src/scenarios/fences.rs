//! A register that has seen a later term than the one in office.

use super::{Scenario, as_it_is};
use crate::history::What;
use crate::world::World;

const TTL_MS: u64 = 2_000;

/// The leader's own writes are refused.
pub(super) const REFUSED: Scenario = Scenario {
    name: "a leader whose term a fence refuses gives its office back",
    replicas: 3,
    plan: as_it_is,
    script: refused,
};

fn refused(world: &mut World) {
    let groups = world.group_names(1);
    world.settle(3, TTL_MS, &groups);
    world.run_for_ms(TTL_MS);
    // By hand, by a store that was replaced, by a mistake: the terms in office are behind.
    world.raise_fence(&groups[0], 3);
    let raised_at = world.now();
    // Each leader learns it from its first write, loses, and gives the office to the next; a session
    // that kept it would keep everybody out for as long as it lives.
    let is_over = world.await_until(10 * TTL_MS, |world| writes_since(world, raised_at, true) > 0);
    assert!(is_over, "no term gets past the fence: an office is kept that nobody fills");
    assert!(writes_since(world, raised_at, false) >= 2, "some terms are refused");
    world.finish();
}

/// Writes to fenced registers after an instant, those that were admitted or the others.
fn writes_since(world: &World, at: u64, is_admitted: bool) -> usize {
    let later = world.history().events.iter().filter(|event| event.at > at);
    let is_meant = |what: &What| match what {
        What::Write { fenced: true, admitted, .. } => *admitted == is_admitted,
        _ => false,
    };
    later.filter(|event| is_meant(&event.what)).count()
}
