//! Who descends from a process, by what `/proc` says of everybody's parent.
//!
//! A descendant whose parent dies is adopted by the nearest subreaper above it, so nobody leaves the
//! tree of a subreaper that lives. What a listing cannot do is stand still: a process that forks
//! while it is read may be missed, so whoever must have all of them lists again until none is left.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

/// One process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    parent: i32,
    /// In ticks since the boot: tells a process from a later one of the same number.
    started: u64,
    is_zombie: bool,
}

/// Sends a signal to every living descendant of `root` and says how many there were. Descendants that
/// are already dead but not waited for do not count.
pub(crate) fn signal_all(root: Pid, signal: Signal) -> usize {
    let found = descendants(&list(), root.as_raw_nonzero().get());
    let living: Vec<_> = found.into_iter().filter(|entry| !entry.is_zombie).collect();
    for entry in &living {
        send(*entry, signal);
    }
    living.len()
}

/// Kills and waits for whatever descends from this process; for a wrapper that has adopted the tree
/// of a guard that was killed. Says whether nothing is left, which the kernel knows: a listing that
/// could not be read looks like an empty one.
pub(crate) fn reap_own() -> bool {
    let own = rustix::process::getpid();
    let entries = list();
    let found = descendants(&entries, own.as_raw_nonzero().get());
    for entry in &found {
        send(*entry, Signal::KILL);
        if entry.parent == own.as_raw_nonzero().get()
            && let Some(pid) = Pid::from_raw(entry.pid)
        {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
    is_childless()
}

/// Whether this process has no child, dead or alive. Every orphan below a subreaper is its child, so
/// a subreaper without one has no descendant either. Nobody is waited for.
fn is_childless() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD))
}

/// A signal for this very process, not for another one that got its number since.
fn send(entry: Entry, signal: Signal) {
    let Some(pid) = Pid::from_raw(entry.pid) else { return };
    let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read(entry.pid).is_some_and(|present| present.started == entry.started) {
        let _ = rustix::process::pidfd_send_signal(handle, signal);
    }
}

fn list() -> Vec<Entry> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

fn read(pid: i32) -> Option<Entry> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in the middle may hold anything, brackets and blanks too: fields count from its end.
fn parse(pid: i32, stat: &str) -> Option<Entry> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    Some(Entry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
    })
}

fn descendants(entries: &[Entry], root: i32) -> Vec<Entry> {
    let mut children: BTreeMap<i32, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        children.entry(entry.parent).or_default().push(*entry);
    }
    let mut found = Vec::new();
    let mut ahead = vec![root];
    while let Some(parent) = ahead.pop() {
        // Taken out, so that a listing with a loop in it ends.
        for entry in children.remove(&parent).unwrap_or_default() {
            found.push(entry);
            ahead.push(entry.pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32) -> Entry {
        Entry { pid, parent, started: 1, is_zombie: false }
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_nobody_else() {
        let all = [entry(1, 0), entry(10, 1), entry(11, 10), entry(12, 11), entry(20, 1)];
        let found: Vec<i32> = descendants(&all, 10).iter().map(|entry| entry.pid).collect();
        assert_eq!(found, [11, 12]);
    }

    #[test]
    fn a_listing_torn_by_reused_numbers_ends() {
        let torn = [entry(10, 11), entry(11, 10), entry(12, 12)];
        assert_eq!(descendants(&torn, 10).len(), 2);
    }

    #[test]
    fn a_name_with_brackets_and_blanks_hides_no_field() {
        let stat = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 424242 1 1";
        let read = parse(7, stat).unwrap();
        assert_eq!((read.parent, read.started, read.is_zombie), (3, 424_242, false));
        assert_eq!(parse(7, "7 (a"), None);
    }

    /// Whoever cannot look has not seen that nobody is there: a wrapper without a free descriptor
    /// must not say that the tree is gone.
    #[test]
    fn a_listing_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let usual = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..usual }).unwrap();
        let is_gone = reap_own();
        setrlimit(Resource::Nofile, usual).unwrap();
        while !is_gone && !reap_own() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(!is_gone, "its child was alive");
    }

    #[test]
    fn this_process_is_listed_with_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert_eq!(read(own).unwrap().parent, parent);
    }
}
