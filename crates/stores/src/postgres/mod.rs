//! `postgres://`: a PostgreSQL server as a register, with sessions by its clock.
//!
//! A row for each entry, readable by people (`SELECT kind, name, leader, term FROM regent_entries`); one
//! statement for each function; changes told by `NOTIFY` and looked for besides. Advisory locks were not
//! taken: they belong to a connection, so a pooler, a failover or a lost packet gives them away silently,
//! and they yield no term.
//!
//! One primary, or one with synchronous standbys, keeps all it acknowledged. After a failover to an
//! asynchronous standby the last commits are gone, terms with them: [`Register::examine`] says so.

mod link;
mod schema;
mod tls;

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::error_text::with_causes;
use regent_election::store::{Description, Level};
use tokio::sync::Semaphore;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::engine::change_feed::{ChangeFeed, FeedTask, Subscription};
use crate::engine::limits::ENDED_REMEMBERED_FOR;
use crate::engine::pages::Pages;
use crate::engine::tls::options::{cut_out, environment, once_each};
use crate::engine::tls::{ClientTls, encryption};
use crate::engine::{Effect, UrlError, fresh, whole_ms};
use crate::register::{
    Encryption, Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version,
};
use link::{Durability, Parameter, ServerLink};
use tls::PostgresTls;

/// Connections that entries are spread over, and as many for signs of life: commits wait for the disk, and
/// wait together.
const LINKS: usize = 4;

/// Changes that may be waiting to be told; more are not told at all.
const CRIES_MAX: usize = 256;

/// Of so many beginnings of sessions, one also forgets old ones.
const FORGET_ONCE_IN: u64 = 64;

/// A register on a PostgreSQL server.
#[derive(Debug)]
pub struct PostgresRegister {
    config: Config,
    tls: PostgresTls,
    place: String,
    links: Vec<ServerLink>,
    /// Signs of life have connections of their own: nothing else may hold them up.
    pulses: Vec<ServerLink>,
    /// The line on which changes are told, after they are made.
    crier: Arc<ServerLink>,
    /// How many may be told at once.
    cries: Arc<Semaphore>,
    feed_task: FeedTask,
}

impl PostgresRegister {
    /// A register in the database that `url` names; it connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let (mut config, tls) = address(url)?;
        config.application_name("regent").target_session_attrs(TargetSessionAttrs::ReadWrite);
        let place = place(&config);
        let link = |durability| {
            let server = (config.clone(), tls.clone(), place.clone());
            ServerLink::new(server, request_for, durability)
        };
        let links = || (0..LINKS).map(|_| link(Durability::Full)).collect();
        let (crier, cries) =
            (Arc::new(link(Durability::None)), Arc::new(Semaphore::new(CRIES_MAX)));
        let (links, pulses) = (links(), links());
        Ok(Self { config, tls, place, links, pulses, crier, cries, feed_task: FeedTask::new() })
    }

    /// The line on which everything about this key goes, one after the other.
    fn link(&self, key: &Key) -> &ServerLink {
        chosen(&self.links, key)
    }

    /// Tells of a change, if it can be told: a hint nobody waits for.
    fn cry(&self, what: String) {
        let Ok(permit) = Arc::clone(&self.cries).try_acquire_owned() else { return };
        let crier = Arc::clone(&self.crier);
        tokio::spawn(async move {
            // Those who wait look for themselves soon enough.
            let _ = crier.run(Effect::Reads, schema::RING, &[text(&what)]).await;
            drop(permit);
        });
    }

    /// The line on which the signs of life of this session go.
    fn pulse(&self, session: u128) -> &ServerLink {
        chosen(&self.pulses, &session)
    }

    fn listen(&self) -> Subscription {
        let (config, tls, place) = (self.config.clone(), self.tls.clone(), self.place.clone());
        self.feed_task.listen(move |feed| {
            let (config, tls, place) = (config.clone(), tls.clone(), place.clone());
            async move {
                if let Err(error) = publish(&config, tls, &feed).await {
                    tracing::debug!(place, %error, "no ear at PostgreSQL");
                }
            }
        })
    }

    /// Hears a session, or closes it: whether it is alive.
    async fn extend_session(
        &self,
        session: u128,
        ttl_ms: u64,
        is_over: bool,
    ) -> RegisterResult<bool> {
        let (name, ttl_ms) = (session_name(session), signed(ttl_ms));
        let parameters = [text(&name), number(&ttl_ms), flag(&is_over)];
        let rows = self.pulse(session).run(Effect::Writes, schema::HEAR, &parameters).await?;
        let row = rows.first().ok_or_else(|| RegisterError::corrupt("a session without a row"))?;
        column(row, 0)
    }

    /// Ms until a session ends; none if it has, for ever.
    async fn left_ms(&self, session: u128) -> RegisterResult<Option<u64>> {
        let name = session_name(session);
        let parameters = [text(&name)];
        let rows =
            chosen(&self.links, &session).run(Effect::Reads, schema::LEFT, &parameters).await?;
        if let Some(row) = rows.first() {
            return Ok(Some(unsigned(column(row, 0)?)));
        }
        // "No" is for ever, so it is made so; meanwhile the session may have been heard.
        match self.extend_session(session, 0, true).await {
            Ok(is_alive) => Ok(is_alive.then_some(0)),
            Err(RegisterError::Uncertain { why }) => Err(RegisterError::Unavailable { why }),
            Err(error) => Err(error),
        }
    }
}

