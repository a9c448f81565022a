//! What fuzzers feed: every parser of bytes from outside, as a function of these bytes.
//!
//! A target takes any bytes and must return. It panics if a parser does, and if what was read is not the same when it is
//! written and read again. Where a checksum or a signature stands before a parser, the target sets it right as well:
//! otherwise no fuzzer would get past it, and a liar who can compute it would.
//!
//! Two things use the table: `fuzz/` (cargo-fuzz, `fuzz/run`), and the daily test of the corpora (`tests/corpus.rs`), which
//! needs no nightly compiler.
//!
//! Not here, because others parse it: HTTP/2, TLS records, JSON and TOML themselves, and the answers of Redis, PostgreSQL,
//! MySQL, etcd, NATS, Kubernetes and object stores, which their own crates read. What these engines keep for us is a
//! record of ours (`disk`).

mod disk;
mod names;
mod peers;
mod tokens;
mod wire;

use std::str::from_utf8;

/// One target.
#[derive(Clone, Copy)]
pub struct FuzzTarget {
    /// Its name, which is that of its corpus as well.
    pub name: &'static str,
    /// Whose bytes these are.
    pub about: &'static str,
    run: fn(&[u8]),
}

impl std::fmt::Debug for FuzzTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl FuzzTarget {
    /// Feeds it.
    ///
    /// # Panics
    /// If a parser does, or something is not read as it was written.
    pub fn feed(&self, bytes: &[u8]) {
        (self.run)(bytes);
    }

    /// The target of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

macro_rules! targets {
    ($($name:literal, $about:literal, $run:expr;)*) => {
        &[$(FuzzTarget { name: $name, about: $about, run: $run },)*]
    };
}

/// All of them.
pub const TARGETS: &[FuzzTarget] = targets! {
    "api_body", "clients: bodies and queries of the API", wire::api;
    "api_grpc", "clients: gRPC messages", wire::grpc;
    "api_http", "clients: whole connections to a server", wire::http;
    "api_answer", "servers: answers, problems and events of a watch", wire::answer;
    "names", "everybody: names, patterns, terms, cursors, addresses", names::words;
    "store_url", "operators: URLs of stores", names::store_url;
    "settings", "operators: settings, bindings, issuers", names::files;
    "scenario", "users: scenarios of the lab", names::scenario;
    "session_file", "users: session files", names::session_file;
    "token", "clients: bearer tokens, JSON Web Tokens and their keys", tokens::token;
    "signed_term", "leaders: signed terms, checkpoints and their keys", tokens::signed;
    "certificate", "clients and replicas: certificates", tokens::certificate;
    "gateway", "clients of the gateway: heads and terms; its mark", wire::gateway;
    "peer_link", "replicas: greetings and frames", peers::link;
    "peer_message", "replicas: messages, and Raft's admission", peers::message;
    "datagram", "processes of a storeless election: datagrams", peers::datagram;
    "log", "disks: the log of a replica", disk::log;
    "entry", "disks and replicas: entries", disk::entry;
    "snapshot", "disks and replicas: snapshots", disk::snapshot;
    "backup", "operators: backups", disk::backup;
    "record", "other people's stores: groups and sessions", disk::record;
    "zookeeper", "ZooKeeper: messages", disk::zookeeper;
    "consul", "Consul: answers", disk::consul;
    "audit", "disks: lines of the audit log", disk::audit;
    "recording", "disks: lines of the flight recorder", disk::recording;
};

/// Feeds a text to somebody who reads texts.
fn with_text(bytes: &[u8], run: impl FnOnce(&str)) {
    if let Ok(text) = from_utf8(bytes) {
        run(text);
    }
}
