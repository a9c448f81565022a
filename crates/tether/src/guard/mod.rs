//! The guard's process: reads the lease clock, does what its machine says, and lives as briefly as
//! the program does.
//!
//! One loop waits for three things: a line of the wrapper, news of children, and a timer on
//! `CLOCK_BOOTTIME`, which runs on while the machine sleeps and is due at once on waking. A thread of
//! its own waits for children, since a first process must wait for every orphan of its namespace.
//!
//! In a namespace "kill everything" is "end": the kernel then does the rest, and lets nobody wait for
//! the guard before it is done. So the last report is never needed there; whoever waits knows.

mod machine;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machine::{Action, Event, Machine};
use regent_election::Moment;
use regent_election::error_text::plain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::words::{Order, Status};
use crate::{cgroup, tree};

/// The first argument that makes this binary a guard.
pub const VERB: &str = "run-guard";

/// What ended it before it could begin; nobody reads it but whoever traces processes.
const BROKEN: u8 = 125;

/// The arguments that follow [`VERB`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Duty {
    pub(crate) stream: RawFd,
    pub(crate) grace: Duration,
    pub(crate) reserve: Duration,
    /// Whether it is the first process of a namespace.
    pub(crate) is_first: bool,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

impl Duty {
    pub(crate) fn to_arguments(&self) -> Vec<OsString> {
        let place = if self.is_first { "first" } else { "beside" };
        let mut all: Vec<OsString> = vec!["regent".into(), VERB.into()];
        all.push(self.stream.to_string().into());
        all.push(self.grace.as_millis().to_string().into());
        all.push(self.reserve.as_millis().to_string().into());
        all.push(place.into());
        all.push(self.cgroup.clone().unwrap_or_else(|| "-".into()).into());
        all.push(self.program.clone());
        all.extend(self.arguments.iter().cloned());
        all
    }

    /// Reads what follows the verb.
    fn parse(mut all: impl Iterator<Item = OsString>) -> Option<Self> {
        let stream = all.next()?.to_str()?.parse().ok()?;
        let grace = Duration::from_millis(all.next()?.to_str()?.parse().ok()?);
        let reserve = Duration::from_millis(all.next()?.to_str()?.parse().ok()?);
        let is_first = match all.next()?.to_str()? {
            "first" => true,
            "beside" => false,
            _ => return None,
        };
        let cgroup = all.next().filter(|path| path != "-").map(PathBuf::from);
        let program = all.next()?;
        Some(Self { stream, grace, reserve, is_first, cgroup, program, arguments: all.collect() })
    }
}

/// Whether [`entry`] was called, so that this binary can serve as a guard.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_entered() -> bool {
    IS_ENTERED.load(Ordering::Relaxed)
}

/// Runs as a guard if the command line says so; to be called before anything else, while the process
/// has one thread.
#[must_use]
pub fn entry() -> Option<ExitCode> {
    IS_ENTERED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != VERB {
        return None;
    }
    // Before the program exists: it must never meet a guard that it can trace.
    if crate::keep_private().is_err() {
        return Some(ExitCode::from(BROKEN));
    }
    let Some(duty) = Duty::parse(arguments) else {
        eprintln!("regent: {VERB} is for `regent run` alone");
        return Some(ExitCode::from(64));
    };
    Some(match Guard::new(duty).and_then(Guard::keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(BROKEN),
    })
}

struct Guard {
    duty: Duty,
    machine: Machine,
    wrapper: Lines,
    timer: OwnedFd,
    /// News of children, as lines of numbers.
    children: Lines,
    news: UnixStream,
    program: Option<Pid>,
}

/// Whole lines of a stream, as they come.
struct Lines {
    stream: UnixStream,
    begun: Vec<u8>,
    is_closed: bool,
}

impl Lines {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, begun: Vec::new(), is_closed: false })
    }

    /// What has been said since. Whatever was said was said before the stream was closed.
    fn take(&mut self) -> Vec<String> {
        let mut bytes = [0; 4096];
        while !self.is_closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.begun.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
        }
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.begun.drain(..end).collect();
        let lines = String::from_utf8_lossy(&whole);
        lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn wait(&self) -> Option<PollFd<'_>> {
        (!self.is_closed).then(|| PollFd::new(&self.stream, PollFlags::IN))
    }
}

