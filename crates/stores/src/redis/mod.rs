//! `redis://`: one Redis server as a register, with sessions that it times itself.
//!
//! An entry is a hash that people can read (`HGETALL {regent}:groups:NAME`), beside an index of names,
//! because a scan has no order and may miss. A session is a key with an expiry. Every function that
//! writes is one script.
//!
//! Redis forgets what it acknowledged unless it syncs its append-only file on every write, and its
//! replicas know of a write only later: a failover may take back a term. So this engine claims leases
//! only, and [`Register::examine`] says what a deployment lacks. `WAIT` for replicas was not taken: it
//! makes the loss rarer and never impossible.

mod scripts;
pub(crate) mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Script, cmd};
use regent_election::store::{Description, Level};
use tokio_stream::StreamExt as _;

use crate::engine::change_feed::{ChangeFeed, FeedTask, Subscription};
use crate::engine::limits::{ENDED_REMEMBERED_FOR, REQUEST_FOR};
use crate::engine::pages::{PageStart, Pages};
use crate::engine::{Effect, Sent, UrlError, fresh, in_time, whole_ms};
use crate::register::{
    Encryption, Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version,
};
use wire::Wire;

/// What every key opens with; the braces keep all of them on one server of a cluster.
const TAG: &str = "{regent}";

/// A register on one Redis server.
#[derive(Debug)]
pub struct RedisRegister {
    wire: Arc<Wire>,
    scripts: Scripts,
    feed_task: FeedTask,
}

#[derive(Debug)]
struct Scripts {
    swap: Script,
    list: Script,
    begin: Script,
    heartbeat: Script,
    end: Script,
    left: Script,
}

/// Connects once to the master that `url` names, with TLS as the store would, for those who fence keys in it. To be
/// called within a runtime.
pub async fn connect(url: &str) -> RegisterResult<MultiplexedConnection> {
    let wire = Wire::new(url, REQUEST_FOR).map_err(RegisterError::unavailable)?;
    let server = format!("Redis at {}", wire.place());
    in_time(REQUEST_FOR, Effect::Reads, &server, async |_: &Sent| wire.connect().await).await
}

/// A row of a listing: name, value, counter, nonce.
type Row = (String, Option<Vec<u8>>, Option<String>, Option<String>);

impl RedisRegister {
    /// A register on the server that `url` names; it connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        Ok(Self {
            wire: Arc::new(Wire::new(url, request_for)?),
            scripts: Scripts {
                swap: Script::new(scripts::SWAP),
                list: Script::new(scripts::LIST),
                begin: Script::new(scripts::BEGIN),
                heartbeat: Script::new(scripts::HEARTBEAT),
                end: Script::new(scripts::END),
                left: Script::new(scripts::LEFT),
            },
            feed_task: FeedTask::new(),
        })
    }

    /// Where changes are told. Channels are not divided by database, so the name is.
    fn channel(&self) -> String {
        channel(&self.wire)
    }

    fn listen(&self) -> Subscription {
        let wire = Arc::clone(&self.wire);
        self.feed_task.listen(move |feed| {
            let wire = Arc::clone(&wire);
            async move {
                if let Err(error) = publish(&wire, &feed).await {
                    tracing::debug!(place = wire.place(), %error, "no ear at Redis");
                }
            }
        })
    }

    /// Ms until a session ends; none if it has, for ever.
    async fn left_ms(&self, session: u128) -> RegisterResult<Option<u64>> {
        let (alive, begun) = session_keys(session);
        let mut script = self.scripts.left.prepare_invoke();
        script.key(alive).key(begun).arg(whole_ms(ENDED_REMEMBERED_FOR));
        self.wire.run(Effect::Reads, &script).await
    }
}

fn channel(wire: &Wire) -> String {
    format!("{TAG}:{}:changes", wire.database())
}

fn entry_key(key: &Key) -> String {
    format!("{}{}", entry_prefix(key.kind()), key.name())
}

fn entry_prefix(kind: KeyKind) -> String {
    format!("{TAG}:{}:", kind.word())
}

fn index_key(kind: KeyKind) -> String {
    format!("{TAG}:{}", kind.word())
}

/// The key that lives as long as the session, and the one that remembers it.
fn session_keys(session: u128) -> (String, String) {
    (format!("{TAG}:alive:{session:032x}"), format!("{TAG}:begun:{session:032x}"))
}

/// What is told when a session ends.
fn session_ring(session: u128) -> String {
    format!("alive/{session:032x}")
}

/// The bounds of a listing, as ZRANGEBYLEX takes them.
pub(crate) fn lex_range(prefix: &str, start: &PageStart) -> (String, Vec<u8>) {
    let least = format!("{}{}", if start.is_included { '[' } else { '(' }, start.name);
    // Names are ASCII: no byte of one lies above this.
    let mut greatest = b"(".to_vec();
    greatest.extend_from_slice(prefix.as_bytes());
    greatest.push(0xff);
    (least, greatest)
}

