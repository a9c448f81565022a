//! How much memory the state of a store may take, and a principal's part of it.

use std::fs;
use std::path::Path;

use regent_election::StateBudget;
use regent_election::limits::STATE_BYTES_MAX_DEFAULT;

use super::{ConfigError, Effective, Key};

/// The part of the memory that the state may take: beside it there are the snapshot that is being written, the log,
/// events for watchers and connections.
const PART: u64 = 4;

impl Effective {
    /// What `state_mib_max` and `state_percent_per_principal` say, or what suits this machine.
    pub(super) fn state_budget(&self) -> Result<StateBudget, ConfigError> {
        let bytes_max = match self.count(Key::StateMibMax) {
            0 => fitting(memory()),
            mib => u64::from(mib) << 20,
        };
        let percent = self.count(Key::StatePercentPerPrincipal);
        let budget = StateBudget::whole(bytes_max).at_least_usable();
        match percent {
            0 => Ok(budget),
            1..=100 => {
                let share_max = Some(budget.bytes_max / 100 * u64::from(percent));
                Ok(StateBudget { share_max, ..budget })
            }
            101.. => {
                let origin = self.origin(Key::StatePercentPerPrincipal).clone();
                let what = format!(
                    "state_percent_per_principal is {percent}: at most 100, or 0 for no bound"
                );
                Err(ConfigError::Given { origin, what })
            }
        }
    }
}

fn fitting(memory: Option<u64>) -> u64 {
    memory.map_or(STATE_BYTES_MAX_DEFAULT, |bytes| (bytes / PART).min(STATE_BYTES_MAX_DEFAULT))
}

/// The memory that this process may use: that of the machine, or less if its control group has less.
fn memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = [
        of_machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        of_group(&groups, "0::", Path::new("/sys/fs/cgroup"), "memory.max"),
        // Within a container the group's own files lie at the root.
        number(Path::new("/sys/fs/cgroup/memory.max")),
        number(Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes")),
    ];
    limits.into_iter().flatten().min()
}

/// `MemTotal` in bytes.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn of_group(groups: &str, prefix: &str, root: &Path, file: &str) -> Option<u64> {
    let path = groups.lines().find_map(|line| line.strip_prefix(prefix))?;
    number(&root.join(path.trim_start_matches('/')).join(file))
}

/// The number in a file; none if there is none in it, as in the `max` of a group without a limit.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_gets_a_smaller_budget() {
        assert_eq!(fitting(None), STATE_BYTES_MAX_DEFAULT);
        assert_eq!(fitting(Some(1 << 40)), STATE_BYTES_MAX_DEFAULT);
        assert_eq!(fitting(Some(1 << 30)), 256 << 20);
        assert_eq!(of_machine("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(of_machine("nothing"), None);
    }

    #[test]
    fn the_limit_of_a_control_group_counts() {
        let place = tempfile::tempdir().unwrap();
        let group = place.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "4096\n").unwrap();
        let find = |groups: &str| of_group(groups, "0::", place.path(), "memory.max");
        assert_eq!(find("1:name=x:/z\n0::/a/b\n"), Some(4096));
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(find("0::/a/b\n"), None);
        assert_eq!(find("0::/missing\n"), None);
    }
}
