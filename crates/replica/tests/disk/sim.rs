//! A disk in memory that keeps exactly what the contract of `Files` says, and no more.
//!
//! A power cut keeps what was synced; of the rest, each sector holds one of the contents it has had
//! since, and each change of a name has happened or not, by lot. The write or sync under way when the
//! power fails has come to any byte.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use regent_replica::disk::files::{DirectoryLock, Files, OpenFile, SECTOR_BYTES};

/// Dice that can be thrown again.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// What is read.
    bytes: Vec<u8>,
    /// What a power cut leaves for certain.
    durable: Vec<u8>,
    /// What was written since, in order.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct World {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    is_locked: bool,
    /// Bytes all files together may have.
    room: Option<usize>,
    /// Calls that change something until the power fails; it then stays off.
    power_for: Option<usize>,
    calls: usize,
    /// Syncs until one fails, once.
    sync_fails_in: Option<usize>,
    /// Syncs so far.
    syncs: usize,
}

/// The disk; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFiles(Arc<Mutex<World>>);

#[derive(Debug)]
struct SimFile(SimFiles, usize);

#[derive(Debug)]
struct SimLock(SimFiles);

impl DirectoryLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().is_locked = false;
    }
}

impl World {
    /// Counts a call; an error once the power is off, `Ok(true)` if it fails during this one.
    fn spend(&mut self) -> io::Result<bool> {
        self.calls += 1;
        match &mut self.power_for {
            None => Ok(false),
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
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
        apply(&change, &mut self.names);
        self.name_changes.push(change);
        if is_cut { Err(io::Error::other("the power failed")) } else { Ok(()) }
    }
}

fn apply(change: &NameChange, names: &mut BTreeMap<String, usize>) {
    match change {
        NameChange::Create(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameChange::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
    }
}

fn overlay(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    if bytes.len() < at + part.len() {
        bytes.resize(at + part.len(), 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl Inode {
    /// What a power cut makes of it.
    fn cut(&mut self, dice: &mut Dice) {
        let mut bytes = self.durable.clone();
        let versions = self.pending.len() + 1;
        let length = self.pending.iter().map(|(at, part)| at + part.len()).max().unwrap_or(0);
        for start in (0..length).step_by(SECTOR_BYTES) {
            for (at, part) in self.pending.iter().take(dice.below(versions)) {
                let (from, to) = ((*at).max(start), (at + part.len()).min(start + SECTOR_BYTES));
                if from < to {
                    overlay(&mut bytes, from, &part[from - at..to - at]);
                }
            }
        }
        *self = Self { durable: bytes.clone(), bytes, pending: Vec::new() };
    }
}

impl SimFiles {
    /// The process dies: everything written stays, the lock is free.
    pub(crate) fn kill(&self) {
        let mut world = self.0.lock().unwrap();
        (world.power_for, world.sync_fails_in, world.is_locked) = (None, None, false);
    }

    /// The power fails, and comes back.
    pub(crate) fn power_cut(&self, dice: &mut Dice) {
        let mut world = self.0.lock().unwrap();
        (world.power_for, world.sync_fails_in, world.is_locked) = (None, None, false);
        for inode in &mut world.inodes {
            inode.cut(dice);
        }
        let mut names = world.durable_names.clone();
        for change in std::mem::take(&mut world.name_changes) {
            if dice.below(2) == 0 {
                apply(&change, &mut names);
            }
        }
        world.durable_names = names.clone();
        world.names = names;
    }

    /// The power fails during the `calls`-th change from here on.
    pub(crate) fn power_for(&self, calls: usize) {
        self.0.lock().unwrap().power_for = Some(calls);
    }

    pub(crate) fn fail_sync_in(&self, syncs: usize) {
        self.0.lock().unwrap().sync_fails_in = Some(syncs);
    }

    /// Leaves this many bytes free, or no bound.
    pub(crate) fn leave_room(&self, free: Option<usize>) {
        let mut world = self.0.lock().unwrap();
        world.room = free.map(|free| world.used() + free);
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }

    pub(crate) fn syncs(&self) -> usize {
        self.0.lock().unwrap().syncs
    }

    /// A copy that goes its own way, as it is found after the process has died.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())));
        copy.kill();
        copy
    }

    /// Every file.
    pub(crate) fn all(&self) -> BTreeMap<String, Vec<u8>> {
        let world = self.0.lock().unwrap();
        let content = |inode: &usize| world.inodes[*inode].bytes.clone();
        world.names.iter().map(|(name, inode)| (name.clone(), content(inode))).collect()
    }

    /// Damages a file, for good.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.0.lock().unwrap();
        let inode = world.find(name).unwrap();
        change(&mut world.inodes[inode].bytes);
        world.inodes[inode].durable = world.inodes[inode].bytes.clone();
        world.inodes[inode].pending.clear();
    }
}

impl Files for SimFiles {
    fn lock(&self) -> io::Result<Box<dyn DirectoryLock>> {
        let mut world = self.0.lock().unwrap();
        if std::mem::replace(&mut world.is_locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock(self.clone())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().names.keys().cloned().collect())
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let world = self.0.lock().unwrap();
        let bytes = &world.inodes[world.find(name)?].bytes;
        if bytes.len() as u64 > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut world = self.0.lock().unwrap();
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = world.inodes.len();
        world.inodes.push(Inode::default());
        world.change_name(NameChange::Create(name.into(), inode))?;
        Ok(Box::new(SimFile(self.clone(), inode)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn OpenFile>> {
        let inode = self.0.lock().unwrap().find(name)?;
        Ok(Box::new(SimFile(self.clone(), inode)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.0.lock().unwrap();
        let inode = world.find(from)?;
        world.change_name(NameChange::Rename(from.into(), to.into(), inode))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.0.lock().unwrap();
        world.find(name)?;
        world.change_name(NameChange::Remove(name.into()))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut world = self.0.lock().unwrap();
        if world.spend()? {
            return Err(io::Error::other("the power failed"));
        }
        world.durable_names = world.names.clone();
        world.name_changes.clear();
        Ok(())
    }
}

impl OpenFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.0.0.lock().unwrap();
        let offset = offset as usize;
        let is_cut = world.spend()?;
        let grows = (offset + bytes.len()).saturating_sub(world.inodes[self.1].bytes.len());
        let free = world.room.map_or(usize::MAX, |room| room.saturating_sub(world.used()));
        // A full disk takes what fits; a failing power lets a part through.
        let done = match (is_cut, grows > free) {
            (true, _) => Dice((world.calls as u64) << 32 | offset as u64).below(bytes.len() + 1),
            (false, true) => bytes.len() - (grows - free),
            (false, false) => bytes.len(),
        };
        overlay(&mut world.inodes[self.1].bytes, offset, &bytes[..done]);
        world.inodes[self.1].pending.push((offset, bytes[..done].to_vec()));
        match (is_cut, grows > free) {
            (true, _) => Err(io::Error::other("the power failed")),
            (false, true) => Err(io::ErrorKind::StorageFull.into()),
            (false, false) => Ok(()),
        }
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut world = self.0.0.lock().unwrap();
        if world.spend()? {
            return Err(io::Error::other("the power failed"));
        }
        world.syncs += 1;
        let fails = match &mut world.sync_fails_in {
            None => false,
            Some(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        };
        let inode = &mut world.inodes[self.1];
        if fails {
            // As a real kernel does: the pages are clean from here on, and not on the disk.
            inode.pending.clear();
            world.sync_fails_in = None;
            return Err(io::Error::other("input/output error"));
        }
        inode.durable = inode.bytes.clone();
        inode.pending.clear();
        Ok(())
    }
}
