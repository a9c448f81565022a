//! What a supervisor is to do, and the timers that follow from it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use regent::remote::Remote;
use regent_election::limits::TTL_MS_DEFAULT;
use regent_election::timing::{Budget, Drift, Wishes};
use regent_election::{BudgetError, Group, Metadata, Priority};
use regent_tether::Contain;

use crate::machine::{ProbeRules, Rules};
use crate::probe::Probe;

/// A guard on a busy machine needs time to come into being.
const GUARD_SILENCE_MIN: Duration = Duration::from_secs(2);
/// While a guard is silent, nothing watches the wrapper.
const GUARD_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long the store may take to be told of the end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What to do. [`Plan::new`] has the defaults of `regent run`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The group to lead.
    pub group: Group,
    /// The claim in the line: higher first.
    pub priority: Priority,
    /// What this process tells the world as leader.
    pub metadata: Metadata,
    /// How long the leadership lives unrenewed.
    pub ttl: Duration,
    /// Between `SIGTERM` and `SIGKILL` when the lease is ending; by default a twentieth of the ttl.
    pub grace: Option<Duration>,
    /// How long the program may take when the caller, not the lease, ends it; it leads on meanwhile.
    pub drain: Duration,
    /// How long to wait to be elected; by default as long as it takes.
    pub wait: Option<Duration>,
    /// Whether to end as soon as another node is seen to lead.
    pub once: bool,
    /// Whether to stand again when the program has ended by itself.
    pub restart: bool,
    /// Whether to end when the leadership is lost, instead of standing again.
    pub exit_on_lost: bool,
    /// How the program's descendants are held together.
    pub contain: Contain,
    /// The binary to start as the guard; by default this one, whose `main` must begin with
    /// [`guard::entry`](crate::guard::entry).
    pub guard: Option<PathBuf>,
    /// A watchdog device, which resets the machine if this process can neither renew the lease nor end the
    /// program.
    pub watchdog: Option<PathBuf>,
    /// Shell command to run when elected.
    pub on_elected: Option<String>,
    /// Shell command to run when renewals fail.
    pub on_jeopardy: Option<String>,
    /// Shell command to run when the leadership ends, however it ends.
    pub on_lost: Option<String>,
    /// What must succeed before the program starts, unless nobody led before. The group is then not followed
    /// to another store, whose server was not named here.
    pub fence_previous: Option<FencePrevious>,
    /// What must succeed while the program runs.
    pub probe: Option<Probe>,
    /// How long the first success of the probe may take.
    pub probe_start: Duration,
    /// Where to keep the file that the program finds in `REGENT_FILE`; by default in a directory of its own.
    pub state_file: Option<PathBuf>,
    /// Where to answer `GET /` with who leads.
    pub status_listen: Option<SocketAddr>,
    /// Whether that may be an address that other machines reach: the page has neither encryption nor authentication.
    pub status_insecure: bool,
    /// Whether to tell the service manager that started this process (`NOTIFY_SOCKET`) how it goes.
    pub notifies_manager: bool,
}

/// Makes sure that the previous leader does nothing any more (STONITH).
#[derive(Clone, Debug)]
pub struct FencePrevious {
    /// Shell command to run. `REGENT_PREVIOUS_NODE`, `_TERM` and `_METADATA` say who led before.
    pub command: String,
    /// The server to ask for the group's history.
    pub server: Remote,
}

impl Plan {
    /// Leads `group` with every option at its default.
    #[must_use]
    pub fn new(group: Group) -> Self {
        Self {
            group,
            priority: 0,
            metadata: Metadata::NONE,
            ttl: Duration::from_millis(TTL_MS_DEFAULT),
            grace: None,
            drain: Duration::from_secs(30),
            wait: None,
            once: false,
            restart: false,
            exit_on_lost: false,
            contain: Contain::default(),
            guard: None,
            watchdog: None,
            on_elected: None,
            on_jeopardy: None,
            on_lost: None,
            fence_previous: None,
            probe: None,
            probe_start: Duration::from_secs(30),
            state_file: None,
            status_listen: None,
            status_insecure: false,
            notifies_manager: false,
        }
    }

    /// The timers, if they fit together.
    pub fn budget(&self) -> Result<Budget, BudgetError> {
        let grace = self.grace.map(|grace| grace + self.reserve());
        let wishes = Wishes { stop_grace_ms: grace.map(millis), ..Wishes::default() };
        Drift::from_ppm(regent_clock::drift_ppm())
            .and_then(|drift| Budget::with(millis(self.ttl), drift, wishes))
    }

    /// The part of the stop that belongs to the kernel.
    pub(crate) fn reserve(&self) -> Duration {
        Duration::from_millis((millis(self.ttl) / 20).max(1))
    }

    /// What the machine has to know.
    pub(crate) fn rules(&self) -> Rules {
        let ttl = self.ttl;
        Rules {
            reserve: self.reserve(),
            guard_silence: ttl.clamp(GUARD_SILENCE_MIN, GUARD_SILENCE_MAX),
            drain: self.drain,
            // A candidate that cannot see who leads within a ttl need not wait any longer for it.
            wait: if self.once { Some(ttl) } else { self.wait },
            once: self.once,
            restart: self.restart,
            exit_on_lost: self.exit_on_lost,
            fences: self.fence_previous.is_some(),
            probe: self
                .probe
                .as_ref()
                .map(|_| ProbeRules { limit: ttl / 2, start: self.probe_start.max(ttl / 2) }),
            farewell: FAREWELL,
        }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as people read it.
pub(crate) fn show(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(millis(duration))).to_string()
}
