//! Recovery when the quorum is gone for good.
//!
//! What one surviving replica remembers becomes a cluster of one with another id, like a restored
//! backup: terms leap, sessions are gone, nothing is granted while old leases may run. Whatever the
//! survivor had not heard of is lost, which is why no cluster does this by itself.

use std::path::Path;
use std::sync::Arc;

use regent_election::Term;
use regent_replica::disk::{Disk, DiskOptions, Founding, Opened};
use regent_replica::replicated::{Payload, payload};
use regent_replica::{Backup, Members, ReplicaId};

use crate::directory::files;
use crate::error::ReplicaError;
use crate::founding::{self, Founded};
use crate::wall::wall_s;

/// What the surviving replica remembers.
#[derive(Clone, Debug)]
pub struct Survivor {
    backup: Backup,
    /// This replica as the only member.
    own: Members,
    replica: ReplicaId,
    /// Changes that were not known to be committed. They are kept: some may have been acknowledged.
    pub unproved: usize,
}

/// What was made of it.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The cluster of one.
    pub founded: Founded,
    /// For how long after its start it grants nothing.
    pub hold_ms: u64,
}

impl Survivor {
    /// Reads the directory of a replica that does not run. It stays as it is.
    pub fn read(directory: &Path) -> Result<Self, ReplicaError> {
        if !directory.is_dir() {
            return Err(ReplicaError::NoDirectory { path: directory.to_owned() });
        }
        let opened = Disk::open(Arc::new(files(directory)?), DiskOptions::default())?;
        let Opened { identity, recovered, .. } = opened;
        let mut replicated = recovered.replicated;
        let (mut index, mut wall_ms) = (recovered.place.index, 0);
        for entry in &recovered.entries {
            let nonsense = |error: regent_election::codec::CodecError| ReplicaError::Entry {
                index: entry.index,
                why: error.to_string(),
            };
            if let Payload::Proposal(_, proposal) = payload(entry).map_err(nonsense)? {
                wall_ms = proposal.wall_ms.max(wall_ms);
            }
            replicated.replay(entry).map_err(nonsense)?;
            index = entry.index;
        }
        let unproved = index.saturating_sub(recovered.hard_state.commit.max(recovered.place.index));
        let own = replicated.members.get(&identity.replica).cloned();
        let own = own.ok_or(ReplicaError::NeverJoined)?;
        if own.is_witness {
            return Err(ReplicaError::WitnessOnly);
        }
        Ok(Self {
            own: Members::from([(identity.replica, own)]),
            replica: identity.replica,
            unproved: usize::try_from(unproved).unwrap_or(usize::MAX),
            backup: Backup::of(identity.cluster, index, wall_ms / 1000, replicated),
        })
    }

    /// Founds a cluster of one in an empty directory. Terms start above `term_floor` at least.
    pub fn found(self, directory: &Path, term_floor: Term) -> Result<Recovery, ReplicaError> {
        let Self { backup, own, replica, .. } = self;
        let replicated = backup.restored(own, wall_s(), term_floor)?;
        let cluster = founding::id_for(&replicated, None)?;
        let first = Founding::restored(replicated.clone());
        founding::found(directory, cluster, replica, &first, DiskOptions::default())?;
        let founded = Founded::new(cluster, replica, directory, &replicated);
        Ok(Recovery { founded, hold_ms: replicated.state.settings().ttl_ms_ceiling })
    }
}
