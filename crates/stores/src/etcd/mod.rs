//! `etcd://h1,h2,h3/root`: an etcd cluster as a register, with sessions by its leases.
//!
//! An entry is a key, its version the revision that wrote it, and a swap one transaction on that revision.
//! Beside it lies what people may read (`etcdctl get --prefix regent/plates`). One watch tells of changes
//! and of sessions that ended. etcd's own election service was not taken: it queues by age and leaves no
//! place for a record, and its answer after a wait does not prove that the office is held.

mod messages;
mod sessions;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::{Description, Level};
use tokio_stream::StreamExt as _;
use tonic::Status;

use crate::engine::address::StoreAddress;
use crate::engine::change_feed::{ChangeFeed, FeedTask, Subscription};
use crate::engine::pages::Pages;
use crate::engine::tls::ClientTls;
use crate::engine::tls::options::{TLS, Words, environment, once_each, or_variable};
use crate::engine::{Effect, UrlError, whole_ms};
use crate::register::{
    Encryption, Found, HumanSummary, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version,
};
use messages::{
    Compare, KeyValue, MembersResponse, Nothing, PutRequest, RangeRequest, RangeResponse, Request,
    StatusResponse, TxnRequest, TxnResponse, WatchCreate, WatchRequest, WatchResponse,
};
use wire::{Link, Wire};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// Where everything lies unless the URL says otherwise.
const ROOT: &str = "regent";

/// What `etcdctl` calls the files.
const WORDS: Words = Words {
    ca: or_variable("cacert", "ETCDCTL_CACERT"),
    certificate: or_variable("cert", "ETCDCTL_CERT"),
    key: or_variable("key", "ETCDCTL_KEY"),
    server_name: None,
};

/// A register on an etcd cluster.
#[derive(Debug)]
pub struct EtcdRegister {
    wire: Arc<Wire>,
    /// What every key opens with.
    root: String,
    feed_task: FeedTask,
}

impl EtcdRegister {
    /// A register on the cluster that `url` names; it connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = StoreAddress::parse(url, 2379)?;
        let mut known = WORDS.parameters();
        known.push(TLS);
        place.knows_only(&known)?;
        once_each(&place.options)?;
        let tls = WORDS.wanted(url.starts_with("etcds:"), &place.options, &environment)?;
        let tls = tls.map(|tls| ClientTls::open(tls, Some("h2"))).transpose()?.map(Arc::new);
        let root = if place.path.is_empty() { ROOT.to_owned() } else { place.path.clone() };
        Ok(Self {
            wire: Arc::new(Wire::new(&place, tls, request_for)?),
            root,
            feed_task: FeedTask::new(),
        })
    }

    /// What keys of entries of a kind open with.
    fn shelf(&self, kind: KeyKind) -> String {
        format!("{}/entries/{}/", self.root, kind.word())
    }

    fn entry_key(&self, key: &Key) -> String {
        format!("{}{}", self.shelf(key.kind()), key.name())
    }

    fn alive_key(&self, session: u128) -> String {
        format!("{}/alive/{session:032x}", self.root)
    }

    fn listen(&self) -> Subscription {
        let (wire, root) = (Arc::clone(&self.wire), self.root.clone());
        self.feed_task.listen(move |feed| {
            let (wire, root) = (Arc::clone(&wire), root.clone());
            async move {
                if let Err(error) = publish(&wire, &root, &feed).await {
                    tracing::debug!(place = wire.place(), %error, "no ear at etcd");
                }
            }
        })
    }

    async fn range(&self, request: RangeRequest) -> RegisterResult<Vec<KeyValue>> {
        let answer: RangeResponse = self
            .wire
            .ask(Effect::Reads, async |link: Link| Ok(link.unary(RANGE, request).await?))
            .await?;
        Ok(answer.kvs)
    }
}

