//! Writing the first data of a replica: what `init`, `restore` and `recover` share.
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
use regent_replica::disk::{Disk, Founding, Identity, Options};
use regent_replica::{Members, ReplicaId, Replicated};
use serde::Serialize;

use super::members;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::facts;
use crate::replica::{files, random, refuse_strangers, refused};

/// What was founded, for people and programs.
#[derive(Debug, Serialize)]
pub(super) struct Founded {
    pub(super) cluster_id: String,
    pub(super) replica: u64,
    pub(super) data_dir: String,
    pub(super) members: String,
    pub(super) witnesses: Vec<u64>,
    pub(super) voters: usize,
    pub(super) quorum: usize,
    pub(super) failures_survived: usize,
    pub(super) warnings: Vec<String>,
}

/// A cluster's id from text.
pub(super) fn cluster_id(text: &str) -> Result<u128, String> {
    let is_hex = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|id| is_hex && *id != 0);
    id.ok_or_else(|| {
        "a cluster id has 32 hexadecimal digits, as the first init printed them".into()
    })
}

/// The id of a cluster that starts with `whole`: drawn, or the given one if it fits.
pub(super) fn id_for(whole: &Replicated, given: Option<u128>) -> Result<u128, Failure> {
    let print = print(&whole.encode());
    let Some(given) = given else {
        return Ok((random()? << 64) | u128::from(print));
    };
    if given as u64 == print {
        return Ok(given);
    }
    Err(Failure::new(
        Exit::Refused,
        format!(
            "cluster {given:032x} was founded with another list of members, other witnesses or other settings of the store (auto_create, groups_max, ttl_min, ttl_max): give all of them exactly as on the first machine; nothing was written"
        ),
    ))
}

/// Founds a replica in an empty directory and closes it again.
pub(super) fn found(
    directory: &Path,
    cluster: u128,
    replica: ReplicaId,
    founding: &Founding,
    options: Options,
) -> Result<(), Failure> {
    refuse_strangers(directory)?;
    let files = Arc::new(files(directory)?);
    let identity = Identity { cluster, replica, incarnation: random()? as u64 };
    let opened = Disk::found(files, options, identity, founding);
    let opened = opened.map_err(|error| refused(&error))?;
    opened.disk.close().map_err(|error| Failure::new(Exit::Files, error.to_string()))
}

/// Founds every replica of a cluster on this machine, each in its directory.
pub(crate) fn found_all(
    members: &Members,
    directory: impl Fn(ReplicaId) -> PathBuf,
    options: Options,
) -> Result<(), Failure> {
    let settings = Settings::default();
    let cluster = id_for(&Replicated::found(settings.clone(), members.clone()), None)?;
    let founding = Founding::cluster(settings, members.clone());
    members.keys().try_for_each(|id| found(&directory(*id), cluster, *id, &founding, options))
}

impl Founded {
    /// What is told about a replica with these first data.
    pub(super) fn new(
        cluster: u128,
        replica: ReplicaId,
        directory: &Path,
        whole: &Replicated,
    ) -> Self {
        let voters = whole.members.len();
        let witnesses: Vec<u64> = whole
            .members
            .iter()
            .filter(|(_, member)| member.is_witness)
            .map(|(id, _)| id.get())
            .collect();
        Self {
            cluster_id: format!("{cluster:032x}"),
            replica: replica.get(),
            data_dir: directory.display().to_string(),
            members: members::show(&whole.members),
            voters,
            quorum: members::quorum(voters),
            failures_survived: regent_replica::member::failures_survived(voters),
            warnings: members::warnings(voters, witnesses.len()),
            witnesses,
        }
    }

    /// The same as facts, one per line.
    pub(super) fn facts(&self) -> String {
        let failures = members::failures(self.failures_survived as u64);
        let mut told = vec![
            ("cluster", self.cluster_id.clone()),
            ("replica", self.replica.to_string()),
            ("data", self.data_dir.clone()),
            ("quorum", format!("{} of {}", self.quorum, self.voters)),
            ("survives", failures),
        ];
        if !self.witnesses.is_empty() {
            let witnesses: Vec<String> = self.witnesses.iter().map(ToString::to_string).collect();
            told.push(("witness", witnesses.join(", ")));
        }
        facts(told)
    }

    /// The numbers of the others.
    pub(super) fn others(&self) -> impl Iterator<Item = &str> {
        let own = self.replica.to_string();
        let ids = self.members.split(',').filter_map(|part| part.split('=').next());
        ids.filter(move |id| *id != own)
    }

    /// `--witness` as it was given.
    pub(super) fn witness_flag(&self) -> String {
        self.witnesses.iter().map(|id| format!(" --witness {id}")).collect()
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

    fn whole(list: &str) -> Replicated {
        Replicated::found(Settings::default(), members::parse(list, &[]).unwrap())
    }

    #[test]
    fn an_id_fits_only_the_cluster_it_was_drawn_for() {
        let first = whole("1=a:1/a:2,2=b:1/b:2,3=c:1/c:2");
        let id = id_for(&first, None).unwrap();
        assert_eq!(id_for(&first, Some(id)).unwrap(), id);
        let reordered = whole("3=c:1/c:2,2=b:1/b:2,1=a:1/a:2");
        assert_eq!(id_for(&reordered, Some(id)).unwrap(), id);
        let other = whole("1=a:1/a:2,2=b:1/b:2,3=c:1/d:2");
        assert_eq!(id_for(&other, Some(id)).unwrap_err().exit, Exit::Refused);
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
