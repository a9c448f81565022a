//! DynamoDB, emulated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::types::AttributeValue;
use regent::fencing::WriteError;
use regent::fencing::dynamodb::{FencedTable, Item, is_gone, mark};
use regent_fencekit::dynamodb::DynamodbTarget;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::{leader, unique};
use regent_servers::dynamodb::dynamodb as server;
use regent_servers::or_skip;

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_keeps_stale_leaders_out() {
    let Some(server) = or_skip("fence dynamodb", server()) else { return };
    let (client, _) = regent_stores::dynamodb::client(&server.url).await.unwrap();
    let target = Arc::new(DynamodbTarget::prepare(client, &unique("trials")).await.unwrap());
    crate::keeps_stale_leaders_out("dynamodb", &server.version, Arc::clone(&target) as _).await;
    target.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_item_keeps_its_mark_and_a_condition_of_ones_own_is_no_refusal() {
    let Some(server) = or_skip("fence dynamodb", server()) else { return };
    let (client, _) = regent_stores::dynamodb::client(&server.url).await.unwrap();
    let name = unique("orders");
    let target = DynamodbTarget::prepare(client.clone(), &name).await.unwrap();
    let table = FencedTable::new(client.clone(), &name, ["id"]);
    let key = || Item::from([("id".to_owned(), text("7"))]);
    let item = |value: &str| {
        let mut item = key();
        item.insert("state".to_owned(), text(value));
        item
    };
    table.put(&leader(100), item("open")).await.unwrap();
    table
        .update(&leader(101), key(), |it| {
            it.update_expression("SET #s = :s")
                .expression_attribute_names("#s", "state")
                .expression_attribute_values(":s", text("paid"))
        })
        .await
        .unwrap();
    let stale = leader(100);
    let refused = table.put(&stale, item("open")).await.unwrap_err();
    assert_eq!(refused.to_string(), "STALE_TERM: term 100 < current 101");
    assert!(stale.is_refused());

    let own = leader(101);
    let unmet =
        table.put_if(&own, item("x"), |it| it.condition_expression("attribute_not_exists(id)"));
    let error = unmet.await.unwrap_err();
    assert!(matches!(error, WriteError::Failed(_)), "{error}");
    assert!(!own.is_refused(), "its own condition failed, and not its term");

    table.delete(&leader(102), key()).await.unwrap();
    assert_eq!(table.get(key()).await.unwrap(), None);
    let raw = client.get_item().table_name(&name).set_key(Some(key())).consistent_read(true);
    let stone = raw.send().await.unwrap().item.unwrap();
    assert!(is_gone(&stone) && mark(&stone).unwrap().get() == 102, "{stone:?}");
    assert!(table.delete(&leader(101), key()).await.unwrap_err().refusal().is_some());
    let deposed = leader(101);
    let update = table.update(&deposed, key(), |it| it);
    assert!(update.await.unwrap_err().refusal().is_some());
    table.update(&leader(102), key(), |it| it).await.unwrap();
    assert!(table.get(key()).await.unwrap().is_some(), "written again, it is there again");
    target.clear().await.unwrap();
}

/// A line to the server that breaks before the next answer is through, and is whole again then.
async fn line(server: String, is_to_break: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (server, is_to_break) = (server.clone(), Arc::clone(&is_to_break));
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await.unwrap();
                let (mut asked, mut answered) = ([0; 4096], [0; 4096]);
                loop {
                    let (from_near, count) = tokio::select! {
                        count = near.read(&mut asked) => (true, count.unwrap_or(0)),
                        count = far.read(&mut answered) => (false, count.unwrap_or(0)),
                    };
                    let passed = match (from_near, count) {
                        (_, 0) => return,
                        (true, count) => far.write_all(&asked[..count]).await,
                        (false, _) if is_to_break.swap(false, Ordering::SeqCst) => return,
                        (false, count) => near.write_all(&answered[..count]).await,
                    };
                    if passed.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// The caller's client tries again by itself, as clients of this service do: behind a lost answer the second
/// attempt would add twice, or find its own first one and say that nothing was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_sent_once_and_uncertain() {
    let Some(server) = or_skip("fence dynamodb", server()) else { return };
    let (direct, _) = regent_stores::dynamodb::client(&server.url).await.unwrap();
    let Some((_, host)) = server.url.rsplit_once("http://") else { return };
    let name = unique("orders");
    let target = DynamodbTarget::prepare(direct.clone(), &name).await.unwrap();
    let is_to_break = Arc::new(AtomicBool::new(false));
    let address = line(host.to_owned(), Arc::clone(&is_to_break)).await;
    let eager = direct.config().to_builder().endpoint_url(format!("http://{address}"));
    let eager = Client::from_conf(eager.retry_config(RetryConfig::standard()).build());
    let table = FencedTable::new(eager, &name, ["id"]);
    let (permit, key) = (leader(7), |id: &str| Item::from([("id".to_owned(), text(id))]));

    is_to_break.store(true, Ordering::SeqCst);
    let add = table.update(&permit, key("a"), |it| {
        it.update_expression("ADD visits :one")
            .expression_attribute_values(":one", AttributeValue::N("1".into()))
    });
    let error = add.await.expect_err("its answer was lost");
    assert!(matches!(error, WriteError::Uncertain(_)), "{error}");
    let visits = table.get(key("a")).await.unwrap().unwrap()["visits"].clone();
    assert_eq!(visits, AttributeValue::N("1".into()));

    is_to_break.store(true, Ordering::SeqCst);
    let new =
        table.put_if(&permit, key("b"), |it| it.condition_expression("attribute_not_exists(id)"));
    let error = new.await.expect_err("its answer was lost");
    assert!(matches!(error, WriteError::Uncertain(_)), "it was written: {error}");
    assert!(table.get(key("b")).await.unwrap().is_some());
    target.clear().await.unwrap();
}
