//! `zookeeper://…?mode=session` on a real ZooKeeper: sessions that it times, and lines that wake one by one.

use std::time::Duration;

use regent_stores::register::{Key, Record, RegisterError};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back, unique};
use crate::servers::zookeeper::{own, with_any_sessions};
use crate::servers::{or_skip, starting};
use crate::zookeeper::{client, kill_the_leader};

/// What these tests call the engine in this mode.
const NAME: &str = "zookeeper, sessions";

/// The URL of the same ZooKeeper that is to time sessions itself.
fn timed(url: &str) -> String {
    format!("{url}?mode=session")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_registers_with_its_own_sessions() {
    let Some(server) = or_skip(NAME, starting(|| with_any_sessions(1))) else { return };
    keeps_the_contract(NAME, &server, true, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_of_zookeeper_keeps_the_contract_of_registers_with_its_own_sessions() {
    let Some(server) = or_skip(NAME, starting(|| with_any_sessions(3))) else { return };
    keeps_the_contract(NAME, &server, true, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_keeps_the_contract_of_stores_with_its_own_sessions() {
    let Some(server) = or_skip(NAME, starting(|| with_any_sessions(1))) else { return };
    keeps_elections(NAME, &server, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_zookeeper_takes_nothing_back_with_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(1))) else { return };
    let url = timed(&server.url);
    takes_nothing_back(NAME, &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_the_leader_of_zookeeper_with_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(3))) else { return };
    let url = timed(&server.url);
    elects_through_kills(NAME, &mut server, || client(&url), kill_the_leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_zookeeper_may_be_cut_under_its_own_sessions() {
    let Some(mut server) = or_skip(NAME, starting(|| own(1))) else { return };
    bears_cuts(NAME, &mut server, |url| client(&timed(url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_zookeeper_does_not_keep_and_a_mode_that_others_do_not_share_are_refused() {
    let Some(server) = or_skip(NAME, starting(|| own(1))) else { return };
    let register = client(&timed(&server.url));
    let sessions = register.sessions().unwrap();
    // Two ticks of half a second to twenty of them.
    for ttl in [Duration::from_millis(999), Duration::from_millis(10_001)] {
        let session = unique();
        let refusal = sessions.begin(session, ttl).await.unwrap_err();
        assert!(
            matches!(&refusal, RegisterError::Unavailable { why }
                if why.contains("1000 to 10000 ms") && why.contains("mode=session")),
            "{refusal:?}"
        );
        assert!(!sessions.is_alive(session).await.unwrap());
    }
    let session = unique();
    assert!(sessions.begin(session, Duration::from_secs(2)).await.unwrap());
    assert!(sessions.beat(session, Duration::from_secs(4)).await.unwrap());
    assert!(sessions.is_alive(session).await.unwrap());

    let watching = client(&server.url);
    let record = Record::bare(b"x".to_vec());
    let refusal = watching.swap(&Key::setting("any"), None, record).await.unwrap_err();
    assert!(
        matches!(&refusal, RegisterError::Unfit { why } if why.contains("mode=cas")),
        "{refusal:?}"
    );
    let refusal = watching.examine().await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unfit { .. }), "{refusal:?}");
}
