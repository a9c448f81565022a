//! What the comparison claims about the algorithms is measured here with fewer seeds, and what the document
//! shows is what its seeds give.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use regent_lab::stage::compare::markdown::{BEGIN, END, markdown, update};
use regent_lab::stage::compare::{
    Cell, ComparePlan, Comparison, Measure, Noticer, PlanError, SIZES, Time, csv, html, matrix,
};
use regent_lab::stage::{Algorithm, NamedScenario, Scenario, library, parse};

const DOCUMENT: &str = include_str!("../../../docs/algorithms.md");

fn all() -> Vec<Scenario> {
    library().iter().map(|told| told.scenario()).collect()
}

fn scenario(name: &str) -> Scenario {
    NamedScenario::find(name).unwrap().scenario()
}

fn compare(algorithms: &[Algorithm], scenarios: Vec<Scenario>, seeds: u64) -> Comparison {
    ComparePlan::new(algorithms.to_vec(), scenarios, 1..=seeds, &[]).unwrap().play_all().unwrap()
}

fn cell(algorithm: Algorithm, name: &str, seeds: u64) -> Cell {
    compare(&[algorithm], vec![scenario(name)], seeds).cell(algorithm, name).unwrap().clone()
}

fn exponent(algorithm: Algorithm, noticer: Noticer, seeds: u64) -> f64 {
    let plan = ComparePlan::new(vec![algorithm], vec![scenario("calm")], 1..=seeds, SIZES).unwrap();
    let comparison = plan.play_all().unwrap();
    let series = comparison.series();
    let of = series.iter().find(|series| series.noticer == noticer).unwrap();
    of.exponent().unwrap()
}

#[test]
fn jobs_in_any_order_come_to_the_same() {
    let algorithms = vec![Algorithm::Bully, Algorithm::Lease];
    let scenarios = vec![scenario("crash"), scenario("gc-pause")];
    let plan = ComparePlan::new(algorithms, scenarios, 3..=21, &[3, 5]).unwrap();
    let forwards = plan.clone().play_all().unwrap();
    let mut backwards = Comparison::new(plan.clone());
    for job in (0..plan.jobs()).rev() {
        backwards.take(&plan.play(job).unwrap());
    }
    assert_eq!(csv(&forwards), csv(&backwards));
    assert_eq!(forwards.runs(), plan.runs());
    assert_eq!(plan.runs(), 19 * (2 * 2 + 3 * 2), "cells, and sizes for bully twice");
    assert_eq!(forwards.cell(Algorithm::Bully, "crash").unwrap().runs, 19);
}

#[test]
fn a_plan_that_cannot_be_played_is_refused_with_the_reason() {
    let refuse = |algorithms: Vec<Algorithm>, scenarios: Vec<Scenario>| {
        ComparePlan::new(algorithms, scenarios, 1..=2, &[]).unwrap_err()
    };
    assert_eq!(refuse(vec![], all()), PlanError::Empty);
    let twice = refuse(vec![Algorithm::Raft, Algorithm::Raft], all());
    assert_eq!(twice.to_string(), "raft is named twice");
    let mut small = scenario("three-way-partition");
    small.nodes = 3;
    let error = refuse(vec![Algorithm::Raft], vec![small]).to_string();
    let why = "raft cannot be played under three-way-partition: the scenario names E, and 3 nodes \
               are A to C";
    assert_eq!(error, why);
}

/// The bully's worst case is exact: n (n - 1) messages. By lot it is mostly better, and of the same order.
#[test]
fn messages_of_the_bully_grow_with_the_square_and_of_the_ring_with_the_number_of_nodes() {
    let plan =
        ComparePlan::new(vec![Algorithm::Bully], vec![scenario("calm")], 1..=5, SIZES).unwrap();
    let comparison = plan.play_all().unwrap();
    for series in comparison.series().iter().filter(|one| one.noticer == Noticer::Lowest) {
        for (nodes, cell) in &series.points {
            let n = u64::from(*nodes);
            assert_eq!(cell.messages, n * (n - 1) * cell.elections, "{nodes} nodes");
            assert_eq!(cell.elections, cell.runs, "one election each");
        }
    }
    let worst = exponent(Algorithm::Bully, Noticer::Lowest, 5);
    assert!((1.9..2.3).contains(&worst), "bully, worst: n^{worst:.2}");
    let by_lot = exponent(Algorithm::Bully, Noticer::AnyNode, 40);
    assert!((1.5..2.4).contains(&by_lot), "bully, by lot: n^{by_lot:.2}");
    let ring = exponent(Algorithm::Ring, Noticer::Lowest, 5);
    assert!((0.9..1.2).contains(&ring), "ring: n^{ring:.2}");
}

