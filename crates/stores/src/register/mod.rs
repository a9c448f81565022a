//! The register: the least that an engine must do to keep elections.
//!
//! Four functions: load, swap, wait, list. An engine that has them, and does what they say, serves
//! the whole Store port through the lease (see `lease`). What decides lives there, once; an engine
//! only translates. An engine whose server times sessions by itself says so with
//! [`Register::sessions`]; without it, sessions are timed by those who watch them. One that can wake a single
//! candidate says so with [`Register::wake_orders`]; without it, a change of a group wakes all who wait for it.
//!
//! Entries are never deleted. A version is the engine's own: a revision, an `ETag`, a row's counter. It
//! is compared, never ordered, and never the same for two writes of one key, because every value
//! carries a fresh nonce.
//!
//! "No" and "perhaps" are never mixed, as in the Store port: [`Swapped::Conflict`] and
//! [`RegisterError::Unavailable`] mean that nothing happened, and that it never will: a request that
//! may still be on its way is [`RegisterError::Uncertain`].

#[cfg(feature = "contract")]
pub mod contract;
pub mod memory;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use regent_election::store::Description;
use regent_election::{Group, Node, Term};

/// Most bytes of a value. Engines have their own limits; all of the list lie above this one, even where
/// the bytes must be spelled in base64 (Kubernetes allows 256 KiB of annotations in all).
pub const VALUE_BYTES_MAX: usize = 128 << 10;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// One group: its office, its line, its policy, its history.
    Group,
    /// One session of a participant.
    Session,
    /// What holds for the whole store.
    Setting,
}

impl KeyKind {
    /// The word that keys of this kind open with.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Group => "groups",
            Self::Session => "sessions",
            Self::Setting => "settings",
        }
    }
}

/// Where an entry lies. Its name is made of letters, digits and `- _ . : @ /`, without an empty, `.` or
/// `..` part between slashes, and has at most 255 bytes; what an engine cannot hold, it encodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    kind: KeyKind,
    /// Checked names only.
    name: String,
}

impl Key {
    /// The entry of a group.
    #[must_use]
    pub fn group(group: &Group) -> Self {
        Self { kind: KeyKind::Group, name: group.as_str().to_owned() }
    }

    /// The entry of a session, by the digest of its secret: the secret itself is shown to no store.
    #[must_use]
    pub fn session(digest: u128) -> Self {
        Self { kind: KeyKind::Session, name: format!("{digest:032x}") }
    }

    /// A setting of the whole store.
    #[must_use]
    pub fn setting(name: &'static str) -> Self {
        Self { kind: KeyKind::Setting, name: name.to_owned() }
    }

    /// The key of this kind and name, as an engine found it; none if the name is no name.
    #[must_use]
    pub fn found(kind: KeyKind, name: &str) -> Option<Self> {
        // Group names are the widest: every other name is one, too.
        Group::new(name).ok()?;
        Some(Self { kind, name: name.to_owned() })
    }

    /// What it is about.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its name among those of its kind.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

/// What an engine calls one state of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub String);

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes, exactly as they were written.
    pub value: Vec<u8>,
    pub version: Version,
}

/// What is to be written: bytes for us, and beside them what people may see with the engine's own
/// tools. Nothing is ever decided from the latter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub value: Vec<u8>,
    /// Shown to people; nothing is decided by it.
    pub summary: HumanSummary,
}

impl Record {
    /// Bytes with nothing for people beside them.
    #[must_use]
    pub fn bare(value: Vec<u8>) -> Self {
        Self { value, summary: HumanSummary::default() }
    }
}

/// Who leads, for people who look with the engine's own tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HumanSummary {
    /// Who leads.
    pub leader: Option<Node>,
    /// The leader's term, or the last one granted.
    pub term: Option<Term>,
    /// The leader's ttl.
    pub ttl: Option<Duration>,
}

/// What became of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The entry is ours, under this version.
    Done(Version),
    /// The entry has another version, or is (not) there: nothing happened. It must be loaded again.
    Conflict,
}

