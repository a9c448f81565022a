//! `zookeeper://h1,h2,h3/root`: a ZooKeeper ensemble as a register.
//!
//! An entry is a node that stays, with a child beside its bytes: the guard, whose name is drawn when the
//! entry is created. A swap is one transaction that finds the guard and writes over the node's version.
//! Versions are counted from zero for every node, so without the guard an entry that somebody deleted and
//! another created could be taken for the one that was read.
//!
//! A read follows an empty transaction on the same connection. `sync`, which is meant for this, asks no
//! majority: a leader that was deposed and does not know it would answer, and the read would be old.
//!
//! Sessions are timed by those who watch them, and the line of candidates is in the entry of their group, unless
//! `?mode=session` asks for ZooKeeper's own (`sessions`, `wake_order`). Those are not the base: a ttl lies within 2 to 20
//! ticks of the server, and every sign of life is a connection. The client is our own, of the few requests that
//! are needed: the crates of the field keep what was asked without a connection and send it later, and whether a
//! write may yet happen is what must be known here.

mod connection;
mod messages;
mod mode;
mod sessions;
mod wake_order;
mod wire;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use messages::fuzz;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::Term;
use regent_election::store::{Description, Level};
use tokio::sync::OnceCell;

use crate::engine::address::StoreAddress;
use crate::engine::change_feed::{ChangeFeed, FeedTask};
use crate::engine::tls::ClientTls;
use crate::engine::tls::options::{TLS, Words, environment, once_each, parameter};
use crate::engine::{Effect, UrlError, fresh, names, whole_ms};
use crate::register::{
    Encryption, Found, HumanSummary, Key, KeyKind, Record, Register, RegisterError, RegisterResult,
    ServerSessions, Swapped, Version, WakeOrders,
};
use connection::{Asked, Link, Refused, WatchRequest};
use messages::{Ask, BAD_VERSION, NO_NODE, NODE_EXISTS, Stay, Step, TransactionOutcome};
use mode::Mode;
use sessions::Sessions;
use wire::Wire;

/// Where a server listens unless the URL says otherwise, and where for TLS, as its documentation has it.
const PORT: u16 = 2181;
const TLS_PORT: u16 = 2281;

/// The files, in PEM. ZooKeeper's own client has properties of the JVM for them, and no variables.
const WORDS: Words = Words {
    ca: parameter("ca"),
    certificate: parameter("cert"),
    key: parameter("key"),
    server_name: None,
};
/// Where everything lies unless the URL says otherwise.
const ROOT: &str = "regent";
/// What names keep beside letters, digits, `-` and `_`; a slash would make another node.
const KEPT: &[u8] = b".:@";
/// What the bytes of an entry open with.
const OPENING: &str = "regent 1 ";
/// Entries read at once when listing.
const READ_AT_ONCE_MAX: usize = 32;
/// Who belongs to the ensemble, as it says itself.
const MEMBERS: &str = "/zookeeper/config";

/// A register on a ZooKeeper ensemble.
#[derive(Debug)]
pub struct ZookeeperRegister {
    wire: Arc<Wire>,
    /// The path of everything, with a slash before it and none behind.
    root: String,
    feed_task: FeedTask,
    mode: Mode,
    /// That all below this root have the same mode; made sure of before the first write.
    agreed: OnceCell<()>,
    sessions: Sessions,
}

