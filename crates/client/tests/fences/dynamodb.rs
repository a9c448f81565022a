//! DynamoDB, emulated.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use regent::fencing::WriteError;
use regent::fencing::dynamodb::{FencedTable, Item, is_gone, mark};
use regent::fencing::trial::dynamodb::DynamodbTarget;

use crate::servers::dynamodb::dynamodb as server;
use crate::servers::or_skip;
use crate::{leader, unique};

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
