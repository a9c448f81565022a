//! A process that is killed in the middle of its work loses nothing that it had been told.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{group, leader, reign};
use regent_election::SessionId;
use regent_election::store::Store;
use regent_stores::{LocalStore, Options};

/// Set for the process that writes; this test then plays that part.
const DIRECTORY: &str = "REGENT_TEST_DIRECTORY";
const NAME: &str = "a_killed_process_loses_nothing_it_was_told_and_terms_go_on_rising";

/// Journals so short that many kills meet a rotation or a snapshot.
fn options() -> Options {
    Options { journal_bytes_max: 16 << 10, ..Options::default() }
}

/// The process that is killed: says every term after it was acknowledged.
async fn write_for_ever(directory: &str) {
    let store = LocalStore::open_with(directory, options()).unwrap();
    // The same session every time: one that died in office goes on where it stopped.
    let session = SessionId::new(77).unwrap();
    loop {
        let term = reign(&store, "billing", session).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nterm {term}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs the writer for a while, kills it, and returns the last term that it was told.
fn write_and_kill(directory: &Path, for_how_long: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let term_in = |line: &str| line.strip_prefix("term ").and_then(|term| term.parse().ok());
    let mut last = lines.by_ref().find_map(|line| term_in(&line.unwrap())).unwrap();
    let started_at = Instant::now();
    for line in lines {
        last = term_in(&line.unwrap()).unwrap_or(last);
        if started_at.elapsed() >= for_how_long {
            // Lines that are already in the pipe when it dies were acknowledged too, but the
            // ones read until here are enough to lose.
            child.kill().unwrap();
            break;
        }
    }
    child.wait().unwrap();
    last
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_was_told_and_terms_go_on_rising() {
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return write_for_ever(&directory).await;
    }
    let place = tempfile::tempdir().unwrap();
    let mut highest = 0;
    for round in 0..8 {
        let told = write_and_kill(place.path(), Duration::from_millis(20 * (1 + round % 4)));
        assert!(told >= highest, "terms fell from {highest} to {told}");
        let store = LocalStore::open_with(place.path(), options()).unwrap();
        let found = leader(&store, "billing").await.term.get();
        assert!(found >= told, "{told} was acknowledged, {found} is remembered");
        let history = store.history(&group("billing")).await.unwrap();
        assert!(history.iter().is_sorted_by_key(|change| change.term));
        highest = found;
    }
    assert!(highest > 8, "the writer hardly wrote: {highest}");
}
