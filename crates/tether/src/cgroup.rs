//! A cgroup of our own for one program: whoever is born in it is in it, and one write kills them all.
//!
//! Only version 2 with `cgroup.kill` (Linux 5.14): the kernel then kills whatever is in the group at
//! one instant, forks in flight included. The freezer of version 1 needs a dance of freezing, listing
//! and thawing that a fork can still slip through; descendants found in `/proc` are as good as that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the cgroup of this process lies in the file system; none without version 2.
pub(crate) fn own() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    place(&mounts, &groups)
}

fn place(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    })?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside what this mount shows cannot be reached through it.
    (!own.starts_with("..")).then(|| mount.join(own))
}

/// Makes a group beside this process, if one that can be killed whole can be had.
pub(crate) fn make(name: &str) -> io::Result<PathBuf> {
    let own = own().ok_or_else(|| io::Error::other("there is no cgroup of version 2"))?;
    let path = own.join(name);
    fs::create_dir(&path)?;
    if path.join("cgroup.kill").exists() {
        return Ok(path);
    }
    let _ = fs::remove_dir(&path);
    Err(io::Error::other("this kernel has no cgroup.kill"))
}

/// Kills everything in it.
pub(crate) fn kill(path: &Path) -> io::Result<()> {
    fs::write(path.join("cgroup.kill"), "1")
}

/// Whether nothing in it is alive. Zombies that nobody has waited for do not count as alive.
pub(crate) fn is_empty(path: &Path) -> bool {
    match fs::read_to_string(path.join("cgroup.events")) {
        Ok(events) => events.lines().any(|line| line == "populated 0"),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes it. The kernel lags a little behind the last death, so this is tried a few times; a group
/// left behind is empty and harmless.
pub(crate) fn remove(path: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(()) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_on_unified_and_on_hybrid_machines() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let hybrid = "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = |mounts, groups| place(mounts, groups).map(|path| path.display().to_string());
        assert_eq!(
            found(unified, "0::/system.slice/a.service\n").as_deref(),
            Some("/sys/fs/cgroup/system.slice/a.service")
        );
        assert_eq!(found(hybrid, "8:pids:/\n0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        assert_eq!(found(hybrid, "8:pids:/\n"), None);
        assert_eq!(found("", "0::/\n"), None);
        assert_eq!(found(unified, "0::/../other\n"), None);
    }
}