/// The first key after all that open with `prefix`, which ends in no `0xff`: names are ASCII.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// Hears of changed entries and of sessions that went, until the stream is lost.
async fn publish(wire: &Wire, root: &str, feed: &ChangeFeed) -> Result<(), Status> {
    let link = wire.link().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let (entries, alive) = (format!("{root}/entries/"), format!("{root}/alive/"));
    let watch = |prefix: &str, filters: Vec<i32>| WatchRequest {
        create: Some(WatchCreate { key: prefix.into(), range_end: end_of(prefix), filters }),
    };
    // Of sessions only the end is news: zero leaves out puts.
    let asks = [watch(&entries, vec![]), watch(&alive, vec![0])];
    let asks_count = asks.len();
    // The questions never end: the stream would with them.
    let asks = tokio_stream::iter(asks).chain(tokio_stream::pending());
    let mut answers = link.stream("/etcdserverpb.Watch/Watch", asks).await?;
    let mut created = 0;
    while let Some(answer) = answers.message().await? {
        let answer: WatchResponse = answer;
        if answer.canceled {
            return Err(Status::aborted("the watch was cancelled"));
        }
        if answer.created {
            created += 1;
            if created == asks_count {
                feed.is_attended_now();
            }
        }
        for kv in answer.events.into_iter().filter_map(|event| event.kv) {
            let key = String::from_utf8_lossy(&kv.key);
            if let Some(name) = key.strip_prefix(&entries) {
                feed.publish(name);
            } else if let Some(session) = key.strip_prefix(&alive) {
                feed.publish(&format!("alive/{session}"));
            }
        }
    }
    Ok(())
}

/// What people see beside an entry.
fn summary_text(summary: &HumanSummary) -> String {
    let leader = summary.leader.as_ref().map_or("-", |node| node.as_str());
    let term = summary.term.map_or(0, regent_election::Term::get);
    format!("leader={leader} term={term} ttl_ms={}", summary.ttl.map_or(0, whole_ms))
}

fn put(key: &str, value: Vec<u8>) -> Request {
    Request::Put(PutRequest { key: key.into(), value, lease: 0, ignore_lease: false })
}

fn version(revision: i64) -> Version {
    Version(revision.to_string())
}

fn found(kv: KeyValue) -> Found {
    Found { value: kv.value, version: version(kv.mod_revision) }
}

