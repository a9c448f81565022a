//! Makes the guard's process: by hand, because no safe call makes the first process of a namespace.
//!
//! `clone3` with `CLONE_NEWPID` is a fork whose child is process 1 of a namespace of its own. The
//! road not taken, `unshare` before a usual spawn, would drag every later child of the wrapper (its
//! hooks) into the same namespace, and fails altogether once its first process is gone.
//!
//! Between clone and exec the child is a copy of one thread of a process that has others: it may use
//! nothing that another thread may have held locked, so no allocation and no standard library. All it
//! needs is prepared before; it makes system calls and nothing else.
#![allow(unsafe_code, reason = "clone3 and what its child does before exec have no safe form")]

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::ptr;

use rustix::process::{Pid, Signal, WaitOptions};

/// Which namespaces a guard lives in, beside the one of process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// A user namespace, for those who may make no other: set-user-id programs lose their power in it.
    pub(crate) users: bool,
    /// A mount namespace with a `/proc` that shows the processes of this pid namespace. Mounts made
    /// outside are seen inside; mounts made inside stay there.
    pub(crate) mounts: bool,
}

impl Namespace {
    pub(crate) const BEST_FIRST: [Self; 4] = [
        Self { users: false, mounts: true },
        Self { users: true, mounts: true },
        Self { users: false, mounts: false },
        Self { users: true, mounts: false },
    ];

    const fn flags(self) -> u64 {
        let mut flags = libc::CLONE_NEWPID;
        if self.users {
            flags |= libc::CLONE_NEWUSER;
        }
        if self.mounts {
            flags |= libc::CLONE_NEWNS;
        }
        flags as u64
    }
}

/// What to run as the guard.
pub(crate) struct Image {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// The program at `path`, with these arguments (the first is its name) and this environment.
    pub(crate) fn new(
        path: &OsStr,
        arguments: Vec<OsString>,
        environment: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
        let pair = |(name, value): &(OsString, OsString)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            text(pair)
        };
        Ok(Self {
            path: CString::new(path.as_bytes())?,
            arguments: arguments.into_iter().map(text).collect::<Result<_, _>>()?,
            environment: environment.iter().map(pair).collect::<Result<_, _>>()?,
        })
    }
}

/// Starts the image in a session of its own. It inherits `theirs`, under the number it has here, and
/// of what this process keeps to itself nothing else.
pub(crate) fn start(
    namespace: Option<Namespace>,
    image: &Image,
    ours: &UnixStream,
    theirs: &UnixStream,
) -> io::Result<Pid> {
    let pid = fork(namespace, Some(image), theirs.as_raw_fd())?;
    open_gate(namespace, pid, ours)
}

/// Makes these namespaces once and leaves them at once, to see whether it can be done.
pub(crate) fn try_out(namespace: Namespace) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let pid = fork(Some(namespace), None, theirs.as_raw_fd())?;
    let pid = open_gate(Some(namespace), pid, &ours)?;
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::empty())?
        .ok_or_else(|| io::Error::other("the trial did not end"))?;
    match status.exit_status() {
        Some(0) => Ok(()),
        Some(_) | None => Err(io::Error::other("/proc cannot be mounted in it")),
    }
}

/// Maps the user into its namespace and lets the child go on. A child that cannot be let go is killed.
fn open_gate(namespace: Option<Namespace>, pid: Pid, mut ours: &UnixStream) -> io::Result<Pid> {
    let mapped = match namespace {
        Some(Namespace { users: true, .. }) => {
            // Its files in /proc are ours only once it has made itself dumpable.
            let mut ready = [0];
            ours.read_exact(&mut ready).and_then(|()| map_user(pid))
        }
        Some(Namespace { users: false, .. }) | None => Ok(()),
    };
    match mapped.and_then(|()| ours.write_all(b"\n")) {
        Ok(()) => Ok(pid),
        Err(error) => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            Err(error)
        }
    }
}

/// The user and group stay who they are; everybody else is nobody in there.
fn map_user(pid: Pid) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let at = |name: &str| format!("/proc/{}/{name}", pid.as_raw_nonzero());
    std::fs::write(at("setgroups"), "deny")?;
    std::fs::write(at("uid_map"), format!("{uid} {uid} 1"))?;
    std::fs::write(at("gid_map"), format!("{gid} {gid} 1"))
}