/// Why a register gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Nothing happened, and nothing will of this request.
    #[error("{why}")]
    Unavailable {
        /// What is wrong.
        why: String,
    },
    /// It may have happened, or may yet.
    #[error("{why}")]
    Uncertain {
        /// What is wrong.
        why: String,
    },
    /// What is stored could not have been written by us.
    #[error("{what}")]
    Corrupt {
        /// What is wrong.
        what: String,
    },
    /// Nothing happened, and nothing ever shall: the server does not keep what a register must.
    #[error("{why}")]
    Unfit {
        /// What it does not keep.
        why: String,
    },
}

impl RegisterError {
    /// Nothing happened, for this reason.
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self::Unavailable { why: why.to_string() }
    }

    /// It may have happened; for this reason nobody knows.
    pub fn uncertain(why: impl fmt::Display) -> Self {
        Self::Uncertain { why: why.to_string() }
    }

    /// No elections are to be held there, for this reason.
    pub fn unfit(why: impl fmt::Display) -> Self {
        Self::Unfit { why: why.to_string() }
    }

    /// What is stored is not ours, for this reason.
    pub fn corrupt(what: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string() }
    }
}

/// How a connection to a server is protected from those who can read or redirect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all.
    Plaintext,
    /// Encrypted for whoever answers.
    Unverified,
    /// Encrypted for a holder of any certificate from a CA that is trusted.
    VerifiedIssuer,
    /// Encrypted for the server that was named, as a CA that is trusted says.
    Verified,
}

impl Encryption {
    /// Why to trust a connection less that looks encrypted.
    #[must_use]
    pub const fn weakness(self) -> Option<&'static str> {
        match self {
            Self::Unverified => Some(
                "the server's certificate is not verified: whoever can redirect connections can be the server; name its \
                 CA and verify its name",
            ),
            Self::Plaintext | Self::VerifiedIssuer | Self::Verified => None,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "not encrypted",
            Self::Unverified => "encrypted, server not verified",
            Self::VerifiedIssuer => "encrypted, server verified by its CA but not by its name",
            Self::Verified => "encrypted, server verified",
        })
    }
}

/// Short for what every function of a register returns.
pub type RegisterResult<T> = Result<T, RegisterError>;

/// A place of entries, each swapped as a whole.
///
/// Every call ends within the engine's own request time-out, which it is given when it is opened. A
/// call whose future is dropped may or may not have happened.
#[async_trait]
pub trait Register: Send + Sync + fmt::Debug + 'static {
    /// What this engine is and claims, as far as it can tell without asking; [`Register::examine`] asks.
    fn describe(&self) -> Description;

    /// Looks at the deployment: whether it can serve, and what in it is weaker than it looks (sentences
    /// for people, each a reason to trust it less). One that must not be trusted at all is
    /// [`RegisterError::Unfit`].
    async fn examine(&self) -> RegisterResult<Vec<String>>;

    /// How connections to the server are protected; none if there is no server, or if the engine's own driver sees to it.
    fn encryption(&self) -> Option<Encryption> {
        None
    }

    /// Reads an entry linearizably: no older than any answer given before this call began.
    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>>;

    /// Replaces the entry if it still has this version; with none, creates it if it is not there. One
    /// atomic step, durable before it is answered.
    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped>;

    /// Waits until the entry's version may no longer be `seen`, at most for `patience`. It may return
    /// too early or for no reason, and it may fail; the caller loads. An engine without notifications
    /// sleeps for the shorter of `patience` and its polling interval.
    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()>;

    /// Entries of this kind whose names open with `prefix`, in the order of their names, after `after`,
    /// at most `count`. Each is as linearizable as a load; together they are no snapshot.
    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>>;

    /// Sessions timed by the server itself, if it can.
    fn sessions(&self) -> Option<&dyn ServerSessions> {
        None
    }

    /// Lines of candidates that the server shows and wakes one by one, if it can.
    fn wake_orders(&self) -> Option<&dyn WakeOrders> {
        None
    }

    /// Ends what runs in the background. Later calls may fail.
    async fn shut_down(&self) {}
}

/// How long a session lives unheard by what its entry says; none if it is not to be heard.
pub type TtlOf<'a> = &'a (dyn Fn(&Found) -> Option<Duration> + Send + Sync);

