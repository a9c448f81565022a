//! `consul://` on a real Consul.

use std::sync::Arc;
use std::time::Duration;

use regent_election::{Group, Term};
use regent_stores::consul::ConsulRegister;
use regent_stores::register::{HumanSummary, Key, Record, Register, RegisterError, Swapped};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back, unique};
use regent_servers::consul::{consul, own, with_short_sessions};
use regent_servers::{or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(ConsulRegister::new(url, Duration::from_secs(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("consul", consul()) else { return };
    keeps_the_contract("consul", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_consul() {
    let Some(server) = or_skip("consul", consul()) else { return };
    keeps_elections("consul", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_consul_takes_nothing_back() {
    let Some(mut server) = or_skip("consul", starting(own)) else { return };
    let url = server.url.clone();
    takes_nothing_back("consul", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_consul() {
    let Some(mut server) = or_skip("consul", starting(own)) else { return };
    let url = server.url.clone();
    elects_through_kills("consul", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consul_of_one_server_is_warned_of_and_two_roots_never_meet() {
    let Some(server) = or_skip("consul", starting(own)) else { return };
    let register = client(&server.url);
    let warnings = register.examine().await.unwrap();
    assert!(matches!(warnings.as_slice(), [one] if one.contains("one server")), "{warnings:?}");

    let elsewhere = client(&format!("{}/elsewhere", server.url));
    let key = Key::group(&Group::new(&format!("roots/{:032x}", unique())).unwrap());
    let summary = HumanSummary { term: Term::new(7), ..HumanSummary::default() };
    let record = Record { value: b"here".to_vec(), summary };
    let Swapped::Done(version) = register.swap(&key, None, record.clone()).await.unwrap() else {
        panic!("the entry was there")
    };
    assert_eq!(elsewhere.load(&key).await.unwrap(), None);
    let foreign = elsewhere.swap(&key, Some(&version), record).await.unwrap();
    assert_eq!(foreign, Swapped::Conflict);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consul_that_is_gone_is_unavailable_and_never_wrong() {
    let Some(mut server) = or_skip("consul", starting(own)) else { return };
    let register = client(&server.url);
    let key = Key::setting("gone");
    assert_eq!(register.load(&key).await.unwrap(), None);
    server.processes[0].kill();
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    let refusal = register.swap(&key, None, Record::bare(b"x".to_vec())).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_consul_may_be_cut() {
    let Some(mut server) = or_skip("consul", starting(own)) else { return };
    bears_cuts("consul", &mut server, client).await;
}

/// The URL of the same Consul that is to time sessions itself.
fn timed(url: &str) -> String {
    format!("{url}?mode=session")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_keeps_the_contract_of_registers_with_its_own_sessions() {
    let Some(server) = or_skip("consul, sessions", starting(with_short_sessions)) else { return };
    let client = || client(&timed(&server.url));
    keeps_the_contract("consul, sessions", &server, true, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_consul_with_its_own_sessions() {
    let Some(server) = or_skip("consul, sessions", starting(with_short_sessions)) else { return };
    keeps_elections("consul, sessions", &server, || client(&timed(&server.url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_consul_with_its_own_sessions() {
    let Some(mut server) = or_skip("consul, sessions", starting(with_short_sessions)) else {
        return;
    };
    let url = timed(&server.url);
    elects_through_kills("consul, sessions", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_consul_may_be_cut_under_its_own_sessions() {
    let Some(mut server) = or_skip("consul, sessions", starting(with_short_sessions)) else {
        return;
    };
    bears_cuts("consul, sessions", &mut server, |url| client(&timed(url))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_consul_does_not_keep_and_a_mode_that_others_do_not_share_are_refused() {
    let Some(server) = or_skip("consul, sessions", starting(own)) else { return };
    let register = client(&timed(&server.url));
    let sessions = register.sessions().unwrap();
    for ttl in [Duration::from_secs(9), Duration::from_secs(86_401)] {
        let session = unique();
        let refusal = sessions.begin(session, ttl).await.unwrap_err();
        assert!(
            matches!(&refusal, RegisterError::Unavailable { why } if why.contains("10s") && why.contains("mode=session")),
            "{refusal:?}"
        );
        assert!(!sessions.is_alive(session).await.unwrap());
    }
    let session = unique();
    assert!(sessions.begin(session, Duration::from_secs(10)).await.unwrap());
    assert!(sessions.heartbeat(session, Duration::from_secs(20)).await.unwrap());
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