impl ZookeeperRegister {
    /// A register on the ensemble that `url` names, like `zookeeper://h1,h2,h3/root`; it connects when it is
    /// first asked, and creates the root if it is not there.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let place = StoreAddress::parse(url, PORT)?;
        let mut known = vec!["mode", TLS];
        known.extend(WORDS.parameters());
        place.knows_only(&known)?;
        once_each(&place.options)?;
        let tls = WORDS.wanted(false, &place.options, &environment)?;
        let place = if tls.is_some() { StoreAddress::parse(url, TLS_PORT)? } else { place };
        let tls = tls.map(|tls| ClientTls::open(tls, None)).transpose()?.map(Arc::new);
        let mode = Mode::of(&place)?;
        let root = if place.path.is_empty() { ROOT } else { &place.path };
        let is_name = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_graphic();
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
        };
        if !root.split('/').all(is_name) {
            return Err(UrlError::new("a root is a path of plain names, like /some/where"));
        }
        let root = format!("/{root}");
        let mut shelves =
            [KeyKind::Group, KeyKind::Session, KeyKind::Setting].map(KeyKind::word).to_vec();
        if mode == Mode::Session {
            shelves.push(sessions::SHELF);
        }
        let wire = Arc::new(Wire::new(&place, tls, &root, &shelves, request_for));
        let (agreed, sessions) = (OnceCell::new(), Sessions::default());
        Ok(Self { wire, root, feed_task: FeedTask::new(), mode, agreed, sessions })
    }

    fn shelf(&self, kind: KeyKind) -> String {
        format!("{}/{}", self.root, kind.word())
    }

    fn path(&self, key: &Key) -> String {
        format!("{}/{}", self.shelf(key.kind()), names::spelled(key.name(), KEPT))
    }

    /// Asks for what lies at these paths, no older than this call; what is not there is none.
    async fn read(&self, paths: &[String]) -> RegisterResult<Vec<Option<Found>>> {
        let nodes = self.wire.ask(Effect::Reads, async |link: Link| {
            let fresh = self.freshen(&link).await?;
            let mut asked = Vec::with_capacity(paths.len());
            for path in paths {
                asked.push(link.ask(Ask::Get { path }).await?);
            }
            fresh.answer().await?;
            let mut nodes = Vec::with_capacity(paths.len());
            for asked in asked {
                nodes.push(match asked.answer().await? {
                    (0, body) => Some(messages::found(&body)?),
                    (NO_NODE, _) => None,
                    (code, _) => return Err(Refused::Code(code)),
                });
            }
            Ok(nodes)
        });
        let nodes = nodes.await?;
        nodes
            .into_iter()
            .zip(paths)
            .map(|(node, path)| node.map(|(data, version)| found(path, &data, version)).transpose())
            .collect()
    }

    /// Begins an empty transaction: a majority agrees on it, and what is read behind it on the same
    /// connection is no older, even if a step of it fails.
    async fn freshen(&self, link: &Link) -> Result<Asked, Refused> {
        let steps = [Step::Check { path: &self.root }];
        link.ask(Ask::Transaction { steps: &steps }).await
    }

    /// The version of an entry as the nearest server knows it, which may be an old one.
    async fn glance(&self, key: &Key) -> RegisterResult<Option<Version>> {
        let path = self.path(key);
        let node = self.wire.ask(Effect::Reads, async |link: Link| {
            match link.ask(Ask::Get { path: &path }).await?.answer().await? {
                (0, body) => Ok(Some(messages::found(&body)?)),
                (NO_NODE, _) => Ok(None),
                (code, _) => Err(Refused::Code(code)),
            }
        });
        let found = node.await?.map(|(data, version)| found(&path, &data, version)).transpose()?;
        Ok(found.map(|found| found.version))
    }

    /// Waits for a change of one entry's node, which wakes nobody who waits for another.
    async fn wait_for_node(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        // The ear first, then the wish, then the look: what changes in between is heard.
        let mut subscription = self.wire.listen();
        let path = self.path(key);
        self.wish(&[WatchRequest::Change(path.clone())]).await?;
        if self.glance(key).await?.as_ref() == seen {
            let _ = tokio::time::timeout(patience, subscription.changed(&path)).await;
        }
        Ok(())
    }

    /// Sees to it that the feed tells each of these. Whether all their nodes are there, as far as is known.
    async fn wish(&self, wishes: &[WatchRequest]) -> RegisterResult<bool> {
        let wishing = async |link: Link| {
            let mut are_there = true;
            for wish in wishes {
                are_there &= link.arm(wish).await?.unwrap_or(true);
            }
            Ok(are_there)
        };
        self.wire.ask(Effect::Reads, wishing).await
    }

    /// All names of a kind that open with `prefix`, in order.
    async fn names(&self, kind: KeyKind, prefix: &str) -> RegisterResult<Vec<String>> {
        let shelf = self.shelf(kind);
        let spelled = self.wire.ask(Effect::Reads, async |link: Link| {
            let fresh = self.freshen(&link).await?;
            let asked = link.ask(Ask::Children { path: &shelf }).await?;
            fresh.answer().await?;
            match asked.answer().await? {
                (0, body) => Ok(messages::children(&body)?),
                (code, _) => Err(Refused::Code(code)),
            }
        });
        let mut names = spelled
            .await?
            .iter()
            .map(|spelled| {
                names::read(spelled, KEPT).ok_or_else(|| {
                    RegisterError::corrupt(format_args!(
                        "ZooKeeper holds {shelf}/{spelled}, which is no entry of ours"
                    ))
                })
            })
            .collect::<RegisterResult<Vec<_>>>()?;
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        Ok(names)
    }

    /// Creates an entry with its guard.
    async fn create(&self, path: &str, record: &Record) -> RegisterResult<Swapped> {
        let guard = fresh();
        let (data, rights) = (entry(guard, record), self.wire.rights());
        let child = guard_path(path, guard);
        let steps = [
            Step::Create { path, data: &data, rights, stay: Stay::ForGood },
            Step::Create { path: &child, data: &[], rights, stay: Stay::ForGood },
        ];
        let created = self.wire.ask(Effect::Writes, async |link: Link| {
            match link.ask(Ask::Transaction { steps: &steps }).await?.transacted().await? {
                TransactionOutcome::Done => Ok(Swapped::Done(version(guard, 0))),
                TransactionOutcome::Failed { code: NODE_EXISTS, .. } => Ok(Swapped::Conflict),
                TransactionOutcome::Failed { code, .. } => Err(Refused::Code(code)),
            }
        });
        created.await
    }

    /// Writes an entry that has this guard and this version.
    async fn replace(
        &self,
        path: &str,
        (guard, over): (u64, i32),
        record: &Record,
    ) -> RegisterResult<Swapped> {
        let (data, child) = (entry(guard, record), guard_path(path, guard));
        let (writes, next) = messages::write(path, &data, over);
        let mut steps = vec![Step::Check { path: &child }];
        steps.extend(writes);
        let written = self.wire.ask(Effect::Writes, async |link: Link| {
            match link.ask(Ask::Transaction { steps: &steps }).await?.transacted().await? {
                TransactionOutcome::Done => Ok(Swapped::Done(version(guard, next))),
                TransactionOutcome::Failed { code: BAD_VERSION | NO_NODE, .. } => {
                    Ok(Swapped::Conflict)
                }
                TransactionOutcome::Failed { code, .. } => Err(Refused::Code(code)),
            }
        });
        written.await
    }
}

