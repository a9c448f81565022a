//! Elections as a person would run them: two terminals, one server.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, fact, json, mode, until};

#[test]
fn one_wins_one_loses_and_a_resignation_hands_over() {
    let room = Room::new();
    let server = room.server();
    let (a, b) = (room.text("a.session"), room.text("b.session"));
    let won = server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &a]);
    assert_eq!((fact(&won, "elected"), fact(&won, "term")), ("yes", "1"));

    let lost = server.ask(&room, &["campaign", "billing", "--node", "b"]);
    assert_eq!(lost.code, 1, "{lost:?}");
    assert_eq!((fact(&lost.stdout, "elected"), fact(&lost.stdout, "leader")), ("no", "a"));
    assert_eq!(server.yes(&room, &["leader", "billing"]), "a\n");
    // The loser left nothing behind.
    assert_eq!(server.standbys(&room, "billing"), 0);

    let arguments = ["campaign", "billing", "--node", "b", "--wait", "50s", "--session-file", &b];
    let mut waiting = server.start(&room, &arguments);
    until("b stands", || server.standbys(&room, "billing") == 1);
    let renewed = server.yes(&room, &["renew", "billing", "--session-file", &a]);
    assert!(renewed.starts_with("renewed billing, term 1, valid for 9s "), "{renewed}");
    server.yes(&room, &["resign", "billing", "--session-file", &a]);
    assert_eq!(waiting.line_with("elected"), "elected    yes");
    assert_eq!(waiting.line_with("term"), "term       2");
    assert_eq!(waiting.wait(), 0);
    assert_eq!(server.yes(&room, &["leader", "billing"]), "b\n");

    let late = server.ask(&room, &["renew", "billing", "--term", "1", "--session-file", &a]);
    assert_eq!(late.code, 76, "{late:?}");
    assert!(late.stderr.contains("stop at once"), "{late:?}");
}

#[test]
fn nobody_leads_is_an_answer_without_a_word() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["group", "create", "billing"]);
    let ended = server.ask(&room, &["leader", "billing"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (1, "", ""));
    let ended = server.ask(&room, &["leader", "billing", "--output", "json"]);
    assert_eq!((ended.code, &json(&ended.stdout)["leader"]), (1, &serde_json::Value::Null));
}

/// A program that leads by JSON alone must not have to know what clocks may be wrong.
#[test]
fn a_lease_is_told_to_programs_with_how_long_it_is_safe_and_never_beyond_its_ttl() {
    let room = Room::new();
    let server = room.server();
    let campaign = ["campaign", "billing", "--node", "a", "--ttl", "10s", "--session-file", "a"];
    let won = json(&server.yes(&room, &[&campaign[..], &["--json"]].concat()));
    let renewed = server.yes(&room, &["renew", "billing", "--session-file", "a", "--json"]);
    for answer in [&won, &json(&renewed)] {
        let safe_for_ms = answer["safe_for_ms"].as_u64().unwrap();
        assert!((1..9_900).contains(&safe_for_ms), "drift is taken off: {answer}");
    }
    let seen = json(&server.yes(&room, &["leader", "billing", "--json"]));
    for answer in [&won, &seen] {
        let valid_for_ms = answer["valid_for_ms"].as_u64().unwrap();
        assert!((1..=10_000).contains(&valid_for_ms), "{answer}");
    }
    let lost = server.ask(&room, &["campaign", "billing", "--node", "b", "--json"]);
    assert!(json(&lost.stdout)["safe_for_ms"].is_null(), "{lost:?}");
}

/// One rule for every verb about a group: a name that nobody ever used is no office without a leader.
#[test]
fn a_mistyped_group_is_refused_by_every_verb_with_the_name_that_may_be_meant() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", "a.session"]);
    let with_session = ["--session-file", "a.session"];
    for verb in [
        &["leader", "bilingg"][..],
        &["leader", "bilingg", "--output", "json"],
        &["history", "bilingg"],
        &["why", "bilingg"],
        &["group", "show", "bilingg"],
        &["group", "set", "bilingg", "--lock-delay", "2s"],
        &["group", "delete", "bilingg", "--yes"],
        &["step-down", "bilingg", "--reason", "test"],
        &["token", "show", "bilingg"],
        &["token", "validate", "bilingg", "--term", "1"],
        &["token", "fences", "bilingg"],
        &["token", "forget", "bilingg", "--resource", "db", "--yes"],
        &[&["renew", "bilingg", "--term", "1"][..], &with_session].concat(),
        &[&["resign", "bilingg", "--term", "1"][..], &with_session].concat(),
        &[&["transfer", "bilingg", "--to", "b", "--term", "1"][..], &with_session].concat(),
    ] {
        let ended = server.ask(&room, verb);
        assert_eq!(ended.code, 77, "{verb:?}: {ended:?}");
        let told = "regent: there is no group bilingg; did you mean billing?\n";
        assert!(ended.stderr.starts_with(told), "{verb:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{verb:?}");
    }
    let far = server.ask(&room, &["history", "zebra"]);
    assert!(far.stderr.contains("no group zebra; `regent group list`"), "{far:?}");
    // A watch may come before the first campaign: it says so and goes on.
    let watch = server.start(&room, &["watch", "bilingg"]);
    watch.line_with("nobody leads");
    assert!(watch.errors().contains("did you mean billing?"), "{}", watch.errors());
    server.yes(&room, &["campaign", "bilingg", "--node", "b"]);
    watch.line_with("bilingg: b leads, term 1 (elected)");
}