#[test]
fn messages_of_a_lease_grow_with_n_and_of_signed_votes_with_its_square() {
    let lease = exponent(Algorithm::Lease, Noticer::AnyNode, 10);
    assert!((0.8..1.3).contains(&lease), "lease: n^{lease:.2}");
    let signed = exponent(Algorithm::Byzantine, Noticer::AnyNode, 5);
    assert!((1.7..2.5).contains(&signed), "byzantine: n^{signed:.2}");
}

#[test]
fn under_a_clean_partition_two_lead_unless_a_majority_or_a_store_decides() {
    for algorithm in Algorithm::ALL {
        let cell = cell(*algorithm, "clean-partition", 10);
        let has_two = match algorithm {
            Algorithm::Bully
            | Algorithm::Ring
            | Algorithm::ChangRoberts
            | Algorithm::Paxos
            | Algorithm::Hierarchy
            | Algorithm::Gossip => cell.runs,
            Algorithm::Lease | Algorithm::Raft | Algorithm::Byzantine => 0,
        };
        assert_eq!(cell.runs_with_two, has_two, "{algorithm:?}: {cell:?}");
    }
}

#[test]
fn raft_leases_and_signed_votes_never_have_two_leaders_while_clocks_keep_their_bound() {
    let one = [Algorithm::Lease, Algorithm::Raft, Algorithm::Byzantine];
    let kept: Vec<Scenario> = all().into_iter().filter(Scenario::keeps_bounds).collect();
    assert_eq!(kept.len(), library().len() - 2, "all but clock-drift and byzantine-voter");
    let comparison = compare(&one, kept, 10);
    for algorithm in one {
        let whole = comparison.whole(algorithm, |_| true);
        assert_eq!((whole.two_leaders_ns, whole.wrong_writes_fenced), (0, 0), "{algorithm:?}");
    }
}

#[test]
fn with_a_fence_whoever_has_terms_writes_nothing_wrong_under_pauses_and_without_one_it_does() {
    for algorithm in [Algorithm::Lease, Algorithm::Raft, Algorithm::Paxos, Algorithm::Byzantine] {
        let pauses: Vec<Scenario> = all().into_iter().filter(Scenario::has_pauses).collect();
        assert!(pauses.len() >= 2);
        let whole = compare(&[algorithm], pauses, 10).whole(algorithm, |_| true);
        assert!(whole.wrong_writes >= 2 * 10, "{algorithm:?}: {whole:?}");
        assert_eq!(whole.wrong_writes_fenced, 0, "{algorithm:?}");
        assert!(whole.refused_writes >= whole.wrong_writes, "{algorithm:?}: {whole:?}");
    }
    for algorithm in [Algorithm::Bully, Algorithm::Ring, Algorithm::Gossip] {
        let cell = cell(algorithm, "long-pause", 10);
        assert!(cell.wrong_writes > 0, "{algorithm:?}");
        assert_eq!(
            cell.wrong_writes, cell.wrong_writes_fenced,
            "{algorithm:?}: no terms to fence by"
        );
    }
}

#[test]
fn without_a_majority_raft_has_no_leader_and_with_one_it_has() {
    let without = cell(Algorithm::Raft, "three-way-partition", 10);
    assert!(without.leaderless_ns > 14 * 1_000_000_000 * without.runs, "{without:?}");
    let with = cell(Algorithm::Raft, "clean-partition", 10);
    assert!(with.leaderless_ns < 3 * 1_000_000_000 * with.runs, "{with:?}");
}

