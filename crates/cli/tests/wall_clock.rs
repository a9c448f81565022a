//! The wall clock is set forward and back under a server and two `regent run`: nothing changes.
//!
//! Setting the machine's clock would disturb everybody on it. So a few lines of C stand before the C
//! library in the processes of this test and move `CLOCK_REALTIME`, and nothing else, by the seconds
//! that a file says. The test first looks whether that works, with a program that is not ours; where it
//! does not (no compiler, no preloading), it says so and shows nothing.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use process::recorder::Recorder;
use process::{Room, Running, until};

/// Long enough that a busy machine loses nothing by itself.
const TTL: Duration = Duration::from_secs(8);
const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long moved_by(void) {
    char text[32] = {0};
    const char *path = getenv("WALL_CLOCK_MOVED_BY");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    return count > 0 ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += moved_by();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"#;

/// A wall clock that can be set.
struct WallClock<'a> {
    room: &'a Room,
}

impl<'a> WallClock<'a> {
    fn new(room: &'a Room) -> Result<Self, String> {
        fs::write(room.path("shim.c"), SHIM).unwrap();
        let shim = Self { room };
        shim.set(0);
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([room.path("shim.so"), room.path("shim.c")])
            .arg("-ldl")
            .output()
            .map_err(|error| format!("there is no C compiler: {error}"))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        for moved_by in [-YEAR, HOUR, 0] {
            shim.set(moved_by);
            let wrong_by = shim.shown_by_date() - moved_by;
            if wrong_by.abs() > HOUR / 2 {
                return Err(format!("moved by {moved_by} s, `date` is wrong by {wrong_by} s"));
            }
        }
        Ok(shim)
    }

    /// Moves the wall clock of everything under the shim, in one step: a file is renamed.
    fn set(&self, moved_by: i64) {
        let (draft, file) = (self.room.path("moved.new"), self.room.path("moved"));
        fs::write(&draft, moved_by.to_string()).unwrap();
        fs::rename(draft, file).unwrap();
    }

    fn under(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", self.room.path("shim.so"));
        command.env("WALL_CLOCK_MOVED_BY", self.room.path("moved"));
        command
    }

    /// By how many seconds `date` under the shim differs from this process.
    fn shown_by_date(&self) -> i64 {
        let mut date = Command::new("date");
        date.arg("+%s");
        let said = self.under(date).output().unwrap();
        let shown: i64 = String::from_utf8_lossy(&said.stdout).trim().parse().unwrap();
        let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        shown - real as i64
    }
}

#[test]
fn a_wall_clock_set_forward_and_back_changes_nothing() {
    let room = Room::new();
    let clock = match WallClock::new(&room) {
        Ok(clock) => clock,
        Err(why) => {
            eprintln!("SKIPPED: the wall clock of a process cannot be moved here: {why}");
            return;
        }
    };
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &room.text("data")];
    let server = room.serve_as(clock.under(room.command(&arguments)));
    let recorder = Recorder::new(&room);
    let ttl = format!("{}s", TTL.as_secs());
    let run = |node: &str| {
        let command = recorder.command(&server.url, node, &["--ttl", &ttl], &["meek"]);
        Running::start(&room, clock.under(command))
    };
    let mut a = run("a");
    recorder.await_line("start", "a");
    let _b = run("b");
    until("b stands", || server.standbys(&room, "billing") == 1);

    // Forward, whatever was counted on this clock is over at once; back, it is never renewed again
    // and over after a ttl.
    for (moved_by, for_secs) in
        [(HOUR, 2), (-YEAR, TTL.as_secs() + 2), (YEAR, 2), (-HOUR, TTL.as_secs() + 2), (0, 1)]
    {
        clock.set(moved_by);
        sleep(Duration::from_secs(for_secs));
        let lines = recorder.lines();
        assert_eq!(lines, [("start".to_owned(), "a".to_owned(), 1)], "moved by {moved_by} s");
        assert_eq!(server.standbys(&room, "billing"), 1, "moved by {moved_by} s");
    }

    // Nor does a takeover wait for a clock that was set back.
    a.signal("KILL");
    a.wait();
    clock.set(-YEAR);
    recorder.await_line("start", "b");
    recorder.check(2);
}
