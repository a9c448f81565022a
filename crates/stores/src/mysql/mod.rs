//! `mysql://`: MySQL or MariaDB as a register, with sessions by its clock.
//!
//! As `postgres`: a row for each entry, readable by people, and one statement for each function that
//! writes. The server tells nobody of a change, so entries are looked at. `GET_LOCK` was not taken: it
//! belongs to a connection and yields no term.
//!
//! What is read is flushed before it is told (see `schema::FLUSH`): a killed server was seen to take back
//! what others had read.

mod link;
mod schema;
mod tls;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::FromRow;
use mysql_async::{Opts, Params, Row, Value, from_row_opt};
use regent_election::store::{Description, Level};

use crate::engine::limits::{ENDED_REMEMBERED_FOR, POLL_EVERY};
use crate::engine::pages::Pages;
use crate::engine::tls::options::{cut_out, once_each};
use crate::engine::{Effect, UrlError, fresh, whole_ms};
use crate::register::{
    Encryption, Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version,
};
use link::{ServerLink, StatementResult};

/// Connections that entries are spread over, and as many for signs of life: commits wait for the disk, and
/// wait together.
const LINKS: usize = 4;

/// Versions remembered to be on the disk.
const DURABLE_MAX: usize = 4096;

/// Of so many beginnings of sessions, one also forgets old ones.
const FORGET_ONCE_IN: u64 = 64;

/// A register on a MySQL or MariaDB server.
#[derive(Debug)]
pub struct MysqlRegister {
    place: String,
    encryption: Encryption,
    links: Vec<ServerLink>,
    /// Signs of life have connections of their own: nothing else may hold them up.
    pulses: Vec<ServerLink>,
    /// Versions that are known to be on the disk.
    durable: Mutex<HashMap<Key, Version>>,
}

