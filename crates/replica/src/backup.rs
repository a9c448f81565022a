//! A backup: everything of a cluster that must outlive its machines, in one file.
//!
//! | byte | field |
//! |---|---|
//! | 0 | 8 bytes `regntbak` |
//! | 8 | u32 version, 1 |
//! | 12 | u32 zero |
//! | 16 | u128 cluster it was taken from |
//! | 32 | u64 index of the log up to which it holds everything |
//! | 40 | u64 wall clock when it was taken, in seconds |
//! | 48 | u64 bytes of the whole |
//! | 56 | u32 checksum of the 56 bytes above |
//! | 60 | the whole, as [`ReplicatedState::encode`] gives it |
//! | … | u32 checksum of the whole, going on from the one above |
//!
//! Numbers are little-endian. Sessions are not in it: a restored cluster knows none of them (semantics
//! 23), and a file that travels must not carry anybody's secret.
//!
//! It is taken from a snapshot on the disk, which is made for the purpose beside the loop, so that no
//! request waits for it.

use regent_election::codec::CodecError;
use regent_election::state::{Query, RebirthError};
use regent_election::store::{StoreError, StoreResult};
use regent_election::{Command, Entry, Refusal, Settings, State, Term};

use crate::handle::Handle;
use crate::io::{Request, Response};
use crate::member::Members;
use crate::replicated::ReplicatedState;

const MAGIC: &[u8; 8] = b"regntbak";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 60;

/// A backup in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The cluster it was taken from.
    pub cluster: u128,
    /// It holds everything up to this index of that cluster's log.
    pub index: u64,
    /// The wall clock when it was taken, in seconds.
    pub stamp_s: u64,
    /// What it holds.
    pub state: State,
}

/// Why bytes are no backup, or not one to be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    #[error("this is no backup of a cluster")]
    NoBackup,
    /// Written by a later version.
    #[error(
        "the backup has format {found}, and this program knows {VERSION}; use the newer program"
    )]
    Newer { found: u32 },
    /// Not as it was written.
    #[error("the backup is damaged: {0}; use another one")]
    Damaged(String),
}

impl From<CodecError> for BackupError {
    fn from(error: CodecError) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl Backup {
    /// What this whole is worth keeping of.
    #[must_use]
    pub fn of(cluster: u128, index: u64, stamp_s: u64, replicated: ReplicatedState) -> Self {
        Self { cluster, index, stamp_s, state: replicated.state.without_sessions() }
    }

    /// Takes a backup of everything that was acknowledged before the call.
    ///
    /// # Errors
    /// If no quorum confirms what the newest state is, the disk has no room, or this replica is a
    /// witness, which has no state.
    pub async fn take(handle: &Handle, stamp_s: u64) -> StoreResult<Self> {
        let unavailable = |why: String| StoreError::Unavailable { why, retry_after: None };
        if handle.is_witness() {
            return Err(unavailable("a witness keeps no state; ask another replica".into()));
        }
        // Once this is answered, whatever was acknowledged before is applied here.
        let query = Query::Groups { prefix: String::new(), after: None, count: 1 };
        answered(handle.ask(Request::Read { query, linearizable: true }).await?)?;
        answered(handle.ask(Request::Snapshot).await?)?;
        let (cluster, snapshots) = (handle.identity().cluster, handle.snapshots().clone());
        let taken = tokio::task::spawn_blocking(move || {
            let (place, bytes) = snapshots.newest().map_err(|error| error.to_string())?;
            let replicated = ReplicatedState::decode(&bytes).map_err(|error| error.to_string())?;
            Ok(Self::of(cluster, place.index, stamp_s, replicated))
        });
        taken.await.map_err(|error| unavailable(error.to_string()))?.map_err(StoreError::Corrupt)
    }

    /// The same with a longest ttl of at least this: a ceiling that was raised after the backup was
    /// taken is not in it, yet leases as long as that may run when it is restored.
    ///
    /// # Errors
    /// If no store allows ttls that long.
    pub fn with_ttls_up_to(mut self, ttl_ms: u64) -> Result<Self, Refusal> {
        let settings = self.state.settings().clone();
        if ttl_ms > settings.ttl_ms_ceiling {
            let settings = Box::new(Settings { ttl_ms_ceiling: ttl_ms, ..settings });
            self.state.apply(Entry::bare(Command::PutSettings { settings })).answer?;
        }
        Ok(self)
    }

    /// The backup as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.clone().into_bytes()
    }

