//! Holds what the compiler cannot: who may import whom, and how files are kept.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Who may import whom. ARCHITECTURE.md tells why; change it there first.
const IMPORTS: &[(&str, &[&str])] = &[
    ("election", &[]),
    ("clock", &["election"]),
    ("stores", &["election", "clock"]),
    ("replica", &["election", "clock"]),
    ("tether", &["election", "clock"]),
    ("api", &["election"]),
    ("server", &["api", "election", "clock", "signing"]),
    ("client", &["api", "election", "clock", "stores", "replica", "signing"]),
    ("signing", &["election"]),
    ("gateway", &["api", "client", "election", "clock"]),
    ("lab", &["election", "replica", "stores"]),
    (
        "cli",
        &[
            "api", "election", "clock", "stores", "replica", "server", "client", "gateway", "lab",
            "signing", "tether",
        ],
    ),
];

/// Crates that must not come in by any road; deny.toml says why.
const BANNED: &[&str] = &["ring", "openssl-sys", "native-tls", "bincode"];
/// Crates that come in by one road only, which is never a manifest of ours; deny.toml says why.
const ONLY_FOR: &[(&str, &str)] = &[("chrono", "object_store")];
/// What names a banned crate in the lock file without building it: weak features of rustls' certificate
/// checker, and of QUIC, which nothing here is built with. Whoever turned that provider on would be named
/// beside them, as `rustls` itself.
const NAMED_BUT_NOT_BUILT_BY: &[&str] = &["quinn-proto", "rustls-webpki"];

/// The only places that may read a clock other than `regent_clock`, each for its reason.
const CLOCK_READERS: &[(&str, &str)] = &[
    ("crates/clock/src/", "it is the clock"),
    ("crates/stores/src/local/", "the wall clock note of an entry, for people"),
    ("crates/stores/src/time.rs", "the same note, for the other stores"),
    ("crates/server/src/", "request latencies, which no rule reads"),
    (
        "crates/cli/src/cluster/port.rs",
        "the wall clock stamp of a backup, which terms leap ahead of",
    ),
    ("crates/cli/src/flight/recorder.rs", "the wall clock note of a recording, for people"),
    ("crates/cli/src/fence/keys.rs", "the dates of signing keys, which other machines read"),
    (
        "crates/client/src/fencing/signed/",
        "the end of a signed token, which decides nothing between leaders",
    ),
    ("crates/replica/src/node.rs", "the wall clock note, for people"),
    ("crates/replica/src/handle.rs", "how long a successor is waited for, which no rule reads"),
    ("crates/replica/src/store/bid.rs", "how long a request waits, which no rule reads"),
];

/// Files of more lines than this are hard to hold in the head.
const LINES_MAX: usize = 600;

/// Files that a program writes and nobody has to hold in the head; a test compares each with its source.
const GENERATED: &[&str] = &["crates/api/src/grpc/generated.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files(below: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// Every source file but this one, which has to name what it forbids.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    files(&root.join("crates"), ".rs", &mut found);
    assert!(found.len() > 20, "the sources were not found");
    found
        .into_iter()
        .filter(|path| !path.ends_with("tests/tidy.rs"))
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn complain(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let root = root();
    let allowed: BTreeMap<_, _> = IMPORTS.iter().copied().collect();
    let package = |room: &str| match room {
        "client" => "regent".to_owned(),
        other => format!("regent-{other}"),
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_name().unwrap().to_string_lossy().into_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let Some(rooms) = allowed.get(room.as_str()) else {
            wrong.push(format!("crates/{room} is not in the table"));
            continue;
        };
        seen += 1;
        // What tests import is their own affair; what ships is not.
        let mut section = String::new();
        for line in manifest.lines() {
            if let Some(name) = line.trim().strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            }
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let is_ours = name == "regent" || name.starts_with("regent-");
            let is_allowed = rooms.iter().any(|room| package(room) == name);
            if section == "dependencies" && is_ours && !is_allowed {
                wrong.push(format!("crates/{room} imports {name}"));
            }
        }
        if !manifest.contains("[lints]\nworkspace = true") {
            wrong.push(format!("crates/{room} does not take the workspace's lints"));
        }
    }
    assert!(seen >= 7, "the rooms were not found");
    complain("imports against the table of ARCHITECTURE.md", &wrong);
}