/// The bytes of an entry: a line for people, which opens with the guard, and then the value.
fn entry(guard: u64, record: &Record) -> Vec<u8> {
    let HumanSummary { leader, term, ttl } = &record.summary;
    let leader = leader.as_ref().map_or("-", |node| node.as_str());
    let (term, ttl_ms) = (term.map_or(0, Term::get), ttl.map_or(0, whole_ms));
    let line = format!("{OPENING}{guard:016x} leader={leader} term={term} ttl_ms={ttl_ms}\n");
    [line.as_bytes(), &record.value].concat()
}

/// The value and the version of an entry whose bytes are these.
fn found(path: &str, data: &[u8], number: i32) -> RegisterResult<Found> {
    let read = || {
        let rest = data.strip_prefix(OPENING.as_bytes())?;
        let guard = std::str::from_utf8(rest.get(..16)?).ok()?;
        let guard = u64::from_str_radix(guard, 16).ok()?;
        let line_end = rest.iter().position(|byte| *byte == b'\n')?;
        Some(Found { value: rest[line_end + 1..].to_vec(), version: version(guard, number) })
    };
    read().ok_or_else(|| {
        RegisterError::corrupt(format_args!("ZooKeeper holds {path}, which is no entry of ours"))
    })
}

fn guard_path(path: &str, guard: u64) -> String {
    format!("{path}/{guard:016x}")
}

fn version(guard: u64, number: i32) -> Version {
    Version(format!("{guard:016x}.{number}"))
}

/// The guard and the number that a version stands for; none if it is none of ours.
fn parts(given: &Version) -> Option<(u64, i32)> {
    let (guard, number) = given.0.split_once('.')?;
    let parts = (u64::from_str_radix(guard, 16).ok()?, number.parse().ok()?);
    // A write over -1 would be one over anything, and no entry is left at it.
    (version(parts.0, parts.1) == *given && parts.1 != -1).then_some(parts)
}

/// Hears of changed entries until the connection is lost.
async fn publish(wire: &Wire, root: &str, feed: &ChangeFeed) -> Result<(), String> {
    // The watch goes with the connection that is asked, and is made again on the next one.
    let link = wire.link().await.map_err(|error| error.to_string())?;
    let changes = link.watch(root).await;
    drop(link);
    let mut changes = changes.map_err(|refused| format!("{refused:?}"))?;
    feed.is_attended_now();
    while let Some(path) = changes.recv().await {
        let entry = path.strip_prefix(root).and_then(|path| path.strip_prefix('/'));
        let Some((kind, spelled)) = entry.and_then(|entry| entry.split_once('/')) else { continue };
        if let Some(name) = names::read(spelled, KEPT) {
            feed.publish(&format!("{kind}/{name}"));
        }
    }
    Ok(())
}

