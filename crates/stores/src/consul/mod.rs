//! `consul://`: Consul's key-value store as a register.
//!
//! An entry is a key below `regent/`, swapped by its `ModifyIndex` in a transaction, because a plain
//! `?cas=` does not tell the new index. Every read is `?consistent`: the default answers from a leader that
//! may have been deposed. Waits are blocking queries. For people, `Flags` of a group holds its term.
//!
//! Sessions are timed by those who watch them, unless `?mode=session` asks for Consul's own (`sessions`).
//! Those are not the base: none is shorter than ten seconds, and each lives for twice its ttl. `LockIndex` is
//! no term either: it starts again when a key is deleted.

mod sessions;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{HeaderName, HeaderValue};
use regent_election::Term;
use regent_election::store::{Description, Level};
use tokio::sync::{OnceCell, Semaphore};

use crate::engine::address::StoreAddress;
use crate::engine::http::{Ask, Http, encoded};
use crate::engine::limits::{POLL_EVERY, WAITING_REQUESTS_MAX};
use crate::engine::tls::ClientTls;
use crate::engine::tls::options::{
    Environment, TLS, TlsOptions, Words, environment, once_each, or_variable,
};
use crate::engine::{Effect, UrlError, whole_ms};
use crate::register::{
    Encryption, Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version,
};
use wire::{Row, TransactionOutcome, failure};

/// Where an agent listens unless the URL says otherwise, and where for TLS.
const PORT: u16 = 8500;
const TLS_PORT: u16 = 8501;

/// What `consul` calls the files.
const WORDS: Words = Words {
    ca: or_variable("ca-file", "CONSUL_CACERT"),
    certificate: or_variable("client-cert", "CONSUL_CLIENT_CERT"),
    key: or_variable("client-key", "CONSUL_CLIENT_KEY"),
    server_name: Some(or_variable("tls-server-name", "CONSUL_TLS_SERVER_NAME")),
};
/// What every key opens with unless the URL has a path.
const ROOT: &str = "regent";
/// Values read in one transaction; Consul allows 64 steps, and an answer is bounded.
const READ_AT_ONCE_MAX: usize = 16;

/// Who times sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Those who watch them.
    Cas,
    /// Consul.
    Session,
}

impl Mode {
    const fn word(self) -> &'static str {
        match self {
            Self::Cas => "cas",
            Self::Session => "session",
        }
    }
}

/// What a URL and the environment ask for.
fn wanted(
    options: &[(String, String)],
    environment: Environment<'_>,
) -> Result<Option<TlsOptions>, UrlError> {
    let is_true = |name: &str| match environment(name).as_deref() {
        // As Go reads a truth.
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
        None => Ok(None),
        Some(_) => Err(UrlError::new(format_args!("{name} is true or false"))),
    };
    let tls = WORDS.wanted(is_true("CONSUL_HTTP_SSL")? == Some(true), options, environment)?;
    if tls.is_some() && is_true("CONSUL_HTTP_SSL_VERIFY")? == Some(false) {
        return Err(UrlError::new(
            "CONSUL_HTTP_SSL_VERIFY=false would let anybody be the agent; name its CA with ca-file or CONSUL_CACERT",
        ));
    }
    Ok(tls)
}

/// A register in Consul.
#[derive(Debug)]
pub struct ConsulRegister {
    http: Http,
    place: StoreAddress,
    /// What every key opens with.
    root: String,
    /// What every query ends with: the datacenter, if one was named.
    datacenter: String,
    mode: Mode,
    /// That all below this root have the same mode; made sure of before the first write.
    agreed: OnceCell<()>,
    waits: Semaphore,
}

