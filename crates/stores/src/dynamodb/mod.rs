//! `dynamodb://table?region=`: a table of DynamoDB as a register.
//!
//! An entry is an item under its kind and its name, so that a query lists names in order. Its version is a
//! number drawn for every write, and a swap is one conditional put on it. The number settles what a
//! condition alone cannot: a put that was sent twice on its way meets its own first success, and the item
//! that is shown with the refusal is then ours. Reads are consistent.
//!
//! Sessions are timed by those who watch them, and entries are looked at twice a second: the table's stream
//! is slower than that and is paid by the shard. Its time to live is never used: it would delete terms. The
//! client repeats nothing by itself; whether to ask again is decided above, where it is known what for.

mod address;
mod table;

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use regent_election::Term;
use regent_election::error_text::with_causes;
use regent_election::store::{Description, Level};
use tokio::sync::OnceCell;

use crate::engine::{Effect, Sent, UrlError, fresh, in_time, whole_ms};
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped, Version,
};
use address::Address;

/// The attribute that entries of a kind share.
const KIND: &str = "kind";
/// The attribute that they are ordered by.
const NAME: &str = "name";
const VALUE: &str = "value";
const VERSION: &str = "version";
/// How often an entry is looked at. Every look is a read that is paid for.
const TABLE_POLL_EVERY: Duration = Duration::from_millis(500);

type Item = HashMap<String, AttributeValue>;

/// A register in a table of DynamoDB.
#[derive(Debug)]
pub struct DynamodbRegister {
    address: Address,
    request_for: Duration,
    client: OnceCell<Client>,
    /// Whether the table was seen to serve. One that is deleted later is not made again: its terms are gone.
    is_ready: AtomicBool,
}

impl DynamodbRegister {
    /// A register in the table that `url` names, like `dynamodb://elections?region=eu-west-1`; it connects
    /// when it is first asked, and makes the table if there is none. Credentials and the region come from
    /// the surroundings, as for every program of AWS, unless the URL has them.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let address = Address::parse(url)?;
        let (client, is_ready) = (OnceCell::new(), AtomicBool::new(false));
        Ok(Self { address, request_for, client, is_ready })
    }

    /// Whether it is the service itself that is asked. What others make of it, nobody has promised.
    fn is_amazons(&self) -> bool {
        let endpoint = self.address.endpoint.as_deref();
        let host = endpoint.map(|it| it.split("://").last().unwrap_or_default());
        let host = host.map(|it| it.split(['/', ':']).next().unwrap_or_default());
        host.is_none_or(|host| host.ends_with(".amazonaws.com"))
    }

    fn server(&self) -> String {
        format!("DynamoDB table {}", self.address)
    }

    async fn client(&self) -> &Client {
        self.client.get_or_init(|| connect(&self.address)).await
    }

    /// Asks the table, within one time-out; it is made first if there is none.
    async fn ask<T>(
        &self,
        effect: Effect,
        request: impl AsyncFnOnce(&Client) -> RegisterResult<T>,
    ) -> RegisterResult<T> {
        let server = self.server();
        let answer = in_time(self.request_for, effect, &server, async |sent: &Sent| {
            let client = self.client().await;
            if !self.is_ready.load(Ordering::Acquire) {
                table::ready(client, &server, &self.address.table).await?;
                self.is_ready.store(true, Ordering::Release);
            }
            sent.leaves_now();
            request(client).await
        });
        answer.await
    }
}

/// The client and the table that a URL names, for whoever asks more of them than a register does.
pub async fn client(url: &str) -> Result<(Client, String), UrlError> {
    let address = Address::parse(url)?;
    Ok((connect(&address).await, address.table))
}