/// Forks, into namespaces if asked to. The child waits at the gate and then becomes the image, or, if
/// there is none, ends with 0 if its `/proc` is its own as far as that was asked for.
fn fork(namespace: Option<Namespace>, image: Option<&Image>, stream: RawFd) -> io::Result<Pid> {
    let end = [ptr::null()];
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain(end).collect()
    };
    let empty: &[CString] = &[];
    let arguments = list(image.map_or(empty, |image| &image.arguments));
    let environment = list(image.map_or(empty, |image| &image.environment));
    let life = Life {
        path: image.map_or(ptr::null(), |image| image.path.as_ptr()),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        stream,
        mounts: namespace.is_some_and(|namespace| namespace.mounts),
        users: namespace.is_some_and(|namespace| namespace.users),
    };
    // SAFETY: a zeroed `clone_args` is a valid one: every field is a number whose zero means "none".
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.flags = namespace.map_or(0, Namespace::flags);
    wanted.exit_signal = libc::SIGCHLD as u64;
    let size = std::mem::size_of::<libc::clone_args>();
    // SAFETY: `wanted` is valid for the call. Without CLONE_VM the child has a copy of all memory and
    // runs on a copy of this stack; it calls nothing but `Life::live`, which keeps to system calls
    // and never returns.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size) };
    if pid == 0 {
        // SAFETY: this is the child, with everything `life` points to copied with the memory.
        unsafe { life.live() }
    }
    let mut error = io::Error::last_os_error();
    if pid < 0 && error.raw_os_error() == Some(libc::ENOSYS) && namespace.is_none() {
        // SAFETY: as above; a plain fork is all that was asked for.
        pid = unsafe { libc::fork() }.into();
        if pid == 0 {
            // SAFETY: as above.
            unsafe { life.live() }
        }
        error = io::Error::last_os_error();
    }
    i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw).ok_or(error)
}

/// Everything the child needs, allocated before it was born.
struct Life {
    path: *const libc::c_char,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    stream: RawFd,
    mounts: bool,
    users: bool,
}

impl Life {
    /// The child's life until it becomes the image.
    ///
    /// # Safety
    /// Only in a process that was just forked, with pointers that are still good. Nothing here may
    /// allocate, lock or unwind.
    unsafe fn live(&self) -> ! {
        // SAFETY: plain system calls on memory of this process; the texts end with a zero byte.
        unsafe {
            let mut byte = 0_u8;
            if self.users {
                // A copy of a wrapper that keeps itself private is private, too, and nobody could map its users. It is
                // dumpable until it becomes the guard, which is private again before it starts anything.
                libc::prctl(libc::PR_SET_DUMPABLE, 1);
                if libc::write(self.stream, (&raw const byte).cast(), 1) != 1 {
                    libc::_exit(1);
                }
            }
            // The wrapper opens the gate when the user is mapped; if it is gone, so is the purpose.
            if libc::read(self.stream, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(1);
            }
            let is_whole = !self.mounts || own_proc();
            if self.path.is_null() {
                libc::_exit(i32::from(!is_whole));
            }
            libc::setsid();
            // A guard that was stopped must wake to hear that its wrapper is gone.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT);
            libc::fcntl(self.stream, libc::F_SETFD, 0);
            libc::execve(self.path, self.arguments, self.environment);
            libc::_exit(127)
        }
    }
}

/// Gives this mount namespace a `/proc` of its own.
///
/// # Safety
/// Only in a fresh mount namespace. Mounts are cut off from the outside first: without that, the
/// mount would appear in the namespace this one was copied from.
unsafe fn own_proc() -> bool {
    let none: *const libc::c_char = ptr::null();
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: plain system calls with texts that end with a zero byte.
    unsafe {
        libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, ptr::null()) == 0
            && libc::mount(
                c"proc".as_ptr(),
                c"/proc".as_ptr(),
                c"proc".as_ptr(),
                flags,
                ptr::null(),
            ) == 0
    }
}
