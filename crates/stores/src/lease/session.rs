//! What the entry of a session holds, and the few ways in which it changes.
//!
//! ```text
//! version        u8, 1
//! nonce          of the write that made this value
//! heartbeat           the nonce of the last sign of life, kept by writes of others
//! is open        0 or 1; then, if it is open:
//!   node, ttl, hold (the ttl that watchers count), passing, epoch, sequence?
//!   groups       list of: name, and the handle and epoch there that `epoch` accounts for
//! otherwise:
//!   groups       list of names in which it may still be remembered
//! ```
//! An ended session stays ended: its entry is never deleted and never opens again, so neither a late
//! heartbeat nor a delayed duplicate can bring it back.

use std::collections::BTreeMap;

use regent_election::codec::{CodecError, Input, Wire};
use regent_election::state::SessionSummary;
use regent_election::{Group, Node};

use crate::register::Record;

/// The version that opens the value.
const VERSION: u8 = 1;

/// The entry of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionRecord {
    pub(super) nonce: u128,
    pub(super) heartbeat: u128,
    pub(super) life: Life,
}

/// Whether it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open(Open),
    /// For good. It may still be remembered in these groups.
    Ended(Vec<Group>),
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) node: Node,
    /// How long it lives unheard.
    pub(super) ttl_ms: u64,
    /// How long watchers give it: not below the ttl, nor below one that its holder may still count on.
    pub(super) hold_ms: u64,
    /// Whether it ends by itself once it neither leads nor stands. No longer so once it campaigned again in a
    /// group that was on its list.
    pub(super) passing: bool,
    /// Rises with every change to its tenures that it did not ask for.
    pub(super) epoch: u64,
    /// The number of the last heartbeat that had one.
    pub(super) sequence: Option<u64>,
    /// Every group in which it leads or stands, and perhaps some in which it no longer does.
    pub(super) groups: BTreeMap<Group, Account>,
}

/// Up to where the session's epoch accounts for what happened to it in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Account {
    /// Its handle there; a later one is that of a later coming.
    no: u64,
    epoch: u64,
}

impl Account {
    fn of(summary: SessionSummary) -> Self {
        Self { no: summary.no.0, epoch: summary.epoch }
    }
}

impl SessionRecord {
    /// A session that has just been opened.
    pub(super) fn open(nonce: u128, node: Node, ttl_ms: u64, passing: bool) -> Self {
        let life = Life::Open(Open {
            node,
            ttl_ms,
            hold_ms: ttl_ms,
            passing,
            epoch: 0,
            sequence: None,
            groups: BTreeMap::new(),
        });
        Self { nonce, heartbeat: nonce, life }
    }

    /// A session that ended, perhaps before it was ever open.
    pub(super) fn ended(nonce: u128, groups: Vec<Group>) -> Self {
        Self { nonce, heartbeat: 0, life: Life::Ended(groups) }
    }

    /// The open session.
    pub(super) fn as_open(&self) -> Option<&Open> {
        match &self.life {
            Life::Open(open) => Some(open),
            Life::Ended(_) => None,
        }
    }

    /// The groups in which it may be remembered.
    pub(super) fn groups(&self) -> Vec<Group> {
        match &self.life {
            Life::Open(open) => open.groups.keys().cloned().collect(),
            Life::Ended(groups) => groups.clone(),
        }
    }

    /// This session, heard; and changed by whoever owns it.
    pub(super) fn with_heartbeat(&self, nonce: u128, change: impl FnOnce(&mut Open)) -> Self {
        let mut next = Self { nonce, heartbeat: nonce, life: self.life.clone() };
        if let Life::Open(open) = &mut next.life {
            change(open);
        }
        next
    }

    /// This session without some of its groups; its last sign of life is as it was.
    pub(super) fn without(&self, nonce: u128, is_left: impl Fn(&Group) -> bool) -> Self {
        let mut next = Self { nonce, ..self.clone() };
        if let Life::Open(open) = &mut next.life {
            open.groups.retain(|group, _| !is_left(group));
        }
        next
    }

    /// This session, ended.
    pub(super) fn over(&self, nonce: u128) -> Self {
        Self { nonce, heartbeat: self.heartbeat, life: Life::Ended(self.groups()) }
    }

    /// Whether what happened to this person in that group is not accounted for. Whoever ended needs not
    /// be told.
    pub(super) fn is_untold(&self, group: &Group, summary: SessionSummary) -> bool {
        let Some(open) = self.as_open() else { return false };
        let account = open.groups.get(group).copied().unwrap_or_default();
        summary.epoch > 0 && Account::of(summary) > account
    }

    /// This session, told: its epoch is higher, and its last sign of life is as it was.
    pub(super) fn told(&self, nonce: u128, group: &Group, summary: SessionSummary) -> Self {
        let mut next = Self { nonce, ..self.clone() };
        if let Life::Open(open) = &mut next.life {
            open.epoch += 1;
            open.groups.insert(group.clone(), Account::of(summary));
        }
        next
    }

    /// The value as bytes.
    pub(super) fn record(&self) -> Record {
        let mut out = vec![VERSION];
        self.nonce.put(&mut out);
        self.heartbeat.put(&mut out);
        match &self.life {
            Life::Open(open) => {
                true.put(&mut out);
                open.node.put(&mut out);
                open.ttl_ms.put(&mut out);
                open.hold_ms.put(&mut out);
                open.passing.put(&mut out);
                open.epoch.put(&mut out);
                open.sequence.put(&mut out);
                (open.groups.len() as u64).put(&mut out);
                for (group, account) in &open.groups {
                    group.put(&mut out);
                    account.no.put(&mut out);
                    account.epoch.put(&mut out);
                }
            }
            Life::Ended(groups) => {
                false.put(&mut out);
                groups.put(&mut out);
            }
        }
        Record::bare(out)
    }

    /// The value that [`SessionRecord::record`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Input::new(bytes);
        let version = u8::take(&mut input)?;
        if version != VERSION {
            return Err(CodecError::Unknown { what: "session entry version", tag: version.into() });
        }
        let (nonce, heartbeat) = (Wire::take(&mut input)?, Wire::take(&mut input)?);
        let life = if bool::take(&mut input)? {
            let mut open = Open {
                node: Wire::take(&mut input)?,
                ttl_ms: Wire::take(&mut input)?,
                hold_ms: Wire::take(&mut input)?,
                passing: Wire::take(&mut input)?,
                epoch: Wire::take(&mut input)?,
                sequence: Wire::take(&mut input)?,
                groups: BTreeMap::new(),
            };
            for _ in 0..input.count("groups")? {
                let group = Group::take(&mut input)?;
                let account =
                    Account { no: Wire::take(&mut input)?, epoch: Wire::take(&mut input)? };
                open.groups.insert(group, account);
            }
            Life::Open(open)
        } else {
            Life::Ended(Wire::take(&mut input)?)
        };
        input.end()?;
        Ok(Self { nonce, heartbeat, life })
    }
}
