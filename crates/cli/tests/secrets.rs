//! A session's id is a secret: whoever has it acts as its owner. It is searched for here in everything that a
//! cluster writes, with the means of somebody who has stolen a disk or a backup.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::path::{Path, PathBuf};

use process::cluster::Cluster;

/// As a person would not choose one, so that it stands nowhere by chance.
const SECRET: &str = "7d91c0e5a84b3f261c58e97ab6d2034f";

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The secret as text and as bytes, in both orders.
fn looks() -> [Vec<u8>; 3] {
    let number = u128::from_str_radix(SECRET, 16).unwrap();
    [SECRET.into(), number.to_le_bytes().into(), number.to_be_bytes().into()]
}

#[test]
fn no_log_snapshot_backup_or_recording_holds_the_secret_of_a_session() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let follower = cluster.followers()[0];
    // Through a follower too: what replicas send each other ends in their logs.
    for id in [leader, follower] {
        let group = format!("billing-{id}");
        let body = format!(r#"{{"node_id":"a","session_id":"{SECRET}","ttl_ms":60000}}"#);
        let server = cluster.server(id);
        let elected = server.post(&format!("/v1/groups/{group}/campaign"), &body);
        assert!(elected.contains(r#""elected":true"#), "{elected}");
        let renewal = format!(r#"{{"session_id":"{SECRET}","term":1}}"#);
        let renewed = server.post(&format!("/v1/groups/{group}/renew"), &renewal);
        assert!(renewed.contains("ttl_ms"), "{renewed}");
    }
    let backup = cluster.room.path("b.backup");
    cluster.yes(&["cluster", "backup", "--to", &backup.display().to_string()]);
    let folders: Vec<String> = (1..=3).map(|id| cluster.directory(id)).collect();
    for id in 1..=3 {
        cluster.stop(id);
    }

    let mut searched: Vec<PathBuf> = folders.iter().flat_map(|it| files(Path::new(it))).collect();
    searched.push(backup);
    let mut groups_seen = 0;
    for file in &searched {
        let bytes = fs::read(file).unwrap();
        groups_seen += usize::from(contains(&bytes, b"billing-"));
        for look in looks() {
            assert!(!contains(&bytes, &look), "{} holds the secret of a session", file.display());
        }
    }
    // The search would have found it: what the session did is there, in three logs and the backup.
    assert!(groups_seen >= 4, "{groups_seen} of {} files", searched.len());
}
