//! The table: what it must look like, how it is made, and what in it is weaker than it looks.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, MultiRegionConsistency,
    ScalarAttributeType, TableDescription, TableStatus, TimeToLiveStatus,
};

use super::{KIND, NAME, failure};
use crate::engine::Effect;
use crate::engine::limits::POLL_EVERY;
use crate::register::{RegisterError, RegisterResult};

/// What is known about the table before anything is asked of it.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It serves.
    Serves,
    /// It will.
    Coming,
    /// There is none.
    Absent,
    /// It is none of ours.
    Foreign(String),
}

/// Waits until the table serves; makes it if there is none.
pub(super) async fn ready(client: &Client, server: &str, table: &str) -> RegisterResult<()> {
    loop {
        match look(client, server, table).await? {
            Look::Serves => return Ok(()),
            Look::Coming => tokio::time::sleep(POLL_EVERY).await,
            Look::Absent => make(client, server, table).await?,
            Look::Foreign(why) => return Err(RegisterError::unavailable(why)),
        }
    }
}

async fn look(client: &Client, server: &str, table: &str) -> RegisterResult<Look> {
    match client.describe_table().table_name(table).send().await {
        Ok(told) => Ok(told.table.as_ref().map_or(Look::Absent, |told| judged(table, told))),
        Err(SdkError::ServiceError(error))
            if matches!(error.err(), DescribeTableError::ResourceNotFoundException(_)) =>
        {
            Ok(Look::Absent)
        }
        // Who may read and write but not look is served, too: the first request tells whether it is there.
        Err(error) if is_denied(&error) => Ok(Look::Serves),
        Err(error) => Err(failure(Effect::Reads, server, &error)),
    }
}

fn is_denied<E: aws_sdk_dynamodb::error::ProvideErrorMetadata>(error: &SdkError<E>) -> bool {
    let code = error.as_service_error().and_then(|error| error.code());
    code.is_some_and(|code| code.contains("AccessDenied"))
}

fn judged(table: &str, told: &TableDescription) -> Look {
    let keys: Vec<_> =
        told.key_schema().iter().map(|key| (key.attribute_name(), key.key_type())).collect();
    if keys != [(KIND, &KeyType::Hash), (NAME, &KeyType::Range)] {
        return Look::Foreign(format!(
            "the table {table} is not of this store: its keys must be {KIND} (hash) and {NAME} (range)"
        ));
    }
    match told.table_status() {
        // A table that is updated serves meanwhile.
        Some(TableStatus::Active | TableStatus::Updating) => Look::Serves,
        Some(TableStatus::Creating) => Look::Coming,
        status => Look::Foreign(format!("the table {table} does not serve: {status:?}")),
    }
}

async fn make(client: &Client, server: &str, table: &str) -> RegisterResult<()> {
    let built = |error: aws_sdk_dynamodb::error::BuildError| RegisterError::unavailable(error);
    let mut request = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .deletion_protection_enabled(true);
    for (name, kind) in [(KIND, KeyType::Hash), (NAME, KeyType::Range)] {
        let definition = AttributeDefinition::builder().attribute_name(name);
        let definition =
            definition.attribute_type(ScalarAttributeType::S).build().map_err(built)?;
        let key = KeySchemaElement::builder().attribute_name(name).key_type(kind);
        request = request.attribute_definitions(definition).key_schema(key.build().map_err(built)?);
    }
    match request.send().await {
        Ok(_) => Ok(()),
        // Somebody else makes it at the same moment.
        Err(SdkError::ServiceError(error))
            if matches!(error.err(), CreateTableError::ResourceInUseException(_)) =>
        {
            Ok(())
        }
        Err(error) if is_denied(&error) => Err(RegisterError::unavailable(format_args!(
            "{server}: there is no table {table}, and this login may not create it; create it with the keys \
             {KIND} (string, hash) and {NAME} (string, range), or allow dynamodb:CreateTable"
        ))),
        Err(error) => Err(failure(Effect::Reads, server, &error)),
    }
}