/// Why there is no connection to a database.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL names none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It cannot be reached, or refuses us.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
}

/// Connects once to the database that `url` names, with TLS as the store would, for those who fence tables in it. To
/// be called within a runtime.
pub async fn connect(url: &str) -> Result<Client, ConnectError> {
    let (config, tls) = address(url)?;
    let (client, connection) = config.connect(tls).await?;
    // It ends with its client, or with the server, which the client then tells.
    tokio::spawn(connection);
    Ok(client)
}

/// What a URL names: the server for the driver, and how TLS is spoken to it.
fn address(url: &str) -> Result<(Config, PostgresTls), UrlError> {
    let (rest, options) = cut_out(url, &tls::parameters());
    once_each(&options)?;
    let bad = |why: &dyn std::fmt::Display| {
        UrlError::new(format_args!(
            "not a URL of PostgreSQL ({why}); write it like postgres://user:password@host:5432/database, and for TLS \
             ?sslmode=verify-full&sslrootcert=FILE (known of TLS are {})",
            tls::parameters().join(", ")
        ))
    };
    let mut config = Config::from_str(&rest).map_err(|error| bad(&with_causes(&error)))?;
    if config.get_hosts().is_empty() {
        return Err(bad(&"it names no host"));
    }
    // As libpq has it, variables are about hosts: nobody is between us and a socket.
    let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let wanted = match is_local && options.is_empty() {
        true => None,
        false => tls::wanted(&options, &environment)?,
    };
    let tls = wanted.map(|wanted| ClientTls::open(wanted, Some("postgresql"))).transpose()?;
    // Never the driver's default, which falls back to plaintext.
    config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
    Ok((config, PostgresTls(tls.map(Arc::new))))
}

/// Where the database is, without the login.
fn place(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    });
    let hosts: Vec<_> = hosts.collect();
    format!("{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

/// Hears what is told, on a connection of its own, until it is lost.
async fn publish(
    config: &Config,
    tls: PostgresTls,
    feed: &ChangeFeed,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls).await?;
    let listen = format!("LISTEN {}", schema::CHANNEL);
    let listening = async {
        client.batch_execute(&listen).await?;
        feed.is_attended_now();
        // The client is held: the connection ends with it.
        std::future::pending::<Result<(), tokio_postgres::Error>>().await
    };
    let hearing = async {
        while let Some(message) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let AsyncMessage::Notification(told) = message? {
                feed.publish(told.payload());
            }
        }
        Ok(())
    };
    tokio::select! {
        ended = listening => ended,
        ended = hearing => ended,
    }
}

/// Always the same line for the same thing.
fn chosen<'a>(links: &'a [ServerLink], thing: &impl Hash) -> &'a ServerLink {
    let mut hasher = DefaultHasher::new();
    thing.hash(&mut hasher);
    let number = hasher.finish() % links.len() as u64;
    &links[usize::try_from(number).unwrap_or_default()]
}

fn session_name(session: u128) -> String {
    format!("{session:032x}")
}

