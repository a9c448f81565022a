//! A leader keeps its term while every server of a real cluster is restarted, one after the other.

use std::path::Path;
use std::time::Duration;

use regent::{Embedded, Regent, Replica};
use regent_election::store::Store;
use regent_replica::Timing;
use regent_server::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bench::{soon, until};

const CLUSTER: u128 = 0x726f_6c6c;

/// One server of the cluster: a replica and HTTP over it.
struct Server {
    number: u64,
    http: String,
    peers: Vec<String>,
    replica: Replica,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

/// A port that nobody is given by chance: below those that the system hands out by itself, so that it
/// is free again when its server comes back.
fn port() -> String {
    loop {
        let port = 20_000 + regent::fresh::number().unwrap() % 12_000;
        let address = format!("127.0.0.1:{port}");
        if std::net::TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

impl Server {
    async fn start(
        place: &Path,
        number: u64,
        http: String,
        peers: Vec<String>,
        is_first: bool,
    ) -> Self {
        let mut embedded = Embedded::new(number, place.join(number.to_string()))
            .timing(Timing::new(400, 800, 80, 60).unwrap());
        for (other, peer) in (1..).zip(&peers) {
            embedded = embedded.member(other, peer);
        }
        if is_first {
            embedded = embedded.founding(CLUSTER);
        }
        let replica = embedded.start().await.unwrap();
        let listener = TcpListener::bind(&http).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let store = replica.store().clone();
        let config = ServerConfig { shutdown_grace: Duration::from_secs(2), ..Default::default() };
        let serving = tokio::spawn(async move {
            let shutdown = async move {
                let _ = stopped.await;
            };
            regent_server::serve(vec![listener], store, config, shutdown).await.unwrap();
        });
        Self { number, http, peers, replica, stop, serving }
    }

    async fn restart(self, place: &Path) -> Self {
        let Self { number, http, peers, replica, stop, serving } = self;
        stop.send(()).unwrap();
        soon("the server ends", serving).await.unwrap();
        soon("the replica ends", replica.stop()).await;
        Self::start(place, number, http, peers, false).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rolling_restart_of_the_cluster_costs_no_leadership() {
    let place = tempfile::tempdir().unwrap();
    let (https, peers): (Vec<_>, Vec<_>) = (0..3).map(|_| (port(), port())).unzip();
    let mut servers = Vec::new();
    for (number, http) in (1..).zip(&https) {
        servers.push(Server::start(place.path(), number, http.clone(), peers.clone(), true).await);
    }
    let urls: Vec<String> = https.iter().map(|http| format!("http://{http}")).collect();
    let connect = Regent::at(urls.join(",")).node("a").ttl(Duration::from_secs(20));
    let regent = connect.connect().await.unwrap();
    let leadership = soon("elected", regent.campaign("billing")).await.unwrap();
    let valid_for = regent.budget().valid_for();
    for turn in 0..3 {
        let server = servers.remove(0);
        servers.push(server.restart(place.path()).await);
        for server in &servers {
            let store = server.replica.store();
            until("every replica serves", async || store.ready().await.is_ok()).await;
        }
        // Renewed after the restart: the next server goes only when the last one's absence is over.
        let renewed = valid_for - regent.budget().renew_every() / 2;
        until("renewed", async || leadership.valid_for() > renewed).await;
        assert!(leadership.check().is_ok(), "lost in turn {turn}");
    }
    assert_eq!(leadership.term().get(), 1);
    soon("resigned", leadership.resign()).await.unwrap();
}
