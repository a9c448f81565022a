//! Trials on a table of DynamoDB, with one key attribute, `id`.

use std::error::Error;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType, TableStatus,
};
use regent::fencing::WriteResult;
use regent::fencing::dynamodb::{FencedTable, Item};

use crate::{Target, Write, uncertain};

/// The key attribute of the table of trials.
const ID: &str = "id";

/// A table of its own.
#[derive(Debug)]
pub struct DynamodbTarget {
    client: Client,
    table: String,
    fenced: FencedTable,
}

impl DynamodbTarget {
    /// Makes the table, which [`DynamodbTarget::clear`] deletes.
    pub async fn prepare(
        client: Client,
        table: &str,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let definition = AttributeDefinition::builder().attribute_name(ID);
        let definition = definition.attribute_type(ScalarAttributeType::S).build()?;
        let key = KeySchemaElement::builder().attribute_name(ID).key_type(KeyType::Hash).build()?;
        client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(definition)
            .key_schema(key)
            .send()
            .await?;
        loop {
            let told = client.describe_table().table_name(table).send().await?;
            if told.table().and_then(|it| it.table_status()) == Some(&TableStatus::Active) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let fenced = FencedTable::new(client.clone(), table, [ID]);
        Ok(Self { client, table: table.to_owned(), fenced })
    }

    /// Deletes the table.
    pub async fn clear(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.client.delete_table().table_name(&self.table).send().await?;
        Ok(())
    }
}

fn key(resource: &str) -> Item {
    Item::from([(ID.to_owned(), AttributeValue::S(resource.to_owned()))])
}

#[async_trait]
impl Target for DynamodbTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        write.pause.over().await;
        let mut item = key(&write.resource);
        let value = AttributeValue::S(write.value.clone());
        if write.is_fenced {
            // Both ways to write take part.
            return if write.value.len().is_multiple_of(2) {
                item.insert("value".to_owned(), value);
                self.fenced.put(&write.leader, item).await.map(drop)
            } else {
                let update = self.fenced.update(&write.leader, item, |update| {
                    update
                        .update_expression("SET #v = :v")
                        .expression_attribute_names("#v", "value")
                        .expression_attribute_values(":v", value)
                });
                update.await.map(drop)
            };
        }
        item.insert("value".to_owned(), value);
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        put.send().await.map(drop).map_err(uncertain)
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let found = self.fenced.get(key(resource)).await?;
        Ok(found.and_then(|item| item.get("value")?.as_s().ok().cloned()))
    }
}
