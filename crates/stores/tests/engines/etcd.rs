//! `etcd://` on a real etcd, and on a cluster of three whose members are killed in turn: one member alone may
//! acknowledge what it has not written in versions before 3.5.5, so it is killed in company only.

use std::sync::Arc;
use std::time::Duration;

use regent_election::store::{Campaign, CampaignSession, Heartbeat, Store};
use regent_election::{Group, Metadata, Node, SessionId};
use regent_stores::etcd::EtcdRegister;
use regent_stores::lease::LeaseStore;
use regent_stores::register::Register;

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, takes_nothing_back, unique};
use regent_servers::etcd::{etcd, own, requests};
use regent_servers::{Server, or_skip, report, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(EtcdRegister::new(url, Duration::from_secs(10)).unwrap())
}

/// Kills members in turn, the leader among them, and starts them again when the others have gone on.
fn kill_in_turn() -> impl FnMut(&mut Server) {
    let mut turn = 0;
    move |server: &mut Server| {
        let count = server.processes.len();
        let process = &mut server.processes[turn % count];
        turn += 1;
        process.kill();
        process.start_again().expect("a member that was killed starts again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("etcd", etcd()) else { return };
    keeps_the_contract("etcd", &server, true, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("etcd", etcd()) else { return };
    keeps_elections("etcd", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_of_three_takes_nothing_back_whoever_is_killed() {
    let Some(mut server) = or_skip("etcd", starting(|| own(3))) else { return };
    let url = server.url.clone();
    takes_nothing_back("etcd", &mut server, || client(&url), kill_in_turn()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_etcd() {
    let Some(mut server) = or_skip("etcd", starting(|| own(3))) else { return };
    let url = server.url.clone();
    elects_through_kills("etcd", &mut server, || client(&url), kill_in_turn()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_etcd_may_be_cut() {
    let Some(mut server) = or_skip("etcd", starting(|| own(3))) else { return };
    bears_cuts("etcd", &mut server, client).await;
}

/// Most requests of a first campaign: two reads (the session, the group), a lease for the session, the session with
/// its entry, the group, and once in the life of a process the store's incarnation.
const CAMPAIGN_REQUESTS_MAX: u64 = 6;
/// Most requests of a heartbeat: one transaction that writes, checks and reads, and the keep-alive.
const HEARTBEAT_REQUESTS_MAX: u64 = 2;

/// The store of a process whose verbs alone reach the server. What it does in the background (keepers that follow
/// groups) is spawned on `idle`, a runtime that nothing drives, so none of it ever runs and the server's count is the
/// verb's.
fn without_background(idle: &tokio::runtime::Runtime, url: &str) -> Box<dyn Store> {
    let _within = idle.enter();
    Box::new(LeaseStore::new(client(url)))
}

fn first_campaign(session: SessionId) -> Campaign {
    Campaign {
        group: Group::new(&format!("requests/{:032x}", unique())).unwrap(),
        node: Node::new("a").unwrap(),
        session: CampaignSession::Own(session),
        ttl_ms: Some(30_000),
        wait: None,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_campaign_on_etcd_takes_six_requests_and_a_heartbeat_two() {
    // A server of our own: others' requests would be counted too.
    let Some(server) = or_skip("etcd", starting(|| own(1))) else { return };
    let idle = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fresh = || SessionId::new(unique()).unwrap();
    let heartbeat =
        |session| Heartbeat { session, sequence: None, disowned: vec![], beliefs: None };
    // Somebody was there before: the store has its incarnation.
    let before = without_background(&idle, &server.url);
    assert!(before.campaign(first_campaign(fresh())).await.unwrap().elected.is_some());

    let (one, two) = [(); 2].map(|()| without_background(&idle, &server.url)).into();
    let session = fresh();
    let begun = requests(&server);
    assert!(one.campaign(first_campaign(session)).await.unwrap().elected.is_some());
    let campaigned = requests(&server);
    one.heartbeat(heartbeat(session)).await.unwrap();
    let heard = requests(&server);
    // A process that has never seen this session needs no more.
    two.heartbeat(heartbeat(session)).await.unwrap();
    let heard_elsewhere = requests(&server);

    let (campaign, heartbeat) = (campaigned - begun, heard - campaigned);
    let note = format!("a first campaign took {campaign} requests, a heartbeat {heartbeat}");
    report("etcd", &server.version, 1, 0, &note);
    assert!(campaign <= CAMPAIGN_REQUESTS_MAX, "a first campaign took {campaign} requests");
    assert!(heartbeat <= HEARTBEAT_REQUESTS_MAX, "a heartbeat took {heartbeat} requests");
    let elsewhere = heard_elsewhere - heard;
    assert!(elsewhere <= HEARTBEAT_REQUESTS_MAX, "a heartbeat elsewhere took {elsewhere} requests");
    // A runtime must not be dropped within another.
    idle.shutdown_background();
}
