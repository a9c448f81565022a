//! All rules at once: whatever the network, the clocks and the processes do within the bound, at
//! most one participant passes a check; and when all is well again, exactly one does. Once against a
//! reference store of a few lines, once against the real state machine with the real lease clock.

use proptest::prelude::*;
use regent_election::{Budget, Drift};

use crate::plan::{Chaos, Network, Plan};
use crate::real::RealStore;
use crate::store::{Keeper, RefStore};
use crate::world::{World, name};

const TTL_MS: u64 = 1000;
const CHAOS_MS: u64 = 15_000;
const CALM_MS: u64 = 12_000;
const PARTICIPANTS: usize = 3;
const GROUPS: usize = 2;

fn chaos() -> impl Strategy<Value = Chaos> {
    let (who, group) = (0..PARTICIPANTS, 0..GROUPS);
    let short = prop_oneof![1..300_u64, 300..1500_u64, 1500..4000_u64];
    prop_oneof![
        4 => (who.clone(), short.clone()).prop_map(|(who, for_ms)| Chaos::Cut { who, for_ms }),
        4 => (who.clone(), short.clone()).prop_map(|(who, for_ms)| Chaos::Pause { who, for_ms }),
        1 => (who.clone(), short.clone()).prop_map(|(who, by_ms)| Chaos::Leap { who, by_ms }),
        2 => short.prop_map(|for_ms| Chaos::Outage { for_ms }),
        3 => group.clone().prop_map(|group| Chaos::StepDown { group }),
        2 => (who.clone(), group.clone()).prop_map(|(who, group)| Chaos::Resign { who, group }),
        2 => (who.clone(), group.clone(), who.clone())
            .prop_map(|(who, group, to)| Chaos::Transfer { who, group, to }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, healthy)| Chaos::Health { who, healthy }),
        2 => (who.clone(), group.clone()).prop_map(|(who, group)| Chaos::Withdraw { who, group }),
        2 => (who.clone(), group.clone()).prop_map(|(who, group)| Chaos::Stand { who, group }),
        1 => (who, group).prop_map(|(who, group)| Chaos::Fence { who, group }),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    (prop_oneof![Just(5_u64), 5..400_u64, 400..2500_u64], 0..25_u64, 0..15_u64, any::<bool>())
        .prop_map(|(delay_ms_max, loss_percent, double_percent, hints)| Network {
            delay_ms_max,
            loss_percent,
            double_percent,
            hints,
        })
}

/// Clocks at the edges of the bound find what clocks in the middle hide.
fn drifts() -> impl Strategy<Value = Vec<i64>> {
    let drift = prop_oneof![Just(-1000_i64), Just(1000), Just(0), -1000..=1000_i64];
    let worst = Just([&[1000_i64][..], &[-1000; PARTICIPANTS]].concat());
    prop_oneof![1 => worst, 1 => prop::collection::vec(drift, PARTICIPANTS + 1)]
}

fn plan() -> impl Strategy<Value = Plan> {
    let ppm = prop_oneof![Just(0_u32), Just(10_000), Just(100_000), Just(400_000)];
    let chaos = prop::collection::vec((0..CHAOS_MS, chaos()), 0..30);
    (any::<u64>(), ppm, drifts(), network(), chaos).prop_map(
        |(seed, ppm, drifts, network, chaos)| Plan {
            seed,
            participants: PARTICIPANTS,
            groups: GROUPS,
            budget: Budget::new(TTL_MS, Drift::from_ppm(ppm).expect("within bounds"))
                .expect("derived timers always fit"),
            drifts,
            network,
            chaos,
        },
    )
}