async fn connect(address: &Address) -> Client {
    let mut settings = aws_config::defaults(BehaviorVersion::v2026_01_12());
    if let Some(region) = &address.region {
        settings = settings.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &address.endpoint {
        settings = settings.endpoint_url(endpoint);
    }
    if let Some((key, secret)) = &address.login {
        let login = Credentials::new(key, secret, None, None, "the URL of the store");
        settings = settings.credentials_provider(login);
    }
    Client::new(&settings.retry_config(RetryConfig::disabled()).load().await)
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// The key and the attributes of an entry.
fn item(key: &Key, version: &str, record: Record) -> Item {
    let mut item = Item::from([
        (KIND.to_owned(), text(key.kind().word())),
        (NAME.to_owned(), text(key.name())),
        (VERSION.to_owned(), text(version)),
        (VALUE.to_owned(), AttributeValue::B(Blob::new(record.value))),
    ]);
    let summary = record.summary;
    if let Some(leader) = &summary.leader {
        item.insert("leader".to_owned(), text(leader.as_str()));
    }
    for (name, number) in
        [("term", summary.term.map(Term::get)), ("ttl_ms", summary.ttl.map(whole_ms))]
    {
        if let Some(number) = number {
            item.insert(name.to_owned(), AttributeValue::N(number.to_string()));
        }
    }
    item
}

/// The entry that an item holds.
fn found(mut item: Item) -> RegisterResult<Found> {
    let name = format!("{:?}", item.get(NAME));
    match (item.remove(VALUE), item.remove(VERSION)) {
        (Some(AttributeValue::B(value)), Some(AttributeValue::S(version))) => {
            Ok(Found { value: value.into_inner(), version: Version(version) })
        }
        _ => Err(RegisterError::corrupt(format_args!("the item {name} is no entry of ours"))),
    }
}

/// The first and the last name that a listing may hold, as far as there can be any. Names are made of
/// letters that lie between a space and a tilde.
fn range(prefix: &str, after: Option<&str>) -> Option<(String, String)> {
    let last = format!("{prefix}~");
    let least = if prefix.is_empty() { " " } else { prefix };
    let first = match after {
        Some(after) => format!("{after} ").max(least.to_owned()),
        None => least.to_owned(),
    };
    (first <= last).then_some((first, last))
}

/// Whether nobody was reached, so that nothing was sent.
fn is_unreached(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let known = error.downcast_ref::<hyper_util::client::legacy::Error>();
        if known.is_some_and(hyper_util::client::legacy::Error::is_connect) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What an error says about the question.
fn failure<E>(effect: Effect, server: &str, error: &SdkError<E>) -> RegisterError
where
    E: Error + ProvideErrorMetadata + 'static,
{
    let why = match error.as_service_error() {
        Some(error) => format!(
            "{server}: {}: {}",
            error.code().unwrap_or("refused"),
            error.message().unwrap_or("without a reason")
        ),
        None => format!("{server}: {}", with_causes(error)),
    };
    let is_undone = match error {
        SdkError::ConstructionFailure(_) => true,
        SdkError::DispatchFailure(failure) => {
            failure.as_connector_error().is_some_and(|error| is_unreached(error))
        }
        // Refused for what it is, or by somebody who is too busy. A request that took too long, and all that
        // went wrong on the other side, may have been done.
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            (400..500).contains(&status) && status != 408
        }
        _ => false,
    };
    if is_undone { RegisterError::unavailable(why) } else { effect.unanswered(why) }
}

/// What a put that was not acknowledged came to. `version` is the one that it carried.
fn refused(server: &str, version: &str, error: &SdkError<PutItemError>) -> RegisterResult<Swapped> {
    let Some(PutItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error()
    else {
        return Err(failure(Effect::Writes, server, error));
    };
    let held = refusal.item().and_then(|item| item.get(VERSION));
    if held == Some(&text(version)) {
        return Ok(Swapped::Done(Version(version.to_owned())));
    }
    Ok(Swapped::Conflict)
}

#[async_trait]
impl Register for DynamodbRegister {
    fn describe(&self) -> Description {
        Description {
            name: "dynamodb",
            place: self.address.to_string(),
            level: if self.is_amazons() { Level::Strict } else { Level::LeaseOnly },
            caveat: Some(
                "in one region, or with strong consistency between regions: a global table without it is \
                 not exclusive; deleting items or restoring a backup takes terms back"
                    .into(),
            ),
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let (server, table) = (self.server(), &self.address.table);
        let examine = async |client: &Client| table::examine(client, &server, table).await;
        let mut warnings = self.ask(Effect::Reads, examine).await?;
        if !self.is_amazons() {
            warnings.push("it is not Amazon's own service that is asked, but another".to_owned());
        }
        Ok(warnings)
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let server = self.server();
        let read = self.ask(Effect::Reads, async |client: &Client| {
            let request = client
                .get_item()
                .table_name(&self.address.table)
                .key(KIND, text(key.kind().word()))
                .key(NAME, text(key.name()))
                .consistent_read(true);
            request.send().await.map_err(|error| failure(Effect::Reads, &server, &error))
        });
        read.await?.item.map(found).transpose()
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let (server, version) = (self.server(), format!("{:016x}{:016x}", fresh(), fresh()));
        let written = self.ask(Effect::Writes, async |client: &Client| {
            let mut request = client
                .put_item()
                .table_name(&self.address.table)
                .set_item(Some(item(key, &version, record)))
                .expression_attribute_names("#version", VERSION)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            request = match expected {
                None => request.condition_expression("attribute_not_exists(#version)"),
                Some(seen) => request
                    .condition_expression("#version = :seen")
                    .expression_attribute_values(":seen", text(&seen.0)),
            };
            match request.send().await {
                Ok(_) => Ok(Swapped::Done(Version(version.clone()))),
                Err(error) => refused(&server, &version, &error),
            }
        });
        written.await
    }

    async fn wait(
        &self,
        _key: &Key,
        _seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        tokio::time::sleep(patience.min(TABLE_POLL_EVERY)).await;
        Ok(())
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let server = self.server();
        let mut entries: Vec<(Key, Found)> = Vec::new();
        let Some((mut first, last)) = range(prefix, after) else { return Ok(entries) };
        while entries.len() < count {
            let limit = i32::try_from(count - entries.len()).unwrap_or(i32::MAX);
            let page = self.ask(Effect::Reads, async |client: &Client| {
                let request = client
                    .query()
                    .table_name(&self.address.table)
                    .consistent_read(true)
                    .limit(limit)
                    .key_condition_expression("#kind = :kind AND #name BETWEEN :first AND :last")
                    .expression_attribute_names("#kind", KIND)
                    .expression_attribute_names("#name", NAME)
                    .expression_attribute_values(":kind", text(kind.word()))
                    .expression_attribute_values(":first", text(&first))
                    .expression_attribute_values(":last", text(&last));
                request.send().await.map_err(|error| failure(Effect::Reads, &server, &error))
            });
            let page = page.await?;
            let is_last = page.last_evaluated_key.is_none();
            let items = page.items.unwrap_or_default();
            let is_empty = items.is_empty();
            for item in items {
                let name = item.get(NAME).and_then(|name| name.as_s().ok());
                let key = name.and_then(|name| Key::found(kind, name)).ok_or_else(|| {
                    RegisterError::corrupt(format_args!(
                        "{server} holds a name that is none of ours"
                    ))
                })?;
                entries.push((key, found(item)?));
            }
            // What is left, if anything, begins behind the last one.
            match entries.last() {
                Some((key, _)) if !is_last && !is_empty => first = format!("{} ", key.name()),
                Some(_) | None => break,
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_register_shows_where_it_is_and_no_secret() {
        let url = "dynamodb://me:secret@elections?region=eu-west-1";
        let register = DynamodbRegister::new(url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "elections in eu-west-1");
        assert_eq!(register.describe().level, Level::Strict);
        assert!(!format!("{register:?}").contains("secret"));
    }

    #[test]
    fn only_the_service_itself_is_strict() {
        for (endpoint, level) in [
            ("https://dynamodb.eu-west-1.amazonaws.com", Level::Strict),
            ("http://127.0.0.1:8000", Level::LeaseOnly),
            ("http://x/.amazonaws.com", Level::LeaseOnly),
        ] {
            let url = format!("dynamodb://elections?endpoint={endpoint}");
            let register = DynamodbRegister::new(&url, Duration::from_secs(1)).unwrap();
            assert_eq!(register.describe().level, level, "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_service_that_is_not_there_was_never_asked() {
        // Port 1 of this host: nobody listens.
        let url = "dynamodb://a:b@elections?region=eu-west-1&endpoint=http://127.0.0.1:1";
        let register = DynamodbRegister::new(url, Duration::from_secs(30)).unwrap();
        // The table was there a moment ago: it is the put itself that reaches nobody.
        register.is_ready.store(true, Ordering::Release);
        let record = Record::bare(b"x".to_vec());
        let refusal = register.swap(&Key::setting("x"), None, record).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    }

    #[tokio::test]
    async fn a_put_whose_answer_is_lost_is_in_doubt() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hang_up = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await.unwrap();
        });
        let url = format!("dynamodb://a:b@elections?region=x&endpoint=http://127.0.0.1:{port}");
        let register = DynamodbRegister::new(&url, Duration::from_secs(30)).unwrap();
        register.is_ready.store(true, Ordering::Release);
        let record = Record::bare(b"x".to_vec());
        let refusal = register.swap(&Key::setting("x"), None, record).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Uncertain { .. }), "{refusal:?}");
        hang_up.await.unwrap();
    }

    #[test]
    fn what_is_no_entry_of_ours_is_corrupt() {
        let key = Key::setting("x");
        let whole = item(&key, "1", Record::bare(b"x".to_vec()));
        assert_eq!(found(whole.clone()).unwrap().version, Version("1".into()));
        for missing in [VALUE, VERSION] {
            let mut part = whole.clone();
            part.remove(missing);
            assert!(matches!(found(part), Err(RegisterError::Corrupt { .. })), "{missing}");
        }
    }

    proptest! {
        /// The names between the two are those that open with the prefix and come after the last.
        #[test]
        fn a_range_holds_what_a_listing_must(
            name in "[a-cA./:@_-]{1,4}",
            prefix in "[a-cA./:@_-]{0,2}",
            after in prop::option::of("[a-cA./:@_-]{1,4}"),
        ) {
            let is_listed =
                name.starts_with(&prefix) && after.as_ref().is_none_or(|after| name > *after);
            let is_between = range(&prefix, after.as_deref())
                .is_some_and(|(first, last)| first <= name && name <= last);
            prop_assert_eq!(is_between, is_listed);
        }
    }
}
