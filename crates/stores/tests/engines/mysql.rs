//! `mysql://` on a real MariaDB.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::mysql::MysqlRegister;
use regent_stores::register::Register;

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::mysql::{mysql, own};
use regent_servers::{or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(MysqlRegister::new(url, Duration::from_secs(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("mysql", mysql()) else { return };
    keeps_the_contract("mysql", &server, true, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mysql_takes_nothing_back() {
    let Some(mut server) = or_skip("mysql", starting(own)) else { return };
    let url = server.url.clone();
    takes_nothing_back("mysql", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("mysql", mysql()) else { return };
    keeps_elections("mysql", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_mysql() {
    let Some(mut server) = or_skip("mysql", starting(own)) else { return };
    let url = server.url.clone();
    elects_through_kills("mysql", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_mysql_may_be_cut() {
    let Some(mut server) = or_skip("mysql", starting(own)) else { return };
    bears_cuts("mysql", &mut server, client).await;
}