impl ConsulRegister {
    /// A register behind the agent that `url` names, like `consul://127.0.0.1:8500/prefix`. A token is given
    /// as `consul://TOKEN@host` or in `CONSUL_HTTP_TOKEN`. It connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = StoreAddress::parse(url, PORT)?;
        let mut known = vec!["dc", "mode", TLS];
        known.extend(WORDS.parameters());
        place.knows_only(&known)?;
        once_each(&place.options)?;
        let tls = wanted(&place.options, &environment)?;
        let place = if tls.is_some() { StoreAddress::parse(url, TLS_PORT)? } else { place };
        let tls = tls.map(|tls| ClientTls::open(tls, Some("http/1.1"))).transpose()?.map(Arc::new);
        let option = |name: &str| {
            place.options.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
        };
        let mode = match option("mode") {
            None | Some("cas") => Mode::Cas,
            Some("session") => Mode::Session,
            Some(other) => {
                return Err(UrlError::new(format_args!(
                    "unknown mode {other:?}; known are cas (those who watch a session time it) and session \
                     (Consul does)"
                )));
            }
        };
        let [server] = place.servers.as_slice() else {
            return Err(UrlError::new(
                "more than one agent; name the nearest, which knows all servers of its cluster",
            ));
        };
        let mut headers = Vec::new();
        if let Some(token) = token(&place) {
            let mut token = HeaderValue::from_str(&token)
                .map_err(|_| UrlError::new("a token holds what no HTTP header may"))?;
            token.set_sensitive(true);
            headers.push((HeaderName::from_static("x-consul-token"), token));
        }
        Ok(Self {
            http: Http::new(server.clone(), tls, headers, request_for),
            root: if place.path.is_empty() { ROOT.to_owned() } else { place.path.clone() },
            datacenter: option("dc").map_or_else(String::new, |dc| format!("&dc={}", encoded(dc))),
            place,
            mode,
            agreed: OnceCell::new(),
            waits: Semaphore::new(WAITING_REQUESTS_MAX),
        })
    }

    fn prefix(&self, kind: KeyKind) -> String {
        format!("{}/{}/", self.root, kind.word())
    }

    fn key(&self, key: &Key) -> String {
        format!("{}{}", self.prefix(key.kind()), key.name())
    }

    /// Reads one key. With an index, the answer waits until the key's differs, for at most `patience`.
    async fn read(
        &self,
        key: &str,
        after: Option<(u64, Duration)>,
    ) -> RegisterResult<(Option<Row>, u64)> {
        let mut ask = Ask::get(format!("/v1/kv/{}?consistent{}", encoded(key), self.datacenter));
        if let Some((index, patience)) = after {
            ask.path += &format!("&index={index}&wait={}ms", whole_ms(patience));
            // The server adds up to a sixteenth, so that not all come back at once.
            ask.patience = patience + patience / 16;
        }
        let answer = self.http.send(ask).await?;
        let index = wire::index(&answer);
        match answer.status.as_u16() {
            200 => Ok((Some(wire::row(&answer)?), index)),
            404 => Ok((None, index)),
            _ => Err(failure(Effect::Reads, &self.place, &answer)),
        }
    }

    /// All names of a kind that open with `prefix`, in order.
    async fn names(&self, kind: KeyKind, prefix: &str) -> RegisterResult<Vec<String>> {
        let opening = self.prefix(kind);
        let path = format!(
            "/v1/kv/{}?keys&consistent{}",
            encoded(&format!("{opening}{prefix}")),
            self.datacenter
        );
        let answer = self.http.send(Ask::get(path)).await?;
        let mut names = match answer.status.as_u16() {
            200 => wire::keys(&answer, &opening)?,
            404 => Vec::new(),
            _ => return Err(failure(Effect::Reads, &self.place, &answer)),
        };
        names.sort_unstable();
        Ok(names)
    }

    /// Reads all of these keys in one transaction.
    async fn read_all(&self, keys: &[Key]) -> RegisterResult<Vec<(Key, Found)>> {
        let steps: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        let ask = Ask::put(
            Effect::Reads,
            format!("/v1/txn?consistent{}", self.datacenter),
            wire::get_steps(&steps),
        );
        let answer = self.http.send(ask).await?;
        let rows = match wire::outcome(Effect::Reads, &self.place, &answer)? {
            TransactionOutcome::Done(rows) => rows,
            TransactionOutcome::Refused(why) => return Err(RegisterError::unavailable(why)),
        };
        if rows.len() != keys.len() {
            return Err(RegisterError::unavailable(format_args!(
                "Consul at {} answered {} of {} reads",
                self.place,
                rows.len(),
                keys.len()
            )));
        }
        keys.iter().zip(rows).map(|(key, row)| Ok((key.clone(), row.found()?))).collect()
    }

    /// What a question about the deployment says, if it may be asked.
    async fn ask(&self, path: &str) -> RegisterResult<serde_json::Value> {
        let answer = self.http.send(Ask::get(path.to_owned())).await?;
        if answer.status.as_u16() != 200 {
            return Err(failure(Effect::Reads, &self.place, &answer));
        }
        wire::json(&answer)
    }
}

