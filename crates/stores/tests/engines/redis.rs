//! `redis://` on a real Redis.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::redis::RedisRegister;
use regent_stores::register::{Register, RegisterError, Swapped};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::redis::{own, redis};
use regent_servers::{or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(RedisRegister::new(url, Duration::from_secs(10)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("redis", redis()) else { return };
    keeps_the_contract("redis", &server, true, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_redis_takes_nothing_back() {
    let Some(mut server) = or_skip("redis", starting(own)) else { return };
    let url = server.url.clone();
    takes_nothing_back("redis", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_is_warned_of_and_no_version_comes_back() {
    let Some(server) = or_skip("redis", starting(own)) else { return };
    let wire = ::redis::Client::open(server.url.as_str()).unwrap();
    let mut admin = wire.get_multiplexed_async_connection().await.unwrap();
    let register = client(&server.url);
    assert_eq!(register.examine().await.unwrap(), Vec::<String>::new());

    let key = regent_stores::register::Key::setting("forgetting");
    let record = || regent_stores::register::Record::bare(b"x".to_vec());
    let Swapped::Done(before) = register.swap(&key, None, record()).await.unwrap() else {
        panic!("the entry was there")
    };
    let _: () = ::redis::cmd("FLUSHALL").query_async(&mut admin).await.unwrap();
    let Swapped::Done(after) = register.swap(&key, None, record()).await.unwrap() else {
        panic!("the entry was there after all was forgotten")
    };
    assert_ne!(before, after);
    assert_eq!(register.swap(&key, Some(&before), record()).await.unwrap(), Swapped::Conflict);

    let set = ::redis::cmd("CONFIG").arg("SET").arg("appendfsync").arg("everysec").to_owned();
    let _: () = set.query_async(&mut admin).await.unwrap();
    assert!(register.examine().await.unwrap()[0].contains("everysec"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_and_foreign_keys_are_refused() {
    let Some(server) = or_skip("redis", starting(own)) else { return };
    let wire = ::redis::Client::open(server.url.as_str()).unwrap();
    let mut admin = wire.get_multiplexed_async_connection().await.unwrap();
    let register = client(&server.url);
    let key = regent_stores::register::Key::setting("foreign");
    let _: () = ::redis::cmd("SET")
        .arg("{regent}:settings:foreign")
        .arg("not ours")
        .query_async(&mut admin)
        .await
        .unwrap();
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Corrupt { .. }), "{refusal:?}");

    // It follows a master that is not there: all the same it is no master any more.
    let follow = ::redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").to_owned();
    let _: () = follow.query_async(&mut admin).await.unwrap();
    let late = client(&server.url);
    let refusal = late.load(&key).await.unwrap_err();
    assert!(refusal.to_string().contains("lags behind its master"), "{refusal:?}");
    assert!(matches!(refusal, RegisterError::Unavailable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("redis", redis()) else { return };
    keeps_elections("redis", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_redis() {
    let Some(mut server) = or_skip("redis", starting(own)) else { return };
    let url = server.url.clone();
    elects_through_kills("redis", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_redis_may_be_cut() {
    let Some(mut server) = or_skip("redis", starting(own)) else { return };
    bears_cuts("redis", &mut server, client).await;
}