/// What a hash holds, if it is an entry of ours.
fn found(
    key: &str,
    value: Option<Vec<u8>>,
    version: Option<String>,
    nonce: Option<String>,
) -> RegisterResult<Option<Found>> {
    match (value, version, nonce) {
        (None, None, None) => Ok(None),
        (Some(value), Some(version), Some(nonce)) => {
            Ok(Some(Found { value, version: Version(format!("{version}-{nonce}")) }))
        }
        _ => Err(RegisterError::corrupt(format_args!(
            "the hash {key} lacks one of its fields value, version, nonce"
        ))),
    }
}

/// Hears the server's channel, on a connection of its own, until it is lost.
async fn publish(wire: &Wire, feed: &ChangeFeed) -> redis::RedisResult<()> {
    let mut subscription = wire.subscriber().await?;
    subscription.subscribe(channel(wire)).await?;
    feed.is_attended_now();
    let mut messages = subscription.into_on_message();
    while let Some(message) = messages.next().await {
        feed.publish(&message.get_payload::<String>()?);
    }
    Ok(())
}

#[async_trait]
impl Register for RedisRegister {
    fn describe(&self) -> Description {
        Description {
            name: "redis",
            place: self.wire.place(),
            level: Level::LeaseOnly,
            caveat: Some(
                "terms rise only while the server remembers: it needs appendfsync always, no failover to \
                 a replica and no eviction; sessions end early if its wall clock leaps forward"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(self.wire.encryption())
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        examine(&self.wire).await
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let key = entry_key(key);
        let request = cmd("HMGET").arg(&key).arg(&["value", "version", "nonce"]).to_owned();
        let (value, version, nonce) = self.wire.send(Effect::Reads, &request).await?;
        found(&key, value, version, nonce)
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let mut script = self.scripts.swap.prepare_invoke();
        let summary = &record.summary;
        script
            .key(entry_key(key))
            .key(index_key(key.kind()))
            .arg(expected.map_or("", |version| version.0.as_str()))
            .arg(format!("{:016x}", fresh()))
            .arg(&record.value[..])
            .arg(key.name())
            .arg(summary.leader.as_ref().map_or("", |node| node.as_str()))
            .arg(summary.term.map_or(0, regent_election::Term::get))
            .arg(summary.ttl.map_or(0, whole_ms))
            .arg(self.channel())
            .arg(key.to_string());
        let version: Option<String> = self.wire.run(Effect::Writes, &script).await?;
        Ok(version.map_or(Swapped::Conflict, |version| Swapped::Done(Version(version))))
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
        let mut pages = Pages::new(prefix, after, count);
        while let Some((start, at_once)) = pages.next_page() {
            let (least, greatest) = lex_range(prefix, &start);
            let mut script = self.scripts.list.prepare_invoke();
            script
                .key(index_key(kind))
                .arg(least)
                .arg(greatest)
                .arg(at_once)
                .arg(entry_prefix(kind));
            let rows: Vec<Row> = self.wire.run(Effect::Reads, &script).await?;
            let named = |(name, value, version, nonce): Row| {
                let key = Key::found(kind, &name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{name:?} is indexed and is no name"))
                })?;
                let held = found(&entry_key(&key), value, version, nonce)?.ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{key} is indexed and not there"))
                })?;
                Ok((key, Some(held)))
            };
            pages.add(rows.into_iter().map(named).collect::<RegisterResult<_>>()?);
        }
        Ok(pages.into_entries())
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        Some(self)
    }

    async fn shut_down(&self) {
        self.feed_task.close();
        self.wire.hang_up().await;
    }
}