/// The token of the URL, or that of the environment.
fn token(place: &StoreAddress) -> Option<String> {
    let given = place
        .login
        .as_ref()
        .map(|(user, password)| if password.is_empty() { user.clone() } else { password.clone() });
    given.or_else(|| std::env::var("CONSUL_HTTP_TOKEN").ok()).filter(|token| !token.is_empty())
}

/// The index that a version stands for; none if it is none of ours.
fn index_of(version: &Version) -> Option<u64> {
    version.0.parse().ok().filter(|index| *index > 0)
}

#[async_trait]
impl Register for ConsulRegister {
    fn describe(&self) -> Description {
        let kept = "terms rise only while the keys are kept: deleting them or restoring an older snapshot takes \
                    terms back";
        let caveat = match self.mode {
            Mode::Cas => kept.to_owned(),
            Mode::Session => format!(
                "{kept}; sessions are Consul's, which takes a ttl of ten seconds to a day and ends a silent one \
                 after twice its ttl"
            ),
        };
        Description {
            name: "consul",
            place: self.place.to_string(),
            level: Level::Strict,
            caveat: Some(caveat),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(self.http.encryption())
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        // Whether it serves at all: a cluster without a leader answers no consistent read.
        self.read(&format!("{}/settings/none", self.root), None).await?;
        self.agree().await?;
        let servers = self.ask("/v1/status/peers").await?;
        let agent = self.ask("/v1/agent/self").await.ok();
        Ok(weaknesses(servers.as_array().map_or(0, Vec::len), agent.as_ref()))
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let (row, _) = self.read(&self.key(key), None).await?;
        row.map(Row::found).transpose()
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let index = match expected {
            None => 0,
            Some(version) => match index_of(version) {
                Some(index) => index,
                // Never given out here, so the entry cannot have it.
                None => return Ok(Swapped::Conflict),
            },
        };
        self.agree().await?;
        let flags = record.summary.term.map_or(0, Term::get);
        let ask = Ask::put(
            Effect::Writes,
            format!("/v1/txn?{}", self.datacenter.trim_start_matches('&')),
            wire::swap_step(&self.key(key), &record.value, index, flags),
        );
        let answer = self.http.send(ask).await?;
        match wire::outcome(Effect::Writes, &self.place, &answer)? {
            TransactionOutcome::Done(rows) => match rows.as_slice() {
                [row] => Ok(Swapped::Done(row.version())),
                _ => Err(RegisterError::uncertain(format_args!(
                    "Consul at {} answered one step with {} results",
                    self.place,
                    rows.len()
                ))),
            },
            // The words of a comparison that failed; any other refusal is no answer to it.
            TransactionOutcome::Refused(why) if why.contains("index is stale") => {
                Ok(Swapped::Conflict)
            }
            TransactionOutcome::Refused(why) => Err(RegisterError::unavailable(why)),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        let Ok(_place) = self.waits.try_acquire() else {
            tokio::time::sleep(patience.min(POLL_EVERY)).await;
            return Ok(());
        };
        let key = self.key(key);
        let index = match seen {
            Some(version) => index_of(version),
            None => match self.read(&key, None).await? {
                (Some(_), _) => None,
                (None, index) => Some(index),
            },
        };
        let Some(index) = index else { return Ok(()) };
        // The end of a patience is no failure.
        let changed = self.read(&key, Some((index, patience)));
        tokio::time::timeout(patience, changed).await.map_or(Ok(()), |read| read.map(|_| ()))
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let names = self.names(kind, prefix).await?;
        let is_after = |name: &&String| after.is_none_or(|after| name.as_str() > after);
        let keys = names
            .iter()
            .filter(is_after)
            .take(count)
            .map(|name| {
                Key::found(kind, name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!(
                        "Consul holds {}{name}, which is no name of ours",
                        self.prefix(kind)
                    ))
                })
            })
            .collect::<RegisterResult<Vec<Key>>>()?;
        let mut entries = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE_MAX) {
            entries.extend(self.read_all(keys).await?);
        }
        Ok(entries)
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        self.timed()
    }
}

/// What in a deployment is weaker than it looks; `agent` is what the agent tells of itself, if it may.
fn weaknesses(servers: usize, agent: Option<&serde_json::Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if agent.is_some_and(|agent| agent["DebugConfig"]["DevMode"] == true) {
        warnings.push(
            "the agent runs with -dev: it keeps everything in memory, and a restart takes back terms"
                .to_owned(),
        );
    }
    if servers == 1 {
        warnings.push(
            "the cluster has one server: while it is down nobody is elected, and its disk holds the only \
             copy"
                .to_owned(),
        );
    }
    warnings
}