impl MysqlRegister {
    /// A register in the database that `url` names; it connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let ours = tls::parameters();
        let (rest, options) = cut_out(url, &ours);
        once_each(&options)?;
        let (_, others) = rest.split_once('?').unwrap_or((&rest, ""));
        for (name, _) in crate::engine::address::options(others) {
            // Words of the driver alone, some of which turn verification off.
            if ["ssl", "tls", "verify", "roots"].iter().any(|word| name.contains(word)) {
                return Err(UrlError::new(format_args!(
                    "unknown option {name:?}; known of TLS are {}",
                    ours.join(", ")
                )));
            }
        }
        let example = "write it like mysql://user:password@host:3306/database";
        let opts = Opts::from_url(&rest).map_err(|error| {
            UrlError::new(format_args!(
                "not a URL of MySQL ({error}); {example}, and for TLS ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE"
            ))
        })?;
        let (opts, encryption) = match tls::wanted(&options)? {
            Some(tls) => {
                let encryption = tls.verify.encryption();
                (tls::with_tls(opts, tls)?, encryption)
            }
            None => (opts, Encryption::Plaintext),
        };
        let database = opts.db_name().filter(|name| !name.is_empty());
        let database = database
            .ok_or_else(|| UrlError::new(format_args!("it names no database; {example}")))?;
        let place = format!("{}:{}/{database}", opts.ip_or_hostname(), opts.tcp_port());
        let link = || ServerLink::new(opts.clone(), place.clone(), request_for);
        let links = || (0..LINKS).map(|_| link()).collect();
        let (links, pulses) = (links(), links());
        Ok(Self { place, encryption, links, pulses, durable: Mutex::default() })
    }

    /// The line on which everything about this key goes, one after the other.
    fn link(&self, key: &Key) -> &ServerLink {
        chosen(&self.links, key)
    }

    /// Sees to it that whatever was read is on the disk before it is told.
    async fn flush(&self) -> RegisterResult<()> {
        let row = fresh() % schema::FLUSHES;
        let parameters = Params::from((row,));
        let link = chosen(&self.links, &row);
        link.run(Effect::Reads, schema::FLUSH, parameters).await.map(|_| ())
    }

    /// An entry as it stands, on the disk or not yet.
    async fn read(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let parameters = Params::from((key.kind().word(), key.name()));
        let answer = self.link(key).run(Effect::Reads, schema::LOAD, parameters).await?;
        let row: Option<(Vec<u8>, u64, String)> = first(answer)?;
        Ok(row.map(|(value, version, nonce)| found(value, version, &nonce)))
    }

    /// Remembers a version that is on the disk. Not for ever: what is forgotten is flushed once more.
    fn is_durable(&self, key: &Key, version: &Version) {
        let mut durable = self.durable();
        if durable.len() >= DURABLE_MAX {
            durable.clear();
        }
        durable.insert(key.clone(), version.clone());
    }

    fn durable(&self) -> MutexGuard<'_, HashMap<Key, Version>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line on which the signs of life of this session go.
    fn pulse(&self, session: u128) -> &ServerLink {
        chosen(&self.pulses, &session)
    }

    /// Hears a session, or closes it: ms that it has left, none if it has ended for ever.
    async fn extend_session(
        &self,
        session: u128,
        ttl_ms: u64,
        is_over: bool,
    ) -> RegisterResult<Option<u64>> {
        let ttl_us = ttl_ms.saturating_mul(1000);
        let name = session_name(session);
        let parameters = Params::from((&name, ttl_ms, ttl_us, is_over, ttl_us));
        self.pulse(session).run(Effect::Writes, schema::HEAR, parameters).await?;
        // What it was is asked afterwards: over is for ever, so "not over" then was "not over" before.
        let asked =
            self.pulse(session).run(Effect::Writes, schema::ALIVE, Params::from((&name,))).await?;
        let (is_over, left_us): (bool, i64) =
            first(asked)?.ok_or_else(|| RegisterError::corrupt("a session without a row"))?;
        if is_over {
            // "No" is for ever, so it is on the disk first.
            self.flush().await?;
        }
        Ok((!is_over).then(|| left_ms(left_us)))
    }

    /// Ms until a session ends; none if it has, for ever.
    async fn left(&self, session: u128) -> RegisterResult<Option<u64>> {
        let name = session_name(session);
        let asked = chosen(&self.links, &session)
            .run(Effect::Reads, schema::ALIVE, Params::from((&name,)))
            .await?;
        match first::<(bool, i64)>(asked)? {
            Some((true, _)) => self.flush().await.map(|()| None),
            Some((false, left_us)) if left_us > 0 => Ok(Some(left_ms(left_us))),
            // "No" is for ever, so it is made so; meanwhile the session may have been heard.
            Some((false, _)) | None => match self.extend_session(session, 0, true).await {
                Err(RegisterError::Uncertain { why }) => Err(RegisterError::Unavailable { why }),
                answer => answer,
            },
        }
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

/// Microseconds as ms, rounded up; none left is none.
fn left_ms(left_us: i64) -> u64 {
    u64::try_from(left_us).unwrap_or_default().div_ceil(1000)
}

/// A row, if it is as we made it.
fn cells<T: FromRow>(row: Row) -> RegisterResult<T> {
    from_row_opt(row)
        .map_err(|error| RegisterError::corrupt(format_args!("a table is none of ours: {error}")))
}

/// The first row of an answer.
fn first<T: FromRow>(answer: Option<StatementResult>) -> RegisterResult<Option<T>> {
    answer.and_then(|answer| answer.rows.into_iter().next()).map(cells).transpose()
}

fn found(value: Vec<u8>, version: u64, nonce: &str) -> Found {
    Found { value, version: Version(format!("{version}-{nonce}")) }
}

#[async_trait]
impl Register for MysqlRegister {
    fn describe(&self) -> Description {
        Description {
            name: "mysql",
            place: self.place.clone(),
            level: Level::Strict,
            caveat: Some(
                "a failover to an asynchronous replica takes back the last terms; sessions end early if \
                 the server's wall clock leaps forward"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(self.encryption)
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let told = self.links[0].run(Effect::Reads, schema::SETTINGS, Params::Empty).await?;
        let rows = told.map(|answer| answer.rows).unwrap_or_default();
        let settings =
            rows.into_iter().map(cells).collect::<RegisterResult<HashMap<String, String>>>()?;
        for name in ["read_only", "super_read_only"] {
            if settings.get(name).is_some_and(|value| is_on(value)) {
                return Err(RegisterError::unavailable(format_args!(
                    "the server is {name}; give the URL of the primary"
                )));
            }
        }
        let told = self.links[0].run(Effect::Reads, schema::REPLICAS, Params::Empty).await?;
        let replicas = first::<(i64,)>(told)?.map_or(0, |(count,)| count);
        let mut warnings = weaknesses(&settings, replicas);
        warnings.extend(self.encryption.weakness().map(str::to_owned));
        Ok(warnings)
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let mut read = self.read(key).await?;
        loop {
            let Some(held) = read else { return Ok(None) };
            if self.durable().get(key) == Some(&held.version) {
                return Ok(Some(held));
            }
            self.flush().await?;
            // The server may have been restarted in between and have forgotten it: what is still there
            // after the flush is there for good.
            read = self.read(key).await?;
            if let Some(again) = &read
                && again.version == held.version
            {
                self.is_durable(key, &held.version);
                return Ok(Some(held));
            }
        }
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let nonce = format!("{:016x}", fresh());
        let summary = record.summary;
        let mut parameters: Vec<Value> = vec![
            summary.leader.as_ref().map(|node| node.as_str()).into(),
            summary.term.map(regent_election::Term::get).into(),
            summary.ttl.map(whole_ms).into(),
            nonce.as_str().into(),
            record.value.into(),
            key.kind().word().into(),
            key.name().into(),
        ];
        let (statement, version) = match expected {
            None => (schema::CREATE, 1),
            Some(expected) => {
                // A version of another shape was never given out: it cannot be the one that is held.
                let parts = expected.0.split_once('-');
                let parts =
                    parts.and_then(|(count, nonce)| Some((count.parse::<u64>().ok()?, nonce)));
                let Some((version, before)) = parts else { return Ok(Swapped::Conflict) };
                parameters.extend([version.into(), before.into()]);
                (schema::REPLACE, version.saturating_add(1))
            }
        };
        let parameters = Params::Positional(parameters);
        match self.link(key).run(Effect::Writes, statement, parameters).await? {
            Some(answer) if answer.changed > 0 => {
                let version = Version(format!("{version}-{nonce}"));
                self.is_durable(key, &version);
                Ok(Swapped::Done(version))
            }
            Some(_) | None => Ok(Swapped::Conflict),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let held = self.load(key).await?;
        if held.as_ref().map(|found| &found.version) == seen {
            tokio::time::sleep(patience.min(POLL_EVERY)).await;
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
        let mut pages = Pages::new(prefix, after, count);
        while let Some((start, at_once)) = pages.next_page() {
            let least = start.name.as_str();
            let parameters = Params::from((
                kind.word(),
                least,
                start.is_included,
                least,
                prefix.len(),
                prefix,
                at_once,
            ));
            let answer = self.links[0].run(Effect::Reads, schema::LIST, parameters).await?;
            let rows = answer.map(|answer| answer.rows).unwrap_or_default();
            let named = |row| {
                let (name, value, version, nonce): (String, Vec<u8>, u64, String) = cells(row)?;
                let key = Key::found(kind, &name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{name:?} is in a row and is no name"))
                })?;
                Ok((key, Some(found(value, version, &nonce))))
            };
            pages.add(rows.into_iter().map(named).collect::<RegisterResult<_>>()?);
        }
        let entries = pages.into_entries();
        // Once for all of them.
        self.flush().await?;
        Ok(entries)
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        Some(self)
    }

    async fn shut_down(&self) {
        for link in self.links.iter().chain(&self.pulses) {
            link.hang_up().await;
        }
    }
}

#[async_trait]
impl ServerSessions for MysqlRegister {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        if fresh().is_multiple_of(FORGET_ONCE_IN) {
            let parameters = Params::from((ENDED_REMEMBERED_FOR.as_secs(),));
            self.links[0].run(Effect::Reads, schema::FORGET, parameters).await?;
        }
        Ok(self.extend_session(session, whole_ms(ttl), false).await?.is_some())
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        Ok(self.extend_session(session, whole_ms(ttl), true).await?.is_some())
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        Ok(self.left(session).await?.is_some())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let parameters = Params::from((session_name(session),));
        self.pulse(session).run(Effect::Writes, schema::END, parameters).await?;
        Ok(())
    }

    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()> {
        if let Some(left_ms) = self.left(session).await? {
            let left = Duration::from_millis(left_ms.saturating_add(1));
            tokio::time::sleep(patience.min(left).min(POLL_EVERY)).await;
        }
        Ok(())
    }
}

fn is_on(value: &str) -> bool {
    matches!(value, "ON" | "1")
}

/// What in a deployment is weaker than it looks.
fn weaknesses(settings: &HashMap<String, String>, replicas: i64) -> Vec<String> {
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut warnings = Vec::new();
    let mut warn = |what: String| warnings.push(what);
    let flush = setting("innodb_flush_log_at_trx_commit");
    if flush != "1" {
        warn(format!(
            "innodb_flush_log_at_trx_commit is {flush}: a crash takes back terms; set it to 1"
        ));
    }
    if is_on(setting("log_bin")) && setting("sync_binlog") != "1" {
        warn(format!(
            "sync_binlog is {}: a crash may make replicas differ; set it to 1",
            setting("sync_binlog")
        ));
    }
    if setting("innodb_doublewrite") == "OFF" {
        warn("innodb_doublewrite is off: a crash may tear what was written".into());
    }
    if replicas > 0 {
        warn(format!("{replicas} replicas: a failover to one that lags takes back the last terms"));
    }
    if is_on(setting("wsrep_on")) && setting("wsrep_sync_wait") == "0" {
        warn("wsrep_sync_wait is 0: a read on one node may miss what another acknowledged; set it to 1".into());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weakness_is_named() {
        let told = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let sound: HashMap<String, String> = told(&[
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("innodb_doublewrite", "ON"),
        ]);
        assert_eq!(weaknesses(&sound, 0), Vec::<String>::new());
        let weak: HashMap<String, String> = told(&[
            ("innodb_flush_log_at_trx_commit", "2"),
            ("log_bin", "ON"),
            ("sync_binlog", "0"),
            ("innodb_doublewrite", "OFF"),
            ("wsrep_on", "ON"),
            ("wsrep_sync_wait", "0"),
        ]);
        let said = weaknesses(&weak, 2).join("\n");
        for word in ["commit is 2", "sync_binlog is 0", "doublewrite", "2 replicas", "wsrep"] {
            assert!(said.contains(word), "{word} in {said}");
        }
    }

    #[test]
    fn a_url_is_refused_with_the_way_out_and_its_password_is_never_shown() {
        let refusal = |url: &str| {
            MysqlRegister::new(url, Duration::from_secs(1)).expect_err("refused").to_string()
        };
        assert!(refusal("mysql://a/b?ssl-mode=PREFERRED").contains("falls back to plaintext"));
        for driver in ["require_ssl=true", "verify_ca=false", "built_in_roots=true"] {
            let refused = refusal(&format!("mysql://a/b?ssl-mode=REQUIRED&{driver}"));
            assert!(refused.contains("known of TLS are ssl-mode, ssl-ca, ssl-cert"), "{refused}");
        }
        assert!(refusal("mysql://a/b?ssl-ca=/no/such/file").contains("/no/such/file"));
        assert!(refusal("mysql://a/b?socket=%2Fs&ssl-mode=REQUIRED").contains("not for sockets"));
        assert!(refusal("mysql://host").contains("no database"));
        assert!(refusal("mysql:x").contains("mysql://user:password@host:3306/database"));
        let register =
            MysqlRegister::new("mysql://me:secret@a:1/db", Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "a:1/db");
        assert!(!format!("{register:?}").contains("secret"));
    }
}