/// What is told when a session ends.
fn session_ring(session: u128) -> String {
    format!("alive/{session:032x}")
}

/// The database's numbers are signed; none of ours is near the edge.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn text<T: ToSql + Sync>(value: &T) -> Parameter<'_> {
    (value, Type::TEXT)
}

fn number<T: ToSql + Sync>(value: &T) -> Parameter<'_> {
    (value, Type::INT8)
}

fn flag(value: &bool) -> Parameter<'_> {
    (value, Type::BOOL)
}

/// A column, if it is as we made it.
fn column<'a, T: FromSql<'a>>(row: &'a Row, number: usize) -> RegisterResult<T> {
    row.try_get(number).map_err(|error| {
        RegisterError::corrupt(format_args!("a table of PostgreSQL is none of ours: {error}"))
    })
}

/// Value, version and nonce, from this column on.
fn found(row: &Row, from: usize) -> RegisterResult<Found> {
    let (version, nonce): (i64, &str) = (column(row, from + 1)?, column(row, from + 2)?);
    Ok(Found { value: column(row, from)?, version: Version(format!("{version}-{nonce}")) })
}

#[async_trait]
impl Register for PostgresRegister {
    fn describe(&self) -> Description {
        Description {
            name: "postgres",
            place: self.place.clone(),
            level: Level::Strict,
            caveat: Some(
                "a failover to an asynchronous standby takes back the last terms; sessions end early if \
                 the server's wall clock leaps forward"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        let is_remote = self.config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        is_remote.then(|| encryption(self.tls.0.as_deref()))
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let rows = self.links[0].run(Effect::Reads, schema::SETTINGS, &[]).await?;
        let row = rows.first().ok_or_else(|| RegisterError::unavailable("it tells no settings"))?;
        if column(row, 0)? {
            return Err(RegisterError::unavailable(
                "the server is a standby; give the primary's URL",
            ));
        }
        if column::<&str>(row, 4)? == "on" {
            return Err(RegisterError::unavailable("the server is read-only"));
        }
        let mut warnings =
            weaknesses(column(row, 1)?, column(row, 2)?, column(row, 3)?, column(row, 5)?);
        let weakness = self.encryption().and_then(Encryption::weakness);
        warnings.extend(weakness.map(str::to_owned));
        Ok(warnings)
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let (kind, name) = (key.kind().word(), key.name());
        let parameters = [text(&kind), text(&name)];
        let rows = self.link(key).run(Effect::Reads, schema::LOAD, &parameters).await?;
        rows.first().map(|row| found(row, 0)).transpose()
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let (kind, name) = (key.kind().word(), key.name());
        let leader = record.summary.leader.as_ref().map(|node| node.as_str());
        let term = record.summary.term.map(|term| signed(term.get()));
        let ttl_ms = record.summary.ttl.map(|ttl| signed(whole_ms(ttl)));
        let nonce = format!("{:016x}", fresh());
        let mut parameters = vec![
            text(&kind),
            text(&name),
            text(&leader),
            number(&term),
            number(&ttl_ms),
            text(&nonce),
            (&record.value, Type::BYTEA),
        ];
        let (version, before);
        let statement = match expected {
            None => schema::CREATE,
            Some(expected) => {
                // A version of another shape was never given out: it cannot be the one that is held.
                let parts = expected.0.split_once('-');
                let Some(parts) =
                    parts.and_then(|(count, nonce)| Some((count.parse().ok()?, nonce)))
                else {
                    return Ok(Swapped::Conflict);
                };
                (version, before) = parts;
                parameters.extend([number::<i64>(&version), text(&before)]);
                schema::REPLACE
            }
        };
        let rows = self.link(key).run(Effect::Writes, statement, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(Swapped::Conflict) };
        let version: i64 = column(row, 0)?;
        self.cry(key.to_string());
        Ok(Swapped::Done(Version(format!("{version}-{nonce}"))))
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        self.feed_task.entry_changed(self.listen(), self, key, seen, patience).await
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let word = kind.word();
        let mut pages = Pages::new(prefix, after, count);
        while let Some((start, at_once)) = pages.next_page() {
            let limit = i64::try_from(at_once).unwrap_or(i64::MAX);
            let (least, is_counted) = (start.name.as_str(), start.is_included);
            let parameters =
                [text(&word), text(&least), flag(&is_counted), text(&prefix), number(&limit)];
            let rows = self.links[0].run(Effect::Reads, schema::LIST, &parameters).await?;
            let named = |row: &Row| {
                let name: &str = column(row, 0)?;
                let key = Key::found(kind, name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{name:?} is in a row and is no name"))
                })?;
                Ok((key, Some(found(row, 1)?)))
            };
            pages.add(rows.iter().map(named).collect::<RegisterResult<_>>()?);
        }
        Ok(pages.into_entries())
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        Some(self)
    }

    async fn shut_down(&self) {
        self.feed_task.close();
        for link in self.links.iter().chain(&self.pulses).chain([&*self.crier]) {
            link.hang_up().await;
        }
    }
}

#[async_trait]
impl ServerSessions for PostgresRegister {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        if fresh().is_multiple_of(FORGET_ONCE_IN) {
            let seconds = signed(ENDED_REMEMBERED_FOR.as_secs());
            let parameters = [number(&seconds)];
            self.links[0].run(Effect::Reads, schema::FORGET, &parameters).await?;
        }
        self.extend_session(session, whole_ms(ttl), false).await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        self.extend_session(session, whole_ms(ttl), true).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        Ok(self.left_ms(session).await?.is_some())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let name = session_name(session);
        let parameters = [text(&name)];
        self.pulse(session).run(Effect::Writes, schema::END, &parameters).await?;
        self.cry(session_ring(session));
        Ok(())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        let subscription = self.listen();
        if let Some(left_ms) = self.left_ms(session).await? {
            // An expiry is told to nobody; its time is known.
            let left = Duration::from_millis(left_ms.saturating_add(1));
            self.feed_task.changed(subscription, &session_ring(session), patience.min(left)).await;
        }
        Ok(())
    }
}

