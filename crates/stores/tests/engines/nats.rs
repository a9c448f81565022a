//! `nats://` on a real NATS.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::nats::NatsRegister;
use regent_stores::register::{Key, Record, Register, RegisterError};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::nats::{nats, own};
use regent_servers::{or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(NatsRegister::new(url, Duration::from_secs(20)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("nats", nats()) else { return };
    keeps_the_contract("nats", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_nats() {
    let Some(server) = or_skip("nats", nats()) else { return };
    keeps_elections("nats", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_nats_takes_nothing_back() {
    let Some(mut server) = or_skip("nats", starting(own)) else { return };
    let url = server.url.clone();
    takes_nothing_back("nats", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_nats() {
    let Some(mut server) = or_skip("nats", starting(own)) else { return };
    let url = server.url.clone();
    elects_through_kills("nats", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_forgets_is_warned_of_and_a_deleted_entry_is_corrupt() {
    let Some(server) = or_skip("nats", starting(own)) else { return };
    let admin = async_nats::connect(&server.url).await.unwrap();
    let admin = async_nats::jetstream::new(admin);
    let weak = async_nats::jetstream::kv::Config {
        bucket: "weak".into(),
        max_age: Duration::from_secs(3600),
        storage: async_nats::jetstream::stream::StorageType::Memory,
        ..Default::default()
    };
    let weak = admin.create_key_value(weak).await.unwrap();
    let register = client(&format!("{}/weak", server.url));
    let warnings = register.examine().await.unwrap().join("\n");
    for word in ["in memory", "1 replica", "older than"] {
        assert!(warnings.contains(word), "{warnings}");
    }

    let key = Key::setting("deleted");
    register.swap(&key, None, Record::bare(b"x".to_vec())).await.unwrap();
    weak.delete("settings.deleted").await.unwrap();
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Corrupt { .. }), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nats_that_is_gone_is_unavailable() {
    let Some(mut server) = or_skip("nats", starting(own)) else { return };
    server.processes[0].kill();
    let register = NatsRegister::new(&server.url, Duration::from_secs(2)).unwrap();
    let key = Key::setting("gone");
    for _ in 0..2 {
        let refusal = register.load(&key).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
        let refusal = register.swap(&key, None, Record::bare(b"x".to_vec())).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_nats_may_be_cut() {
    let Some(mut server) = or_skip("nats", starting(own)) else { return };
    bears_cuts("nats", &mut server, client).await;
}
