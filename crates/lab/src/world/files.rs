//! A data directory in memory that keeps exactly what the contract of [`Files`] says, and no more.
//!
//! When only the process dies, everything written stays. When the power fails, only what was synced
//! does: of the rest each sector holds one of the contents it has had since, each change of a name has
//! happened or not, and the call under way has come to any byte. Everything by the world's dice.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regent_replica::disk::files::{DirectoryLock, Files, OpenFile, SECTOR_BYTES};

use crate::dice::Dice;

/// One file, whatever its name.
#[derive(Debug, Default)]
struct Inode {
    /// What is read.
    bytes: Vec<u8>,
    /// What a power cut leaves for certain.
    durable: Vec<u8>,
    /// What was written since, in order.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
enum NameChange {
    Create(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

#[derive(Debug, Default)]
struct Directory {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    is_locked: bool,
    /// Bytes that all files together may have.
    room: Option<usize>,
    /// Changes until the power fails, and how far the last of them comes.
    power_for: Option<(u64, Dice)>,
    /// The next sync fails.
    is_failing: bool,
}

/// The directory; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFiles(Arc<Mutex<Directory>>);

#[derive(Debug)]
struct SimFile {
    files: SimFiles,
    inode: usize,
}

#[derive(Debug)]
struct SimLock(SimFiles);

impl DirectoryLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.directory().is_locked = false;
    }
}

impl SimFiles {
    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails during the `changes`-th change from here on, and then stays off.
    pub(super) fn power_for(&self, changes: u64, dice: &mut Dice) {
        self.directory().power_for = Some((changes, Dice::new(dice.roll())));
    }

    /// The process has died: everything that it wrote is there.
    pub(super) fn rest(&self) {
        let mut directory = self.directory();
        (directory.power_for, directory.is_failing) = (None, false);
    }

    /// The power has failed, and is back.
    pub(super) fn power_cut(&self, dice: &mut Dice) {
        self.rest();
        let mut directory = self.directory();
        for inode in directory.inodes.iter_mut().filter(|inode| !inode.pending.is_empty()) {
            inode.cut(dice);
        }
        let mut names = directory.durable_names.clone();
        for change in std::mem::take(&mut directory.name_changes) {
            if dice.once_in(2) {
                change.apply(&mut names);
            }
        }
        directory.durable_names.clone_from(&names);
        directory.names = names;
    }

    /// The next sync fails, and what it was to make durable is lost, as real kernels do it.
    pub(super) fn fail_next_sync(&self) {
        self.directory().is_failing = true;
    }

    /// Leaves this many bytes free, or no bound.
    pub(super) fn leave_room(&self, free: Option<usize>) {
        let mut directory = self.directory();
        directory.room = free.map(|free| directory.used() + free);
    }

    /// Turns one bit of one file round, for good, and says where.
    pub(super) fn flip(&self, dice: &mut Dice) -> Option<String> {
        let mut directory = self.directory();
        let all: Vec<(String, usize)> = directory
            .names
            .iter()
            .filter(|(_, inode)| !directory.inodes[**inode].bytes.is_empty())
            .map(|(name, inode)| (name.clone(), *inode))
            .collect();
        let (name, inode) = all.get(dice.below(all.len() as u64) as usize)?;
        let inode = &mut directory.inodes[*inode];
        let (at, bit) = (dice.below(inode.bytes.len() as u64) as usize, dice.below(8));
        inode.bytes[at] ^= 1 << bit;
        inode.durable.clone_from(&inode.bytes);
        inode.pending.clear();
        Some(format!("bit {bit} of byte {at} of {name}"))
    }
}

impl Directory {
    /// Counts a change. An error once the power is off; true if it fails during this one.
    fn spend(&mut self) -> io::Result<bool> {
        match &mut self.power_for {
            None => Ok(false),
            Some((0, _)) => Err(io::Error::other("the power is off")),
            Some((left, _)) => {
                *left -= 1;
                Ok(*left == 0)
            }
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn used(&self) -> usize {
        self.names.values().map(|inode| self.inodes[*inode].bytes.len()).sum()
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let is_cut = self.spend()?;
        change.apply(&mut self.names);
        self.name_changes.push(change);
        if is_cut { Err(io::Error::other("the power failed")) } else { Ok(()) }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Inode {
    fn write(&mut self, at: usize, part: &[u8]) {
        overlay(&mut self.bytes, at, part);
        self.pending.push((at, part.to_vec()));
    }

    /// What a power cut makes of it.
    fn cut(&mut self, dice: &mut Dice) {
        let mut bytes = std::mem::take(&mut self.durable);
        let versions = self.pending.len() as u64 + 1;
        let length = self.pending.iter().map(|(at, part)| at + part.len()).max().unwrap_or(0);
        for start in (0..length).step_by(SECTOR_BYTES) {
            for (at, part) in self.pending.iter().take(dice.below(versions) as usize) {
                let (from, to) = ((*at).max(start), (at + part.len()).min(start + SECTOR_BYTES));
                if from < to {
                    overlay(&mut bytes, from, &part[from - at..to - at]);
                }
            }
        }
        *self = Self { durable: bytes.clone(), bytes, pending: Vec::new() };
    }
}

fn overlay(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    if bytes.len() < at + part.len() {
        bytes.resize(at + part.len(), 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl Files for SimFiles {
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>> {
        if std::mem::replace(&mut self.directory().is_locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock(self.clone())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.directory().names.keys().cloned().collect())
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let directory = self.directory();
        let bytes = &directory.inodes[directory.find(name)?].bytes;
        if bytes.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut directory = self.directory();
        if directory.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = directory.inodes.len();
        directory.inodes.push(Inode::default());
        directory.change_name(NameChange::Create(name.into(), inode))?;
        Ok(Box::new(SimFile { files: self.clone(), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let inode = self.directory().find(name)?;
        Ok(Box::new(SimFile { files: self.clone(), inode }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut directory = self.directory();
        let inode = directory.find(from)?;
        directory.change_name(NameChange::Rename(from.into(), to.into(), inode))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut directory = self.directory();
        directory.find(name)?;
        directory.change_name(NameChange::Remove(name.into()))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut directory = self.directory();
        if directory.spend()? {
            return Err(io::Error::other("the power failed"));
        }
        directory.durable_names = directory.names.clone();
        directory.name_changes.clear();
        Ok(())
    }
}

impl OpenFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut directory = self.files.directory();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let is_cut = directory.spend()?;
        let grows = (at + bytes.len()).saturating_sub(directory.inodes[self.inode].bytes.len());
        let free = directory.room.map_or(usize::MAX, |room| room.saturating_sub(directory.used()));
        // A full disk takes what fits; a failing power lets a part through.
        let done = match &mut directory.power_for {
            Some((_, dice)) if is_cut => dice.below(bytes.len() as u64 + 1) as usize,
            Some(_) | None if grows > free => bytes.len() - (grows - free),
            Some(_) | None => bytes.len(),
        };
        directory.inodes[self.inode].write(at, &bytes[..done]);
        if is_cut {
            return Err(io::Error::other("the power failed"));
        }
        if grows > free { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut directory = self.files.directory();
        if directory.spend()? {
            return Err(io::Error::other("the power failed"));
        }
        let is_failing = std::mem::take(&mut directory.is_failing);
        let inode = &mut directory.inodes[self.inode];
        if is_failing {
            // The pages count as clean from here on, and are not on the disk.
            inode.pending.clear();
            return Err(io::Error::other("input/output error"));
        }
        for (at, part) in std::mem::take(&mut inode.pending) {
            overlay(&mut inode.durable, at, &part);
        }
        Ok(())
    }
}
