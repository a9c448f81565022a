//! Holds what the compiler cannot: who may import whom, and how files are kept.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

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
    ("crates/stores/src/memory/", "the wall clock note of an entry, for people"),
    ("crates/server/src/", "request latencies, which no rule reads"),
    ("crates/servers/src/", "how long tests wait for a server, which no rule reads"),
    ("crates/service/src/wall.rs", "the wall clock stamp of a backup, which terms leap ahead of"),
    ("crates/recording/src/recorder.rs", "the wall clock note of a recording, for people"),
    ("crates/jwt/src/source.rs", "how old the keys of an issuer are, which no election depends on"),
    ("crates/audit/src/writer.rs", "the wall clock note of a line, for people"),
    ("crates/cli/src/wall.rs", "dates of keys and certificates, and times that people read"),
    (
        "crates/client/src/fencing/signed/",
        "the end of a signed token, which decides nothing between leaders",
    ),
    ("crates/replica/src/node.rs", "the wall clock note, for people"),
    ("crates/replica/src/handle.rs", "how long a successor is waited for, which no rule reads"),
];

/// Files of more lines than this are hard to hold in the head.
const LINES_MAX: usize = 600;

/// Folders of files that a program writes and people do not read; a test compares them with their source.
const GENERATED: &str = "generated";

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

/// Every source file that people read, but this one, which has to name what it forbids.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    files(&root.join("crates"), ".rs", &mut found);
    assert!(found.len() > 20, "the sources were not found");
    found
        .into_iter()
        .filter(|path| !path.ends_with("tests/tidy.rs"))
        .filter(|path| path.parent().is_some_and(|folder| !folder.ends_with(GENERATED)))
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn complain(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

/// Which crates each crate may import, by the table "Crates" of ARCHITECTURE.md.
fn import_table(page: &str) -> BTreeMap<String, Vec<String>> {
    let section = page.split("\n## Crates\n").nth(1).expect("a section Crates");
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert_eq!(rows[0], ["crate", "what it is", "may import", "start reading at"]);
    let all: Vec<&str> = rows[1..].iter().map(|row| row[0]).collect();
    let allowed = |row: &[&str]| -> Vec<String> {
        assert_eq!(row.len(), 4, "{row:?}");
        let names = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let listed = match (row[2], row[2].strip_prefix("all but ")) {
            ("nothing", _) => Vec::new(),
            (_, Some(not)) => {
                let not = names(not);
                unknown(&not, &all);
                let is_other =
                    |name: &&&str| **name != row[0] && !not.contains(&(**name).to_owned());
                all.iter().filter(is_other).map(|name| (*name).to_owned()).collect()
            }
            (some, None) => names(some),
        };
        unknown(&listed, &all);
        listed
    };
    let table: BTreeMap<_, _> =
        rows[1..].iter().map(|row| (row[0].to_owned(), allowed(row))).collect();
    assert_eq!(table.len(), all.len(), "a crate has two rows");
    table
}

fn unknown(names: &[String], all: &[&str]) {
    let lost: Vec<_> = names.iter().filter(|name| !all.contains(&name.as_str())).collect();
    assert!(lost.is_empty(), "the table names crates without a row: {lost:?}");
}

fn imports() -> BTreeMap<String, Vec<String>> {
    import_table(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap())
}

/// Crates of ours that a manifest names in its dependencies. What tests import is their own affair; what
/// ships is not.
fn imported(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(name) = line.trim().strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let ships = section == "dependencies" || section.ends_with(".dependencies");
        if ships && (name == "regent" || name.starts_with("regent-")) {
            found.push(name);
        }
    }
    found
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let root = root();
    let allowed = imports();
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
        let Some(rooms) = allowed.get(&room) else {
            wrong.push(format!("crates/{room} is not in the table"));
            continue;
        };
        seen += 1;
        for name in imported(&manifest) {
            if !rooms.iter().any(|room| package(room) == name) {
                wrong.push(format!("crates/{room} imports {name}"));
            }
        }
        // A permission that is not used says something untrue about the crate.
        for room_allowed in rooms {
            if !imported(&manifest).contains(&package(room_allowed).as_str()) {
                wrong.push(format!("crates/{room} does not import {room_allowed}"));
            }
        }
        if !manifest.contains("[lints]\nworkspace = true") {
            wrong.push(format!("crates/{room} does not take the workspace's lints"));
        }
    }
    assert_eq!(seen, allowed.len(), "a row of the table has no crate, or a crate has no row");
    complain("imports against the table of ARCHITECTURE.md", &wrong);
}

