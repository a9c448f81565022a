//! A recorder that is no part of the product: programs that write down that they run, and a lock of
//! the kernel's that two of them can never hold at once.
//!
//! The program opens one file and takes an exclusive lock on it without waiting. The lock belongs to
//! the open file, which everything that the program starts inherits: it is free only when *all* of
//! them are gone. So a program that cannot have it has started while another one of its group, or
//! anything that one started, was alive, at whatever instant that was: no clock is compared.

use std::fs;
use std::process::Command;

use super::{Room, Running, Server, until};

/// Writes down its beginning, its signals and its end; what else it does is the first argument's
/// business.
const PROGRAM: &str = r#"
exec 9>>"$RECORD_LOCK"
if ! flock -n 9; then echo "overlap $REGENT_NODE $REGENT_TERM" >>"$RECORD"; exit 99; fi
echo "start $REGENT_NODE $REGENT_TERM" >>"$RECORD"
end() { echo "$1 $REGENT_NODE $REGENT_TERM" >>"$RECORD"; exit "${2:-0}"; }
case $1 in
  meek) trap 'end stop 5' TERM ;;
  stubborn) trap '' TERM ;;
  tree)
    trap '' TERM
    if [ "${2:-0}" -gt 0 ]; then setsid sh "$RECORD_TREE" "$2" & fi ;;
esac
trap 'echo "usr1 $REGENT_NODE $REGENT_TERM" >>"$RECORD"' USR1
while :; do sleep 1000 & wait $!; done
"#;

/// A line of descendants: each a session of its own, deaf to `SIGTERM`, its parent gone or not.
const TREE: &str = r#"
trap '' TERM HUP INT
if [ "$1" -gt 0 ]; then
  setsid sh "$RECORD_TREE" $(($1 - 1)) &
  # Every other one leaves its child an orphan.
  if [ $(($1 % 2)) -eq 0 ]; then exit 0; fi
else
  echo "deep $REGENT_NODE $REGENT_TERM" >>"$RECORD"
fi
while :; do sleep 1000; done
"#;

/// The record of one group's programs.
pub(crate) struct Recorder<'a> {
    room: &'a Room,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(room: &'a Room) -> Self {
        fs::write(room.path("program.sh"), PROGRAM).unwrap();
        fs::write(room.path("tree.sh"), TREE).unwrap();
        fs::write(room.path("record"), "").unwrap();
        fs::write(room.path("lock"), "").unwrap();
        Self { room }
    }

    /// `regent run` of a recording program against an address, with these flags.
    pub(crate) fn run_at(&self, url: &str, node: &str, flags: &[&str], how: &[&str]) -> Running {
        Running::start(self.room, self.command(url, node, flags, how))
    }

    /// The same, not yet started.
    pub(crate) fn command(&self, url: &str, node: &str, flags: &[&str], how: &[&str]) -> Command {
        let program = self.room.text("program.sh");
        let fixed = ["run", "--group", "billing", "--node", node];
        let arguments = [&fixed, flags, &["--", "sh", &program], how].concat();
        let mut command = self.room.command(&arguments);
        command.env("REGENT_SERVER", url);
        command.env("RECORD", self.room.path("record"));
        command.env("RECORD_LOCK", self.room.path("lock"));
        command.env("RECORD_TREE", self.room.path("tree.sh"));
        command
    }

    pub(crate) fn run(&self, server: &Server, node: &str, flags: &[&str], how: &[&str]) -> Running {
        self.run_at(&server.url, node, flags, how)
    }

    /// Every line so far: what, who, under which term.
    pub(crate) fn lines(&self) -> Vec<(String, String, u64)> {
        let text = fs::read_to_string(self.room.path("record")).unwrap();
        text.lines()
            .map(|line| {
                let mut words = line.split(' ');
                let mut next = || words.next().unwrap_or_else(|| panic!("a torn line: {line:?}"));
                (next().to_owned(), next().to_owned(), next().parse().unwrap())
            })
            .collect()
    }

    /// How often something was written of a node.
    pub(crate) fn count(&self, what: &str, node: &str) -> usize {
        self.lines().iter().filter(|(did, who, _)| did == what && who == node).count()
    }

    pub(crate) fn await_line(&self, what: &str, node: &str) {
        until(&format!("{what} of {node}"), || self.count(what, node) > 0);
    }

    /// Whether nothing of any program is alive at this instant: nobody has the file of the lock open.
    /// It is only looked at: to try the lock would be to hold it for a moment.
    pub(crate) fn is_quiet(&self) -> bool {
        let lock = self.room.path("lock").canonicalize().unwrap();
        let mut entries = fs::read_dir("/proc").unwrap().flatten();
        let holds = |file: std::path::PathBuf| file == lock;
        !entries.any(|entry| fs::read_link(entry.path().join("fd/9")).is_ok_and(holds))
    }

    /// What must hold of every record: never two at once, and every start has a higher term.
    pub(crate) fn check(&self, starts_min: usize) {
        let lines = self.lines();
        let overlaps = lines.iter().filter(|(did, _, _)| did == "overlap").count();
        assert_eq!(overlaps, 0, "two programs of one group at once: {lines:?}");
        let terms: Vec<u64> =
            lines.iter().filter(|(did, _, _)| did == "start").map(|line| line.2).collect();
        assert!(terms.len() >= starts_min, "too little happened to show anything: {lines:?}");
        assert!(terms.is_sorted_by(|one, next| one < next), "{lines:?}");
    }
}

/// The processes whose parent is this one, by what the kernel says.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let is_child = rest.split(' ').nth(1) == Some(parent.to_string().as_str());
        if is_child && !rest.starts_with('Z') {
            found.push(pid);
        }
    }
    found
}

/// The guard of a wrapper whose program runs.
pub(crate) fn guard_of(wrapper: &Running) -> u32 {
    let is_guard = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).nth(1) == Some(b"run-guard"))
    };
    let mut guards = children(wrapper.id());
    guards.retain(is_guard);
    assert_eq!(guards.len(), 1, "one program has one guard");
    guards[0]
}

/// Sends a signal by name to processes that the test itself has caused.
pub(crate) fn send(name: &str, pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let line = format!("kill -{name} {}", pids.join(" "));
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success(), "{line}");
}
