//! `s3://`, `gs://` and `az://` on the best servers there are, and on one that ignores every condition.

use std::sync::Arc;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::azure::{AzureAccessKey, AzureAuthorizer, AzureCredential};
use object_store::client::{HttpConnector as _, HttpRequestBody, ReqwestConnector};
use regent_election::Group;
use regent_election::store::{Campaign, CampaignSession, Store, StoreError};
use regent_election::{Metadata, Node, SessionId};
use regent_stores::LeaseStore;
use regent_stores::object::ObjectRegister;
use regent_stores::register::{Key, Record, Register, RegisterError, Swapped};

use crate::cuts::bears_cuts;
use crate::elections::{elects_through_kills, keeps_elections};
use crate::judge::{keeps_the_contract, takes_nothing_back, unique};
use crate::relay::Relay;
use regent_servers::object::{az, azurite, bad, gs, own, own_azurite, own_over_tls, s3};
use regent_servers::{Server, or_skip, report, starting};

/// Who want to create the same entry at once.
const RACERS: usize = 8;
/// Entries that are raced for.
const RACES: usize = 10;

/// A client that looks often: the ttls of tests are short, and nobody pays.
fn client(url: &str) -> Arc<dyn Register> {
    let url = format!("{url}{}poll_ms=50", if url.contains('?') { '&' } else { '?' });
    Arc::new(ObjectRegister::new(&url, Duration::from_secs(20)).unwrap())
}

fn group() -> Group {
    Group::new(&format!("objects/{:032x}", unique())).unwrap()
}

fn record() -> Record {
    Record::bare(unique().to_be_bytes().to_vec())
}

/// Makes the container of an Azurite: the interface of objects has no word for that.
pub(crate) async fn with_container(server: Option<Server>) -> Option<Server> {
    let server = server?;
    if server.is_ours() {
        let endpoint = server.url.split_once("endpoint=").unwrap().1;
        let mut request = hyper::Request::put(format!("{endpoint}/test?restype=container"))
            .header("content-length", "0")
            .body(HttpRequestBody::empty())
            .unwrap();
        let key = AzureAccessKey::try_new(azurite::KEY).unwrap();
        let credential = AzureCredential::AccessKey(key);
        AzureAuthorizer::new(&credential, azurite::ACCOUNT).try_authorize(&mut request).unwrap();
        let plain = ClientOptions::new().with_allow_http(true);
        let made = ReqwestConnector::default().connect(&plain).unwrap().execute(request).await;
        assert_eq!(made.unwrap().status().as_u16(), 201);
    }
    Some(server)
}

/// Of those who create the same entry at once, exactly one does.
async fn races_have_one_winner(store: &str, server: &Server) {
    for _ in 0..RACES {
        let key = Key::group(&group());
        let mut race = tokio::task::JoinSet::new();
        for _ in 0..RACERS {
            let (register, key) = (client(&server.url), key.clone());
            race.spawn(async move { register.swap(&key, None, record()).await.unwrap() });
        }
        let won = race.join_all().await;
        let won: Vec<_> = won.iter().filter(|it| matches!(it, Swapped::Done(_))).collect();
        assert_eq!(won.len(), 1, "{won:?}");
    }
    report(store, &server.version, 1, 0, &format!("{RACES} races of {RACERS} had one winner each"));
}