#[async_trait]
impl Register for ZookeeperRegister {
    fn describe(&self) -> Description {
        let kept = "terms rise only while the nodes are kept: deleting them or starting from an older snapshot \
                    takes terms back, and so may a power cut with forceSync=no";
        let caveat = match self.mode {
            Mode::Cas => kept.to_owned(),
            Mode::Session => format!(
                "{kept}; sessions are ZooKeeper's, which takes a ttl of 2 to 20 ticks unless configured, the same \
                 on every server"
            ),
        };
        Description {
            name: "zookeeper",
            place: format!("{}{}", self.wire.place(), self.root),
            level: Level::Strict,
            caveat: Some(caveat),
        }
    }

    fn encryption(&self) -> Option<Encryption> {
        Some(self.wire.encryption())
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        self.agree().await?;
        let (members, is_watched) = self
            .wire
            .ask(Effect::Reads, async |link: Link| {
                // Whether it serves at all: an ensemble without a majority agrees on nothing.
                self.freshen(&link).await?.answer().await?;
                let members = link.ask(Ask::Get { path: MEMBERS }).await?;
                let is_watched = match link.watch(&self.root).await {
                    Ok(_) => true,
                    Err(Refused::Code(_)) => false,
                    Err(refused) => return Err(refused),
                };
                let members = match members.answer().await? {
                    (0, body) => Some(messages::found(&body)?.0),
                    // Older servers have no such node, and some show it to nobody.
                    (_, _) => None,
                };
                Ok((members, is_watched))
            })
            .await?;
        let members = members.map(|text| String::from_utf8_lossy(&text).into_owned());
        // That connection told its watch to nobody; the next one is for the listener.
        self.wire.hang_up().await;
        match self.mode {
            Mode::Cas => Ok(weaknesses(members.as_deref(), is_watched)),
            // Single nodes are watched, which every server can.
            Mode::Session => {
                let mut warnings = weaknesses(members.as_deref(), true);
                warnings.extend(sessions::unlike(&self.wire.bounds().await?));
                Ok(warnings)
            }
        }
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        Ok(self.read(&[self.path(key)]).await?.pop().flatten())
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        self.agree().await?;
        let path = self.path(key);
        match expected.map(parts) {
            None => self.create(&path, &record).await,
            Some(Some(over)) => self.replace(&path, over, &record).await,
            // Never given out here, so the entry cannot have it.
            Some(None) => Ok(Swapped::Conflict),
        }
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        match self.mode {
            Mode::Session => return self.wait_for_node(key, seen, patience).await,
            Mode::Cas => {}
        }
        let (wire, root) = (Arc::clone(&self.wire), self.root.clone());
        // Subscribe first, then look: what changes in between is told. An old look waits for a change.
        let subscription = self.feed_task.listen(move |feed| {
            let (wire, root) = (Arc::clone(&wire), root.clone());
            async move {
                if let Err(error) = publish(&wire, &root, &feed).await {
                    tracing::debug!(place = wire.place(), error, "no ear at ZooKeeper");
                }
            }
        });
        if self.glance(key).await?.as_ref() == seen {
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
        let mut names = self.names(kind, prefix).await?;
        names.retain(|name| after.is_none_or(|after| name.as_str() > after));
        names.truncate(count);
        let keys = names
            .iter()
            .map(|name| {
                Key::found(kind, name).ok_or_else(|| {
                    RegisterError::corrupt(format_args!("{name:?} in ZooKeeper is no name of ours"))
                })
            })
            .collect::<RegisterResult<Vec<Key>>>()?;
        let mut entries = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE_MAX) {
            let paths: Vec<_> = keys.iter().map(|key| self.path(key)).collect();
            let read = keys.iter().cloned().zip(self.read(&paths).await?);
            entries.extend(read.filter_map(|(key, found)| Some((key, found?))));
        }
        Ok(entries)
    }

    fn sessions(&self) -> Option<&dyn ServerSessions> {
        match self.mode {
            Mode::Cas => None,
            Mode::Session => Some(self),
        }
    }

    fn wake_orders(&self) -> Option<&dyn WakeOrders> {
        match self.mode {
            Mode::Cas => None,
            Mode::Session => Some(self),
        }
    }

    async fn shut_down(&self) {
        self.feed_task.close();
        self.wire.hang_up().await;
    }
}

