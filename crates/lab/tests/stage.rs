//! The algorithms of the literature keep what they promise on the stage, and break what they do not
//! promise: both are what the lab shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use regent_lab::stage::draw::{Window, mermaid, sequence_svg, timeline_svg, timeline_text};
use regent_lab::stage::{
    Algorithm, Figures, NamedScenario, Reign, Scenario, StageRecord, What, figures, library, line,
    parse, play, reigns,
};

fn scenario(name: &str) -> Scenario {
    NamedScenario::find(name).unwrap().scenario()
}

fn record(algorithm: Algorithm, scenario: &Scenario, seed: u64) -> StageRecord {
    let run = play(algorithm, scenario, seed).unwrap();
    assert!(!run.is_cut_short, "{algorithm:?} storms under {} with seed {seed}", scenario.name);
    run.record
}

fn measured(algorithm: Algorithm, name: &str, seed: u64) -> Figures {
    figures(&record(algorithm, &scenario(name), seed))
}

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Whether the algorithm has terms.
fn has_terms(algorithm: Algorithm) -> bool {
    match algorithm {
        Algorithm::Bully
        | Algorithm::Ring
        | Algorithm::ChangRoberts
        | Algorithm::Hierarchy
        | Algorithm::Gossip => false,
        Algorithm::Lease | Algorithm::Raft | Algorithm::Paxos | Algorithm::Byzantine => true,
    }
}