/// Whoever stands between may send a write twice: the second meets the success of the first, and says so.
async fn a_write_that_arrives_twice_is_done(server: &Server) {
    let (register, key) = (client(&server.url), Key::group(&group()));
    let mut version = None;
    for _ in 0..3 {
        let record = record();
        let first = register.swap(&key, version.as_ref(), record.clone()).await.unwrap();
        let second = register.swap(&key, version.as_ref(), record.clone()).await.unwrap();
        assert_eq!(first, second);
        let Swapped::Done(next) = first else { panic!("nobody else writes here") };
        let other = register.swap(&key, version.as_ref(), self::record()).await.unwrap();
        assert_eq!(other, Swapped::Conflict);
        assert_eq!(register.load(&key).await.unwrap().unwrap().value, record.value);
        version = Some(next);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("s3", s3()) else { return };
    keeps_the_contract("s3", &server, false, || client(&server.url)).await;
    races_have_one_winner("s3", &server).await;
    a_write_that_arrives_twice_is_done(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_s3() {
    let Some(server) = or_skip("s3", s3()) else { return };
    keeps_elections("s3", &server, || client(&server.url)).await;
}

/// Kills a SeaweedFS while it is written to, starts it again, and lets clients back when it has settled: the
/// operating rule of `docs/stores.md`, without which it was seen to tell two that they have written.
fn kill_behind(relay: &Relay) -> impl FnMut(&mut Server) {
    |server: &mut Server| {
        let process = &mut server.processes[0];
        // First the kill, so that it meets writes; then nobody gets through to the one that starts.
        process.kill();
        relay.cut();
        process.start_again().expect("a server that was killed starts again");
        relay.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_s3_takes_nothing_back() {
    let Some(mut server) = or_skip("s3", starting(own)) else { return };
    let relay = Relay::before(&server.url).await;
    let strike = kill_behind(&relay);
    takes_nothing_back("s3", &mut server, || client(&relay.url), strike).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_go_on_through_kills_of_s3() {
    let Some(mut server) = or_skip("s3", starting(own)) else { return };
    let relay = Relay::before(&server.url).await;
    let strike = kill_behind(&relay);
    elects_through_kills("s3", &mut server, || client(&relay.url), strike).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_s3_may_be_cut() {
    let Some(mut server) = or_skip("s3", starting(own)) else { return };
    bears_cuts("s3", &mut server, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_s3_over_tls_is_spoken_to_if_its_authority_is_trusted() {
    let Some(server) = or_skip("s3", starting(own_over_tls)) else { return };
    let key = Key::group(&group());
    let register = client(&server.url);
    let Swapped::Done(version) = register.swap(&key, None, record()).await.unwrap() else {
        panic!("the entry was there")
    };
    assert_eq!(register.load(&key).await.unwrap().unwrap().version, version);
    let stranger = client(server.url.split_once("&ca=").unwrap().0);
    let refusal = stranger.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    report("s3", &server.version, 1, 0, "over TLS");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_not_there_holds_nothing_and_takes_nothing() {
    let Some(server) = or_skip("s3", starting(own)) else { return };
    let register = client(&server.url.replace("@test?", "@nowhere?"));
    let key = Key::group(&group());
    let refusal = register.load(&key).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    let refusal = register.swap(&key, None, record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn az_keeps_the_contract_of_registers() {
    let Some(server) = with_container(or_skip("az", az())).await else { return };
    keeps_the_contract("az", &server, false, || client(&server.url)).await;
    races_have_one_winner("az", &server).await;
    a_write_that_arrives_twice_is_done(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_are_held_on_az() {
    let Some(server) = with_container(or_skip("az", az())).await else { return };
    keeps_elections("az", &server, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_az_may_be_cut() {
    let Some(mut server) = with_container(or_skip("az", starting(own_azurite))).await else {
        return;
    };
    bears_cuts("az", &mut server, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gs_keeps_the_contract_of_registers() {
    let Some(server) = or_skip("gs", gs()) else { return };
    keeps_the_contract("gs", &server, false, || client(&server.url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_elected_on_a_server_that_ignores_conditions() {
    let Some(server) = or_skip("s3 (bad)", starting(bad)) else { return };
    let register = client(&server.url);
    let refusal = register.examine().await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unfit { .. }), "{refusal:?}");

    // Whoever never examines is refused as well, and nothing is written.
    let (register, group) = (client(&server.url), group());
    let refusal = register.swap(&Key::group(&group), None, record()).await.unwrap_err();
    assert!(matches!(refusal, RegisterError::Unfit { .. }), "{refusal:?}");
    assert_eq!(register.load(&Key::group(&group)).await.unwrap(), None);
    let store: &dyn Store = &LeaseStore::new(client(&server.url));
    let campaign = Campaign {
        group,
        node: Node::new("a").unwrap(),
        session: CampaignSession::Own(SessionId::new(unique()).unwrap()),
        ttl_ms: Some(10_000),
        wait: None,
        priority: 0,
        metadata: Metadata::NONE,
        request: None,
    };
    let refusal = store.campaign(campaign).await.unwrap_err();
    assert!(
        matches!(&refusal, StoreError::Unavailable { why, .. } if why.contains("If-None-Match")),
        "{refusal:?}"
    );
    store.shut_down().await;
    report(
        "s3 (bad)",
        &server.version,
        1,
        0,
        "it ignores conditions: found out, and nobody was elected",
    );
}