#[test]
fn the_table_of_crates_is_read_as_it_stands() {
    let head = "x\n## Crates\n\n| crate | what it is | may import | start reading at |\n|---|---|---|---|\n";
    let rows = "| a | rules | nothing | `lib.rs` |\n| b | a clock | a | `lib.rs` |\n\
                | c | it | a, b | `x.rs`, `y.rs` |\n| d | command | all but b | `main.rs` |\n\n## Next\n| e | | | |\n";
    let table = import_table(&format!("{head}{rows}"));
    let of = |name: &str| table[name].join(" ");
    assert_eq!(table.len(), 4);
    assert_eq!(
        (of("a"), of("b"), of("c"), of("d")),
        ("".into(), "a".into(), "a b".into(), "a c".into())
    );
    let bad = format!("{head}| a | rules | z | `lib.rs` |\n");
    assert!(std::panic::catch_unwind(|| import_table(&bad)).is_err(), "z has no row");
    let manifest = "[dependencies]\nregent-a.workspace = true\nserde = \"1\"\n[target.'cfg(unix)'.dependencies]\n\
                    regent = { workspace = true }\n[dev-dependencies]\nregent-b.workspace = true\n";
    assert_eq!(imported(manifest), ["regent-a", "regent"]);
}

#[test]
fn only_the_command_imports_the_simulator() {
    // `fuzz` ships nothing.
    let may = ["cli", "fuzz", "lab"];
    let mut wrong: Vec<String> = imports()
        .iter()
        .filter(|(room, rooms)| !may.contains(&room.as_str()) && rooms.iter().any(|it| it == "lab"))
        .map(|(room, _)| format!("the table lets crates/{room} import lab"))
        .collect();
    for (name, text) in sources() {
        let room = name.split('/').nth(1).unwrap_or_default();
        let ships = name.split('/').nth(2) == Some("src");
        if ships && !may.contains(&room) && text.contains("regent_lab") {
            wrong.push(name);
        }
    }
    complain("the simulator in what ships", &wrong);
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
        if lines > LINES_MAX {
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
fn only_the_ledger_couples_a_state_with_the_time_of_its_sessions() {
    let mut wrong = Vec::new();
    for (name, text) in sources().iter().filter(|(name, _)| !name.starts_with("crates/election/")) {
        let is_named = |line: &&str| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "Deadlines")
        };
        wrong.extend(text.lines().find(is_named).map(|line| format!("{name}: {}", line.trim())));
    }
    complain("`Deadlines` outside crates/election; drive the `Ledger` instead", &wrong);
}