/// Whether the algorithm promises that two never act at once, as long as clocks keep within their bound.
fn promises_one(algorithm: Algorithm) -> bool {
    match algorithm {
        Algorithm::Bully
        | Algorithm::Ring
        | Algorithm::ChangRoberts
        | Algorithm::Paxos
        | Algorithm::Hierarchy
        | Algorithm::Gossip => false,
        Algorithm::Lease | Algorithm::Raft | Algorithm::Byzantine => true,
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    for algorithm in Algorithm::ALL {
        for told in library() {
            let text = |seed| {
                let record = record(*algorithm, &told.scenario(), seed);
                let lines = record.entries.iter().filter_map(|entry| line(&record, entry, true));
                lines.collect::<Vec<String>>().join("\n")
            };
            let first = text(7);
            assert_eq!(first, text(7), "{algorithm:?} under {}", told.name);
            assert_ne!(first, text(8), "{algorithm:?} under {}", told.name);
        }
    }
}

#[test]
fn when_all_is_well_one_leads_and_everybody_knows_it() {
    for algorithm in Algorithm::ALL {
        for seed in 1..=20 {
            for nodes in [2, 3, 5, 9] {
                let mut calm = scenario("calm");
                calm.nodes = nodes;
                let record = record(*algorithm, &calm, seed);
                let last = *reigns(&record).last().unwrap();
                let tag = format!("{algorithm:?}, {nodes} nodes, seed {seed}");
                assert_eq!(last.until, record.ended_at, "{tag}");
                let figures = figures(&record);
                assert!(figures.leaderless_ns < 3 * SECOND, "{tag}: {figures:?}");
                assert!(figures.two_leaders_ns < SECOND / 5, "{tag}: {figures:?}");
                let mut follows = vec![None; usize::from(nodes)];
                for entry in &record.entries {
                    if let What::Follows { node, leader, .. } = entry.what {
                        follows[usize::from(node.0)] = leader;
                    }
                }
                for (node, leader) in follows.iter().enumerate() {
                    if node != usize::from(last.node.0) {
                        assert_eq!(*leader, Some(last.node), "{tag}, node {node}");
                    }
                }
            }
        }
    }
}

/// Ten seconds of peace after the last strike of each of these: whoever can elect has elected.
#[test]
fn after_the_last_strike_somebody_leads_again_and_only_one_does() {
    let names = ["crash", "clean-partition", "three-way-partition", "even-cluster", "gc-pause"];
    for algorithm in Algorithm::ALL {
        for name in names {
            for seed in 1..=20 {
                let mut scenario = scenario(name);
                scenario.lasts += std::time::Duration::from_secs(10);
                let record = record(*algorithm, &scenario, seed);
                let quiet_from = record.ended_at - 3 * SECOND;
                let late: Vec<_> = reigns(&record)
                    .into_iter()
                    .filter(|reign| reign.until > quiet_from && reign.from < reign.until)
                    .collect();
                let tag = format!("{algorithm:?} under {name}, seed {seed}: {late:?}");
                assert_eq!(late.len(), 1, "{tag}");
                assert!(late[0].from <= quiet_from && late[0].until == record.ended_at, "{tag}");
            }
        }
    }
}

#[test]
fn without_terms_a_partition_has_two_leaders_and_no_fence_helps() {
    for algorithm in Algorithm::ALL.iter().filter(|one| !has_terms(**one)) {
        for seed in 1..=10 {
            let figures = measured(*algorithm, "clean-partition", seed);
            assert!(figures.two_leaders_ns > 10 * SECOND, "{algorithm:?}, {seed}: {figures:?}");
            assert!(figures.wrong_writes > 10, "{algorithm:?}, {seed}: {figures:?}");
            assert_eq!(figures.wrong_writes, figures.wrong_writes_fenced);
        }
    }
}

/// Its last wrong write was begun while another one led, 100 ms of work and a few of travel before it landed.
#[test]
fn without_terms_a_leader_that_is_alone_again_is_right_again() {
    for algorithm in Algorithm::ALL.iter().filter(|one| !has_terms(**one)) {
        for seed in 1..=10 {
            let record = record(*algorithm, &scenario("clean-partition"), seed);
            let reigns = reigns(&record);
            let others = |reign: &Reign| {
                let (from, until, node) = (reign.from, reign.until, reign.node);
                reigns
                    .iter()
                    .filter(move |it| it.node != node && it.from < until && from < it.until)
                    .map(move |it| it.until.min(until))
            };
            let shared_until = reigns.iter().flat_map(others).max().unwrap();
            let is_wrong = |what: &What| matches!(what, What::Writes { is_wrong: true, .. });
            let wrong = record.entries.iter().filter(|entry| is_wrong(&entry.what));
            let last = wrong.map(|entry| entry.at).max().unwrap();
            let tag = format!("{algorithm:?}, seed {seed}: {last} after {shared_until}");
            assert!(last <= shared_until + SECOND / 5, "{tag}");
        }
    }
}

#[test]
fn whoever_promises_one_leader_has_one_whatever_is_cut_lost_paused_or_killed() {
    let beyond_the_bound = ["clock-drift", "byzantine-voter"];
    for algorithm in Algorithm::ALL.iter().filter(|one| promises_one(**one)) {
        for told in library().iter().filter(|told| !beyond_the_bound.contains(&told.name)) {
            for seed in 1..=10 {
                let figures = measured(*algorithm, told.name, seed);
                let tag = format!("{algorithm:?} under {}, seed {seed}", told.name);
                assert_eq!(figures.two_leaders_ns, 0, "{tag}: {figures:?}");
            }
        }
    }
}

#[test]
fn with_terms_no_fence_lets_a_wrong_write_pass() {
    for algorithm in Algorithm::ALL.iter().filter(|one| has_terms(**one)) {
        for told in library().iter().filter(|told| told.name != "byzantine-voter") {
            for seed in 1..=10 {
                let figures = measured(*algorithm, told.name, seed);
                let tag = format!("{algorithm:?} under {}, seed {seed}", told.name);
                assert_eq!(figures.wrong_writes_fenced, 0, "{tag}: {figures:?}");
            }
        }
    }
}

/// The example of every talk: ttl 10 s, a pause of 15 s between the check and the write.
#[test]
fn a_lease_alone_does_not_stop_a_paused_leader_and_a_fence_does() {
    for seed in 1..=20 {
        let figures = measured(Algorithm::Lease, "long-pause", seed);
        assert_eq!(figures.two_leaders_ns, 0, "seed {seed}");
        assert_eq!(figures.wrong_writes, 1, "seed {seed}: {figures:?}");
        assert_eq!((figures.wrong_writes_fenced, figures.refused_writes), (0, 1), "seed {seed}");
    }
}

#[test]
fn the_bully_flaps_with_its_highest_node_and_the_ring_does_not() {
    for seed in 1..=10 {
        let bully = measured(Algorithm::Bully, "flapping", seed).elections;
        let ring = measured(Algorithm::Ring, "flapping", seed).elections;
        assert!(bully >= 14 && ring <= 4, "seed {seed}: bully {bully}, ring {ring}");
    }
}

#[test]
fn a_clock_beyond_its_bound_breaks_a_lease_and_not_its_fence() {
    let text = "about a leader whose clock falls behind, and that is cut off\nnodes 3\nlasts 20s\n\
                at 5s drift leader -50%\nat 6s partition leader | rest";
    let scenario = parse("slow-clock", text).unwrap();
    for seed in 1..=10 {
        let figures = figures(&record(Algorithm::Lease, &scenario, seed));
        assert!(figures.two_leaders_ns > 0 && figures.wrong_writes > 0, "{seed}: {figures:?}");
        assert_eq!(figures.wrong_writes_fenced, 0, "seed {seed}");
    }
}

#[test]
fn a_scenario_that_names_nobody_there_is_refused() {
    let mut scenario = scenario("three-way-partition");
    scenario.nodes = 3;
    let error = play(Algorithm::Bully, &scenario, 1).unwrap_err().to_string();
    assert_eq!(error, "the scenario names E, and 3 nodes are A to C");
}

#[test]
fn liars_up_to_a_third_change_nothing_for_whoever_wants_signatures() {
    for seed in 1..=20 {
        let record = record(Algorithm::Byzantine, &scenario("byzantine-voter"), seed);
        let is_forged = |what: &What| match what {
            What::Sends { kind: "NEW-VIEW", carries, .. } => carries.ends_with("B B B B B B B"),
            _ => false,
        };
        let forged = record.entries.iter().filter(|entry| is_forged(&entry.what)).count();
        assert!(forged > 0, "seed {seed}: B lies, and signs for everybody with its own pen");
        let figures = figures(&record);
        assert_eq!((figures.two_leaders_ns, figures.wrong_writes_fenced), (0, 0), "seed {seed}");
        assert!(figures.leaderless_ns < 12 * SECOND, "seed {seed}: {figures:?}");
        let believed = record.entries.iter().any(|entry| {
            let lies_from = 6 * SECOND;
            entry.at > lies_from && matches!(entry.what, What::Leads { node, .. } if node.0 == 1)
        });
        assert!(!believed, "seed {seed}: the liar leads");
    }
}

#[test]
fn drawings_tell_what_the_record_tells() {
    let record = record(Algorithm::Bully, &scenario("clean-partition"), 3);
    let window = Window { from: 0, until: 6 * SECOND, with_upkeep: false };
    let text = mermaid(&record, window);
    assert!(text.starts_with("sequenceDiagram\n    participant A\n"), "{text}");
    let elections = text.lines().filter(|line| line.ends_with(": ELECTION")).count();
    let counted = |entry: &&regent_lab::stage::StageEvent| {
        entry.at < window.until && matches!(entry.what, What::Sends { kind: "ELECTION", .. })
    };
    assert_eq!(elections, record.entries.iter().filter(counted).count());
    let svg = sequence_svg(&record, window);
    assert_eq!(
        svg.matches("marker-end").count(),
        text.matches("->>").count() + text.matches("-x").count()
    );
    let rows = timeline_text(&record);
    let two = rows.lines().find(|row| row.starts_with("two")).unwrap().matches('!').count();
    assert!((45..=55).contains(&two), "fifteen of thirty seconds in a hundred columns: {two}");
    assert_eq!(timeline_svg(&record), timeline_svg(&record.clone()));
}