/// What in a deployment is weaker than it looks; `members` is the list that the ensemble tells of itself.
fn weaknesses(members: Option<&str>, is_watched: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_voter = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    let voters = members.map(|text| text.lines().filter(is_voter).count());
    match voters {
        // A server that runs alone lists nobody.
        Some(0 | 1) => warnings.push(
            "one server alone: while it is down nobody is elected, and its disk holds the only copy"
                .to_owned(),
        ),
        Some(voters) if voters.is_multiple_of(2) => warnings
            .push(format!("{voters} voters bear the loss of no more than {} would", voters - 1)),
        Some(_) => {}
        None => warnings.push("the ensemble does not tell who belongs to it".to_owned()),
    }
    if !is_watched {
        warnings.push(
            "the server has no watches that stay (ZooKeeper before 3.6): changes are looked for four times \
             a second"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regent_election::Node;

    use super::*;

    fn register(url: &str) -> Result<ZookeeperRegister, UrlError> {
        ZookeeperRegister::new(url, Duration::from_secs(1))
    }

    #[test]
    fn a_url_names_servers_and_a_root() {
        let register = register("zookeeper://me:secret@a,b:1/x/y").unwrap();
        assert_eq!(register.describe().place, "a:2181,b:1/x/y");
        assert_eq!(register.path(&Key::setting("life")), "/x/y/settings/life");
        assert!(!format!("{register:?}").contains("secret"));
        assert!(register.sessions().is_none() && register.wake_orders().is_none());
        let key = Key::found(KeyKind::Group, "a/b.c:d@e").unwrap();
        assert_eq!(register.path(&key), "/x/y/groups/a=2Fb.c:d@e");
    }

    #[test]
    fn a_url_says_who_times_sessions() {
        let timed = register("zk://a/x?mode=session").unwrap();
        assert!(timed.sessions().is_some() && timed.wake_orders().is_some());
        assert!(timed.describe().caveat.unwrap().contains("2 to 20 ticks"));
        assert!(register("zk://a?mode=cas").unwrap().sessions().is_none());
        assert!(register("zk://a?mode=lock").unwrap_err().to_string().contains("unknown mode"));
    }

    #[test]
    fn a_url_that_names_no_root_or_asks_for_more_is_refused() {
        for url in ["zk://a/x//y", "zk://a/../x", "zk://a/x%20y", "zk://a?tls=yes", "zk://"] {
            assert!(register(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_server_listens_for_tls_on_another_port() {
        let certificates = regent_servers::certificates::Certificates::make().unwrap();
        let url = format!("zk://a,b:1/x?tls=true&ca={}", certificates.path("ca.crt").display());
        let secure = register(&url).unwrap();
        assert_eq!(secure.describe().place, "a:2281,b:1/x");
        assert_eq!(secure.encryption(), Some(Encryption::Verified));
        let refused = register("zk://a?cacert=/ca").unwrap_err().to_string();
        assert!(refused.contains("known are mode, tls, ca, cert, key"), "{refused}");
    }

    #[test]
    fn what_stands_alone_or_gains_nothing_is_warned_of() {
        let three = "server.1=a:1:2:participant;3\nserver.2=b:1:2:participant;3\n\
                     server.3=c:1:2:participant;3\nserver.4=d:1:2:observer;3\nversion=0";
        assert_eq!(weaknesses(Some(three), true), Vec::<String>::new());
        assert!(weaknesses(Some(""), true)[0].contains("alone"));
        let two = "server.1=a:1:2:participant\nserver.2=b:1:2:participant";
        assert!(weaknesses(Some(two), true)[0].contains("2 voters"));
        assert!(weaknesses(Some(three), false)[0].contains("before 3.6"));
        assert!(weaknesses(None, true)[0].contains("does not tell"));
    }

    #[test]
    fn a_version_of_another_shape_is_none_of_ours() {
        for text in ["", "1", "x.1", "0000000000000001.", "1.1", "0000000000000001.-1"] {
            assert_eq!(parts(&Version(text.into())), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_entry_comes_back_with_its_version(
            value in prop::collection::vec(any::<u8>(), 0..100),
            guard: u64,
            number: i32,
            term in 0..9u64,
        ) {
            let leader = Node::new("node:1@x").ok();
            let summary = HumanSummary { leader, term: Term::new(term), ttl: Some(Duration::from_secs(2)) };
            let record = Record { value: value.clone(), summary };
            let read = found("/x", &entry(guard, &record), number).unwrap();
            prop_assert_eq!(read.value, value);
            let is_any = number == -1;
            prop_assert_eq!(parts(&read.version), (!is_any).then_some((guard, number)));
        }

        #[test]
        fn any_bytes_are_an_entry_or_corrupt(data in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = found("/x", &data, 0);
        }
    }
}
