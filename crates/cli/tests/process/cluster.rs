//! Real clusters of real processes: each replica is `regent serve` on a directory and addresses of
//! its own.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use regent::remote::{Remote, RemoteError, RemoteResult};
use serde_json::Value;

use super::{Ended, Room, Server, json, until};

/// Small files for the log: many clusters run beside each other here, and each file is written full
/// of zeros first.
const SEGMENTS: [&str; 2] = ["--segment-bytes", "4194304"];

/// One replica, running or not.
pub(crate) struct Replica {
    pub(crate) peer: String,
    pub(crate) client: String,
    server: Option<Server>,
}

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) room: Room,
    pub(crate) id: String,
    pub(crate) list: String,
    pub(crate) replicas: BTreeMap<u64, Replica>,
    host: String,
    more: Vec<String>,
}

/// An address that no other test has. All of 127/8 is this machine on Linux, so a port that was free
/// a moment ago is not given to somebody's connection meanwhile.
pub(crate) fn own_host() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    if !cfg!(target_os = "linux") {
        return "127.0.0.1".to_owned();
    }
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{}", 1 + (process >> 8) % 254, process % 256, 1 + count % 254)
}

/// A port that is free and that nobody here is given a second time.
pub(crate) fn free_port(host: &str) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(64) + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + u16::try_from(number % 20_000).unwrap();
        if TcpListener::bind((host, port)).is_ok() {
            return port;
        }
    }
}

impl Cluster {
    /// Founds a cluster of this many replicas and starts them.
    pub(crate) fn start(count: u64) -> Self {
        let mut cluster = Self::found(count, &[], &[]);
        cluster.start_all();
        cluster
    }

    /// Founds a cluster; `init` goes to every `regent cluster init`, `serve` to every server.
    pub(crate) fn found(count: u64, init: &[&str], serve: &[&str]) -> Self {
        Self::found_at(count, init, serve, |_, peer| peer.to_owned())
    }

    /// The same; `dial` says where the others reach a replica that listens at an address.
    pub(crate) fn found_at(
        count: u64,
        init: &[&str],
        serve: &[&str],
        mut dial: impl FnMut(u64, &str) -> String,
    ) -> Self {
        let host = own_host();
        let more = serve.iter().map(|&word| word.to_owned()).collect();
        let mut cluster = Self {
            room: Room::new(),
            id: String::new(),
            list: String::new(),
            replicas: BTreeMap::new(),
            host,
            more,
        };
        let mut members = Vec::new();
        for id in 1..=count {
            cluster.prepare(id);
            let replica = &cluster.replicas[&id];
            members.push(format!("{id}={}/{}", dial(id, &replica.peer), replica.client));
        }
        cluster.list = members.join(",");
        for id in 1..=count {
            cluster.init(id, init);
        }
        cluster
    }

    fn prepare(&mut self, id: u64) {
        let address = || format!("{}:{}", self.host, free_port(&self.host));
        let replica = Replica { peer: address(), client: address(), server: None };
        self.replicas.insert(id, replica);
    }

    pub(crate) fn directory(&self, id: u64) -> String {
        self.room.text(&format!("replica-{id}"))
    }

    fn init(&mut self, id: u64, more: &[&str]) {
        let (number, directory) = (id.to_string(), self.directory(id));
        let mut arguments = vec!["cluster", "init", "--id", &number, "--members", &self.list];
        arguments.extend(["--data-dir", &directory, "--output", "json"]);
        arguments.extend(SEGMENTS);
        if !self.id.is_empty() {
            arguments.extend(["--cluster-id", &self.id]);
        }
        arguments.extend(more);
        let ended = self.room.run(&arguments);
        assert_eq!(ended.code, 0, "{ended:?}");
        self.id = json(&ended.stdout)["cluster_id"].as_str().unwrap().to_owned();
    }

    /// Prepares a replica that joins, and starts it.
    pub(crate) fn join(&mut self, id: u64, more: &[&str]) {
        self.prepare(id);
        let (number, directory) = (id.to_string(), self.directory(id));
        let mut arguments = vec!["cluster", "init", "--join", "--id", &number];
        arguments.extend(["--cluster-id", &self.id, "--data-dir", &directory]);
        let ended = self.room.run(&arguments);
        assert_eq!(ended.code, 0, "{ended:?}");
        self.serve(id, more);
    }

    /// Starts a replica that does not run.
    pub(crate) fn run(&mut self, id: u64) {
        self.serve(id, &[]);
    }

    /// Starts a replica that does not run, with more flags.
    pub(crate) fn run_with(&mut self, id: u64, more: &[&str]) {
        self.serve(id, more);
    }

