//! A store that runs out of file descriptors keeps what it acknowledged (S6).
//!
//! One test, and a process of its own: the limit holds for all of it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::fs::File;

use common::{leader, reign, secret};
use regent_stores::{LocalStore, Options};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Opens files until no more can be opened, then closes one.
fn leave_one_descriptor() -> Vec<File> {
    let limit = Rlimit { current: Some(128), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.pop().unwrap();
    taken
}

#[tokio::test]
async fn a_journal_that_could_be_begun_but_not_made_durable_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let options = Options { journal_bytes_max: 16 << 10, ..Options::default() };
    let store = LocalStore::open_with(place.path(), options).unwrap();
    let alice = secret();
    let taken = leave_one_descriptor();
    while !place.path().join("journal-1.log").exists() {
        reign(&store, "billing", alice).await;
    }
    // Acknowledged after the next journal was begun, wherever it went.
    reign(&store, "billing", alice).await;
    let last = reign(&store, "billing", alice).await;
    drop(taken);
    drop(store);
    let store = LocalStore::open(place.path()).unwrap();
    assert_eq!(leader(&store, "billing").await.term, last);
}
