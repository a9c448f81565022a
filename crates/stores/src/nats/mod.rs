//! `nats://`: a bucket of JetStream's key-value store as a register.
//!
//! An entry is the last message of a subject, and its version the message's sequence in the stream: a write
//! names the sequence it replaces, and the server compares. Reads go to the leader of the stream and not to
//! whichever replica is near, which is what a bucket's own `get` does. The term and the leader stand in
//! headers, for people.
//!
//! JetStream syncs its files every two minutes unless told otherwise, and a leader of a stream that was
//! deposed may answer a read with what was: this engine claims leases only. Its ttl for messages was not
//! taken to time sessions: it can be given to a new message, not to one that replaces another.

mod names;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{self, Operation, Store};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, StorageType};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use async_trait::async_trait;
use regent_election::error_text::with_causes;
use regent_election::store::{Description, Level};
use tokio::sync::{Mutex, watch};
use tokio_stream::StreamExt as _;

use crate::engine::address::StoreAddress;
use crate::engine::change_feed::{ChangeFeed, FeedTask};
use crate::engine::limits::RECONNECT_AFTER;
use crate::engine::tls::options::{TLS, Words, environment, once_each, or_variable, value};
use crate::engine::tls::{ClientTls, encryption, told_below};
use crate::engine::{Effect, Sent, UrlError, in_time};
use crate::register::{
    Encryption, Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped,
    Version,
};

/// Where a server listens unless the URL says otherwise.
const PORT: u16 = 4222;
/// The bucket unless the URL names one.
const BUCKET: &str = "regent";
/// Copies that a bucket may have, as the server has it.
const REPLICAS_MAX: usize = 5;

/// The parameter for servers with `handshake_first`.
const TLS_FIRST: &str = "tlsfirst";

/// What the command `nats` calls the files.
const WORDS: Words = Words {
    ca: or_variable("tlsca", "NATS_CA"),
    certificate: or_variable("tlscert", "NATS_CERT"),
    key: or_variable("tlskey", "NATS_KEY"),
    server_name: None,
};

/// A register in a bucket of NATS.
#[derive(Debug)]
pub struct NatsRegister {
    place: StoreAddress,
    servers: Vec<ServerAddr>,
    bucket: String,
    /// Copies of a bucket that is made here.
    replicas: usize,
    tls: Option<ClientTls>,
    /// Whether TLS begins before the server has said anything.
    is_first: bool,
    request_for: Duration,
    /// The connection, which finds back by itself once it was made.
    open: Mutex<Option<Arc<Open>>>,
    feed_task: FeedTask,
}

#[derive(Debug)]
struct Open {
    client: Client,
    /// How many connections were lost: what was asked on one is never answered on the next.
    lost: Arc<watch::Sender<u64>>,
    context: jetstream::Context,
    store: Store,
}

