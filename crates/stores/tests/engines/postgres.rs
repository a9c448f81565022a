//! `postgres://` on a real PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use regent_election::{Group, Node, Term};
use regent_stores::postgres::PostgresRegister;
use regent_stores::register::{HumanSummary, Key, Record, Register, RegisterError};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::postgres::{own, postgres};
use regent_servers::{or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(PostgresRegister::new(url, Duration::from_secs(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("postgres", postgres()) else { return };
    keeps_the_contract("postgres", &server, true, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_takes_nothing_back() {
    let Some(mut server) = or_skip("postgres", starting(own)) else { return };
    let url = server.url.clone();
    takes_nothing_back("postgres", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_read_who_leads_and_a_weak_server_is_warned_of() {
    let Some(server) = or_skip("postgres", starting(own)) else { return };
    let register = client(&server.url);
    assert_eq!(register.examine().await.unwrap(), Vec::<String>::new());
    let summary = HumanSummary {
        leader: Some(Node::new("alice").unwrap()),
        term: Term::new(7),
        ttl: Some(Duration::from_secs(3)),
    };
    let key = Key::group(&Group::new("billing").unwrap());
    register.swap(&key, None, Record { value: b"x".to_vec(), summary }).await.unwrap();

    let (admin, connection) =
        tokio_postgres::connect(&server.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let row = admin
        .query_one("SELECT leader, term, ttl_ms FROM regent_entries WHERE name = 'billing'", &[])
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), ("alice", 7_i64, 3000_i64));

    admin.batch_execute("ALTER SYSTEM SET fsync = off").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    loop {
        let warnings = register.examine().await.unwrap();
        if warnings.iter().any(|warning| warning.contains("fsync is off")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    admin.batch_execute("ALTER SYSTEM RESET fsync").await.unwrap();
    admin.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    loop {
        // A server that may not write is none for us, and says so for certain.
        match client(&server.url).swap(&key, None, Record::bare(Vec::new())).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(RegisterError::Unavailable { .. }) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("postgres", postgres()) else { return };
    keeps_elections("postgres", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_postgres() {
    let Some(mut server) = or_skip("postgres", starting(own)) else { return };
    let url = server.url.clone();
    elects_through_kills("postgres", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_postgres_may_be_cut() {
    let Some(mut server) = or_skip("postgres", starting(own)) else { return };
    bears_cuts("postgres", &mut server, client).await;
}
