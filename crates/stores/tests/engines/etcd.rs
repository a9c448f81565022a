//! `etcd://` on a real etcd, and on a cluster of three whose members are killed in turn: one member alone may
//! acknowledge what it has not written in versions before 3.5.5, so it is killed in company only.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::etcd::EtcdRegister;
use regent_stores::register::Register;

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, takes_nothing_back};
use crate::servers::etcd::{etcd, own};
use crate::servers::{Server, or_skip, starting};

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
