//! `kubernetes://` on a stand-in for the Lease API, or on the cluster of `REGENT_TEST_KUBERNETES_URL`.

use std::sync::Arc;
use std::time::Duration;

use regent_election::{Group, Node, Term};
use regent_stores::kubernetes::KubernetesRegister;
use regent_stores::register::{HumanSummary, Key, Record, Register, RegisterError, Swapped};

use crate::cuts::bears_cuts_of;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, takes_nothing_back, unique};
use crate::relay::Relay;
use regent_servers::Server;
use regent_servers::kubernetes::StandIn;

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(KubernetesRegister::new(url, Duration::from_secs(20)).unwrap())
}

/// The cluster that was given, or a stand-in that lives as long as the second value.
pub(crate) fn kubernetes() -> (Server, Option<StandIn>) {
    match Server::given("REGENT_TEST_KUBERNETES_URL") {
        Some(server) => (server, None),
        None => {
            let stand_in = StandIn::start();
            (stand_in.server(), Some(stand_in))
        }
    }
}

/// Kills a stand-in and lets it serve again.
fn kill_and_serve(stand_in: &mut StandIn) {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| runtime.block_on(stand_in.kill()));
    stand_in.serve();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_keeps_the_contract_of_registers() {
    let (server, _alive) = kubernetes();
    keeps_the_contract("kubernetes", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_kubernetes() {
    let (server, _alive) = kubernetes();
    keeps_elections("kubernetes", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_lease_api_takes_nothing_back() {
    let mut stand_in = StandIn::start();
    let mut server = stand_in.server();
    let url = server.url.clone();
    takes_nothing_back(
        "kubernetes",
        &mut server,
        || client(&url),
        |_| kill_and_serve(&mut stand_in),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_the_lease_api() {
    let mut stand_in = StandIn::start();
    let mut server = stand_in.server();
    let url = server.url.clone();
    elects_through_kills(
        "kubernetes",
        &mut server,
        || client(&url),
        |_| kill_and_serve(&mut stand_in),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_the_lease_api_may_be_cut() {
    let stand_in = StandIn::start();
    let mut server = stand_in.server();
    // What names the server is not the URL but a file that it names.
    let (scheme, file) = server.url.split_once("?kubeconfig=").unwrap();
    let relay = Relay::before(&std::fs::read_to_string(file).unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("kubeconfig");
    std::fs::write(&config, &relay.url).unwrap();
    let url = format!("{scheme}?kubeconfig={}", config.display());
    bears_cuts_of(&relay, "kubernetes", &mut server, || client(&url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_see_who_leads_in_the_lease_of_the_group() {
    let stand_in = StandIn::start();
    let register = client(&stand_in.server().url);
    let key = Key::group(&Group::new("billing").unwrap());
    let summary = HumanSummary {
        leader: Some(Node::new("pod-1").unwrap()),
        term: Term::new(7),
        ttl: Some(Duration::from_secs(15)),
    };
    let record = Record { value: vec![0, 1, 255], summary };
    let Swapped::Done(version) = register.swap(&key, None, record).await.unwrap() else {
        panic!("the entry was there")
    };
    let held = stand_in.object("billing").unwrap();
    assert_eq!(held["spec"]["holderIdentity"], "pod-1");
    assert_eq!(held["spec"]["leaseTransitions"], 7);
    assert_eq!(held["spec"]["leaseDurationSeconds"], 15);
    assert!(held["spec"]["renewTime"].is_string());
    let (revision, uid) = version.0.split_once(':').unwrap();
    assert_eq!(
        (&held["metadata"]["resourceVersion"], &held["metadata"]["uid"]),
        (&revision.into(), &uid.into())
    );

    let nobody = Record::bare(b"free".to_vec());
    register.swap(&key, Some(&version), nobody).await.unwrap();
    let held = stand_in.object("billing").unwrap();
    assert_eq!(held["spec"].get("holderIdentity"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_gone_is_unavailable_and_a_foreign_namespace_is_refused() {
    let mut stand_in = StandIn::start();
    let url = stand_in.server().url;
    let key = Key::group(&Group::new(&format!("gone/{:032x}", unique())).unwrap());
    let elsewhere = client(&url.replace("://elections", "://elsewhere"));
    let record = || Record::bare(b"x".to_vec());
    let refusal = elsewhere.swap(&key, None, record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");

    stand_in.kill().await;
    let register = client(&url);
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    let refusal = register.swap(&key, None, record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
}