/// Two thirds are 3 of 4, and 4 of 5.
#[test]
fn signed_votes_elect_where_two_thirds_hear_each_other_and_nowhere_else() {
    for (nodes, cut_off, can_elect) in
        [(4, "leader", true), (5, "leader", true), (5, "minority", false)]
    {
        let text = format!("about x\nnodes {nodes}\nlasts 20s\nat 5s partition {cut_off} | rest");
        let parted = parse("parted", &text).unwrap();
        let comparison = compare(&[Algorithm::Byzantine], vec![parted], 10);
        let cell = comparison.cell(Algorithm::Byzantine, "parted").unwrap();
        let expected = if can_elect { 0 } else { cell.runs };
        assert_eq!(cell.vacancies.endless(), expected, "{cut_off} of {nodes}: {cell:?}");
    }
}

/// Fischer, Lynch and Paterson: what is safe stays safe, and nobody leads for as long as nobody can tell slow
/// from dead.
#[test]
fn while_slow_cannot_be_told_from_dead_raft_is_safe_and_without_a_leader() {
    let cell = cell(Algorithm::Raft, "slow-or-dead", 10);
    assert!(cell.leaderless_ns > 15 * 1_000_000_000 * cell.runs, "{cell:?}");
    assert_eq!((cell.two_leaders_ns, cell.wrong_writes), (0, 0));
    assert_eq!(cell.vacancies.endless(), 0, "it is over when messages are fast again");
}

/// Processes start within 50 ms of each other, so now and then one gets through before the others are there.
#[test]
fn a_duel_that_has_begun_does_not_end_and_with_lots_it_does_within_two_seconds() {
    let duel = cell(Algorithm::Paxos, "duelling-proposers", 20);
    let endless = duel.first.endless();
    assert!(endless * 2 > duel.runs, "{endless} of {}", duel.runs);
    for percent in 1..=100 {
        let time = duel.first.at(percent);
        assert!(matches!(time, Some(Time::Ms(..600) | Time::Never)), "{percent} %: {time:?}");
    }
    assert!(duel.messages > 10_000 * endless, "they are busy: {}", duel.messages);
    assert_eq!((duel.two_leaders_ns, duel.wrong_writes), (0, 0), "and safe");
    let ended = cell(Algorithm::Paxos, "duelling-proposers-backoff", 10);
    assert_eq!((ended.elections, ended.first.endless()), (ended.runs, 0), "{ended:?}");
    assert!(matches!(ended.first.at(100), Some(Time::Ms(..2_000))), "{:?}", ended.first.at(100));
}

#[test]
fn votes_split_longer_without_lots_than_with_them() {
    let split = cell(Algorithm::Raft, "split-vote", 20);
    let with_lots = cell(Algorithm::Raft, "split-vote-backoff", 20);
    let per_election = |cell: &Cell| cell.messages_per_election().unwrap();
    assert!(per_election(&split) > 1.3 * per_election(&with_lots));
}

/// The generated part of the document, by its lines.
fn written() -> Vec<&'static str> {
    let (_, rest) = DOCUMENT.split_once(BEGIN).unwrap();
    rest.split_once(END).unwrap().0.lines().collect()
}

/// The row of a table of the document that begins with this name.
fn row(title: &str, name: &str) -> Vec<&'static str> {
    let lines = written();
    let at = lines.iter().position(|line| *line == format!("### {title}")).unwrap();
    let start = format!("| {name} |");
    let line = lines[at..].iter().find(|line| line.starts_with(&start)).unwrap();
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_document_has_every_table_row_and_column_and_nothing_else() {
    let plan = ComparePlan::new(Algorithm::ALL.to_vec(), all(), 1..=1000, SIZES).unwrap();
    let runs = plan.runs();
    let empty = markdown(&Comparison::new(plan));
    let shape = |lines: &[&str]| -> Vec<String> {
        let name = |line: &&str| match line.strip_prefix("| ") {
            Some(row) if !row.starts_with("algorithm") && !row.starts_with("scenario") => {
                format!("{} of {}", row.split('|').next().unwrap(), row.matches(" | ").count())
            }
            Some(_) | None => (*line).to_owned(),
        };
        lines.iter().filter(|line| !line.is_empty()).map(name).collect()
    };
    let empty: Vec<&str> = empty.lines().collect();
    assert_eq!(shape(&empty)[1..], shape(&written())[1..]);
    let scenarios = all().len();
    let about = format!("Seeds 1 to 1000; algorithms: 9, scenarios: {scenarios}, runs: {runs}.");
    assert!(written().contains(&about.as_str()), "{about}");
    assert!(update(DOCUMENT, "x").is_some(), "one pair of marks");
}

