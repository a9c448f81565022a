//! `regent lab` as a command: what it prints, and what a script may conclude from its exit code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod process;

use process::{Room, json};

#[test]
fn a_sweep_counts_what_it_ran_and_gives_the_same_on_any_number_of_threads() {
    let room = Room::new();
    let sweep = |threads: &str| {
        let ended = room.run(&["lab", "sweep", "--seeds", "6", "--threads", threads, "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        json(&ended.stdout)
    };
    let (one, two) = (sweep("1"), sweep("2"));
    assert_eq!(one, two);
    assert_eq!((one["done"].as_u64(), one["failed"].as_u64()), (Some(6), Some(0)));
    assert!(one["stats"]["raft_elections"].as_u64().unwrap() > 0, "{one}");

    let shown = room.run(&["lab", "sweep", "--seeds", "2", "--first", "5"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.stdout.starts_with("2 seeds from 5 on in "), "{shown:?}");
    assert!(shown.stdout.contains("no promise was broken"), "{shown:?}");
    assert_eq!(shown.stderr, "", "a bar is for terminals");
}

#[test]
fn a_replay_tells_the_same_history_to_people_and_to_programs() {
    let room = Room::new();
    let small = ["lab", "replay", "--seed", "7", "--chaos-ms", "500", "--members", "2"];
    let people = room.run(&small);
    assert_eq!(people.code, 0, "{people:?}");
    assert!(people.stdout.starts_with("seed 7: "), "{people:?}");
    let programs = room.run(&[&small[..], &["--json"]].concat());
    assert_eq!(programs.code, 0, "{programs:?}");
    let lines: Vec<serde_json::Value> = programs.stdout.lines().map(json).collect();
    assert!(lines.len() > 50);
    assert!(lines.iter().all(|line| line["t"].is_u64() && line["ev"].is_string()));
    let ended = people.stdout.lines().last().unwrap();
    assert!(ended == "every promise was kept" || ended.starts_with("void: "), "{ended}");
}

#[test]
fn elections_in_a_register_are_swept_and_replayed_in_the_same_way() {
    let room = Room::new();
    let sweep = |threads: &str| {
        let words = ["lab", "sweep", "--store", "lease", "--seeds", "4", "--threads", threads];
        let ended = room.run(&[&words[..], &["--json"]].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        json(&ended.stdout)
    };
    let (one, two) = (sweep("1"), sweep("2"));
    assert_eq!(one, two);
    assert_eq!((one["done"].as_u64(), one["failed"].as_u64()), (Some(4), Some(0)));
    assert!(one["stats"]["takeovers"].as_u64().unwrap() > 0, "{one}");
    let replay = room.run(&["lab", "replay", "--store", "lease", "--seed", "7", "--story"]);
    assert_eq!(replay.code, 0, "{replay:?}");
    assert!(replay.stdout.contains("hosts that share a register"), "{replay:?}");
    let unknown = room.run(&["lab", "sweep", "--store", "paper"]);
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.stderr.contains("replica or lease"), "{unknown:?}");
}

#[test]
fn what_the_lab_cannot_do_is_refused_with_the_way_out() {
    let room = Room::new();
    let unknown = room.run(&["lab", "replay", "--seed", "1", "--without", "gremlins"]);
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.stderr.contains("there is no fault gremlins"), "{unknown:?}");
    let story = room.run(&["lab", "scenario", "no such story"]);
    assert_eq!(story.code, 64, "{story:?}");
    assert!(story.stderr.contains("regent lab scenarios"), "{story:?}");
}

#[test]
fn a_binary_says_whether_mistakes_are_built_in() {
    let room = Room::new();
    let mutants = room.run(&["lab", "mutants", "--only", "no-pre-vote", "--seeds", "100"]);
    if cfg!(feature = "mutants") {
        assert_eq!(mutants.code, 0, "{mutants:?}");
        assert!(mutants.stdout.contains("no-pre-vote"), "{mutants:?}");
    } else {
        assert_eq!(mutants.code, 77, "{mutants:?}");
        assert!(mutants.stderr.contains("--features mutants"), "{mutants:?}");
    }
}

#[test]
fn an_algorithm_is_played_the_same_way_for_people_and_for_programs() {
    let room = Room::new();
    let words = ["lab", "run", "bully", "flapping", "--seed", "3", "--nodes", "4"];
    let people = room.run(&words);
    assert_eq!(people.code, 0, "{people:?}");
    assert!(people.stdout.starts_with("bully, flapping: "), "{people:?}");
    assert!(people.stdout.contains("==> D leads"), "{people:?}");
    assert_eq!(people.stdout, room.run(&words).stdout);
    let programs = room.run(&[&words[..], &["--json"]].concat());
    let lines: Vec<serde_json::Value> = programs.stdout.lines().map(json).collect();
    let leads = lines.iter().filter(|line| line["ev"] == "leads" && line["again"] == false).count();
    let figures = &lines.last().unwrap()["figures"];
    assert_eq!(figures["elections"].as_u64(), Some(leads as u64), "{figures}");
    assert!(leads > 10, "the highest node flaps: {leads}");
}

#[test]
fn a_scenario_of_ones_own_is_checked_and_played() {
    let room = Room::new();
    let file = room.path("my.scenario");
    std::fs::write(&file, "about mine\nnodes 3\nlasts 5s\nat 2s crash leader\n").unwrap();
    let file = file.to_str().unwrap();
    let checked = room.run(&["lab", "check", file]);
    assert_eq!((checked.code, checked.stdout.as_str()), (0, "mine: 3 nodes, 5s, strikes: 1\n"));
    let played = room.run(&["lab", "run", "ring", file]);
    assert_eq!(played.code, 0, "{played:?}");
    assert!(played.stdout.contains("C crashes"), "{played:?}");

    std::fs::write(file, "about mine\nat 2s crsh leader\n").unwrap();
    let refused = room.run(&["lab", "check", file]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("my.scenario:2:7: \"crsh\""), "{refused:?}");
    let unknown = room.run(&["lab", "run", "ring", "earthquake"]);
    assert_eq!(unknown.code, 64, "{unknown:?}");
    assert!(unknown.stderr.contains("regent lab algorithms"), "{unknown:?}");
}

#[test]
fn what_happened_is_drawn_as_text_and_as_a_picture() {
    let room = Room::new();
    let words = ["lab", "run", "raft", "clean-partition", "--seed", "2"];
    let draw = |more: &[&str]| {
        let ended = room.run(&[&words[..], more].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    };
    let timeline = draw(&["--timeline"]);
    let two = timeline.lines().find(|row| row.starts_with("two")).unwrap();
    assert!(!two.contains('!'), "Raft never has two that may act: {timeline}");
    assert!(timeline.contains('#') && timeline.contains('-'), "{timeline}");
    assert!(draw(&["--timeline", "svg"]).starts_with("<svg "));
    let diagram = draw(&["--diagram", "mermaid", "--from", "5s", "--to", "6s"]);
    assert!(diagram.starts_with("sequenceDiagram\n"), "{diagram}");
    assert!(diagram.contains("network split"), "{diagram}");
    assert!(draw(&["--diagram", "svg"]).ends_with("</svg>\n"));
}

#[test]
fn time_outs_for_a_network_are_found_or_what_is_in_the_way_is_said() {
    let room = Room::new();
    let words = ["lab", "tune", "--rtt", "2ms..20ms", "--loss", "1%", "--seeds", "2"];
    let tune = |more: &[&str]| room.run(&[&words[..], more].concat());
    let file = room.path("curve.svg");
    let drawn = ["--failover", "20s", "--svg", file.to_str().unwrap()];
    let people = tune(&drawn);
    assert_eq!(people.code, 0, "{people:?}");
    assert_eq!(people.stdout.matches("Recommended: ").count(), 2, "{people:?}");
    for part in ["false failovers at most 1 a week", "=>", "election_min = \"", "--ttl "] {
        assert!(people.stdout.contains(part), "{part} is missing: {people:?}");
    }
    assert_eq!(people.stderr, "", "a bar is for terminals");
    let picture = std::fs::read_to_string(file).unwrap();
    assert!(picture.starts_with("<svg ") && picture.matches("<polyline ").count() == 4);

    let of = |threads: &str| {
        let ended = tune(&["--failover", "20s", "--threads", threads, "--json"]);
        assert_eq!(ended.code, 0, "{ended:?}");
        json(&ended.stdout)
    };
    let (one, two) = (of("1"), of("2"));
    assert_eq!(one, two, "any number of threads gives the same");
    let chosen = &one["lease"]["chosen"];
    assert!(chosen["ttl_ms"].as_u64().unwrap() >= 2 * chosen["renew_every_ms"].as_u64().unwrap());
    for of in ["lease", "log"] {
        let rungs = one[of]["rungs"].as_array().unwrap();
        assert_eq!(rungs.len(), 7, "{one}");
        assert!(rungs.iter().all(|rung| rung["measured"]["failovers"].as_u64().unwrap() >= 8));
    }

    let hasty = tune(&["--failover", "300ms"]);
    assert_eq!(hasty.code, 1, "{hasty:?}");
    assert!(hasty.stdout.contains("raise --failover"), "{hasty:?}");
    let wrong = room.run(&["lab", "tune", "--rtt", "20ms..2ms"]);
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(wrong.stderr.contains("write it like 2ms..20ms"), "{wrong:?}");
}

/// The tags of a page are closed in the order in which they were opened.
fn is_well_formed(page: &str) -> bool {
    let mut open: Vec<String> = Vec::new();
    let (_, body) = page.split_once("<!DOCTYPE html>").unwrap();
    for part in body.split('<').skip(1) {
        let Some((tag, _)) = part.split_once('>') else { return false };
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop().as_deref() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name.to_owned());
        }
    }
    open.is_empty()
}

#[test]
fn a_comparison_tells_people_programs_and_browsers_the_same() {
    let room = Room::new();
    let (page, sheet) = (room.path("report.html"), room.path("figures.csv"));
    let words = [
        "lab",
        "compare",
        "--seeds",
        "1..3",
        "--algorithms",
        "bully,lease",
        "--scenarios",
        "crash,long-pause",
        "--sizes",
        "3,5",
    ];
    let compare = |more: &[&str]| {
        let ended = room.run(&[&words[..], more].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    };
    let files = ["--html", page.to_str().unwrap(), "--csv", sheet.to_str().unwrap()];
    let people = compare(&[&["--threads", "1"], &files[..]].concat());
    assert!(people.starts_with("seeds 1 to 3, 30 runs\n"), "{people}");
    assert_eq!(people, compare(&["--threads", "2"]), "threads change nothing");

    let lines: Vec<serde_json::Value> = compare(&["--json"]).lines().map(json).collect();
    let cells: Vec<_> = lines.iter().filter(|line| line["kind"] == "cell").collect();
    assert_eq!(cells.len(), 4);
    let paused =
        cells.iter().find(|cell| cell["algorithm"] == "lease" && cell["scenario"] == "long-pause");
    let paused = paused.unwrap();
    assert_eq!((paused["runs"].as_u64(), paused["wrong_writes"].as_u64()), (Some(3), Some(3)));
    assert_eq!(paused["wrong_writes_fenced"].as_u64(), Some(0));
    assert!(people.lines().any(|line| {
        let row: Vec<&str> = line.split_whitespace().collect();
        row.starts_with(&["long-pause", "lease"]) && row.ends_with(&["1.00", "0"])
    }));

    let sheet = std::fs::read_to_string(sheet).unwrap();
    let rows: Vec<Vec<&str>> = sheet.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{sheet}");
    assert_eq!(rows.len(), 1 + 4 + 2 * 2 + 2);
    let column = |name: &str| rows[0].iter().position(|head| *head == name).unwrap();
    for cell in cells {
        let row = rows.iter().find(|row| row[1] == cell["algorithm"] && row[2] == cell["scenario"]);
        for name in ["elections", "messages", "leaderless_ns", "wrong_writes"] {
            assert_eq!(row.unwrap()[column(name)], cell[name].to_string(), "{name}");
        }
    }

    let page = std::fs::read_to_string(page).unwrap();
    assert!(is_well_formed(&page));
    assert!(!page.contains("http") && !page.contains("<script"), "nothing from elsewhere");
}

#[test]
fn a_comparison_of_what_there_is_not_names_what_there_is() {
    let room = Room::new();
    let refuse = |words: &[&str]| {
        let ended = room.run(&[&["lab", "compare"], words].concat());
        assert_eq!(ended.code, 64, "{ended:?}");
        ended.stderr
    };
    let algorithm = refuse(&["--algorithms", "bully,quorum"]);
    assert!(algorithm.contains("quorum") && algorithm.contains("chang-roberts"), "{algorithm}");
    let scenario = refuse(&["--scenarios", "earthquake"]);
    assert!(scenario.contains("earthquake") && scenario.contains("gc-pause"), "{scenario}");
    let seeds = refuse(&["--seeds", "5..4"]);
    assert!(seeds.contains("1..1000 means seeds 1 to 1000"), "{seeds}");
    let nodes = refuse(&["--scenarios", "three-way-partition", "--nodes", "3"]);
    assert!(nodes.contains("the scenario names E, and 3 nodes are A to C"), "{nodes}");
    let document = room.path("plain.md");
    std::fs::write(&document, "no marks\n").unwrap();
    let unmarked = refuse(&["--update", document.to_str().unwrap()]);
    assert!(unmarked.contains("there is not one of each"), "{unmarked}");
}

#[test]
fn a_document_gets_the_tables_between_its_marks() {
    let room = Room::new();
    let document = room.path("notes.md");
    let marks =
        "before\n<!-- regent lab compare: begin -->\n<!-- regent lab compare: end -->\nafter\n";
    std::fs::write(&document, marks).unwrap();
    let words = ["--algorithms", "ring", "--scenarios", "calm", "--no-scale", "--seeds", "2"];
    let update = ["--update", document.to_str().unwrap()];
    let ended = room.run(&[&["lab", "compare"], &words[..], &update].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    let text = std::fs::read_to_string(&document).unwrap();
    assert!(text.starts_with("before\n<!--") && text.ends_with("-->\nafter\n"), "{text}");
    assert!(text.contains("Seeds 1 to 2; algorithms: 1, scenarios: 1, runs: 2."), "{text}");
    assert!(text.contains("| calm | "), "{text}");
}