/// The packages of the lock file that name this one.
fn dependents<'a>(lock: &'a str, name: &str) -> Vec<&'a str> {
    let names_it = |line: &str| {
        let named = line.trim().trim_start_matches('"').trim_end_matches([',', '"']);
        line.starts_with(" \"") && named.split(' ').next() == Some(name)
    };
    lock.split("[[package]]\n")
        .filter(|package| package.lines().any(names_it))
        .filter_map(|package| package.lines().next()?.strip_prefix("name = \"")?.strip_suffix('"'))
        .collect()
}

#[test]
fn no_banned_crate_is_in_the_lock_file() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let wrong: Vec<String> = BANNED
        .iter()
        .filter(|name| lock.contains(&format!("name = \"{name}\"\n")))
        .filter(|name| {
            dependents(&lock, name).iter().any(|it| !NAMED_BUT_NOT_BUILT_BY.contains(it))
        })
        .map(|name| format!("{name}, for {:?}", dependents(&lock, name)))
        .collect();
    complain("banned crates", &wrong);
    let wrong: Vec<String> = ONLY_FOR
        .iter()
        .filter(|(name, reason)| dependents(&lock, name).iter().any(|it| it != reason))
        .map(|(name, _)| format!("{name}, for {:?}", dependents(&lock, name)))
        .collect();
    complain("crates that are for another one only", &wrong);
}

#[test]
fn every_file_opens_by_saying_what_it_is_and_ends_in_time() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        if !text.starts_with("//!") && !text.starts_with("#!") {
            wrong.push(format!("{name} does not open with a //! header"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX && !GENERATED.contains(&name.as_str()) {
            wrong.push(format!("{name} has {lines} lines; at most {LINES_MAX}"));
        }
    }
    complain("file habits", &wrong);
}

#[test]
fn nothing_unfinished_and_no_path_of_a_machine_is_committed() {
    let words = ["todo!(", "unimplemented!(", "FIXME", "XXX", "HACK", "#[ignore", "/home/"];
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                wrong.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    complain("marks of unfinished work or of somebody's machine", &wrong);
}

#[test]
fn clocks_are_read_in_few_places() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        let is_test = name.contains("/tests/") || name.contains("/benches/");
        let is_allowed = CLOCK_READERS.iter().any(|(place, _)| name.starts_with(place));
        if is_test || is_allowed {
            continue;
        }
        for mark in ["Instant::now", "SystemTime::now", "clock_gettime"] {
            if text.contains(mark) {
                wrong.push(format!("{name} calls {mark}"));
            }
        }
    }
    complain("clocks read outside their places", &wrong);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    let mut documents = Vec::new();
    files(&root, ".md", &mut documents);
    let mut wrong = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !document.parent().unwrap().join(target).exists() {
                let from = document.strip_prefix(&root).unwrap().display().to_string();
                wrong.push(format!("{from} -> {target}"));
            }
        }
    }
    complain("links that lead nowhere", &wrong);
}

#[test]
fn promises_name_tests_that_exist() {
    let root = root();
    let promises = fs::read_to_string(root.join("docs/promises.md")).unwrap();
    let all: String = sources().into_iter().map(|(_, text)| text).collect();
    let mut scripts = Vec::new();
    files(&root.join("crates/election/tests/scripts"), ".script", &mut scripts);
    let mut named = 0;
    let mut wrong = Vec::new();
    for word in promises.split('`').skip(1).step_by(2) {
        let is_fact = word.matches('_').count() >= 3
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !is_fact {
            continue;
        }
        named += 1;
        let exists = all.contains(&format!("fn {word}("))
            || all.contains(&format!("\"{word}\""))
            || scripts.iter().any(|script| script.file_stem().is_some_and(|stem| *stem == *word));
        if !exists {
            wrong.push(word.to_owned());
        }
    }
    assert!(named >= 20, "docs/promises.md names only {named} tests");
    complain("docs/promises.md names tests that do not exist", &wrong);
}