    /// Takes note of a replica that was prepared and started otherwise, at these addresses.
    pub(crate) fn adopt(&mut self, id: u64, peer: &str, client: &str, server: Server) {
        let replica =
            Replica { peer: peer.to_owned(), client: client.to_owned(), server: Some(server) };
        self.replicas.insert(id, replica);
    }

    fn serve(&mut self, id: u64, more: &[&str]) {
        let replica = &self.replicas[&id];
        let directory = self.directory(id);
        let mut arguments = vec!["--data-dir", &directory, "--peer-listen", &replica.peer];
        arguments.extend(SEGMENTS);
        arguments.extend(self.more.iter().map(String::as_str));
        arguments.extend(more);
        let server = self.room.serve(&replica.client, &arguments);
        self.replicas.get_mut(&id).unwrap().server = Some(server);
    }

    pub(crate) fn start_all(&mut self) {
        for id in self.replicas.keys().copied().collect::<Vec<_>>() {
            self.run(id);
        }
        self.leader();
    }

    /// Ends a replica as a power cut would.
    pub(crate) fn kill(&mut self, id: u64) {
        self.replicas.get_mut(&id).unwrap().server.take().unwrap().kill();
    }

    /// Ends a replica in order.
    pub(crate) fn stop(&mut self, id: u64) {
        let mut server = self.replicas.get_mut(&id).unwrap().server.take().unwrap();
        server.signal("TERM");
        assert_eq!(server.wait(), 0, "{}", server.log());
    }

    pub(crate) fn server(&self, id: u64) -> &Server {
        self.replicas[&id].server.as_ref().unwrap()
    }

    /// The numbers of those that run.
    pub(crate) fn running(&self) -> Vec<u64> {
        let running = |(id, replica): (&u64, &Replica)| replica.server.is_some().then_some(*id);
        self.replicas.iter().filter_map(running).collect()
    }

    /// All addresses of clients, with commas between.
    pub(crate) fn urls(&self) -> String {
        let urls: Vec<_> =
            self.replicas.values().map(|replica| format!("http://{}", replica.client)).collect();
        urls.join(",")
    }

    /// All of it for a program.
    pub(crate) fn remote(&self) -> Remote {
        Remote::new(&self.urls()).unwrap()
    }

    /// Runs a command that may ask any replica.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Ended {
        let mut command = self.room.command(arguments);
        command.env("REGENT_SERVER", self.urls());
        super::finish(command)
    }

    /// The same, which must succeed; gives what it printed.
    pub(crate) fn yes(&self, arguments: &[&str]) -> String {
        let ended = self.ask(arguments);
        assert_eq!(ended.code, 0, "regent {}: {ended:?}", arguments.join(" "));
        ended.stdout
    }

    /// The same, tried again while the cluster has no leader.
    pub(crate) fn yes_soon(&self, arguments: &[&str]) -> String {
        let mut done = String::new();
        until(&arguments.join(" "), || {
            let ended = self.ask(arguments);
            assert!(matches!(ended.code, 0 | 69 | 70 | 75), "{ended:?}");
            done = ended.stdout;
            ended.code == 0
        });
        done
    }

    /// What one replica says of the cluster.
    pub(crate) fn status_of(&self, id: u64) -> Value {
        let body = self.server(id).get("/v1/cluster");
        json(&body)
    }

    /// Who leads the log, agreed upon by all that run.
    pub(crate) fn leader(&self) -> u64 {
        let running = self.running();
        self.leader_among(&running)
    }

    /// Who leads the log, agreed upon by these, one of which it is.
    pub(crate) fn leader_among(&self, ids: &[u64]) -> u64 {
        let mut leader = None;
        until("a leader of the log", || {
            let said: Vec<_> =
                ids.iter().map(|id| self.status_of(*id)["leader"].as_u64()).collect();
            leader = said[0].filter(|leader| ids.contains(leader));
            leader.is_some() && said.iter().all(|each| *each == leader)
        });
        leader.unwrap()
    }

    pub(crate) fn followers(&self) -> Vec<u64> {
        let leader = self.leader();
        self.running().into_iter().filter(|id| *id != leader).collect()
    }
}

/// Asks until there is an answer, as a client that retries does: it is done, or a definite no.
pub(crate) async fn persist<T, F>(mut ask: impl FnMut() -> F) -> RemoteResult<T>
where
    F: Future<Output = RemoteResult<T>>,
{
    for _ in 0..2000 {
        match ask().await {
            Err(RemoteError::Unavailable { .. } | RemoteError::Uncertain { .. }) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            ended => return ended,
        }
    }
    panic!("it was not done in time");
}