/// Sessions that the server times: alive while heard, and once ended never alive again.
///
/// They are known by the digest of their secret.
#[async_trait]
pub trait ServerSessions: Register {
    /// The ttl the server will really keep for one asked for; never shorter.
    fn granted(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// The shortest and the longest ttl that the server keeps, as far as it can be asked; another is refused.
    async fn bounds(&self) -> RegisterResult<(Duration, Duration)> {
        Ok((Duration::ZERO, Duration::MAX))
    }

    /// Begins a session that lives for `ttl` unheard, counted by the server from no earlier than this
    /// call. A session that is alive already is heard. Nobody begins one that was seen to end: the entry
    /// of the session tells that first, so an engine that forgets the ended may answer either.
    async fn begin(&self, session: u128, ttl: Duration) -> RegisterResult<bool>;

    /// A sign of life: on `true` the server counts a full ttl from no earlier than this call. `false`
    /// means that the session has ended, for good.
    async fn heartbeat(&self, session: u128, ttl: Duration) -> RegisterResult<bool>;

    /// [`ServerSessions::begin`], and creates the session's entry, which must not be there yet:
    /// [`Swapped::Conflict`] if it is. None if the session cannot begin any more. An engine that can do both in
    /// one step does; in two, a session without an entry may be left behind, which ends by itself.
    async fn begin_with_entry(
        &self,
        session: u128,
        ttl: Duration,
        record: Record,
    ) -> RegisterResult<Option<Swapped>> {
        if !self.begin(session, ttl).await? {
            return Ok(None);
        }
        self.swap(&Key::session(session), None, record).await.map(Some)
    }

    /// Reads the session's entry and, if `ttl_of` gives a ttl for what was read, does a
    /// [`ServerSessions::heartbeat`] for it. The entry, read no earlier than this call, and whether the session was
    /// heard; the two may be one step or this order of two.
    async fn heartbeat_with_entry(
        &self,
        session: u128,
        ttl_of: TtlOf<'_>,
    ) -> RegisterResult<(Option<Found>, bool)> {
        let found = self.load(&Key::session(session)).await?;
        let is_heard = match found.as_ref().and_then(ttl_of) {
            Some(ttl) => self.heartbeat(session, ttl).await?,
            None => false,
        };
        Ok((found, is_heard))
    }

    /// Whether the session is alive; one that was never begun is not. Once begun, `false` is for ever:
    /// what was decided from it stays right.
    async fn is_alive(&self, session: u128) -> RegisterResult<bool>;

    /// Ends a session, for good.
    async fn end(&self, session: u128) -> RegisterResult<()>;

    /// Waits until the session may have ended, at most for `patience`; the caller asks.
    async fn wait_for_end(&self, session: u128, patience: Duration) -> RegisterResult<()>;
}

/// Who wants an office, as a write leaves them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeOrder {
    /// The holder, if there is one, and behind it those who stand, in their order.
    pub candidates: Vec<(u128, Node)>,
    /// Those among them who must look, and whom the departure of the one before them does not wake.
    pub called: Vec<u128>,
}

/// Where a process stands in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// The candidates that are heard through it.
    pub own: Vec<(u128, Node)>,
    /// The one before the first of them, if it is another's.
    pub before: Option<u128>,
}

/// Lines of candidates that the server shows: the end of one wakes the one behind it, and nobody else.
///
/// Nothing is decided from a line. Order lies in the group's entry, and whoever is woken loads it.
#[async_trait]
pub trait WakeOrders: Send + Sync + fmt::Debug {
    /// [`Register::swap`] of a group's entry that leaves this line, in one step: whoever left it is taken out,
    /// which wakes the one behind, and the called are woken. A candidate that is heard through this process is
    /// shown as well; one that is not shows itself when it waits.
    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
        line: &WakeOrder,
    ) -> RegisterResult<Swapped>;

    /// Waits, in this place, until the one before may be gone or somebody called, or until the group's entry is
    /// found in another version than `seen`; at most for `patience`. The caller loads.
    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        place: &QueuePosition,
        patience: Duration,
    ) -> RegisterResult<()>;
}