#[test]
fn a_silent_leader_is_succeeded_by_whoever_waits() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a", "--ttl", "1s"]);
    let watch = server.start(&room, &["watch", "billing"]);
    let line = watch.line();
    let (time, told) = line.split_once("  ").unwrap();
    assert_eq!(told, "billing: a leads, term 1 (present state: leading)");
    assert!(time.len() == "2026-11-18T10:00:00.123Z".len() && time.ends_with('Z'), "{line}");
    let won = server.yes(&room, &["campaign", "billing", "--node", "b", "--wait", "50s"]);
    assert_eq!((fact(&won, "elected"), fact(&won, "term")), ("yes", "2"));
    assert!(watch.line().ends_with("Z  billing: b leads, term 2 (expired)"));
    let history = server.yes(&room, &["history", "billing"]);
    let causes: Vec<_> = history
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(4).unwrap().to_owned())
        .collect();
    assert_eq!(causes, ["elected", "expired"], "{history}");
    let why = server.yes(&room, &["why", "billing"]);
    assert!(why.contains("a was not heard for its whole ttl, and b was next"), "{why}");
}

#[test]
fn a_wait_that_was_for_nothing_leaves_nothing_behind() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    let lost = server.ask(&room, &["campaign", "billing", "--node", "b", "--wait", "300ms"]);
    assert_eq!(lost.code, 1, "{lost:?}");
    let mut waiting = server.start(&room, &["campaign", "billing", "--node", "c", "--wait", "50s"]);
    until("c stands", || server.standbys(&room, "billing") == 1);
    waiting.signal("INT");
    assert_eq!(waiting.wait(), 130);
    assert_eq!(server.standbys(&room, "billing"), 0);
}

#[test]
fn a_leader_hands_over_to_the_one_it_names() {
    let room = Room::new();
    let server = room.server();
    let a = room.text("a.session");
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &a]);
    let refused = server.ask(&room, &["transfer", "billing", "--to", "c", "--session-file", &a]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("c does not stand in billing"), "{refused:?}");
    for node in ["b", "c"] {
        let file = room.text(node);
        let lost = ["campaign", "billing", "--node", node, "--session-file", &file];
        assert_eq!(server.ask(&room, &lost).code, 1);
    }
    server.yes(&room, &["transfer", "billing", "--to", "c", "--session-file", &a]);
    assert_eq!(server.yes(&room, &["leader", "billing"]), "c\n");
    let kept = server.ask(&room, &["renew", "billing", "--session-file", &a]);
    assert_eq!(kept.code, 64, "the session file still knows a term that is over: {kept:?}");
}

#[test]
fn a_session_file_is_for_its_owner_alone_and_is_renewed_when_its_session_has_ended() {
    let room = Room::new();
    let server = room.server();
    let file = room.text("a.session");
    let campaign =
        ["campaign", "billing", "--node", "a", "--ttl", "500ms", "--session-file", &file];
    server.yes(&room, &campaign);
    assert_eq!(mode(&room.path("a.session")), 0o600);
    let before = std::fs::read_to_string(&file).unwrap();
    until("the session ends", || server.ask(&room, &["leader", "billing"]).code == 1);
    let again = server.ask(&room, &campaign);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stderr.contains("has ended; opening another one"), "{again:?}");
    assert_eq!(fact(&again.stdout, "term"), "2");
    assert_ne!(std::fs::read_to_string(&file).unwrap(), before);
    server.yes(&room, &["session", "close", "--session-file", &file]);
    assert!(!room.path("a.session").exists());
}

