//! The daily part of fuzzing: every target is fed the files of its corpus (`fuzz/corpus`), and small changes of them.
//!
//! `REWRITE=1 cargo test -p regent-fuzz` writes the seeds, which are real encodings, again. What a fuzzer found is kept beside
//! them, under a name that begins with `found-`. `REGENT_FUZZ_SECONDS=60` goes on with changes for that long for each target:
//! a poor fuzzer, because it does not see what its changes reach, and the only one without a nightly compiler.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod seeds;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use regent_fuzz::{FuzzTarget, TARGETS};

/// A seed is small: a corpus is kept in the repository.
const SEED_BYTES_MAX: u64 = 8 << 10;
/// Changes of each file that are tried.
const CHANGES: usize = 120;
/// The same where each is a connection to a server.
const CHANGES_OF_CONNECTIONS: usize = 4;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(target: &FuzzTarget) -> Vec<PathBuf> {
    let folder = corpus().join(target.name);
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn rewrite() {
    if std::env::var_os("REWRITE").is_none() {
        return;
    }
    for (target, seeds) in seeds::all() {
        let folder = corpus().join(target);
        fs::create_dir_all(&folder).unwrap();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_string_lossy().starts_with("found-") {
                fs::remove_file(path).unwrap();
            }
        }
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

/// A change that is the same in every run: a byte, a cut, a repetition.
fn changed(bytes: &[u8], number: usize) -> Vec<u8> {
    // A generator of Lehmer's kind; any spread will do.
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    let mut bytes = bytes.to_vec();
    for _ in 0..=next(3) {
        let at = next(bytes.len());
        match next(5) {
            _ if bytes.is_empty() => bytes.push(next(256) as u8),
            0 => bytes[at] ^= 1 << next(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.remove(at)),
            _ => {
                let piece = bytes[at..(at + 9).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

#[test]
fn no_parser_panics_on_its_corpus_or_on_small_changes_of_it() {
    rewrite();
    // A task of a server panics elsewhere, and nobody would hear of it.
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    static LAST: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let seconds = std::env::var("REGENT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        if let Ok(last) = LAST.try_lock() {
            println!("the last change that was fed: {}", last.escape_ascii());
        }
        before(panic);
    }));
    for target in TARGETS {
        let files = files(target);
        assert!(!files.is_empty(), "{target:?} has no corpus");
        let mut seeds = Vec::new();
        for path in files {
            let size = fs::metadata(&path).unwrap().len();
            assert!(size <= SEED_BYTES_MAX, "{} has {size} bytes", path.display());
            println!("{}", path.display());
            seeds.push(fs::read(&path).unwrap());
            target.feed(seeds.last().unwrap());
        }
        let least = if target.name == "api_http" { CHANGES_OF_CONNECTIONS } else { CHANGES };
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut number = 0;
        while number < least || until.is_some_and(|until| Instant::now() < until) {
            for bytes in &seeds {
                let changed = changed(bytes, number);
                LAST.lock().unwrap().clone_from(&changed);
                target.feed(&changed);
            }
            number += 1;
        }
        println!("{target:?}: {} changes", number * seeds.len());
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked; see above");
}

#[test]
fn every_corpus_and_every_binary_belongs_to_a_target() {
    let named: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(named.len(), TARGETS.len(), "two targets share a name");
    let manifest = fs::read_to_string(corpus().join("../Cargo.toml")).unwrap();
    let bins: BTreeSet<&str> = manifest
        .split("[[bin]]\n")
        .skip(1)
        .filter_map(|bin| bin.strip_prefix("name = \"")?.split('"').next())
        .collect();
    assert_eq!(bins, named, "fuzz/Cargo.toml has a [[bin]] for each target");
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(named.contains(name.as_str()), "fuzz/corpus/{name} belongs to no target");
    }
}
