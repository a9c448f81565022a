//! A cluster that is gone and comes back from a backup (semantics 23).

use std::collections::BTreeMap;

use regent_election::{Group, Term};

use super::Scenario;
use crate::checkers::check;
use crate::history::{History, What};
use crate::world::World;

const TTL_MS: u64 = 2_000;
/// The longest ttl there may be: how long a restored store grants nothing.
const CEILING_MS: u64 = 5_000;
/// What the wall clock says when the backup is taken, in seconds.
const TAKEN_AT_S: u64 = 1_800_000_000;

/// Restored, twice.
pub(super) const RESTORED: Scenario = Scenario {
    name: "a restored store repeats no term and grants none while an older lease may run",
    replicas: 3,
    plan: |plan| {
        plan.settings.ttl_ms_ceiling = CEILING_MS;
        plan.settings.default_policy.ttl_ms_max = CEILING_MS;
    },
    script: restored,
};

fn restored(world: &mut World) {
    let groups = world.group_names(2);
    world.settle(3, TTL_MS, &groups);
    let backup = world.backup(TAKEN_AT_S);
    let mut lives: Vec<Life> = Vec::new();
    for at_s in [TAKEN_AT_S + 60, TAKEN_AT_S + 120] {
        hand_round(world);
        // All is lost while somebody leads; of what followed the backup the next life knows nothing.
        let gone_at = world.now();
        let before = world.restore_from(&backup, at_s).expect("a good backup is taken");
        lives.push(Life::of(&before));
        world.settle(3, TTL_MS, &groups);
        let after = Life::of(world.history());
        for life in &lives {
            after.follows(life);
        }
        let held_ms = (after.began_at - gone_at) / 1_000_000;
        assert!(held_ms >= CEILING_MS * 99 / 100, "it granted {held_ms} ms after it was restored");
    }
    let early = world.backup(TAKEN_AT_S);
    assert!(
        world.restore_from(&early, TAKEN_AT_S - 1).is_err(),
        "a clock before the backup is refused"
    );
    world.finish();
}

/// Every office changes hands a few times.
fn hand_round(world: &mut World) {
    for _ in 0..4 {
        world.resign_all();
        world.run_for_ms(50);
        assert!(world.await_until(3 * TTL_MS, World::is_led), "a healthy cluster hands over");
    }
}

/// What one life of a store leaves behind.
struct Life {
    /// The lowest and the highest term that anybody held, of each group.
    terms: BTreeMap<Group, (Term, Term)>,
    /// When somebody first could act.
    began_at: u64,
    /// When the last one could.
    until: u64,
}

impl Life {
    /// Judges a history by itself first.
    fn of(history: &History) -> Self {
        let violations = check(history);
        assert!(violations.is_empty(), "{violations:?}");
        let mut life = Self { terms: BTreeMap::new(), began_at: u64::MAX, until: 0 };
        for event in &history.events {
            if let What::Lead { group, held: Some(term), until, .. } = &event.what {
                let (low, high) = life.terms.entry(group.clone()).or_insert((*term, *term));
                (*low, *high) = ((*low).min(*term), (*high).max(*term));
                life.began_at = life.began_at.min(event.at);
                life.until = *until;
            }
        }
        life
    }

    /// S2 and S1 over two lives.
    fn follows(&self, before: &Self) {
        for (group, (low, _)) in &self.terms {
            let highest = before.terms.get(group).map_or(Term::NONE, |(_, high)| *high);
            assert!(
                *low > highest,
                "term {low} of {group} after term {highest} of an earlier life"
            );
        }
        assert!(self.began_at >= before.until, "somebody acts while an earlier lease runs");
    }
}
