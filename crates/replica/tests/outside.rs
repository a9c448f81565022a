//! An application that is no part of this workspace depends on the replica by path and builds it,
//! with nothing patched and nothing but what the lock file names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::fs;
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = r#"
[package]
name = "outside"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
regent-election = { path = "ELECTION" }
regent-replica = { path = "REPLICA" }
tokio = { version = "1", features = ["rt", "net"] }

[profile.dev]
debug = false
"#;

/// It founds a replica, runs it and asks it something: the types of all roads in meet here.
const MAIN: &str = r#"
use std::path::Path;
use std::sync::Arc;

use regent_election::store::{Consistency, Store};
use regent_election::{Group, Settings};
use regent_replica::disk::{Disk, Founding, Identity, DiskOptions, RealFiles};
use regent_replica::{Member, Members, Node, NodeConfig, ReplicaId, ReplicaStore};
use tokio::net::TcpListener;

async fn run(place: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let replica = ReplicaId::new(1).ok_or("one is a number")?;
    let member = Member {
        peer_address: listener.local_addr()?.to_string(),
        client_address: String::new(),
        is_witness: false,
    };
    let founding = Founding::cluster(Settings::default(), Members::from([(replica, member)]));
    let identity = Identity { cluster: 7, replica, incarnation: 1 };
    let files = Arc::new(RealFiles::new(place)?);
    let opened = Disk::found(files, DiskOptions::default(), identity, &founding)?;
    let node = Node::start(opened, listener, &NodeConfig::default())?;
    let replica = ReplicaStore::new(node.handle().clone(), node.hub().clone(), "here".into());
    let store: &dyn Store = &replica;
    let office = store.leader(&Group::new("billing")?, Consistency::Linearizable).await?;
    store.shut_down().await;
    Ok(office.term.get())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", runtime.block_on(run(Path::new("data")))?);
    Ok(())
}
"#;

#[test]
fn an_application_outside_the_workspace_builds_the_replica_without_patches() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize().unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| root.join("crates").join(name).display().to_string();
    let manifest =
        MANIFEST.replace("ELECTION", &path("election")).replace("REPLICA", &path("replica"));
    assert!(!manifest.contains("[patch"));
    fs::write(place.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(root.join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();
    fs::create_dir(place.path().join("src")).unwrap();
    fs::write(place.path().join("src/main.rs"), MAIN).unwrap();
    // Kept between runs, so that only the first one checks everything below the replica.
    let target = root.join("target/outside");
    let checked = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .current_dir(place.path())
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{errors}");
}