    /// The same without a copy of the state, which may be large.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        let Self { cluster, index, stamp_s, state } = self;
        let replicated = ReplicatedState::restored(state, Members::new()).encode();
        let mut out = Vec::with_capacity(HEAD_BYTES + replicated.len() + 4);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 4]);
        out.extend(cluster.to_le_bytes());
        out.extend(index.to_le_bytes());
        out.extend(stamp_s.to_le_bytes());
        out.extend((replicated.len() as u64).to_le_bytes());
        let sum = checksum(0, &out);
        out.extend(sum.to_le_bytes());
        out.extend(&replicated);
        out.extend(checksum(sum, &replicated).to_le_bytes());
        out
    }

    /// Reads what [`Backup::encode`] wrote, and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, BackupError> {
        let damaged = |why: &str| Err(BackupError::Damaged(why.into()));
        if bytes.get(..8) != Some(MAGIC) {
            return Err(BackupError::NoBackup);
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else {
            return damaged("it is shorter than its head");
        };
        let sum = number(head, 56, 4) as u32;
        if checksum(0, &head[..56]) != sum {
            return damaged("its head does not match its checksum");
        }
        let version = number(head, 8, 4) as u32;
        if version != VERSION {
            return Err(BackupError::Newer { found: version });
        }
        let told = number(head, 48, 8);
        let Some((replicated, last)) =
            rest.split_last_chunk::<4>().filter(|(replicated, _)| replicated.len() as u128 == told)
        else {
            return damaged("it is shorter or longer than its head says");
        };
        if checksum(sum, replicated) != u32::from_le_bytes(*last) {
            return damaged("it does not match its checksum");
        }
        let state = ReplicatedState::decode(replicated)?.state;
        Ok(Self {
            cluster: number(head, 16, 16),
            index: number(head, 32, 8) as u64,
            stamp_s: number(head, 40, 8) as u64,
            state,
        })
    }

    /// What a cluster of these members starts with when it is restored at `now_s`.
    pub fn restored(
        self,
        members: Members,
        now_s: u64,
        term_floor: Term,
    ) -> Result<ReplicatedState, RebirthError> {
        Ok(ReplicatedState::restored(self.state.reborn(self.stamp_s, now_s, term_floor)?, members))
    }
}

fn answered(response: Response) -> StoreResult<()> {
    match response {
        Response::View { .. } | Response::Done => Ok(()),
        Response::Error(error) => Err(error),
        Response::Applied { .. } | Response::Heartbeat { .. } => {
            Err(StoreError::Corrupt(format!("the replica answered something else: {response:?}")))
        }
    }
}

/// The number of `count` bytes at this place; the caller has checked that they are there.
fn number(bytes: &[u8], at: usize, count: usize) -> u128 {
    bytes[at..at + count].iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn checksum(from: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(from);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use regent_election::Answer;
    use regent_election::{Group, IfLost, Metadata, Node, Opening, SessionId};

    use super::*;

    const SECRET: u128 = 0x1122_3344_5566_7788_99aa_bbcc_ddee_ff01;

    fn lived() -> ReplicatedState {
        let mut replicated = ReplicatedState::found(Settings::default(), Members::new());
        campaign(&mut replicated.state, SECRET);
        replicated
    }

    fn campaign(state: &mut State, session: u128) -> Term {
        let applied = state.apply(Entry::bare(Command::Campaign {
            group: Group::new("billing").unwrap(),
            session: SessionId::new(session).unwrap(),
            opening: Some(Opening { node: Node::new("a").unwrap(), ttl_ms: None, passing: false }),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        }));
        match applied.answer {
            Ok(Answer::Elected { term, .. }) => term,
            other => panic!("{other:?}"),
        }
    }

    fn backup() -> Backup {
        Backup::of(7, 12, 1_800_000_000, lived())
    }

    #[test]
    fn a_backup_is_read_as_it_was_written() {
        assert_eq!(Backup::decode(&backup().encode()), Ok(backup()));
    }

    #[test]
    fn no_cut_and_no_flipped_bit_goes_unnoticed() {
        let bytes = backup().encode();
        for cut in 0..bytes.len() {
            assert!(Backup::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Backup::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!(Backup::decode(&[bytes, vec![0]].concat()).is_err());
        assert_eq!(Backup::decode(b"PK\x03\x04"), Err(BackupError::NoBackup));
    }

    #[test]
    fn a_backup_carries_nobodys_secret() {
        let bytes = backup().encode();
        for secret in [SECRET.to_le_bytes(), SECRET.to_be_bytes()] {
            assert!(!bytes.windows(8).any(|part| secret.windows(8).any(|piece| piece == part)));
        }
    }

    #[test]
    fn a_longest_ttl_that_was_raised_after_the_backup_can_be_told() {
        let ceiling = |backup: Backup| {
            let restored = backup.restored(Members::new(), 1_800_000_001, Term::NONE).unwrap();
            restored.state.settings().ttl_ms_ceiling
        };
        let (hour, day) = (3_600_000, 86_400_000);
        assert_eq!(ceiling(backup()), hour);
        assert_eq!(ceiling(backup().with_ttls_up_to(2 * hour).unwrap()), 2 * hour);
        assert_eq!(ceiling(backup().with_ttls_up_to(1_000).unwrap()), hour, "it never falls");
        assert!(backup().with_ttls_up_to(day + 1).is_err());
    }

    #[test]
    fn a_restored_cluster_grants_terms_above_all_it_ever_granted() {
        let before =
            campaign(&mut ReplicatedState::found(Settings::default(), Members::new()).state, 1);
        let restored = backup().restored(Members::new(), 1_800_000_001, Term::NONE).unwrap();
        assert!(restored.grants_paused);
        let mut state = restored.state;
        assert!(campaign(&mut state, 9).get() > before.get() + (1 << 32));
        let error = backup().restored(Members::new(), 1_799_999_999, Term::NONE).unwrap_err();
        assert!(matches!(error, RebirthError::ClockBehind { .. }));
    }
}
