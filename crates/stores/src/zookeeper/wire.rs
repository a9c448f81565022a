//! The servers of a ZooKeeper ensemble, and the connection to one of them, or to another when it is lost.
//!
//! The connection that is kept is a session of its own: nothing of ours hangs on it but watches, so there is
//! nothing to carry over. What was asked on a lost connection is never asked again here. Sessions that something
//! does hang on are begun and gone on with on connections of their own (`sessions`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::connection::{Closed, Link, Opening, Refused};
use super::messages::{
    self, Ask, NO_AUTH, NODE_EXISTS, Pass, Rights, Stay, Step, TransactionOutcome,
};
use crate::engine::address::StoreAddress;
use crate::engine::change_feed::{ChangeFeed, Subscription};
use crate::engine::held::Held;
use crate::engine::tls::{ClientTls, encryption};
use crate::engine::{Effect, fresh};
use crate::register::{Encryption, RegisterError, RegisterResult};

/// How long the session of the connection that is kept lives unheard, if the server grants it.
const SESSION_MS: i32 = 10_000;
/// How long a server may take to begin a session. One that is starting takes what it is told and forgets it.
const CONNECT_FOR: Duration = Duration::from_secs(2);

/// The servers, and the connection to one of them.
pub(super) struct Wire {
    servers: Vec<String>,
    tls: Option<Arc<ClientTls>>,
    login: Option<(String, String)>,
    /// Nodes that must be there, parents first.
    nodes: Vec<String>,
    place: String,
    /// Whose turn it is.
    turn: AtomicUsize,
    held: Held<Link>,
    /// Told, by the paths of nodes, for changes that were asked for once.
    feed: Arc<ChangeFeed>,
    /// What each server was found to keep sessions for.
    bounds: std::sync::Mutex<BTreeMap<String, Bounds>>,
}

/// The times, in milliseconds, that a server keeps sessions for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// What a server is asked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// The connection that is kept.
    Kept,
    /// One of its own, for a session that something hangs on.
    Apart { session_ms: u64, pass: Option<Pass> },
}

/// A session with a connection of its own.
pub(super) struct Attached {
    pub(super) link: Link,
    pub(super) pass: Pass,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.place)
    }
}

impl Wire {
    /// The servers of a place, below whose `root` these shelves must be.
    pub(super) fn new(
        place: &StoreAddress,
        tls: Option<Arc<ClientTls>>,
        root: &str,
        shelves: &[&str],
        request_for: Duration,
    ) -> Self {
        let ends = root.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let mut nodes: Vec<_> = ends.map(|at| root[..at].to_owned()).collect();
        nodes.push(root.to_owned());
        nodes.extend(shelves.iter().map(|shelf| format!("{root}/{shelf}")));
        // Not all who name the same servers are to begin with the same one.
        let turn = usize::try_from(fresh() % 1024).unwrap_or(0);
        Self {
            servers: place.servers.clone(),
            tls,
            login: place.login.clone(),
            nodes,
            place: place.servers.join(","),
            turn: AtomicUsize::new(turn),
            held: Held::new(request_for, |link: &Link| !link.is_closed()),
            feed: Arc::new(ChangeFeed::new()),
            bounds: std::sync::Mutex::default(),
        }
    }

    /// Hears of changes that were asked for with [`Link::arm`], from this call on.
    pub(super) fn listen(&self) -> Subscription {
        self.feed.listen()
    }

    /// How connections are protected.
    pub(super) fn encryption(&self) -> Encryption {
        encryption(self.tls.as_deref())
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// How long a request may take.
    pub(super) fn request_for(&self) -> Duration {
        self.held.request_for()
    }

    /// The rights of nodes that are created.
    pub(super) fn rights(&self) -> Rights {
        if self.login.is_some() { Rights::Creator } else { Rights::Everybody }
    }

    /// Asks what takes one question or several of one server, within one time-out.
    pub(super) async fn ask<T>(
        &self,
        effect: Effect,
        asking: impl AsyncFnOnce(Link) -> Result<T, Refused>,
    ) -> RegisterResult<T> {
        let server = format!("ZooKeeper at {}", self.place);
        let asking = async |link: Link| {
            asking(link).await.map_err(|refused| meaning(effect, &server, &refused))
        };
        self.held.ask(effect, &server, async || self.reach().await, asking).await
    }

    /// A connection to a server that can be reached and serves.
    pub(super) async fn link(&self) -> RegisterResult<Link> {
        self.held.connection(async || self.reach().await).await
    }

    async fn reach(&self) -> RegisterResult<Link> {
        match self.in_turn(Wanted::Kept).await? {
            Some(Attached { link, .. }) => Ok(link),
            None => Err(RegisterError::unavailable("ZooKeeper grants no session")),
        }
    }

    /// Tries one server after the other, beginning with the one whose turn it is.
    async fn in_turn(&self, wanted: Wanted) -> RegisterResult<Option<Attached>> {
        let share = self.share();
        let mut last_words = Vec::new();
        for _ in 0..self.servers.len() {
            let turn = self.turn.fetch_add(1, Ordering::AcqRel);
            let server = &self.servers[turn % self.servers.len()];
            let trying = async {
                match wanted {
                    Wanted::Kept => self.keep(server).await.map(Some),
                    Wanted::Apart { session_ms, pass } => self.part(server, session_ms, pass).await,
                }
            };
            let why = match tokio::time::timeout(share, trying).await {
                Ok(Ok(tried)) => return Ok(tried),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {share:?}"),
            };
            last_words.push(format!("{server}: {why}"));
        }
        Err(RegisterError::unavailable(format_args!(
            "no server of ZooKeeper serves: {}",
            last_words.join("; ")
        )))
    }

    fn opening(&self, session_ms: i32) -> Opening<'_> {
        Opening {
            tls: self.tls.as_ref(),
            login: self.login.as_ref(),
            session_ms,
            pass: None,
            is_bound: true,
            feed: None,
            write_within: self.request_for(),
        }
    }

