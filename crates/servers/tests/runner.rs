//! `regent-servers COMMAND…` as a process: what the command sees, and what becomes of its exit code.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

/// A run in which every server is said to run already, so that none is started.
fn runner() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regent-servers"));
    for kind in ["ZOOKEEPER", "POSTGRES", "MYSQL", "CONSUL", "DYNAMODB", "ETCD", "NATS", "REDIS"] {
        command.env(format!("REGENT_TEST_{kind}_URL"), format!("{kind}://elsewhere"));
    }
    command.env_remove("REGENT_TEST_SHARED");
    command
}

#[test]
fn a_command_is_given_the_servers_and_its_exit_code_is_passed_on() {
    let seen = runner().args(["sh", "-c", "echo $REGENT_TEST_ETCD_URL; exit 7"]).output().unwrap();
    assert_eq!(seen.status.code(), Some(7), "{seen:?}");
    assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "ETCD://elsewhere");
}

#[test]
fn a_command_that_does_not_exist_and_none_at_all_are_errors() {
    assert_eq!(runner().arg("no-such-command-anywhere").status().unwrap().code(), Some(127));
    assert_eq!(runner().status().unwrap().code(), Some(64));
}