#[test]
fn the_secret_of_a_session_is_shown_to_its_owner_only() {
    let room = Room::new();
    let server = room.serve("127.0.0.1:0", &["--store", "memory:", "--log-level", "trace"]);
    let secret = "5ec4e7d1907b3a6f824c15e9b3f0c0de";
    let watch = server.start(&room, &["watch", "--output", "json"]);
    watch.line_with("STATE");
    let arguments = ["campaign", "billing", "--node", "a", "--session", secret];
    server.yes(&room, &arguments);
    server.yes(&room, &["renew", "billing", "--term", "1", "--session", secret]);
    let mut seen = String::new();
    for arguments in [
        &["leader", "billing", "--verbose", "--output", "json"][..],
        &["group", "show", "billing", "--output", "json"],
        &["group", "list", "--output", "json"],
        &["history", "billing", "--output", "json"],
    ] {
        seen.push_str(&server.yes(&room, arguments));
    }
    server.yes(&room, &["resign", "billing", "--term", "1", "--session", secret]);
    seen.push_str(&watch.line_with("resigned"));
    seen.push_str(&server.log());
    assert!(seen.contains("billing"));
    assert!(!seen.contains(secret), "{seen}");
}

#[test]
fn an_operator_ends_a_leadership_and_says_why() {
    let room = Room::new();
    let server = room.server();
    let a = room.text("a.session");
    let nobody = server.ask(&room, &["step-down", "billing", "--reason", "x"]);
    assert_eq!(nobody.code, 77, "{nobody:?}");
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &a]);
    let told = server.yes(&room, &["step-down", "billing", "--reason", "kernel update"]);
    assert_eq!(told, "billing: the leader was told to stop; it has at most 10s\n");
    let renew = server.ask(&room, &["renew", "billing", "--session-file", &a, "--output", "json"]);
    assert_eq!(renew.code, 76, "{renew:?}");
    let problem = json(renew.stderr.lines().last().unwrap());
    assert_eq!(problem["code"], "TENURE_ENDING");
    server.yes(&room, &["resign", "billing", "--session-file", &a]);
    let history = server.yes(&room, &["history", "billing"]);
    assert!(history.lines().last().unwrap().ends_with("stepped_down  kernel update"), "{history}");

    server.yes(&room, &["campaign", "billing", "--node", "b"]);
    let forced = ["step-down", "billing", "--reason", "it hangs", "--immediate"];
    let unsure = server.ask(&room, &forced);
    assert_eq!(unsure.code, 64, "{unsure:?}");
    assert!(unsure.stderr.contains("add --yes"), "{unsure:?}");
    let forced = server.yes(&room, &[&forced[..], &["--yes"]].concat());
    assert!(forced.contains("only fencing protects"), "{forced}");
}

#[test]
fn a_policy_is_created_changed_part_by_part_and_returned_to_the_default() {
    let room = Room::new();
    let server = room.server();
    server.yes(&room, &["group", "create", "billing", "--allow", "web-*", "--ttl-max", "30s"]);
    let refused = server.ask(&room, &["campaign", "billing", "--node", "db-1"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("db-1 may not campaign in billing"), "{refused:?}");
    let too_long = ["campaign", "billing", "--node", "web-1", "--ttl", "1m"];
    let refused = server.ask(&room, &too_long);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("500 ms to 30000 ms"), "{refused:?}");
    let again = server.ask(&room, &["group", "create", "billing"]);
    assert_eq!(again.code, 77, "{again:?}");
    assert!(again.stderr.contains("regent group set billing"), "{again:?}");

    server.yes(&room, &["group", "set", "billing", "--lock-delay", "2s"]);
    let shown = json(&server.yes(&room, &["group", "show", "billing", "--output", "json"]));
    let policy = &shown["policy"];
    assert_eq!(policy["lock_delay_ms"], 2000);
    assert_eq!(policy["ttl_ms_max"], 30_000);
    assert_eq!(policy["allow"], serde_json::json!(["web-*"]));
    server.yes(&room, &["group", "set", "billing", "--default"]);
    let shown = json(&server.yes(&room, &["group", "show", "billing", "--output", "json"]));
    assert_eq!(shown["own_policy"], false);

    let unsure = server.ask(&room, &["group", "delete", "billing"]);
    assert_eq!(unsure.code, 64, "{unsure:?}");
    assert_eq!(server.yes(&room, &["group", "delete", "billing", "--yes"]), "billing is deleted\n");
    let gone = server.ask(&room, &["group", "show", "billing"]);
    assert_eq!(gone.code, 77, "{gone:?}");
}

#[test]
fn a_listing_goes_on_over_many_pages() {
    let room = Room::new();
    let server = room.serve("127.0.0.1:0", &["--store", "memory:"]);
    let mut names: Vec<String> = (0..7).map(|n| format!("team-{}/svc-{n}", n % 2)).collect();
    for name in &names {
        server.yes(&room, &["campaign", name, "--node", "a", "--ttl", "1m"]);
    }
    names.sort_unstable();
    let list = server.yes(&room, &["group", "list"]);
    let shown: Vec<_> =
        list.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(shown, names);
    let some = server.yes(&room, &["group", "list", "--prefix", "team-1/"]);
    assert_eq!(some.lines().count(), 1 + 3, "{some}");
}
