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

use crate::engine::bell::{Bell, Listener, Tower};
use crate::engine::limits::LISTED_AT_ONCE_MAX;
use crate::engine::place::Place;
use crate::engine::{Effect, UrlError, whole_ms};
use crate::register::{
    Found, Key, Kind, Plate, Record, Register, RegisterError, RegisterResult, ServerSessions,
    Swapped, Version,
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

/// A register on an etcd cluster.
#[derive(Debug)]
pub struct EtcdRegister {
    wire: Arc<Wire>,
    /// What every key opens with.
    root: String,
    tower: Tower,
}

impl EtcdRegister {
    /// A register on the cluster that `url` names; it connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = Place::parse(url, 2379)?;
        place.knows_only(&[])?;
        let root = if place.path.is_empty() { ROOT.to_owned() } else { place.path.clone() };
        Ok(Self { wire: Arc::new(Wire::new(&place, request_for)?), root, tower: Tower::new() })
    }

    /// What keys of entries of a kind open with.
    fn shelf(&self, kind: Kind) -> String {
        format!("{}/entries/{}/", self.root, kind.word())
    }

    fn entry_key(&self, key: &Key) -> String {
        format!("{}{}", self.shelf(key.kind()), key.name())
    }

    fn alive_key(&self, session: u128) -> String {
        format!("{}/alive/{session:032x}", self.root)
    }

    fn listen(&self) -> Listener {
        let (wire, root) = (Arc::clone(&self.wire), self.root.clone());
        self.tower.listen(move |bell| {
            let (wire, root) = (Arc::clone(&wire), root.clone());
            async move {
                if let Err(error) = ring(&wire, &root, &bell).await {
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
async fn ring(wire: &Wire, root: &str, bell: &Bell) -> Result<(), Status> {
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
                bell.is_attended_now();
            }
        }
        for kv in answer.events.into_iter().filter_map(|event| event.kv) {
            let key = String::from_utf8_lossy(&kv.key);
            if let Some(name) = key.strip_prefix(&entries) {
                bell.ring(name);
            } else if let Some(session) = key.strip_prefix(&alive) {
                bell.ring(&format!("alive/{session}"));
            }
        }
    }
    Ok(())
}

/// What people see beside an entry.
fn plate_text(plate: &Plate) -> String {
    let leader = plate.leader.as_ref().map_or("-", |node| node.as_str());
    let term = plate.term.map_or(0, regent_election::Term::get);
    format!("leader={leader} term={term} ttl_ms={}", plate.ttl.map_or(0, whole_ms))
}

fn put(key: &str, value: Vec<u8>) -> Request {
    Request::Put(PutRequest { key: key.into(), value, lease: 0, ignore_lease: false })
}

fn version(revision: i64) -> Version {
    Version(revision.to_string())
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
        Ok(found
            .into_iter()
            .next()
            .map(|kv| Found { value: kv.value, version: version(kv.mod_revision) }))
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
        if key.kind() == Kind::Group {
            let plate = format!("{}/plates/{}", self.root, key.name());
            success.push(put(&plate, plate_text(&record.plate).into_bytes()).into());
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
        // The ear first, then the look: what changes in between is heard.
        let ear = self.listen();
        let held = self.load(key).await?;
        if held.as_ref().map(|found| &found.version) == seen {
            self.tower.heard(ear, &key.to_string(), patience).await;
        }
        Ok(())
    }

    async fn list(
        &self,
        kind: Kind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let mut entries: Vec<(Key, Found)> = Vec::new();
        let shelf = self.shelf(kind);
        while entries.len() < count {
            let at_once = (count - entries.len()).min(LISTED_AT_ONCE_MAX);
            let last = entries.last().map(|(key, _)| key.name()).or(after);
            let key = match last {
                // The least key after this one.
                Some(last) if last >= prefix => format!("{shelf}{last}\0"),
                Some(_) | None => format!("{shelf}{prefix}"),
            };
            let limit = i64::try_from(at_once).unwrap_or(i64::MAX);
            let range_end = end_of(&format!("{shelf}{prefix}"));
            let kvs = self.range(RangeRequest { key: key.into(), range_end, limit }).await?;
            let is_last = kvs.len() < at_once;
            for kv in kvs {
                let name =
                    std::str::from_utf8(&kv.key).ok().and_then(|key| key.strip_prefix(&shelf));
                let key = name.and_then(|name| Key::found(kind, name)).ok_or_else(|| {
                    RegisterError::corrupt(format_args!(
                        "the key {:?} of etcd is none of ours",
                        String::from_utf8_lossy(&kv.key)
                    ))
                })?;
                let found = Found { value: kv.value, version: version(kv.mod_revision) };
                entries.push((key, found));
            }
            if is_last {
                break;
            }
        }
        Ok(entries)
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        Some(self)
    }

    async fn shut_down(&self) {
        self.tower.close();
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
        assert!(EtcdRegister::new("etcd://a?b=c", Duration::from_secs(1)).is_err());
    }
}