/// S1 and S2 throughout (the world checks them at every instant), then L1: a live candidate connected
/// to a live store means that somebody leads.
fn survives(plan: Plan, store: Box<dyn Keeper>) -> Result<(), TestCaseError> {
    let mut world = World::new(plan, store);
    world.run_to(CHAOS_MS);
    world.heal();
    world.run_to(CHAOS_MS + CALM_MS);
    for index in 0..GROUPS {
        let (leaders, group) = (world.leaders(&name(index)), name(index));
        prop_assert_eq!(leaders.len(), 1, "L1: {:?} lead {} after {} ms", leaders, group, CALM_MS);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, ..Default::default() })]

    #[test]
    fn at_most_one_leads_and_in_the_end_exactly_one(plan in plan()) {
        survives(plan, Box::new(RefStore::default()))?;
    }

    #[test]
    fn the_real_rules_on_both_sides_keep_their_word(plan in plan()) {
        survives(plan, Box::new(RealStore::new()))?;
    }
}

/// L3: without faults nothing changes hands, and one election per group is all there is.
#[test]
fn without_faults_leaders_stay() {
    for seed in 0..5 {
        let plan = Plan {
            seed,
            participants: PARTICIPANTS,
            groups: GROUPS,
            budget: Budget::new(TTL_MS, Drift::DEFAULT).expect("derived timers always fit"),
            drifts: vec![1000, -1000, 0, 1000],
            network: Network { delay_ms_max: 5, loss_percent: 0, double_percent: 0, hints: true },
            chaos: vec![],
        };
        let mut world = World::new(plan, Box::new(RealStore::new()));
        world.run_to(60 * TTL_MS);
        assert_eq!(world.elections, GROUPS as u64);
        assert!((0..GROUPS).all(|index| world.leaders(&name(index)).len() == 1));
    }
}

/// Semantics 15: in a calm world every hand-over that is asked for comes about, to the one named, and
/// the office is empty for no longer than a commit and its news take.
#[test]
fn a_hand_over_goes_to_the_one_named_and_leaves_no_gap_but_the_commit() {
    for seed in 0..8 {
        let plan = Plan {
            seed,
            participants: PARTICIPANTS,
            groups: 1,
            budget: Budget::new(TTL_MS, Drift::DEFAULT).expect("derived timers always fit"),
            drifts: vec![1000, -1000, 0, 1000],
            network: Network { delay_ms_max: 5, loss_percent: 0, double_percent: 0, hints: true },
            chaos: vec![],
        };
        let mut world = World::new(plan, Box::new(RealStore::new()));
        world.heal();
        world.run_to(2 * TTL_MS);
        let [(leader, term)] = world.leaders(&name(0))[..] else { panic!("nobody leads") };
        let to = (leader + 1) % PARTICIPANTS;
        world.strike_now(Chaos::Transfer { who: leader, group: 0, to });
        let mut empty_ms = 0;
        for at_ms in 2 * TTL_MS..6 * TTL_MS {
            world.run_to(at_ms);
            empty_ms += u64::from(world.leaders(&name(0)).is_empty());
        }
        let next = term.next().expect("a small number");
        assert_eq!(world.leaders(&name(0)), [(to, next)], "seed {seed}");
        assert_eq!(world.hand_overs, 1);
        // The transfer, its news, the acceptance and its answer: four ways of 5 ms at most.
        assert!(empty_ms <= 21, "seed {seed}: nobody led for {empty_ms} ms");
    }
}

/// The same plan gives the same history: a failing seed replays.
#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let plan = Plan {
            seed,
            participants: PARTICIPANTS,
            groups: GROUPS,
            budget: Budget::new(TTL_MS, Drift::COARSE).expect("derived timers always fit"),
            drifts: vec![1000, -1000, 0, 1000],
            network: Network {
                delay_ms_max: 900,
                loss_percent: 20,
                double_percent: 10,
                hints: true,
            },
            chaos: (0..20)
                .map(|n| (n * 700, Chaos::Cut { who: n as usize % 3, for_ms: 900 }))
                .collect(),
        };
        let mut world = World::new(plan, Box::new(RefStore::default()));
        world.run_to(CHAOS_MS);
        (world.elections, world.leaders(&name(0)), world.leaders(&name(1)))
    };
    assert_eq!(run(3), run(3));
    assert!(run(3).0 > 2, "and it is not an empty one");
}
