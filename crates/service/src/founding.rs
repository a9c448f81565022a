//! Bootstrapping: writing the first data of a replica, of one that joins, or of a whole cluster.
//!
//! All founding members must start from the very same bytes: two that began with different lists
//! of members would count different quorums, and two that began with different settings would
//! disagree for ever without noticing. So a cluster's id is half chance and half a print of those
//! bytes. The first machine draws it, the others are given it, and one whose list or settings differ
//! is refused before anything is written.
//!
//! The road not taken is to derive the whole id from the list, so that nobody has to carry it from
//! one machine to the next: then a machine that lost its disk could be founded again by the same
//! command, and would vote as if it had never promised anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_election::Settings;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity};
use regent_replica::{Members, ReplicaId, ReplicatedState};
use serde::Serialize;

use crate::directory::{files, refuse_strangers};
use crate::error::ReplicaError;
use crate::members;
use crate::random::random;

/// What was founded, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct Founded {
    /// The cluster's id, in 32 hexadecimal digits.
    pub cluster_id: String,
    /// The number of the replica.
    pub replica: u64,
    pub data_dir: String,
    /// All founding members, as [`members::parse`] reads them.
    pub members: String,
    /// Which of them keep no state.
    pub witnesses: Vec<u64>,
    /// How many vote.
    pub voters: usize,
    /// How many must agree.
    pub quorum: usize,
    /// How many may fail.
    pub failures_survived: usize,
    /// What an operator should know about this cluster.
    pub warnings: Vec<String>,
}

/// A cluster's id from text.
pub fn cluster_id(text: &str) -> Result<u128, String> {
    let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|id| is_hex && *id != 0);
    id.ok_or_else(|| {
        "a cluster id has 32 hexadecimal digits, as the first init printed them".into()
    })
}

/// The id of a cluster that starts with `replicated`: drawn, or the given one if it fits.
pub(crate) fn id_for(
    replicated: &ReplicatedState,
    given: Option<u128>,
) -> Result<u128, ReplicaError> {
    let print = print(&replicated.encode());
    let Some(given) = given else {
        return Ok((random()? << 64) | u128::from(print));
    };
    if given as u64 == print {
        return Ok(given);
    }
    Err(ReplicaError::OtherCluster { cluster: given })
}

/// Founds a replica in an empty directory and closes it again.
pub(crate) fn found(
    directory: &Path,
    cluster: u128,
    replica: ReplicaId,
    founding: &Founding,
    options: DiskOptions,
) -> Result<(), ReplicaError> {
    refuse_strangers(directory)?;
    let files = Arc::new(files(directory)?);
    let identity = Identity { cluster, replica, incarnation: random()? as u64 };
    let opened = Disk::found(files, options, identity, founding)?;
    Ok(opened.disk.close()?)
}

/// Founds one replica of a cluster that starts with these members and settings. The first machine
/// gives no id and draws one; the others are given what it drew.
pub fn bootstrap(
    directory: &Path,
    replica: ReplicaId,
    members: &Members,
    settings: Settings,
    given: Option<u128>,
    options: DiskOptions,
) -> Result<Founded, ReplicaError> {
    let replicated = ReplicatedState::found(settings, members.clone());
    let cluster = id_for(&replicated, given)?;
    let first = Founding::cluster(replicated.state.settings().clone(), members.clone());
    found(directory, cluster, replica, &first, options)?;
    Ok(Founded::new(cluster, replica, directory, &replicated))
}

/// Prepares a replica that joins a cluster: it learns before it votes.
pub fn prepare_to_join(
    directory: &Path,
    cluster: u128,
    replica: ReplicaId,
    options: DiskOptions,
) -> Result<(), ReplicaError> {
    found(directory, cluster, replica, &Founding::joining(), options)
}

/// Founds every replica of a cluster on this machine, each in its directory. Gives the cluster's id.
pub fn bootstrap_all(
    members: &Members,
    directory: impl Fn(ReplicaId) -> PathBuf,
    options: DiskOptions,
) -> Result<u128, ReplicaError> {
    let settings = Settings::default();
    let cluster = id_for(&ReplicatedState::found(settings.clone(), members.clone()), None)?;
    let founding = Founding::cluster(settings, members.clone());
    members.keys().try_for_each(|id| found(&directory(*id), cluster, *id, &founding, options))?;
    Ok(cluster)
}

impl Founded {
    /// What is told about a replica with these first data.
    pub(crate) fn new(
        cluster: u128,
        replica: ReplicaId,
        directory: &Path,
        replicated: &ReplicatedState,
    ) -> Self {
        let voters = replicated.members.len();
        let witnesses: Vec<u64> = replicated
            .members
            .iter()
            .filter(|(_, member)| member.is_witness)
            .map(|(id, _)| id.get())
            .collect();
        Self {
            cluster_id: format!("{cluster:032x}"),
            replica: replica.get(),
            data_dir: directory.display().to_string(),
            members: members::show(&replicated.members),
            voters,
            quorum: members::quorum(voters),
            failures_survived: regent_replica::member::failures_survived(voters),
            warnings: members::warnings(voters, witnesses.len()),
            witnesses,
        }
    }
}

/// A print of the founding bytes (FNV-1a): it finds mistakes, nobody is deceived by it.
fn print(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |print, byte| {
        (print ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicated(list: &str) -> ReplicatedState {
        ReplicatedState::found(Settings::default(), members::parse(list, &[]).unwrap())
    }

    #[test]
    fn an_id_fits_only_the_cluster_it_was_drawn_for() {
        let first = replicated("1=a:1/a:2,2=b:1/b:2,3=c:1/c:2");
        let id = id_for(&first, None).unwrap();
        assert_eq!(id_for(&first, Some(id)).unwrap(), id);
        let reordered = replicated("3=c:1/c:2,2=b:1/b:2,1=a:1/a:2");
        assert_eq!(id_for(&reordered, Some(id)).unwrap(), id);
        let other = replicated("1=a:1/a:2,2=b:1/b:2,3=c:1/d:2");
        let refused = id_for(&other, Some(id)).unwrap_err();
        assert!(matches!(refused, ReplicaError::OtherCluster { cluster } if cluster == id));
        let mut settings = first;
        settings.state =
            regent_election::State::new(Settings { auto_create: false, ..Settings::default() });
        assert!(id_for(&settings, Some(id)).is_err());
        assert_ne!(id_for(&other, None).unwrap(), id_for(&other, None).unwrap());
    }

    #[test]
    fn an_id_is_written_in_32_digits() {
        assert_eq!(cluster_id(&format!("{:032x}", 7)), Ok(7));
        for bad in ["", "7", &"0".repeat(32), &"g".repeat(32), &format!("+{}", "1".repeat(31))] {
            assert!(cluster_id(bad).is_err(), "{bad}");
        }
    }
}