/// The cheapest cells, with all seeds of the document: if they differ, it is time to make it again.
#[test]
fn the_document_shows_what_its_seeds_give() {
    let algorithms = [Algorithm::Lease, Algorithm::Bully];
    let names = ["crash", "long-pause", "clean-partition"];
    let comparison = compare(&algorithms, names.map(scenario).to_vec(), 1000);
    for measure in Measure::ALL {
        for of in &matrix(&comparison, *measure).rows {
            let told = row(measure.title(), &of[0]);
            for (own, algorithm) in of[1..].iter().zip(algorithms) {
                let column = Algorithm::ALL.iter().position(|one| *one == algorithm).unwrap() + 1;
                let tag = format!("{measure:?} of {} under {}", algorithm.name(), of[0]);
                assert_eq!(
                    told[column], own,
                    "{tag}: run `regent lab compare --seeds 1..1000 --update docs/algorithms.md`"
                );
            }
        }
    }
}

#[test]
fn the_document_says_what_theory_says() {
    let column =
        |algorithm: Algorithm| Algorithm::ALL.iter().position(|one| *one == algorithm).unwrap() + 1;
    let parted = all().into_iter().filter(Scenario::has_partitions);
    for scenario in parted {
        let told = row(Measure::TwoLeaders.title(), &scenario.name);
        for algorithm in [Algorithm::Raft, Algorithm::Lease, Algorithm::Byzantine] {
            assert_eq!(
                told[column(algorithm)],
                "0",
                "{} under {}",
                algorithm.name(),
                scenario.name
            );
        }
    }
    let two = row(Measure::TwoLeaders.title(), "clean-partition");
    for algorithm in [Algorithm::Bully, Algorithm::Ring, Algorithm::Hierarchy, Algorithm::Gossip] {
        assert!(two[column(algorithm)].parse::<f64>().unwrap() > 10.0, "{}", algorithm.name());
    }
    for scenario in all() {
        let fenced = row(Measure::WrongWritesFenced.title(), &scenario.name);
        assert_eq!(fenced[column(Algorithm::Lease)], "0", "lease under {}", scenario.name);
    }
    let unfenced = row(Measure::WrongWrites.title(), "long-pause");
    assert_eq!(unfenced[column(Algorithm::Lease)], "1.00");
    let power = |name: &str| -> f64 {
        let found =
            row("All algorithms", name).into_iter().find_map(|cell| cell.strip_prefix("n^"));
        found.unwrap().parse().unwrap()
    };
    assert!((1.9..2.3).contains(&power("bully")) && (0.9..1.2).contains(&power("ring")));
}

#[test]
fn the_page_needs_no_other_and_shows_every_cell() {
    let mut mine = scenario("crash");
    mine.name = "a <b> & \"c\"".to_owned();
    let algorithms = vec![Algorithm::Bully, Algorithm::Gossip, Algorithm::Lease];
    let plan =
        ComparePlan::new(algorithms, vec![scenario("gc-pause"), mine], 1..=2, &[3, 5]).unwrap();
    let page = html::html(&plan.play_all().unwrap());
    for foreign in ["http", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(!page.contains("a <b>") && page.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
    assert_eq!(page.matches("<svg ").count(), 5, "growth, two maps, two pairs of bars");
    assert_eq!(page.matches("<svg ").count(), page.matches("role=\"img\" aria-label=").count());
    assert!(!page.contains("NaN") && !page.contains("inf\""), "every figure has a place");
}
