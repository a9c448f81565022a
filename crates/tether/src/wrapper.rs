//! The wrapper's end of a tether: starts the guard, passes orders on, hears reports.
//!
//! A thread reads what the guard says and waits for its end; reports go to whoever was named, in
//! order, and [`GuardReport::Over`] comes exactly once, when nothing of the tree is alive. If the guard was
//! killed, what it leaves is ended from here.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regent_election::Moment;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::guard::{self, Duty};
use crate::means::Means;
use crate::spawn::{self, Image};
use crate::words::{self, GuardReport};
use crate::{cgroup, tree};

/// How often it is looked whether something that was killed is gone.
const GUARD_POLL_EVERY: Duration = Duration::from_millis(5);
/// How often the clock is read while the end of a guard is waited for.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What to run, and under what conditions.
#[derive(Clone, Debug)]
pub struct Order {
    /// The binary to start as the guard: one whose `main` begins with [`guard::entry`](crate::guard::entry).
    /// Without one it is this very binary.
    pub guard: Option<PathBuf>,
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How the tree is held together.
    pub means: Means,
    /// Between `SIGTERM` and `SIGKILL`.
    pub grace: Duration,
    /// Between `SIGKILL` and the end of the lease.
    pub reserve: Duration,
    /// Until when the lease is valid.
    pub valid_until: Moment,
}

/// A guard and the program it guards.
#[derive(Debug)]
pub struct Tether {
    stream: UnixStream,
    /// Names the guard itself, not its number: the number is free once it has been waited for.
    guard: OwnedFd,
    is_first: bool,
}

impl Tether {
    /// Starts the guard and through it the program. Reports come from a thread of their own.
    ///
    /// To be called from a thread that lives as long as the program.
    pub fn start(order: Order, report: impl Fn(GuardReport) + Send + 'static) -> io::Result<Self> {
        match order.means {
            Means::Namespace(_) => {}
            // The tree of a guard that was killed falls to this process, not to the system's first.
            Means::Cgroup | Means::Descendants => {
                rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
            }
        }
        let group = order.means.make_cgroup(&unique_name())?;
        let started = Self::start_guard(&order, group.clone());
        let (tether, pid) = match started {
            Ok(started) => started,
            Err(error) => {
                if let Some(path) = &group {
                    cgroup::remove(path);
                }
                return Err(error);
            }
        };
        let listened = tether.stream.try_clone().and_then(|lines| {
            let means = order.means;
            std::thread::Builder::new().name("tether".to_owned()).spawn(move || {
                let is_clean = listen(lines, &report);
                bury(pid, &means, group.as_deref(), is_clean);
                report(GuardReport::Over);
            })
        });
        if let Err(error) = listened {
            // It has started nothing yet, and nobody would hear of it.
            tether.kill_guard();
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            return Err(error);
        }
        if tether.say(words::Order::Lease(order.valid_until)).is_err() {
            // From here on whatever happens is reported, in order and to the end.
            tether.kill_guard();
        }
        Ok(tether)
    }

    fn start_guard(order: &Order, cgroup: Option<PathBuf>) -> io::Result<(Self, Pid)> {
        let (stream, theirs) = UnixStream::pair()?;
        let namespace = match order.means {
            Means::Namespace(namespace) => Some(namespace),
            Means::Cgroup | Means::Descendants => None,
        };
        let duty = Duty {
            stream: theirs.as_raw_fd(),
            grace: order.grace,
            reserve: order.reserve,
            is_first: namespace.is_some(),
            cgroup,
            program: order.program.clone(),
            arguments: order.arguments.clone(),
        };
        let path = match &order.guard {
            Some(path) => path.as_os_str(),
            // The link leads to this very binary even if its file has been replaced.
            None if guard::is_entered() => OsStr::new("/proc/self/exe"),
            // It would start as whatever it is, and not guard anything.
            None => {
                let why =
                    "this binary cannot be a guard: its main does not begin with guard::entry()";
                return Err(io::Error::other(why));
            }
        };
        let image = Image::new(path, duty.to_arguments(), &order.environment)?;
        let pid = spawn::start(namespace, &image, &stream, &theirs)?;
        let guard = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok((Self { stream, guard, is_first: namespace.is_some() }, pid))
    }

    /// Tells the guard that the lease is valid until then.
    pub fn lease(&self, valid_until: Moment) -> io::Result<()> {
        self.say(words::Order::Lease(valid_until))
    }