impl NatsRegister {
    /// A register in the bucket that `url` names, like `nats://h1,h2,h3/bucket?replicas=3`; it connects when
    /// it is first asked, and makes the bucket if there is none.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = StoreAddress::parse(url, PORT)?;
        let mut known = vec!["replicas", TLS, TLS_FIRST];
        known.extend(WORDS.parameters());
        place.knows_only(&known)?;
        once_each(&place.options)?;
        let replicas = match value(&place.options, "replicas").map(str::parse) {
            None => 1,
            Some(Ok(count)) if (1..=REPLICAS_MAX).contains(&count) => count,
            Some(_) => {
                return Err(UrlError::new(format_args!(
                    "replicas is a number from 1 to {REPLICAS_MAX}"
                )));
            }
        };
        let is_first = match value(&place.options, TLS_FIRST) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(UrlError::new("tlsfirst is true or false")),
        };
        let is_asked = is_first || url.starts_with("tls:");
        let tls = WORDS.wanted(is_asked, &place.options, &environment)?;
        let tls = tls.map(|tls| ClientTls::open(tls, None)).transpose()?;
        let servers = place
            .servers
            .iter()
            .map(|server| {
                let scheme = if tls.is_some() { "tls" } else { "nats" };
                format!("{scheme}://{server}").parse::<ServerAddr>()
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| UrlError::new(format_args!("not a server of NATS: {error}")))?;
        let bucket = if place.path.is_empty() { BUCKET.to_owned() } else { place.path.clone() };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !bucket.bytes().all(is_plain) {
            return Err(UrlError::new("a bucket's name is of letters, digits, - and _"));
        }
        Ok(Self {
            place,
            servers,
            bucket,
            replicas,
            tls,
            is_first,
            request_for,
            open: Mutex::new(None),
            feed_task: FeedTask::new(),
        })
    }

    fn server(&self) -> String {
        format!("NATS at {}", self.place)
    }

    /// The connection and the bucket.
    async fn open(&self) -> RegisterResult<Arc<Open>> {
        let mut held = self.open.lock().await;
        if let Some(open) = &*held {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(self.connect().await?);
        *held = Some(Arc::clone(&open));
        Ok(open)
    }

    async fn connect(&self) -> RegisterResult<Open> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            RegisterError::unavailable(format_args!("{}: {what}: {error}", self.server()))
        };
        let lost = Arc::new(watch::Sender::new(0));
        let told_lost = Arc::clone(&lost);
        let mut options = ConnectOptions::new()
            .name("regent")
            .require_tls(self.tls.is_some())
            .connection_timeout(self.request_for)
            .request_timeout(Some(self.request_for))
            .reconnect_delay_callback(|attempts| match attempts {
                0 => Duration::ZERO,
                _ => RECONNECT_AFTER,
            })
            .event_callback(move |event| {
                if event == Event::Disconnected {
                    told_lost.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        if let Some(tls) = &self.tls {
            options = options.tls_client_config(tls.config().as_ref().clone());
        }
        if self.is_first {
            options = options.tls_first();
        }
        options = match self.place.login.clone() {
            None => options,
            Some((token, password)) if password.is_empty() => options.token(token),
            Some((user, password)) => options.user_and_password(user, password),
        };
        let client = options.connect(&self.servers[..]).await.map_err(|error| {
            let why = told_below(&error).unwrap_or_else(|| with_causes(&error));
            match self.tls {
                Some(_) => failed("no connection", &why),
                // The driver does as the server asks, and knows none but the CAs of the system.
                None if why.starts_with("TLS") => failed("it requires TLS; write tls://", &why),
                None => failed("no connection", &why),
            }
        })?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(self.request_for);
        // Two who make the same bucket at once both have it.
        let store = match context.get_key_value(&self.bucket).await {
            Ok(store) => store,
            Err(_) => {
                let config = kv::Config {
                    bucket: self.bucket.clone(),
                    description: "leader elections of Regent; delete nothing here".into(),
                    history: 1,
                    storage: StorageType::File,
                    num_replicas: self.replicas,
                    ..kv::Config::default()
                };
                let made = context.create_key_value(config).await;
                made.map_err(|error| failed("no bucket", &with_causes(&error)))?
            }
        };
        Ok(Open { client, lost, context, store })
    }

    fn subject(&self, key: &Key) -> String {
        format!("$KV.{}.{}", self.bucket, names::encoded(key))
    }

    /// Asks something that changes nothing.
    async fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&Open) -> RegisterResult<T>,
    ) -> RegisterResult<T> {
        let server = self.server();
        let answer = in_time(self.request_for, Effect::Reads, &server, async |_: &Sent| {
            let open = self.open().await?;
            let mut lost = open.lost.subscribe();
            tokio::select! {
                answer = request(&open) => answer,
                _ = lost.changed() => Err(self.interrupted(Effect::Reads)),
            }
        });
        answer.await
    }

    fn interrupted(&self, effect: Effect) -> RegisterError {
        effect.unanswered(format_args!("{}: the connection was lost", self.server()))
    }

    /// Writes an entry over the message of this sequence; 0 is that of no message.
    async fn write(&self, key: &Key, over: u64, record: Record) -> RegisterResult<Swapped> {
        let server = self.server();
        let answer = in_time(self.request_for, Effect::Writes, &server, async |sent: &Sent| {
            let open = self.open().await?;
            let mut lost = open.lost.subscribe();
            // The client keeps what is written without a connection, and sends it whenever there is one.
            if open.client.connection_state() != State::Connected {
                return Err(RegisterError::unavailable(format_args!("{server} is not connected")));
            }
            let mut message = PublishMessage::build()
                .payload(record.value.into())
                .expected_stream(&open.store.stream_name)
                .expected_last_subject_sequence(over);
            if let Some(leader) = &record.summary.leader {
                message = message.header("Regent-Leader", leader.as_str());
            }
            if let Some(term) = record.summary.term {
                message = message.header("Regent-Term", term.get().to_string().as_str());
            }
            sent.leaves_now();
            let publish =
                async { open.context.send_publish(self.subject(key), message).await?.await };
            tokio::select! {
                written = publish => match written {
                    Ok(written) => Ok(Swapped::Done(Version::from(written.sequence))),
                    Err(error) => refused(&server, &error),
                },
                _ = lost.changed() => Err(self.interrupted(Effect::Writes)),
            }
        });
        answer.await
    }
}