/// Words between backticks on a page that read like the name of a test, and are none.
fn unknown_tests(page: &str, named_min: usize) {
    let root = root();
    let text = fs::read_to_string(root.join(page)).unwrap();
    let all: String = sources().into_iter().map(|(_, text)| text).collect();
    let mut scripts = Vec::new();
    files(&root.join("crates/election/tests/scripts"), ".script", &mut scripts);
    let mut named = 0;
    let mut wrong = Vec::new();
    for word in text.split('`').skip(1).step_by(2) {
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
    assert!(named >= named_min, "{page} names only {named} tests");
    complain(&format!("{page} names tests that do not exist"), &wrong);
}

#[test]
fn promises_and_attacks_name_tests_that_exist() {
    unknown_tests("docs/promises.md", 20);
    unknown_tests("docs/attacks.md", 60);
}

/// Rules as docs/semantics.md defines them: the number in each heading.
fn rules(page: &str) -> Vec<String> {
    let number = |line: &str| Some(line.strip_prefix("### ")?.split_once(". ")?.0.to_owned());
    page.lines().filter_map(number).filter(|it| it.bytes().all(|b| b.is_ascii_digit())).collect()
}

/// Promises as docs/promises.md defines them: the first cell of a row.
fn promises(page: &str) -> Vec<String> {
    let first = |line: &str| Some(line.strip_prefix("| ")?.split(" |").next()?.to_owned());
    page.lines().filter_map(first).filter(|cell| is_promise(cell)).collect()
}

fn is_promise(word: &str) -> bool {
    let digits = word.strip_prefix(['S', 'L']).unwrap_or_default();
    (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The numbers after every "semantics", also where a comment breaks the line between them or lists several.
fn cited_rules(text: &str) -> Vec<String> {
    let text: Vec<&str> = text
        .lines()
        .flat_map(|line| line.trim_start_matches([' ', '/', '!', '#']).split_whitespace())
        .collect();
    let mut cited = Vec::new();
    let mut is_list = false;
    for word in text {
        let bare = word.trim_matches(|it: char| !it.is_ascii_alphanumeric());
        if bare.eq_ignore_ascii_case("semantics") {
            is_list = true;
        } else if is_list && bare != "and" {
            // `17](semantics.md#17-…)` is a link around the number.
            let number = bare.split(']').next().unwrap_or_default();
            is_list = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            if is_list {
                cited.push(number.to_owned());
            }
            is_list &= word.ends_with(',') || !word.ends_with(|it: char| it.is_ascii_punctuation());
        }
    }
    cited
}

/// Every word that has the shape of a promise's name.
fn cited_promises(text: &str) -> Vec<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| is_promise(word)).map(str::to_owned).collect()
}

/// What this text cites and the two pages do not define.
fn dangling(text: &str, rules: &[String], promises: &[String]) -> Vec<String> {
    let lost = |cited: Vec<String>, known: &[String]| {
        cited.into_iter().filter(|it| !known.contains(it)).collect::<Vec<_>>()
    };
    let mut wrong: Vec<_> = lost(cited_rules(text), rules)
        .into_iter()
        .map(|number| format!("semantics {number}"))
        .collect();
    wrong.extend(lost(cited_promises(text), promises));
    wrong
}

#[test]
fn every_cited_rule_and_promise_is_defined() {
    let root = root();
    let page = |name: &str| fs::read_to_string(root.join("docs").join(name)).unwrap();
    let (rules, promises) = (rules(&page("semantics.md")), promises(&page("promises.md")));
    let counted: Vec<_> = (1..=rules.len()).map(|number| number.to_string()).collect();
    assert_eq!(rules, counted, "the rules are numbered without gaps");
    assert!(promises.len() > 20, "docs/promises.md defines only {promises:?}");
    let mut texts = sources();
    for ending in [".md", ".script", ".proto", ".toml"] {
        let mut found = Vec::new();
        files(&root, ending, &mut found);
        texts.extend(found.into_iter().map(|path| {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        }));
    }
    let cited: usize = texts.iter().map(|(_, text)| cited_rules(text).len()).sum();
    assert!(cited >= 100, "only {cited} citations of rules were found");
    let mut wrong = Vec::new();
    for (name, text) in texts {
        let lost = dangling(&text, &rules, &promises);
        wrong.extend(lost.into_iter().map(|what| format!("{name}: {what}")));
    }
    complain("citations that docs/semantics.md and docs/promises.md do not define", &wrong);
}

#[test]
fn a_citation_of_a_rule_or_promise_that_does_not_exist_is_found() {
    let rules = rules("## Clocks\n\n### 1. Lease clock\n\n### 2. Margin\n\n### Terms\n");
    assert_eq!(rules, ["1", "2"]);
    let promises =
        promises("| | promise |\n|---|---|\n| S1 | one leader |\n| S1 in the library | same |\n");
    assert_eq!(promises, ["S1"]);
    let lost = |text: &str| dangling(text, &rules, &promises);
    for fine in [
        "//! Holds S1 (semantics 1, 2).",
        "/// Semantics 2: the margin, 3 times.",
        "see [semantics 1](semantics.md#1-lease-clock) and 9 more",
        "semantics of *offer* for 7 groups; AS12, S123, L and _S9",
    ] {
        assert!(lost(fine).is_empty(), "{fine}: {:?}", lost(fine));
    }
    assert_eq!(lost("// keeps L9 (semantics 38)"), ["semantics 38", "L9"]);
    assert_eq!(lost("//! no sessions (semantics\n//! 23)."), ["semantics 23"]);
    assert_eq!(lost("# Semantics 1, 5 and 2, promises S1 and S13"), ["semantics 5", "S13"]);
    assert_eq!(lost("[semantics 40](semantics.md#40-none)"), ["semantics 40"]);
}

/// Public types that may share a name because they are one thing on several hops.
const SAME_THING: &[(&str, &str)] = &[];

/// The name of the public type that a line defines, if it defines one.
fn public_type(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix("pub ")?;
    let named = ["struct ", "enum ", "union ", "trait ", "type "];
    let rest = named.iter().find_map(|kind| line.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Names of public types and the crates that define them, without those that fewer than three define.
fn overloaded(sources: &[(String, String)]) -> Vec<String> {
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, text) in sources {
        let Some((room, _)) =
            file.strip_prefix("crates/").and_then(|file| file.split_once("/src/"))
        else {
            continue;
        };
        for name in text.lines().filter_map(public_type) {
            let rooms = homes.entry(name).or_default();
            if !rooms.contains(&room) {
                rooms.push(room);
            }
        }
    }
    homes
        .into_iter()
        .filter(|(name, rooms)| rooms.len() > 2 && SAME_THING.iter().all(|(same, _)| same != name))
        .map(|(name, rooms)| format!("{name}: {}", rooms.join(", ")))
        .collect()
}

#[test]
fn a_public_type_name_has_one_meaning() {
    complain("public types with one name in three crates; qualify them", &overloaded(&sources()));
}

#[test]
fn a_public_type_name_in_three_crates_is_found() {
    let file = |room: &str, text: &str| (format!("crates/{room}/src/x.rs"), text.to_owned());
    let two = [file("a", "pub struct Report {"), file("b", "  pub enum Report<'a> {")];
    assert!(overloaded(&two).is_empty());
    let mut three = two.to_vec();
    three.push(file("c", "pub(crate) struct Report;"));
    assert!(overloaded(&three).is_empty(), "only what others can name counts");
    three.push(file("c", "pub type Report = u8;"));
    assert_eq!(overloaded(&three), ["Report: a, b, c"]);
}
