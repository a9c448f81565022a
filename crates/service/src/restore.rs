//! A cluster from a backup, after everything else was lost.
//!
//! Whatever was granted after the backup is not in it, so every term leaps ahead of anything that can
//! have been granted, the cluster gets another id, and nothing is granted until the longest lease of
//! the earlier life is over (semantics 23).
//!
//! How far terms leap depends on the clock, and all founding members must leap equally. So the first
//! machine reads its clock, and the others are given what it read (`as_of_s`), but only for as long as
//! the restored cluster cannot have granted anything: later, the same call would be a second restore
//! of the same backup, with the same terms.

use std::path::Path;

use regent_election::Term;
use regent_replica::disk::{DiskOptions, Founding};
use regent_replica::{Backup, Members, ReplicaId};

use crate::error::ReplicaError;
use crate::founding::{self, Founded};
use crate::wall::wall_s;

/// Longest time between the restore of the first replica and that of the last, in seconds.
const TOGETHER_S_MAX: u64 = 3600;

/// What is to be restored, and as what.
#[derive(Clone, Debug)]
pub struct Restore {
    pub backup: Backup,
    /// The number of the replica to be founded.
    pub replica: ReplicaId,
    /// All founding members, the same on every machine.
    pub members: Members,
    /// Terms start above this one at least.
    pub term_floor: Term,
    /// The longest ttl of the earlier life, if it is known from elsewhere than the backup.
    pub ttl_ms_max: Option<u64>,
    /// Whether it may also make the wait shorter. An operator has to say so: what the settings of this machine say, which
    /// hold for the new life, tells nothing about leases of the earlier one.
    pub may_shorten: bool,
    /// The id and the clock, in seconds, of the first machine's restore; none on the first machine.
    pub of_first: Option<(u128, u64)>,
}

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    pub founded: Founded,
    /// The cluster of the backup.
    pub earlier_cluster: u128,
    /// The clock that all machines restore by, in seconds.
    pub as_of_s: u64,
    /// For how long after its start the cluster grants nothing.
    pub hold_ms: u64,
    /// For how long it would grant nothing by the backup alone.
    pub hold_ms_of_backup: u64,
}

impl Restored {
    /// The longest ttl that was told and counted; none if the one in the backup holds.
    #[must_use]
    pub fn ttl_ms_told(&self) -> Option<u64> {
        (self.hold_ms != self.hold_ms_of_backup).then_some(self.hold_ms)
    }
}

impl Restore {
    /// Founds one replica of the restored cluster in an empty directory.
    pub fn found(self, directory: &Path, options: DiskOptions) -> Result<Restored, ReplicaError> {
        let Self { backup, replica, members, term_floor, ttl_ms_max, may_shorten, of_first } = self;
        let hold_ms_of_backup = backup.state.settings().ttl_ms_ceiling;
        // A ceiling that was raised after the backup was taken is not in it.
        let backup =
            backup.with_ttls_up_to(ttl_ms_max.unwrap_or(0)).map_err(ReplicaError::Settings)?;
        let (now_s, earlier_cluster) = (wall_s(), backup.cluster);
        let as_of_s = of_first.map_or(now_s, |(_, as_of_s)| as_of_s);
        let mut replicated = backup.restored(members, as_of_s, term_floor)?;
        let longest_ms = replicated.state.settings().ttl_ms_ceiling;
        replicated.pause_ms = ttl_ms_max.filter(|told| may_shorten && *told < longest_ms);
        let hold_ms = replicated.pause_ms.unwrap_or(longest_ms);
        check_together(as_of_s, now_s, hold_ms)?;
        let cluster = founding::id_for(&replicated, of_first.map(|(cluster, _)| cluster))?;
        let is_witness = replicated.members.get(&replica).is_some_and(|member| member.is_witness);
        let kept = if is_witness { replicated.clone().without_state() } else { replicated.clone() };
        founding::found(directory, cluster, replica, &Founding::restored(kept), options)?;
        let founded = Founded::new(cluster, replica, directory, &replicated);
        Ok(Restored { founded, earlier_cluster, as_of_s, hold_ms, hold_ms_of_backup })
    }
}

/// For how long the same restore may be done on further machines, in seconds.
pub(crate) fn together_s(hold_ms: u64) -> u64 {
    TOGETHER_S_MAX.min(hold_ms / 1000)
}

/// Refuses what would be a second restore with the terms of the first. Within the hold, the first
/// one cannot have granted any.
fn check_together(as_of_s: u64, now_s: u64, hold_ms: u64) -> Result<(), ReplicaError> {
    let (apart_s, within_s) = (now_s.abs_diff(as_of_s), together_s(hold_ms));
    if apart_s <= within_s {
        return Ok(());
    }
    Err(ReplicaError::RestoredApart { apart_s, within_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_restore_ends_before_the_restored_cluster_may_grant_anything() {
        assert!(check_together(1000, 1000, 0).is_ok());
        assert!(check_together(1000, 1010, 10_000).is_ok());
        assert!(check_together(1000, 1011, 10_000).is_err());
        assert!(check_together(1011, 1000, 10_000).is_err());
        assert!(check_together(0, 3600, u64::MAX).is_ok());
        assert!(check_together(0, 3601, u64::MAX).is_err());
    }
}