/// What in a deployment is weaker than it looks.
pub(super) async fn examine(
    client: &Client,
    server: &str,
    table: &str,
) -> RegisterResult<Vec<String>> {
    let told = match client.describe_table().table_name(table).send().await {
        Ok(told) => told.table.unwrap_or_else(|| TableDescription::builder().build()),
        Err(error) if is_denied(&error) => {
            return Ok(vec![format!(
                "this login may not ask about the table {table} (dynamodb:DescribeTable), so whether it is \
                 replicated to other regions is not known"
            )]);
        }
        Err(error) => return Err(failure(Effect::Reads, server, &error)),
    };
    let mut warnings = weaknesses(&told);
    match client.describe_time_to_live().table_name(table).send().await {
        Ok(told) => {
            let told = told.time_to_live_description.as_ref();
            let status = told.and_then(|told| told.time_to_live_status());
            if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
                warnings.push("items of the table expire: turn its time to live off".to_owned());
            }
        }
        Err(error) if is_denied(&error) => {}
        Err(error) => return Err(failure(Effect::Reads, server, &error)),
    }
    Ok(warnings)
}

fn weaknesses(told: &TableDescription) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_strong = told.multi_region_consistency() == Some(&MultiRegionConsistency::Strong);
    let elsewhere: Vec<_> =
        told.replicas().iter().filter_map(|replica| replica.region_name()).collect();
    if !elsewhere.is_empty() && !is_strong {
        warnings.push(format!(
            "NOT EXCLUSIVE: the table is replicated to {} without strong consistency between regions, where \
             the last writer wins and two regions may each have a leader; use a table of one region, or \
             one with multi-region strong consistency",
            elsewhere.join(", ")
        ));
    }
    if told.deletion_protection_enabled() != Some(true) {
        warnings.push(
            "the table is not protected against deletion, which would take back all terms"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ReplicaDescription;

    use super::*;

    fn table(keys: [(&str, KeyType); 2], status: TableStatus) -> TableDescription {
        let mut table = TableDescription::builder().table_status(status);
        for (name, kind) in keys {
            let key = KeySchemaElement::builder().attribute_name(name).key_type(kind);
            table = table.key_schema(key.build().unwrap());
        }
        table.build()
    }

    #[test]
    fn a_table_serves_if_it_is_ours_and_there() {
        let ours = [(KIND, KeyType::Hash), (NAME, KeyType::Range)];
        let judged = |table: TableDescription| judged("x", &table);
        assert_eq!(judged(table(ours.clone(), TableStatus::Active)), Look::Serves);
        assert_eq!(judged(table(ours.clone(), TableStatus::Creating)), Look::Coming);
        assert!(matches!(judged(table(ours, TableStatus::Deleting)), Look::Foreign(_)));
        let theirs = [("id", KeyType::Hash), (NAME, KeyType::Range)];
        assert!(matches!(judged(table(theirs, TableStatus::Active)), Look::Foreign(_)));
    }

    #[test]
    fn a_global_table_is_warned_of_unless_its_regions_agree() {
        let one_region = TableDescription::builder().deletion_protection_enabled(true);
        assert_eq!(weaknesses(&one_region.clone().build()), Vec::<String>::new());
        let elsewhere = ReplicaDescription::builder().region_name("us-east-1").build();
        let global = one_region.replicas(elsewhere);
        let warnings = weaknesses(&global.clone().build());
        assert!(warnings.len() == 1 && warnings[0].contains("NOT EXCLUSIVE"), "{warnings:?}");
        let eventual = global.clone().multi_region_consistency(MultiRegionConsistency::Eventual);
        assert_eq!(weaknesses(&eventual.build()), warnings);
        let strong = global.multi_region_consistency(MultiRegionConsistency::Strong);
        assert_eq!(weaknesses(&strong.build()), Vec::<String>::new());
        assert!(weaknesses(&TableDescription::builder().build())[0].contains("deletion"));
    }
}
