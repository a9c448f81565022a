//! `regent-servers COMMAND…`: runs a command with one server of each kind, started once and named by variables.
//!
//! Without it every test starts what it needs, which costs a JVM or an `initdb` each time. Servers that do not
//! start are left to the tests, which say why they skip. Object storage is not among them: writes to a
//! shared SeaweedFS were answered with status 500, and why was not found out.

use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;

use regent_servers::{
    SHARED, Server, Skip, consul, dynamodb, etcd, mysql, nats, postgres, redis, version_of,
    zookeeper,
};

/// What starts a server, or takes the one that runs already.
type Start = fn() -> Result<Server, Skip>;

/// What starts each server, and the variable that names it.
const KINDS: &[(&str, Start)] = &[
    ("REGENT_TEST_ZOOKEEPER_URL", zookeeper::zookeeper),
    ("REGENT_TEST_POSTGRES_URL", postgres::postgres),
    ("REGENT_TEST_MYSQL_URL", mysql::mysql),
    ("REGENT_TEST_CONSUL_URL", consul::consul),
    ("REGENT_TEST_DYNAMODB_URL", dynamodb::dynamodb),
    ("REGENT_TEST_ETCD_URL", etcd::etcd),
    ("REGENT_TEST_NATS_URL", nats::nats),
    ("REGENT_TEST_REDIS_URL", redis::redis),
];

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: regent-servers COMMAND [ARGUMENT]…");
        return ExitCode::from(64);
    };
    let mut command = Command::new(program);
    command.args(words);
    let (started, servers) = mpsc::channel();
    let mut ends = Vec::new();
    for (variable, start) in KINDS {
        let started = started.clone();
        let (end, ended) = mpsc::channel::<()>();
        // The kernel ends a server with the thread that started it, so the thread stays.
        let thread = thread::spawn(move || {
            let server = start();
            let told = server.as_ref().map(|it| (it.url.clone(), it.version.clone()));
            let _ = started.send((*variable, told.map_err(Clone::clone)));
            // The list of servers is complete when nobody can add to it.
            drop(started);
            let _ = ended.recv();
            drop(server);
        });
        ends.push((end, thread));
    }
    drop(started);
    for (variable, server) in servers {
        match server {
            Ok((url, version)) => {
                command.env(variable, url).env(version_of(variable), version);
            }
            Err(why) => eprintln!("regent-servers: {variable} is not set: {why}"),
        }
    }
    let status = command.env(SHARED, "yes").status();
    for (end, thread) in ends {
        drop(end);
        let _ = thread.join();
    }
    match status {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("regent-servers: {error}");
            ExitCode::from(127)
        }
    }
}
