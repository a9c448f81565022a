//! `zookeeper://` on a real ZooKeeper, alone and as an ensemble of three whose leader is killed.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};
use regent_stores::zookeeper::ZookeeperRegister;

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::zookeeper::{leader, own, zookeeper};
use regent_servers::{Server, or_skip, starting};

pub(crate) fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(ZookeeperRegister::new(url, Duration::from_secs(10)).unwrap())
}

/// Kills whoever leads the ensemble, and starts it again.
pub(crate) fn kill_the_leader(server: &mut Server) {
    let process = leader(server);
    let process = &mut server.processes[process];
    process.kill();
    process.start_again().expect("a server that was killed starts again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("zookeeper", zookeeper()) else { return };
    keeps_the_contract("zookeeper", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("zookeeper", zookeeper()) else { return };
    keeps_elections("zookeeper", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_zookeeper_takes_nothing_back() {
    let Some(mut server) = or_skip("zookeeper", starting(|| own(1))) else { return };
    let url = server.url.clone();
    takes_nothing_back("zookeeper", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zookeeper_of_three_takes_nothing_back_when_its_leader_is_killed() {
    let Some(mut server) = or_skip("zookeeper", starting(|| own(3))) else { return };
    let url = server.url.clone();
    takes_nothing_back("zookeeper", &mut server, || client(&url), kill_the_leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_the_leader_of_zookeeper() {
    let Some(mut server) = or_skip("zookeeper", starting(|| own(3))) else { return };
    let url = server.url.clone();
    elects_through_kills("zookeeper", &mut server, || client(&url), kill_the_leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_zookeeper_may_be_cut() {
    let Some(mut server) = or_skip("zookeeper", starting(|| own(1))) else { return };
    bears_cuts("zookeeper", &mut server, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_is_told_from_a_server_alone() {
    let Some(three) = or_skip("zookeeper", starting(|| own(3))) else { return };
    assert_eq!(client(&three.url).examine().await.unwrap(), Vec::<String>::new());
    let Some(alone) = or_skip("zookeeper", starting(|| own(1))) else { return };
    let warnings = client(&alone.url).examine().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("alone"), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zookeeper_without_a_majority_is_unavailable_and_comes_back() {
    let Some(mut server) = or_skip("zookeeper", starting(|| own(3))) else { return };
    let register = ZookeeperRegister::new(&server.url, Duration::from_secs(2)).unwrap();
    let key = Key::setting("majority");
    let record = || Record::bare(b"x".to_vec());
    let made = register.swap(&key, None, record()).await.unwrap();
    let Swapped::Done(version) = made else { panic!("the entry was there") };
    server.processes[0].kill();
    server.processes[1].kill();
    // One of three may go on for a moment with what it knows; then it serves nobody.
    while !matches!(register.load(&key).await, Err(RegisterError::Unavailable { .. })) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Now nothing is sent: it is certain that nothing happens.
    let refusal = register.swap(&key, Some(&version), record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    for process in &mut server.processes[..2] {
        process.spawn().unwrap();
    }
    let found = loop {
        match register.load(&key).await {
            Ok(found) => break found.expect("what was acknowledged is there"),
            Err(RegisterError::Unavailable { .. }) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(found.version, version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_login_are_its_own() {
    let Some(server) = or_skip("zookeeper", starting(|| own(1))) else { return };
    let at = |login: &str| server.url.replace("://", &format!("://{login}")) + "/logins/ours";
    let (ours, key) = (client(&at("me:secret@")), Key::setting("login"));
    let made = ours.swap(&key, None, Record::bare(b"x".to_vec())).await.unwrap();
    let Swapped::Done(version) = made else { panic!("the entry was there") };
    assert!(ours.load(&key).await.unwrap().is_some());
    for login in ["", "me:other@"] {
        let theirs = client(&at(login));
        let refusal = theirs.load(&key).await.unwrap_err();
        assert!(refusal.to_string().contains("may not"), "{refusal:?}");
        let write = theirs.swap(&key, Some(&version), Record::bare(b"y".to_vec())).await;
        assert!(matches!(write, Err(RegisterError::Unavailable { .. })), "{write:?}");
    }
}