/// What in a deployment is weaker than it looks.
fn weaknesses(fsync: &str, full_page_writes: &str, commit: &str, lagging: i64) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |what: String| warnings.push(what);
    if fsync != "on" {
        warn("fsync is off: a crash takes back terms, or the whole database; turn it on".into());
    }
    if full_page_writes != "on" {
        warn("full_page_writes is off: a crash may tear what was written; turn it on".into());
    }
    if matches!(commit, "off" | "local") {
        warn(format!("synchronous_commit is {commit} and cannot be raised; set it to on"));
    }
    if lagging > 0 {
        warn(format!(
            "{lagging} asynchronous standbys: a failover to one takes back the last terms; name them in \
             synchronous_standby_names"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weakness_is_named() {
        assert_eq!(weaknesses("on", "on", "remote_apply", 0), Vec::<String>::new());
        let said = weaknesses("off", "off", "local", 2).join("\n");
        for word in ["fsync", "full_page_writes", "synchronous_commit is local", "2 asynchronous"] {
            assert!(said.contains(word), "{word} in {said}");
        }
    }

    #[test]
    fn a_url_is_refused_with_the_way_out_and_its_password_is_never_shown() {
        let refusal = |url: &str| {
            PostgresRegister::new(url, Duration::from_secs(1)).expect_err("refused").to_string()
        };
        assert!(refusal("postgres://a?sslmode=prefer").contains("falls back to plaintext"));
        assert!(refusal("postgres://a?sslrootcert=/a&sslrootcert=/b").contains("given twice"));
        let unknown = refusal("postgres://a?sslrootcerts=/ca");
        assert!(unknown.contains("sslrootcerts") && unknown.contains("sslrootcert,"), "{unknown}");
        let missing = refusal("postgres://a?sslmode=verify-full&sslrootcert=/no/such/file");
        assert!(missing.contains("/no/such/file"), "{missing}");
        assert!(refusal("postgres://a:x").contains("postgres://user:password@host:5432/database"));
        assert!(refusal("postgres:///x").contains("no host"));
        let register =
            PostgresRegister::new("postgres://me:secret@a:1,b:2/db", Duration::from_secs(1))
                .unwrap();
        assert_eq!(register.describe().place, "a:1,b:2/db");
        assert!(!format!("{register:?}").contains("secret"));
    }
}
