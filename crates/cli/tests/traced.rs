//! The program under `regent run` against its guard: it has the same user, and can neither trace nor read it.
//!
//! Reading `/proc/PID/mem` asks the kernel the same question as `PTRACE_ATTACH`. Root may do either to anybody, so as
//! root the test runs everything as another user.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use process::{Room, until};

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

/// The room's binary and how to run it as somebody who is not root.
struct Powerless {
    binary: PathBuf,
    is_root: bool,
}

impl Powerless {
    fn new(room: &Room) -> Self {
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let built = PathBuf::from(env!("CARGO_BIN_EXE_regent"));
        if !is_root {
            return Self { binary: built, is_root };
        }
        // The directory of the build may be closed to others.
        let binary = room.path("regent");
        fs::copy(&built, &binary).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(room.path(""), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { binary, is_root }
    }

    fn command(&self, room: &Room, program: &Path, arguments: &[&str]) -> Command {
        let mut command = if self.is_root {
            let id = NOBODY.to_string();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(arguments).current_dir(room.path("")).env_clear();
        command.env("HOME", room.path("")).env("PATH", "/usr/bin:/bin");
        command
    }
}

/// A script that tells whether it can read the memory of processes: its parent, whose parent, and so on.
const SPY: &str = "
spy() { if (exec 3</proc/$1/mem) 2>/dev/null; then echo READ $2; else echo REFUSED $2; fi; }
spy $$ itself
spy $PPID guard
grand=$(sed 's/.*) //' /proc/$PPID/stat | cut -d' ' -f2)
[ \"$grand\" -gt 0 ] && spy $grand wrapper
ulimit -c
exit 0";

#[test]
fn a_program_cannot_read_or_trace_its_guard() {
    let room = Room::new();
    let powerless = Powerless::new(&room);
    let server = room.server();
    for contain in ["auto", "descendants"] {
        let run =
            ["run", "-g", "billing", "--node", "a", "--contain", contain, "--", "sh", "-c", SPY];
        let mut command = powerless.command(&room, &powerless.binary, &run);
        let ended = command.env("REGENT_SERVER", &server.url).output().unwrap();
        let told = String::from_utf8(ended.stdout).unwrap();
        let errors = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(0), "{contain}: {told} {errors}");
        // A shell may read its own parts: the means of spying work here.
        assert!(told.contains("READ itself"), "{contain}: {told} {errors}");
        assert!(told.contains("REFUSED guard"), "{contain}: {told} {errors}");
        assert!(!told.contains("READ wrapper"), "{contain}: {told} {errors}");
        if contain == "descendants" {
            assert!(told.contains("REFUSED wrapper"), "{told} {errors}");
        }
        let own = Command::new("sh").args(["-c", "ulimit -c"]).output().unwrap();
        let own = String::from_utf8(own.stdout).unwrap();
        assert!(told.ends_with(&own), "core files are as they were: {told}");
    }
}

#[test]
fn another_process_of_its_user_cannot_read_a_server() {
    let room = Room::new();
    let powerless = Powerless::new(&room);
    let data = room.text("data");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let server = room.serve_as(powerless.command(&room, &powerless.binary, &serve));
    let mut id = None;
    until("the server's process is found", || {
        id = serving(&data);
        id.is_some()
    });
    let spy = format!("(exec 3</proc/{}/mem) && echo READ", id.unwrap());
    let ended = powerless.command(&room, Path::new("/bin/sh"), &["-c", &spy]).output().unwrap();
    assert!(!ended.status.success() && ended.stdout.is_empty(), "{ended:?}");
    drop(server);
}

/// The process that serves from this directory.
fn serving(data: &str) -> Option<u32> {
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        (words.get(1) == Some(&&b"serve"[..]) && words.contains(&data.as_bytes())).then_some(id)
    })
}