impl Guard {
    fn new(duty: Duty) -> io::Result<Self> {
        let own = rustix::process::getpid();
        if duty.is_first && own != Pid::INIT {
            return Err(io::Error::other("not the first process of a namespace"));
        }
        let wrapper = Lines::new(inherited(duty.stream)?)?;
        if !duty.is_first {
            // Nobody who descends from here is ever adopted by anybody farther up.
            rustix::process::set_child_subreaper(Some(own))?;
        }
        let (children, news) = UnixStream::pair()?;
        let children = Lines::new(children)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        let machine = Machine::new(duty.grace, duty.reserve);
        Ok(Self { duty, machine, wrapper, timer, children, news, program: None })
    }

    fn keep(mut self) -> io::Result<()> {
        loop {
            self.set_timer()?;
            let timer = Some(PollFd::new(&self.timer, PollFlags::IN));
            let all = [timer, self.wrapper.wait(), self.children.wait()];
            let mut waits: Vec<PollFd<'_>> = all.into_iter().flatten().collect();
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let mut events = vec![Event::Tick];
            events.extend(self.heard());
            events.extend(self.deaths());
            for event in events {
                if self.turn(event) {
                    return Ok(());
                }
            }
        }
    }

    /// Lets the machine take one event; says whether it is over.
    fn turn(&mut self, event: Event) -> bool {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.machine.on(regent_clock::now(), event) {
                match action {
                    Action::Start => events.push_back(self.start()),
                    Action::SignalGroup(number) => self.signal_group(number),
                    Action::TerminateAll => {
                        tree::signal_all(rustix::process::getpid(), Signal::TERM);
                    }
                    Action::KillAll => self.kill_all(),
                    // A wrapper that is stopped or gone hears nothing, and nothing waits for it.
                    Action::Tell(report) => {
                        let _ = self.wrapper.stream.write_all(report.line().as_bytes());
                    }
                    Action::Quit => {
                        if let Some(path) = &self.duty.cgroup {
                            cgroup::remove(path);
                        }
                        return true;
                    }
                }
            }
        }
        false
    }

    fn start(&mut self) -> Event {
        let mut command = Command::new(&self.duty.program);
        command.args(&self.duty.arguments).process_group(0);
        if !self.duty.is_first
            && let Err(error) = bind(&mut command, self.duty.cgroup.as_deref())
        {
            return failed(&error);
        }
        match command.spawn() {
            Ok(child) => {
                self.program = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let news = self.news.try_clone();
                std::thread::spawn(move || news.map(reap));
                Event::Started(child.id())
            }
            Err(error) => failed(&error),
        }
    }

    fn signal_group(&self, number: i32) {
        if let (Some(group), Some(signal)) = (self.program, Signal::from_named_raw(number)) {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    fn kill_all(&self) {
        if self.duty.is_first {
            // The kernel kills everybody else in the namespace before anybody can wait for us.
            std::process::exit(0);
        }
        if let Some(path) = &self.duty.cgroup {
            let _ = cgroup::kill(path);
        }
        tree::signal_all(rustix::process::getpid(), Signal::KILL);
    }

    /// What the wrapper said since. A line that means nothing ends the tree like silence does.
    fn heard(&mut self) -> Vec<Event> {
        let was_closed = self.wrapper.is_closed;
        let said = self.wrapper.take();
        let closed = (self.wrapper.is_closed && !was_closed).then_some(Event::Closed);
        said.iter()
            .map(|line| Order::parse(line).map_or(Event::Closed, Event::Order))
            .chain(closed)
            .collect()
    }

    fn deaths(&mut self) -> Vec<Event> {
        let told = self.children.take();
        told.iter().filter_map(|line| self.death(line)).collect()
    }

    fn death(&self, line: &str) -> Option<Event> {
        if line == "none" {
            return Some(Event::Empty);
        }
        let mut numbers = line.split(' ').map(str::parse::<i32>);
        let (pid, code, signal) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        (Pid::from_raw(pid) == self.program).then(|| {
            Event::Exited(match (u8::try_from(code), u8::try_from(signal)) {
                (Ok(code), _) => Status::Code(code),
                (Err(_), Ok(signal)) => Status::Signal(signal),
                (Err(_), Err(_)) => Status::Code(BROKEN),
            })
        })
    }

    /// The timer may be slewed against the lease clock by 8 %, so it is set for a little less than
    /// what is left and set again: it is never late by more than the last, shortest step.
    fn set_timer(&self) -> io::Result<()> {
        let now = regent_clock::now();
        let pause = self.machine.wake_at().map_or(Duration::from_secs(1), |at| pause(now, at));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

fn pause(now: Moment, at: Moment) -> Duration {
    let left = now.until(at);
    let shy = left.mul_f64(0.9);
    if shy > Duration::from_millis(2) { shy } else { left.max(Duration::from_micros(100)) }
}

fn failed(error: &io::Error) -> Event {
    Event::Failed(error.raw_os_error().unwrap_or(0), plain(error).to_lowercase())
}

/// Waits for children until there are none, which is when nobody of the tree is left: whoever loses
/// its parent becomes a child of this process.
fn reap(mut news: UnixStream) {
    loop {
        let line = match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => line_of(pid, status),
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => "none\n".to_owned(),
        };
        if news.write_all(line.as_bytes()).is_err() || line == "none\n" {
            return;
        }
    }
}

fn line_of(pid: Pid, status: WaitStatus) -> String {
    let code = status.exit_status().unwrap_or(-1);
    let signal = status.terminating_signal().unwrap_or(-1);
    format!("{} {code} {signal}\n", pid.as_raw_nonzero())
}

#[allow(unsafe_code, reason = "what is inherited has a number and nothing else")]
fn inherited(stream: RawFd) -> io::Result<UnixStream> {
    if stream <= 2 {
        return Err(io::Error::other("the stream cannot be a standard one"));
    }
    // SAFETY: the wrapper passes exactly this descriptor on for this process alone, and nothing has
    // been opened here before it is taken.
    let stream = unsafe { OwnedFd::from_raw_fd(stream) };
    // The program must not hold it open.
    rustix::io::fcntl_setfd(stream.as_fd(), rustix::io::FdFlags::CLOEXEC)?;
    Ok(UnixStream::from(stream))
}

/// Binds a program that lives in no namespace of its own: it dies with its guard, and is in its cgroup
/// before it is itself.
#[allow(unsafe_code, reason = "only the child itself can ask to die with its parent")]
fn bind(command: &mut Command, cgroup: Option<&Path>) -> io::Result<()> {
    let guard = rustix::process::getpid();
    let group = cgroup
        .map(|path| std::fs::OpenOptions::new().write(true).open(path.join("cgroup.procs")))
        .transpose()?;
    let enter = move || {
        if let Some(mut file) = group.as_ref() {
            // Zero is whoever writes it.
            file.write_all(b"0")?;
        }
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // A guard that died before the signal was asked for sends none.
        if rustix::process::getppid() == Some(guard) {
            Ok(())
        } else {
            Err(io::ErrorKind::Other.into())
        }
    };
    // SAFETY: between fork and exec this makes system calls on values made before, and allocates
    // nothing.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duty_survives_its_way_through_the_command_line() {
        for (is_first, cgroup) in [(true, None), (false, Some(PathBuf::from("/c/regent-1")))] {
            let duty = Duty {
                stream: 7,
                grace: Duration::from_millis(1500),
                reserve: Duration::from_millis(500),
                is_first,
                cgroup,
                program: "sh".into(),
                arguments: vec!["-c".into(), "--".into(), "a b".into()],
            };
            let all = duty.to_arguments();
            assert_eq!(all[1], VERB);
            assert_eq!(Duty::parse(all.into_iter().skip(2)), Some(duty));
        }
        for line in ["", "x 1 1 first - sh", "7 1 1 last - sh", "7 1 1 first -"] {
            let words = line.split_whitespace().map(OsString::from);
            assert_eq!(Duty::parse(words), None, "{line}");
        }
    }

    #[test]
    fn a_timer_is_never_set_beyond_what_is_left() {
        let (now, mut at) = (Moment::from_millis(1000), Moment::from_millis(11_000));
        for _ in 0..100 {
            let step = pause(now, at);
            assert!(step <= now.until(at).max(Duration::from_micros(100)), "{step:?}");
            at = at - step;
        }
        assert!(at <= now, "it gets there: {at}");
    }
}