    /// Begins a session that lives for so many milliseconds unheard, and is not kept alive by its connection;
    /// or goes on with one, which is heard by it. None if the server knows it no more.
    ///
    /// No server is asked that would keep it for another time: a session takes the last that it was gone on
    /// with, and a shorter one would end it under those who count on the longer.
    pub(super) async fn attach(
        &self,
        session_ms: u64,
        pass: Option<Pass>,
    ) -> RegisterResult<Option<Attached>> {
        self.in_turn(Wanted::Apart { session_ms, pass }).await
    }

    /// Connects for the connection that is kept.
    async fn keep(&self, server: &str) -> Result<Attached, String> {
        let feed = Some(Arc::clone(&self.feed));
        let opening = Opening { feed, ..self.opening(SESSION_MS) };
        let (link, welcome) = opening.connect(server).await.map_err(why)?;
        match self.lay_out(&link).await {
            Ok(()) => Ok(Attached { link, pass: welcome.pass }),
            Err(refused) => Err(format!("{refused:?}")),
        }
    }

    /// Connects for a session of its own.
    async fn part(
        &self,
        server: &str,
        session_ms: u64,
        pass: Option<Pass>,
    ) -> Result<Option<Attached>, String> {
        let Bounds { min, max } = self.bounds_of(server).await?;
        if !(min..=max).contains(&session_ms) {
            return Err(format!(
                "it keeps sessions of {min} to {max} ms, and none of {session_ms} ms; choose such a ttl, set \
                 minSessionTimeout and maxSessionTimeout alike on all servers, or leave out mode=session"
            ));
        }
        let asked_ms = i32::try_from(session_ms).unwrap_or(i32::MAX);
        let opening = Opening { pass, is_bound: false, ..self.opening(asked_ms) };
        match opening.connect(server).await {
            Ok((link, welcome)) if welcome.session_ms == session_ms => {
                Ok(Some(Attached { link, pass: welcome.pass }))
            }
            Ok((_, welcome)) => Err(format!(
                "it keeps a session for {} ms that is to live for {session_ms} ms",
                welcome.session_ms
            )),
            Err(Closed::Unknown) => Ok(None),
            Err(closed) => Err(why(closed)),
        }
    }