#[async_trait]
impl ServerSessions for RedisRegister {
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let (alive, begun) = session_keys(session);
        let mut script = self.scripts.begin.prepare_invoke();
        script.key(alive).key(begun).arg(whole_ms(ttl)).arg(whole_ms(ENDED_REMEMBERED_FOR));
        self.wire.run(Effect::Writes, &script).await
    }

    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool> {
        let (alive, begun) = session_keys(session);
        let mut script = self.scripts.heartbeat.prepare_invoke();
        script.key(alive).key(begun).arg(whole_ms(ttl)).arg(whole_ms(ENDED_REMEMBERED_FOR));
        self.wire.run(Effect::Writes, &script).await
    }

    async fn is_alive(&self, session: u128) -> RegisterResult<bool> {
        Ok(self.left_ms(session).await?.is_some())
    }

    async fn end(&self, session: u128) -> RegisterResult<()> {
        let (alive, begun) = session_keys(session);
        let mut script = self.scripts.end.prepare_invoke();
        script
            .key(alive)
            .key(begun)
            .arg(whole_ms(ENDED_REMEMBERED_FOR))
            .arg(self.channel())
            .arg(session_ring(session));
        let _: i64 = self.wire.run(Effect::Writes, &script).await?;
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

/// Asks a server what in it is weaker than it looks.
pub(crate) async fn examine(wire: &Wire) -> RegisterResult<Vec<String>> {
    let info: String = wire.send(Effect::Reads, &cmd("INFO")).await?;
    let settings = cmd("CONFIG").arg("GET").arg("append*").to_owned();
    let append: RegisterResult<HashMap<String, String>> = wire.send(Effect::Reads, &settings).await;
    let settings = cmd("CONFIG").arg("GET").arg("maxmemory*").to_owned();
    let memory: RegisterResult<HashMap<String, String>> = wire.send(Effect::Reads, &settings).await;
    let mut settings = append.unwrap_or_default();
    settings.extend(memory.unwrap_or_default());
    Ok(weaknesses(&info, &settings))
}

/// What in a deployment is weaker than it looks. `settings` lacks what the server would not tell.
fn weaknesses(info: &str, settings: &HashMap<String, String>) -> Vec<String> {
    let info: HashMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let mut warnings = Vec::new();
    let mut warn = |what: String| warnings.push(what);
    match (info.get("aof_enabled").copied(), setting("appendfsync")) {
        (Some("1"), Some("always")) => {}
        (Some("1"), Some(how)) => warn(format!(
            "appendfsync is {how}: a crash takes back what was acknowledged, terms too; set it to always"
        )),
        (Some("1"), None) => warn(
            "the server does not tell its appendfsync (CONFIG GET is refused): unless it is always, a \
             crash takes back what was acknowledged"
                .into(),
        ),
        _ => warn(
            "the append-only file is off: a restart takes back terms; set appendonly yes and appendfsync \
             always"
                .into(),
        ),
    }
    match info.get("connected_slaves").copied() {
        None | Some("0") => {}
        Some(count) => warn(format!(
            "{count} replicas: they lag behind, and a failover to one takes back terms; never promote one \
             while leases are held"
        )),
    }
    if info.get("cluster_enabled").copied() == Some("1") {
        warn(
            "the server belongs to a cluster, whose failovers take back acknowledged writes".into(),
        );
    }
    match (setting("maxmemory"), setting("maxmemory-policy")) {
        (Some("0"), _) | (_, Some("noeviction")) => {}
        (Some(limit), Some(policy)) => warn(format!(
            "maxmemory is {limit} with the policy {policy}, which may evict leases; set it to noeviction"
        )),
        _ => warn("the server does not tell its maxmemory-policy: unless it is noeviction, leases may be evicted".into()),
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    const SOUND: &str = "# Persistence\r\naof_enabled:1\r\n# Replication\r\nconnected_slaves:0\r\n";

    #[test]
    fn a_sound_server_has_no_weakness() {
        let told = settings(&[("appendfsync", "always"), ("maxmemory", "0")]);
        assert_eq!(weaknesses(SOUND, &told), Vec::<String>::new());
    }

    #[test]
    fn every_weakness_is_named() {
        let info = "aof_enabled:0\r\nconnected_slaves:2\r\ncluster_enabled:1\r\n";
        let told = settings(&[("maxmemory", "100"), ("maxmemory-policy", "allkeys-lru")]);
        let said = weaknesses(info, &told).join("\n");
        for word in ["append-only file is off", "2 replicas", "cluster", "allkeys-lru"] {
            assert!(said.contains(word), "{word} in {said}");
        }
        let lazy = settings(&[("appendfsync", "everysec"), ("maxmemory-policy", "noeviction")]);
        assert!(weaknesses(SOUND, &lazy)[0].contains("everysec"));
        assert_eq!(weaknesses(SOUND, &HashMap::new()).len(), 2, "what is not told is not trusted");
    }

    #[test]
    fn a_url_is_refused_with_the_way_out_and_its_password_is_never_shown() {
        let refusal = |url: &str| {
            RedisRegister::new(url, Duration::from_secs(1)).expect_err("refused").to_string()
        };
        assert!(refusal("rediss://host?cacert=/no/such/file").contains("/no/such/file"));
        assert!(refusal("rediss://host#insecure").contains("verification off"));
        assert!(refusal("rediss://host?tls=false").contains("asks for TLS"));
        assert!(
            refusal("redis://host?cacerts=/a").contains("known are protocol, cacert, cert, key")
        );
        assert!(refusal("redis://host/x").contains("redis://user:password@host:6379/0"));
        let register =
            RedisRegister::new("redis://me:secret@host:1/2", Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "host:1/2");
        assert!(!format!("{register:?}").contains("secret"));
    }
}