/// What a write that was not acknowledged came to.
fn refused(server: &str, error: &PublishError) -> RegisterResult<Swapped> {
    let why = format!("{server}: {}", with_causes(error));
    let code = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    // A leader that does not know the last sequence yet says so without telling it.
    if code
        .is_some_and(|error| error.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
    {
        return Ok(Swapped::Conflict);
    }
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Ok(Swapped::Conflict),
        // Nobody took it, or it never left.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded => Err(RegisterError::unavailable(why)),
        PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::Other => Err(RegisterError::uncertain(why)),
    }
}

/// Reads the last message of a subject from the leader of the stream.
async fn last(open: &Open, server: &str, subject: &str) -> RegisterResult<Option<Found>> {
    let message = match open.store.stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => message,
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
        Err(error) => {
            return Err(RegisterError::unavailable(format_args!(
                "{server}: {}",
                with_causes(&error)
            )));
        }
    };
    // A bucket marks what was deleted by another message; entries never are.
    if message.headers.get("KV-Operation").is_some() {
        return Err(RegisterError::corrupt(format_args!(
            "{server}: {subject} was deleted, and its terms with it; write it back from a copy or choose \
             another bucket"
        )));
    }
    let version = Version::from(message.sequence);
    Ok(Some(Found { value: message.payload.to_vec(), version }))
}