    /// What a server keeps sessions for: found by asking for the least and for the most, once.
    async fn bounds_of(&self, server: &str) -> Result<Bounds, String> {
        let known = || self.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bounds) = known().get(server) {
            return Ok(*bounds);
        }
        // Dropped at once, which ends it.
        let (_, least) = self.opening(1).connect(server).await.map_err(why)?;
        let (_, most) = self.opening(i32::MAX).connect(server).await.map_err(why)?;
        let bounds = Bounds { min: least.session_ms, max: most.session_ms };
        known().insert(server.to_owned(), bounds);
        Ok(bounds)
    }

    /// What each server that can be reached keeps sessions for.
    pub(super) async fn bounds(&self) -> RegisterResult<Vec<(String, Bounds)>> {
        let mut found = Vec::new();
        let mut last_words = String::from("none is named");
        for server in &self.servers {
            match tokio::time::timeout(self.share(), self.bounds_of(server)).await {
                Ok(Ok(bounds)) => found.push((server.clone(), bounds)),
                Ok(Err(why)) => last_words = format!("{server}: {why}"),
                Err(_) => last_words = format!("{server}: no answer within {:?}", self.share()),
            }
        }
        if found.is_empty() {
            let why = format_args!("no server of ZooKeeper serves: {last_words}");
            return Err(RegisterError::unavailable(why));
        }
        Ok(found)
    }

    /// The time that each server gets, or one that is gone would take it all.
    fn share(&self) -> Duration {
        let share =
            self.request_for() / u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        share.min(CONNECT_FOR)
    }

    /// Creates the nodes that must be there. One that may not be created may be there all the same.
    async fn lay_out(&self, link: &Link) -> Result<(), Refused> {
        let rights = self.rights();
        let mut asked = Vec::with_capacity(self.nodes.len());
        for path in &self.nodes {
            let steps = [Step::Create { path, data: &[], rights, stay: Stay::ForGood }];
            asked.push(link.ask(Ask::Transaction { steps: &steps }).await?);
        }
        for asked in asked {
            match asked.transacted().await? {
                TransactionOutcome::Done
                | TransactionOutcome::Failed { code: NODE_EXISTS | NO_AUTH, .. } => {}
                TransactionOutcome::Failed { code, .. } => return Err(Refused::Code(code)),
            }
        }
        Ok(())
    }

    /// Drops whatever connection there is. Questions under way keep theirs until they are answered.
    pub(super) async fn hang_up(&self) {
        self.held.hang_up().await;
    }
}

/// Why there is no connection, in words.
fn why(closed: Closed) -> String {
    match closed {
        Closed::Unreachable(why) => why,
        Closed::Unknown => "it knows the session no more".to_owned(),
    }
}

/// What a refusal says about the question.
pub(super) fn meaning(effect: Effect, server: &str, refused: &Refused) -> RegisterError {
    match refused {
        Refused::NotSent => {
            RegisterError::unavailable(format_args!("{server}: the connection was lost before"))
        }
        Refused::Lost => effect.unanswered(format_args!("{server}: the connection was lost")),
        Refused::Garbled => effect.unanswered(format_args!("{server}: an answer that is none")),
        Refused::Code(code) => {
            let (words, is_undone) = told(*code);
            let why = format!("{server}: {words} ({code})");
            if is_undone { RegisterError::unavailable(why) } else { effect.unanswered(why) }
        }
    }
}

/// A code in words, and whether it says that nothing was done.
fn told(code: i32) -> (&'static str, bool) {
    match code {
        messages::NO_NODE => ("the node is gone", true),
        messages::NO_AUTH => ("the login may not do that", true),
        messages::BAD_VERSION => ("the node has another version", true),
        messages::NODE_EXISTS => ("the node is there already", true),
        messages::UNIMPLEMENTED => ("the server does not know the request", true),
        -5 => ("the server could not read the request; is jute.maxbuffer too small", true),
        messages::SESSION_EXPIRED => ("the session has expired", true),
        -114 => ("the rights are none", true),
        -115 => ("the login failed", true),
        messages::SESSION_MOVED => ("the session is on another server", true),
        -119 => ("the server may only read", true),
        -125 => ("a quota is exceeded", true),
        -127 => ("the server is too busy", true),
        _ => ("it failed", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(servers: &str) -> Wire {
        let place = StoreAddress::parse(&format!("zookeeper://{servers}"), 2181).unwrap();
        Wire::new(&place, None, "/a/b", &["groups"], Duration::from_secs(30))
    }

    #[test]
    fn every_node_comes_after_its_parent() {
        assert_eq!(wire("h").nodes, ["/a", "/a/b", "/a/b/groups"]);
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_was_never_asked() {
        // Port 1 of this host: nobody listens.
        let wire = wire("127.0.0.1:1,127.0.0.1:1");
        let asked = wire.ask(Effect::Writes, async |_| Ok(())).await.unwrap_err();
        assert!(matches!(asked, RegisterError::Unavailable { .. }), "{asked:?}");
    }

    #[test]
    fn a_doubt_is_told_only_of_what_writes_and_was_sent() {
        let of = |effect, refused| meaning(effect, "x", &refused);
        let is_doubt = |error| matches!(error, RegisterError::Uncertain { .. });
        assert!(is_doubt(of(Effect::Writes, Refused::Lost)));
        assert!(is_doubt(of(Effect::Writes, Refused::Garbled)));
        // Codes that nobody knows, and a server's own time-out, say nothing.
        assert!(is_doubt(of(Effect::Writes, Refused::Code(-1))));
        assert!(is_doubt(of(Effect::Writes, Refused::Code(-7))));
        assert!(!is_doubt(of(Effect::Writes, Refused::Code(messages::NO_AUTH))));
        assert!(!is_doubt(of(Effect::Writes, Refused::NotSent)));
        assert!(!is_doubt(of(Effect::Reads, Refused::Lost)));
    }
}