    /// Tells the program to stop; whatever is left of the tree at `kill_at` is killed.
    pub fn stop(&self, kill_at: Moment) -> io::Result<()> {
        self.say(words::Order::Stop(kill_at))
    }

    /// Passes a signal on to the program's process group.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        self.say(words::Order::Signal(number))
    }

    /// Asks the guard whether anything of the tree is alive. It answers [`GuardReport::Alive`], or is gone, which
    /// [`GuardReport::Over`] tells.
    pub fn ask(&self) -> io::Result<()> {
        self.say(words::Order::Ask)
    }

    /// Ends the tree at once. In a namespace the guard is killed and the kernel does the rest;
    /// otherwise the guard is told to, and [`Tether::kill_guard`] is for one that does not listen.
    pub fn kill(&self) {
        if self.is_first || self.say(words::Order::Kill).is_err() {
            self.kill_guard();
        }
    }

    /// Kills the guard: its namespace with it, or its program, and the rest is ended from here.
    pub fn kill_guard(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.guard, Signal::KILL);
    }

    /// Ends the tree, for somebody who goes away and can watch nothing: the guard is told to, and killed if it
    /// is not gone by then. One that is stopped hears nothing, and would leave its program running.
    pub fn end(&self, by: Moment) {
        self.kill();
        let watched = self.guard.try_clone().and_then(|guard| {
            std::thread::Builder::new().name("tether-end".to_owned()).spawn(move || {
                if !is_gone(&guard, by) {
                    let _ = rustix::process::pidfd_send_signal(&guard, Signal::KILL);
                }
            })
        });
        if watched.is_err() {
            self.kill_guard();
        }
    }

    /// A guard that does not read must never hold its wrapper up: a full stream is an error.
    fn say(&self, order: words::Order) -> io::Result<()> {
        let line = order.line();
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let sent = rustix::net::send(&self.stream, line.as_bytes(), flags)?;
        if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Waits until a process has ended, until then at most; says whether it has.
fn is_gone(process: &OwnedFd, by: Moment) -> bool {
    loop {
        let left = regent_clock::now().until(by);
        // Timers stand still while a machine sleeps, the clock does not.
        let timeout = Timespec::try_from(left.min(LOOK_AGAIN_AFTER)).unwrap_or_default();
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        match rustix::event::poll(&mut ended, Some(&timeout)) {
            Ok(1..) => return true,
            Ok(0) | Err(_) if left.is_zero() => return false,
            Ok(0) | Err(_) => {}
        }
    }
}

fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("regent-{}-{count}", std::process::id())
}

/// Passes reports on until the guard says no more; says whether it took its leave.
fn listen(stream: UnixStream, report: &impl Fn(GuardReport)) -> bool {
    let mut is_clean = false;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        match GuardReport::parse(&line) {
            Some(GuardReport::Over) => is_clean = true,
            Some(said) => report(said),
            None => {}
        }
    }
    is_clean
}

/// Waits for the guard, and ends whatever it left behind. Returns when nothing is alive, which may be
/// never: a task in uninterruptible sleep cannot be killed, and must not be taken for dead.
///
/// After a guard that did not take its leave, everybody who descends from this process is ended,
/// hooks included: who belonged to whom cannot be told any more.
fn bury(pid: Pid, means: &Means, group: Option<&Path>, is_clean: bool) {
    while matches!(
        rustix::process::waitpid(Some(pid), WaitOptions::empty()),
        Err(rustix::io::Errno::INTR)
    ) {}
    match means {
        // The kernel has killed everybody before the guard could be waited for.
        Means::Namespace(_) => {}
        Means::Cgroup | Means::Descendants if is_clean => {}
        Means::Cgroup | Means::Descendants => {
            if let Some(path) = group {
                while !cgroup::is_empty(path) {
                    let _ = cgroup::kill(path);
                    std::thread::sleep(GUARD_POLL_EVERY);
                }
                cgroup::remove(path);
            }
            while !tree::reap_own() {
                std::thread::sleep(GUARD_POLL_EVERY);
            }
        }
    }
}

/// Kills a process group that the caller started; for commands that are not on a tether.
pub fn kill_group(leader: u32) {
    // The groups 0 and 1 are not anybody's child: the first would be our own, the second everybody.
    if let Some(group) = i32::try_from(leader).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}
