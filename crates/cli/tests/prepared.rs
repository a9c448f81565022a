//! Files that somebody else has prepared: what the command refuses to read, and what it says helps.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;

use process::{Ended, Room};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refused(ended: &Ended, with: &str) {
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains(with), "{with}: {ended:?}");
}

#[test]
fn a_configuration_that_is_no_regular_file_is_refused() {
    let room = Room::new();
    let show = |path: &str| room.run(&["config", "show", "--config", path]);
    refused(&show("/dev/null"), "is a device and not a regular file");
    let pipe = room.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Whoever waits for a writer gets one, and an empty file.
    let writer = pipe.clone();
    thread::spawn(move || fs::write(writer, ""));
    refused(&show(&room.text("pipe")), "is a named pipe and not a regular file");
    let large = fs::File::create(room.path("large")).unwrap();
    large.set_len(8 << 20).unwrap();
    refused(&show(&room.text("large")), "at most 1048576 are read");
}

#[test]
fn a_data_directory_that_others_can_change_is_refused() {
    let room = Room::new();
    let data = room.path("data");
    let init = || {
        let members = "1=127.0.0.1:7401/127.0.0.1:7400";
        let verb = ["cluster", "init", "--id", "1", "--members", members, "--data-dir"];
        room.run(&[&verb[..], &[&room.text("data")]].concat())
    };
    fs::create_dir(&data).unwrap();
    mode(&data, 0o777);
    refused(&init(), &format!("chmod go-w {}", data.display()));
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "nothing was written");
    mode(&data, 0o755);
    assert_eq!(init().code, 0);
    let acked = data.join("acked");
    mode(&acked, 0o666);
    refused(&init(), &format!("chmod go-w {}", acked.display()));
    mode(&acked, 0o600);
    if fs::metadata(&data).unwrap().uid() == 0 {
        chown(&data, Some(12_345), None).unwrap();
        refused(&init(), &format!("chown 0 {}", data.display()));
    }
}

#[test]
fn keys_and_sessions_that_others_can_read_are_refused() {
    let room = Room::new();
    let (keys, path) = (room.text("keys"), room.path("keys"));
    assert_eq!(room.run(&["fence", "keys", "new", &keys]).code, 0);
    let list = || room.run(&["fence", "keys", "list", &keys]);
    assert_eq!(list().code, 0);
    mode(&path, 0o640);
    refused(&list(), &format!("chmod 600 {keys}"));
    mode(&path, 0o600);
    if fs::metadata(&path).unwrap().uid() == 0 {
        chown(&path, Some(12_345), None).unwrap();
        refused(&list(), &format!("chown 0 {keys}"));
    }
    refused(&room.run(&["fence", "keys", "list", "/dev/null"]), "is a device");
    let session = room.text("session");
    fs::write(&session, "00000000000000000000000000000007\n").unwrap();
    mode(&room.path("session"), 0o644);
    let renew = ["renew", "billing", "--session-file", &session, "--server", "http://127.0.0.1:1"];
    refused(&room.run(&renew), &format!("chmod 600 {session}"));
    mode(&room.path("session"), 0o600);
    let ended = room.run(&renew);
    assert!(!ended.stderr.contains("chmod"), "{ended:?}");
}