/// Reads the bytes as everything that a server may answer, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(place) = StoreAddress::parse("consul://127.0.0.1", PORT) else { return };
    for status in [hyper::StatusCode::OK, hyper::StatusCode::CONFLICT] {
        let body = hyper::body::Bytes::copy_from_slice(bytes);
        let answer = crate::engine::http::HttpAnswer { status, headers: Default::default(), body };
        if let Ok(TransactionOutcome::Done(rows)) = wire::outcome(Effect::Writes, &place, &answer) {
            rows.into_iter().for_each(|row| drop(row.found()));
        }
        let _ = wire::row(&answer).map(Row::found);
        let _ = (wire::made(&answer), wire::renewed(&answer), wire::keys(&answer, "regent/"));
        let _ = failure(Effect::Reads, &place, &answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tls::options::Ca;

    fn refusal(url: &str) -> String {
        ConsulRegister::new(url, Duration::from_secs(1)).unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_one_agent_and_nothing_it_does_not_know() {
        let url = "consul://secret@host/some/where?dc=east";
        let register = ConsulRegister::new(url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "host:8500/some/where");
        assert_eq!(register.prefix(KeyKind::Group), "some/where/groups/");
        assert_eq!(register.datacenter, "&dc=east");
        assert!(!format!("{register:?}").contains("secret"));
        assert!(refusal("consul://a,b").contains("name the nearest"));
        let timed = ConsulRegister::new("consul://a?mode=session", Duration::from_secs(1)).unwrap();
        assert!(timed.sessions().is_some() && register.sessions().is_none());
        assert!(timed.describe().caveat.unwrap().contains("twice its ttl"));
        assert!(refusal("consul://a?mode=lock").contains("unknown mode"));
        assert!(refusal("consul://a?stale=1").contains("unknown option \"stale\""));
        assert!(refusal("consul://a%0Ab@c").contains("no HTTP header"));
    }

    #[test]
    fn variables_of_consul_ask_for_tls_and_name_its_files() {
        let asked = |url_says: &str, variables: &[(&str, &str)]| {
            let environment = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            wanted(&crate::engine::address::options(url_says), &environment)
        };
        let files = [
            ("CONSUL_CACERT", "/ca"),
            ("CONSUL_CLIENT_CERT", "/c"),
            ("CONSUL_CLIENT_KEY", "/k"),
            ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul"),
        ];
        assert_eq!(asked("", &files), Ok(None));
        assert_eq!(asked("", &[("CONSUL_HTTP_SSL", "false")]), Ok(None));
        let all = [&files[..], &[("CONSUL_HTTP_SSL", "true")]].concat();
        let tls = asked("", &all).unwrap().unwrap();
        assert_eq!(tls, asked("tls=true", &files).unwrap().unwrap());
        assert_eq!(tls.ca, Ca::File("/ca".into()));
        assert_eq!(tls.identity.unwrap().key, std::path::Path::new("/k"));
        assert_eq!(tls.server_name.as_deref(), Some("server.dc1.consul"));

        let refusal =
            |variables: &[(&str, &str)]| asked("tls=true", variables).unwrap_err().to_string();
        assert!(refusal(&[("CONSUL_HTTP_SSL_VERIFY", "false")]).contains("anybody be the agent"));
        assert!(
            refusal(&[("CONSUL_HTTP_SSL", "yes")]).contains("CONSUL_HTTP_SSL is true or false")
        );
        assert!(asked("tls=false", &all).is_err());
    }

    #[test]
    fn an_agent_listens_for_tls_on_another_port() {
        let certificates = regent_servers::certificates::Certificates::make().unwrap();
        let url = format!("consul://a?ca-file={}", certificates.path("ca.crt").display());
        let register = ConsulRegister::new(&url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "a:8501");
        assert_eq!(register.encryption(), Some(Encryption::Verified));
    }

    #[test]
    fn what_forgets_or_stands_alone_is_warned_of() {
        let agent = |is_dev: bool| serde_json::json!({ "DebugConfig": { "DevMode": is_dev } });
        assert_eq!(weaknesses(3, Some(&agent(false))), Vec::<String>::new());
        assert_eq!(weaknesses(3, None), Vec::<String>::new());
        let both = weaknesses(1, Some(&agent(true)));
        assert!(both[0].contains("-dev") && both[1].contains("one server"), "{both:?}");
    }
}
