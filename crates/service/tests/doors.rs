//! Attacks on a data directory: whatever is put there, a server never deletes what it finds and never
//! bootstraps over it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use regent_replica::disk::DiskOptions;
use regent_service::{ReplicaError, ReplicaOptions, ReplicaSettings, Service};
use tokio::net::TcpListener;

/// What a server makes of a directory.
async fn start(directory: &Path) -> Result<Service, ReplicaError> {
    let disk = DiskOptions { segment_bytes: 1 << 20, ..DiskOptions::default() };
    let options = ReplicaOptions {
        replica: ReplicaSettings { disk, ..ReplicaSettings::default() },
        ..ReplicaOptions::new(directory, "127.0.0.1:7400".parse().unwrap())
    };
    Service::on_replica(options).await
}

/// Why a server refuses a directory.
async fn refusal(directory: &Path) -> String {
    start(directory).await.expect_err("the directory is refused").to_string()
}

/// A directory in which a server has run and ended.
async fn used(directory: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start(directory).await.unwrap().serve(vec![listener], async {}).await.unwrap();
}

/// Every name of a directory but the lock, with what a reader finds there.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let bytes = fs::read(entry.path()).unwrap_or_default();
        (entry.file_name().into_string().unwrap(), bytes)
    });
    entries.filter(|(name, _)| name != "lock").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_founding_marker_deletes_nothing() {
    let place = tempfile::tempdir().unwrap();
    used(place.path()).await;
    fs::write(place.path().join("founding"), b"").unwrap();
    let before = contents(place.path());
    let refused = refusal(place.path()).await;
    assert!(refused.contains("founding") && refused.contains("acked"), "{refused}");
    assert_eq!(contents(place.path()), before, "nothing was changed");
    fs::remove_file(place.path().join("founding")).unwrap();
    drop(start(place.path()).await.expect("the way out that the message names"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_beside_any_part_of_a_used_directory_deletes_nothing() {
    let whole = tempfile::tempdir().unwrap();
    used(whole.path()).await;
    for (name, bytes) in contents(whole.path()) {
        if name.starts_with("snapshot-") {
            continue; // What a bootstrap writes; a replica test compares it byte by byte.
        }
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("founding"), b"").unwrap();
        fs::write(place.path().join(&name), &bytes).unwrap();
        let before = contents(place.path());
        let refused = refusal(place.path()).await;
        assert!(refused.contains(&name), "{refused}");
        assert_eq!(contents(place.path()), before, "{name}: nothing was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_symbolic_links_is_not_empty() {
    let (real, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    used(real.path()).await;
    for name in contents(real.path()).keys() {
        symlink(real.path().join(name), place.path().join(name)).unwrap();
    }
    let before = contents(place.path());
    let refused = refusal(place.path()).await;
    assert!(refused.contains("symbolic link"), "{refused}");
    assert_eq!(contents(place.path()), before, "nothing was founded beside them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_bootstrap_beside_what_it_did_not_write() {
    for name in ["peers", "snapshot-00000000000000000009.tmp", "spare-00000000000000000001"] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(name), b"something").unwrap();
        let before = contents(place.path());
        let refused = refusal(place.path()).await;
        assert!(refused.contains(name), "{refused}");
        assert_eq!(contents(place.path()), before, "{name}");
    }
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("flight")).unwrap();
    assert!(refusal(place.path()).await.contains("flight"), "a replica recorded here");
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("lost+found")).unwrap();
    drop(start(place.path()).await.expect("a fresh file system has that directory"));
}
