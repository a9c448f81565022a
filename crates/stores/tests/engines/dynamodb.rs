//! `dynamodb://` on emulators: nobody can run the service itself. One is killed and its connections are cut;
//! the other knows more of what surrounds a table (`crates/servers/src/dynamodb.rs` says why there are two).

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use regent_stores::dynamodb::DynamodbRegister;
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, kill_and_restart, takes_nothing_back};
use regent_servers::dynamodb::{dynalite, dynamodb, moto};
use regent_servers::{Server, or_skip, starting};

fn client(url: &str) -> Arc<dyn Register> {
    Arc::new(DynamodbRegister::new(url, Duration::from_secs(20)).unwrap())
}

/// Somebody who may do everything.
fn admin(server: &Server) -> Client {
    let (_, endpoint) = server.url.split_once("endpoint=").unwrap();
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "a test"))
        .endpoint_url(endpoint)
        .build();
    Client::from_conf(config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("dynamodb", dynamodb()) else { return };
    keeps_the_contract("dynamodb", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_keeps_the_contract_of_stores() {
    let Some(server) = or_skip("dynamodb", dynamodb()) else { return };
    keeps_elections("dynamodb", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_dynamodb_takes_nothing_back() {
    let Some(mut server) = or_skip("dynamodb", starting(dynalite)) else { return };
    let url = server.url.clone();
    takes_nothing_back("dynamodb", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_dynamodb() {
    let Some(mut server) = or_skip("dynamodb", starting(dynalite)) else { return };
    let url = server.url.clone();
    elects_through_kills("dynamodb", &mut server, || client(&url), kill_and_restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_dynamodb_may_be_cut() {
    let Some(mut server) = or_skip("dynamodb", starting(dynalite)) else { return };
    bears_cuts("dynamodb", &mut server, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_made_here_is_weak_only_for_being_emulated() {
    let Some(server) = or_skip("dynamodb", starting(moto)) else { return };
    let warnings = client(&server.url).examine().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("not Amazon's own"), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_items_expire_or_that_may_be_deleted_is_warned_of() {
    let Some(server) = or_skip("dynamodb", starting(moto)) else { return };
    let (register, admin) = (client(&server.url), admin(&server));
    // It makes the table.
    assert_eq!(register.load(&Key::setting("x")).await.unwrap(), None);
    let expiry = TimeToLiveSpecification::builder().enabled(true).attribute_name("until");
    let expiry = expiry.build().unwrap();
    let expire = admin.update_time_to_live().table_name("elections");
    expire.time_to_live_specification(expiry).send().await.unwrap();
    let open = admin.update_table().table_name("elections").deletion_protection_enabled(false);
    open.send().await.unwrap();
    let warnings = register.examine().await.unwrap().join("\n");
    for word in ["time to live", "protected against deletion"] {
        assert!(warnings.contains(word), "{warnings}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_table_is_refused_and_a_deleted_one_is_not_made_again() {
    let Some(server) = or_skip("dynamodb", starting(moto)) else { return };
    let (admin, key) = (admin(&server), Key::setting("x"));
    let id = AttributeDefinition::builder().attribute_name("id");
    let id = id.attribute_type(ScalarAttributeType::S).build().unwrap();
    let hash = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let make = admin.create_table().table_name("theirs").billing_mode(BillingMode::PayPerRequest);
    make.attribute_definitions(id).key_schema(hash.build().unwrap()).send().await.unwrap();
    let refusal = client(&server.url.replace("elections", "theirs")).load(&key).await.unwrap_err();
    assert!(refusal.to_string().contains("not of this store"), "{refusal:?}");

    let (register, record) = (client(&server.url), || Record::bare(b"x".to_vec()));
    let made = register.swap(&key, None, record()).await.unwrap();
    assert!(matches!(made, Swapped::Done(_)), "{made:?}");
    let open = admin.update_table().table_name("elections").deletion_protection_enabled(false);
    open.send().await.unwrap();
    admin.delete_table().table_name("elections").send().await.unwrap();
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    let refusal = register.swap(&key, None, record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
}
