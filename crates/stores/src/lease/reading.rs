//! What entries say, for those who only look: whoever judges what was written to a register.
//!
//! Nothing here is read by the lease itself, and nothing that decides is to be built on it.

use regent_election::codec::CodecError;
use regent_election::{Event, Group, Revision, SessionId, State};

use super::record::GroupRecord;
use super::session::SessionRecord;

/// The entry of a group.
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// Everything that is known of the group.
    pub state: State,
    /// Its last changes, oldest first.
    pub news: Vec<Event>,
    /// Every change after this revision is among them.
    pub news_from: Revision,
}

/// The entry of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEntry {
    /// Names its last sign of life.
    pub heartbeat: u128,
    /// What is known of it while it is open; none once it has ended, for good.
    pub open: Option<OpenSession>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    pub ttl_ms: u64,
    /// How long watchers give it.
    pub hold_ms: u64,
    /// Whether it ends by itself once it neither leads nor stands.
    pub is_passing: bool,
    pub epoch: u64,
}

/// Reads the entry of a group.
///
/// # Errors
/// If it is none.
pub fn group(group: &Group, bytes: &[u8]) -> Result<GroupEntry, CodecError> {
    let GroupRecord { state, news, news_from, .. } = GroupRecord::decode(group, bytes)?;
    Ok(GroupEntry { state, news, news_from })
}

/// Reads the entry of a session.
///
/// # Errors
/// If it is none.
pub fn session(bytes: &[u8]) -> Result<SessionEntry, CodecError> {
    let record = SessionRecord::decode(bytes)?;
    let open = record.as_open().map(|open| OpenSession {
        ttl_ms: open.ttl_ms,
        hold_ms: open.hold_ms,
        is_passing: open.passing,
        epoch: open.epoch,
    });
    Ok(SessionEntry { heartbeat: record.heartbeat, open })
}

/// What a secret is known by in a register.
#[must_use]
pub fn digest(secret: SessionId) -> u128 {
    secret.digest().get()
}