/// Rings for every entry that is written, until the connection is lost.
async fn publish(store: Store, feed: Arc<ChangeFeed>) {
    let mut changes = match store.watch_all().await {
        Ok(changes) => changes,
        Err(error) => {
            tracing::debug!(bucket = store.name, %error, "no ear at NATS");
            return;
        }
    };
    feed.is_attended_now();
    while let Some(change) = changes.next().await {
        match change {
            Ok(entry) if entry.operation == Operation::Put => {
                if let Some(key) = names::decoded(&entry.key) {
                    feed.publish(&key.to_string());
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(bucket = store.name, %error, "no ear at NATS");
                return;
            }
        }
    }
}

#[async_trait]
impl Register for NatsRegister {
    fn describe(&self) -> Description {
        Description {
            name: "nats",
            place: format!("{}/{}", self.place.servers.join(","), self.bucket),
            level: Level::LeaseOnly,
            caveat: Some(
                "terms rise only while the bucket is kept: it needs sync_interval always or three \
                 replicas that never lose power together, and nobody may delete from it"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(encryption(self.tls.as_ref()))
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.ask(async |open| {
            let info = open.store.stream.get_info().await.map_err(|error| {
                RegisterError::unavailable(format_args!(
                    "{}: {}",
                    self.server(),
                    with_causes(&error)
                ))
            })?;
            Ok(weaknesses(&info.config))
        })
        .await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let (server, subject) = (self.server(), self.subject(key));
        self.ask(async |open| last(open, &server, &subject).await).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        match expected.map(|version| version.0.parse::<u64>()) {
            None => self.write(key, 0, record).await,
            Some(Ok(over)) if over > 0 => self.write(key, over, record).await,
            // Never given out here, so the entry cannot have it.
            Some(_) => Ok(Swapped::Conflict),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let store = self.ask(async |open| Ok(open.store.clone())).await?;
        // The ear first, then the look: what changes in between is heard.
        let subscription = self.feed_task.listen(move |feed| publish(store.clone(), feed));
        let held = self.load(key).await?;
        if held.as_ref().map(|found| &found.version) == seen {
            self.feed_task.changed(subscription, &key.to_string(), patience).await;
        }
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
        let opening = format!("$KV.{}.", self.bucket);
        let mut keys = self
            .ask(async |open| {
                let failed = |error: &dyn std::error::Error| {
                    RegisterError::unavailable(format_args!("{server}: {}", with_causes(error)))
                };
                let subjects = format!("{opening}{}.*", kind.word());
                let listed = open.store.stream.info_with_subjects(subjects).await;
                let mut listed = listed.map_err(|error| failed(&error))?;
                let mut keys = Vec::new();
                while let Some(subject) = listed.next().await {
                    let (subject, _) = subject.map_err(|error| failed(&error))?;
                    let key = subject.strip_prefix(&opening).and_then(names::decoded);
                    keys.push(key.ok_or_else(|| {
                        RegisterError::corrupt(format_args!(
                            "{server}: {subject} is no entry of ours"
                        ))
                    })?);
                }
                Ok(keys)
            })
            .await?;
        keys.retain(|key| {
            key.name().starts_with(prefix) && after.is_none_or(|after| key.name() > after)
        });
        keys.sort_unstable();
        // Pages are counted from the beginning: what is created meanwhile shifts a name into the next one.
        keys.dedup();
        keys.truncate(count);
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            if let Some(found) = self.load(&key).await? {
                entries.push((key, found));
            }
        }
        Ok(entries)
    }

    async fn shut_down(&self) {
        self.feed_task.close();
        *self.open.lock().await = None;
    }
}

/// What in a bucket is weaker than it looks.
fn weaknesses(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.storage == StorageType::Memory {
        warnings.push("the bucket lies in memory: a restart takes back terms".to_owned());
    }
    if config.num_replicas < 3 {
        warnings.push(format!(
            "the bucket has {} replica(s): while a server is down nobody is elected, and a lost disk takes \
             back terms; give it three",
            config.num_replicas
        ));
    }
    if !config.max_age.is_zero() {
        warnings.push(format!(
            "the bucket forgets what is older than {:?}, terms too; give it no ttl",
            config.max_age
        ));
    }
    if config.max_bytes > 0 || config.max_messages > 0 {
        warnings.push(
            "the bucket is bounded: when it is full, elections stop or old entries vanish"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        NatsRegister::new(url, Duration::from_secs(1)).unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_servers_and_a_bucket() {
        let certificates = regent_servers::certificates::Certificates::make().unwrap();
        let ca = certificates.path("ca.crt").display().to_string();
        let url = format!("tls://token@a,b:1/elections?replicas=3&tlsca={ca}");
        let register = NatsRegister::new(&url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "a:4222,b:1/elections");
        assert_eq!((register.replicas, register.encryption()), (3, Some(Encryption::Verified)));
        assert!(register.servers.iter().all(ServerAddr::tls_required));
        assert!(!format!("{register:?}").contains("token"));
        let plain = NatsRegister::new("nats://a", Duration::from_secs(1)).unwrap();
        assert_eq!(plain.describe().place, "a:4222/regent");
        assert_eq!(plain.encryption(), Some(Encryption::Plaintext));
        assert!(refusal("nats://a?replicas=7").contains("from 1 to 5"));
        assert!(refusal("nats://a?tls=yes").contains("true or false"));
        assert!(refusal("tls://a?tls=false").contains("asks for TLS"));
        assert!(refusal("nats://a?tlsfirst=1").contains("true or false"));
        assert!(refusal("nats://a/b.c").contains("letters, digits"));
        assert!(refusal("nats://a?ttl=1s").contains("unknown option"));
    }

    #[test]
    fn what_forgets_is_warned_of() {
        let sound =
            Config { num_replicas: 3, max_bytes: -1, max_messages: -1, ..Config::default() };
        assert_eq!(weaknesses(&sound), Vec::<String>::new());
        let weak = Config {
            storage: StorageType::Memory,
            num_replicas: 1,
            max_age: Duration::from_secs(9),
            max_bytes: 1000,
            ..sound
        };
        let warnings = weaknesses(&weak);
        for (warning, word) in warnings.iter().zip(["memory", "1 replica", "9s", "bounded"]) {
            assert!(warning.contains(word), "{warning}");
        }
        assert_eq!(warnings.len(), 4);
    }
}
