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

    /// Whether a request is there with all of its body.
    fn is_whole(asked: &str) -> bool {
        let Some((head, body)) = asked.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.unwrap().parse::<usize>().unwrap()
    }

    /// A service that says to every question what `answer` has for it.
    async fn service(answer: fn(&str) -> (u16, String)) -> Client {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !is_whole(&String::from_utf8_lossy(&asked)) {
                    stream.read_buf(&mut asked).await.unwrap();
                }
                let (status, said) = answer(&String::from_utf8_lossy(&asked));
                let length = said.len();
                let head = format!("HTTP/1.1 {status} So\r\ncontent-length: {length}\r\n");
                let whole = format!("{head}connection: close\r\n\r\n{said}");
                stream.write_all(whole.as_bytes()).await.unwrap();
            }
        });
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::v2026_01_12())
            .region(aws_sdk_dynamodb::config::Region::new("x"))
            .credentials_provider(aws_sdk_dynamodb::config::Credentials::new(
                "a", "b", None, None, "a test",
            ))
            .endpoint_url(endpoint);
        Client::from_conf(config.build())
    }

    #[tokio::test]
    async fn a_global_table_is_known_by_what_the_service_says() {
        let client = service(|asked| {
            let said = if asked.contains("DescribeTimeToLive") {
                r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}"#
            } else {
                r#"{"Table":{"TableStatus":"ACTIVE","DeletionProtectionEnabled":true,
                    "Replicas":[{"RegionName":"eu-west-1","ReplicaStatus":"ACTIVE"}]}}"#
            };
            (200, said.to_owned())
        });
        let warnings = examine(&client.await, "x", "x").await.unwrap();
        assert!(warnings.len() == 1 && warnings[0].contains("NOT EXCLUSIVE"), "{warnings:?}");
        assert!(warnings[0].contains("eu-west-1"), "{warnings:?}");
    }

    #[tokio::test]
    async fn who_may_not_look_is_served_and_who_may_not_create_is_told_what_is_missing() {
        let blind = service(|_| {
            (400, r#"{"__type":"com.amazon#AccessDeniedException","Message":"no"}"#.to_owned())
        });
        ready(&blind.await, "x", "x").await.unwrap();
        let poor = service(|asked| {
            let kind = if asked.contains("DescribeTable") {
                "ResourceNotFoundException"
            } else {
                "AccessDeniedException"
            };
            (400, format!(r#"{{"__type":"com.amazon#{kind}","Message":"no"}}"#))
        });
        let refusal = ready(&poor.await, "x", "x").await.unwrap_err();
        assert!(refusal.to_string().contains("allow dynamodb:CreateTable"), "{refusal:?}");
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