#[async_trait]
impl Register for EtcdRegister {
    fn describe(&self) -> Description {
        Description {
            name: "etcd",
            place: format!("{}/{}", self.wire.place(), self.root),
            level: Level::Strict,
            caveat: Some(
                "restoring a snapshot of the cluster takes back terms; a new leader of the cluster gives \
                 every session its whole ttl again"
                    .into(),
            ),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(self.wire.encryption())
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let (status, members): (StatusResponse, MembersResponse) = self
            .wire
            .ask(Effect::Reads, async |link: Link| {
                Ok((
                    link.unary("/etcdserverpb.Maintenance/Status", Nothing {}).await?,
                    link.unary("/etcdserverpb.Cluster/MemberList", Nothing {}).await?,
                ))
            })
            .await?;
        if status.leader == 0 {
            return Err(RegisterError::unavailable("the cluster has no leader"));
        }
        let voters = members.members.iter().filter(|member| !member.is_learner).count();
        Ok(weaknesses(voters, &status.version, &status.errors))
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        let key = self.entry_key(key).into_bytes();
        let found = self.range(RangeRequest { key, ..RangeRequest::default() }).await?;
        Ok(found.into_iter().next().map(self::found))
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let revision = match expected.map(|version| version.0.parse::<i64>()) {
            None => 0,
            Some(Ok(revision)) if revision > 0 => revision,
            // A version of another shape was never given out: it cannot be the one that is held.
            Some(Ok(_) | Err(_)) => return Ok(Swapped::Conflict),
        };
        let entry = self.entry_key(key);
        let mut success = vec![put(&entry, record.value).into()];
        if key.kind() == KeyKind::Group {
            let summary = format!("{}/plates/{}", self.root, key.name());
            success.push(put(&summary, summary_text(&record.summary).into_bytes()).into());
        }
        let compare = vec![Compare::changed_at(&entry, revision)];
        let request = TxnRequest { compare, success, failure: vec![] };
        let answer: TxnResponse = self
            .wire
            .ask(Effect::Writes, async |link: Link| Ok(link.unary(TXN, request).await?))
            .await?;
        match answer.header {
            Some(header) if answer.succeeded => Ok(Swapped::Done(version(header.revision))),
            None if answer.succeeded => {
                Err(RegisterError::uncertain("etcd wrote, and did not tell the revision"))
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
        self.feed_task.entry_changed(self.listen(), self, key, seen, patience).await
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let shelf = self.shelf(kind);
        let range_end = end_of(&format!("{shelf}{prefix}"));
        let mut pages = Pages::new(prefix, after, count);
        while let Some((start, at_once)) = pages.next_page() {
            // With a zero behind it, it is the least key after this one.
            let end = if start.is_included { "" } else { "\0" };
            let key = format!("{shelf}{}{end}", start.name).into_bytes();
            let limit = i64::try_from(at_once).unwrap_or(i64::MAX);
            let range_end = range_end.clone();
            let kvs = self.range(RangeRequest { key, range_end, limit }).await?;
            let named = |kv: KeyValue| {
                let name =
                    std::str::from_utf8(&kv.key).ok().and_then(|key| key.strip_prefix(&shelf));
                let key = name.and_then(|name| Key::found(kind, name)).ok_or_else(|| {
                    RegisterError::corrupt(format_args!(
                        "the key {:?} of etcd is none of ours",
                        String::from_utf8_lossy(&kv.key)
                    ))
                })?;
                Ok((key, Some(found(kv))))
            };
            pages.add(kvs.into_iter().map(named).collect::<RegisterResult<_>>()?);
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

/// What in a deployment is weaker than it looks.
fn weaknesses(voters: usize, version: &str, errors: &[String]) -> Vec<String> {
    let mut warnings: Vec<String> =
        errors.iter().map(|error| format!("the cluster complains: {error}")).collect();
    if voters == 1 {
        warnings.push("a cluster of one member: its loss is the loss of all terms".into());
        warnings.push(format!(
            "this is etcd {version}: alone, versions before 3.4.21 and 3.5.5 may acknowledge what is not yet \
             on the disk"
        ));
    } else if voters.is_multiple_of(2) {
        warnings
            .push(format!("{voters} voters bear the loss of no more than {} would", voters - 1));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weakness_is_named() {
        assert_eq!(weaknesses(3, "3.5.1", &[]), Vec::<String>::new());
        assert!(weaknesses(1, "3.5.1", &[])[0].contains("one member"));
        assert!(weaknesses(4, "3.5.1", &[])[0].contains("4 voters"));
        assert!(weaknesses(5, "3.5.1", &["NOSPACE".into()])[0].contains("NOSPACE"));
    }

    #[test]
    fn a_prefix_ends_before_its_next_sibling() {
        assert_eq!(end_of("a/b/"), b"a/b0");
        let (inside, outside) = (b"a/b/zz".to_vec(), b"a/b0".to_vec());
        assert!(inside < end_of("a/b/") && outside >= end_of("a/b/"));
    }

    #[tokio::test]
    async fn a_url_names_members_and_a_root() {
        let register =
            EtcdRegister::new("etcd://me:secret@a,b:1/x/y", Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "a:2379,b:1/x/y");
        assert!(!format!("{register:?}").contains("secret"));
        let refusal = |url: &str| {
            EtcdRegister::new(url, Duration::from_secs(1)).expect_err("refused").to_string()
        };
        assert!(refusal("etcd://a?b=c").contains("known are cacert, cert, key, tls"));
        assert!(refusal("etcds://a?tls=false").contains("asks for TLS"));
        assert!(refusal("etcds://a?cacert=/no/such/file").contains("/no/such/file"));
    }
}
