//! The command line of `regent run`, and the plan it makes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use regent_election::{Group, Metadata, Node, Priority};
use regent_supervise::{Contain, FencePrevious, Plan, Probe};

use crate::campaign::parse_meta;
use crate::client::ClientArgs;
use crate::duration::parse;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  regent run --group billing -- ./billing --port 80       # on every machine; it runs on one
  regent run --group nightly --once -- ./nightly.sh       # from cron: whoever comes first
  regent run --group billing --restart -- ./billing       # stand again when the program ends
  regent run --group billing --probe http://127.0.0.1:80/healthz -- ./billing --port 80
  regent run --group db --fence-previous './power-off.sh' -- ./database
  regent run --group billing --store postgres://regent@db/elections -- ./billing

The program gets REGENT_GROUP, REGENT_NODE, REGENT_TERM (its fencing token) and REGENT_FILE, a
file of JSON that is replaced whenever the phase changes.

Exit codes: the program's own, 128 and the signal that ended it, 127 if there is no such program;
0 asked to end while standing by. Without an election: 1 another node leads (--wait, --once), 69
the server or its store cannot be asked, 75 nobody leads yet, 77 refused for good. 76 leadership
lost with --exit-on-lost.";

/// How the program's descendants are held together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ContainArg {
    /// The best that can be had
    #[default]
    Auto,
    /// A pid namespace
    Namespace,
    /// A cgroup of version 2
    Cgroup,
    /// Whoever descends from the program
    Descendants,
}

impl From<ContainArg> for Contain {
    fn from(contain: ContainArg) -> Self {
        match contain {
            ContainArg::Auto => Self::Auto,
            ContainArg::Namespace => Self::Namespace,
            ContainArg::Cgroup => Self::Cgroup,
            ContainArg::Descendants => Self::Descendants,
        }
    }
}

/// Flags of `regent run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The group
    #[arg(long, short, value_name = "GROUP")]
    pub(crate) group: Group,
    /// The candidate's name [default: the host's name and a random suffix]
    #[arg(long)]
    pub(crate) node: Option<Node>,
    /// How long the leadership lives unrenewed [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse)]
    ttl: Option<Duration>,
    /// The claim in the line: higher first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: Priority,
    /// What to tell the world as leader; repeat it for more
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_meta)]
    meta: Vec<(String, String)>,

    /// How long to wait to be elected [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = parse, conflicts_with = "once")]
    wait: Option<Duration>,
    /// Do not wait if another node leads
    #[arg(long)]
    once: bool,
    /// Stand again when the program has ended by itself
    #[arg(long)]
    restart: bool,
    /// End when the leadership is lost, instead of standing again
    #[arg(long)]
    exit_on_lost: bool,

    /// Between SIGTERM and SIGKILL when the lease is ending [default: a twentieth of the ttl]
    #[arg(long, value_name = "DURATION", value_parser = parse, help_heading = "Stopping")]
    grace: Option<Duration>,
    /// How long the program may take when you, not the lease, end it; it leads on meanwhile
    #[arg(long, value_name = "DURATION", value_parser = parse, default_value = "30s",
        help_heading = "Stopping")]
    drain: Duration,
    /// How everything that the program starts is held together
    #[arg(long, value_enum, default_value_t, help_heading = "Stopping")]
    contain: ContainArg,
    /// A watchdog of the machine, like /dev/watchdog: it resets the machine if this process can
    /// neither renew the lease nor end the program
    #[arg(long, value_name = "DEVICE", help_heading = "Stopping")]
    watchdog: Option<PathBuf>,

    /// Run this by the shell when elected
    #[arg(long, value_name = "CMD", help_heading = "Hooks")]
    on_elected: Option<String>,
    /// Run this by the shell when renewals fail
    #[arg(long, value_name = "CMD", help_heading = "Hooks")]
    on_jeopardy: Option<String>,
    /// Run this by the shell when the leadership ends, however it ends
    #[arg(long, value_name = "CMD", help_heading = "Hooks")]
    on_lost: Option<String>,
    /// Run this by the shell before the program, unless nobody led before; it must succeed
    #[arg(long, value_name = "CMD", help_heading = "Hooks")]
    pub(crate) fence_previous: Option<String>,
    /// Do not follow the group if it moves to another store; always so with --fence-previous, which
    /// would ask the old one who led before
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// Follow the group to this host or URL too, or with * to any store [default: the hosts of --server]
    #[arg(long, value_name = "HOST|URL", env = "REGENT_FOLLOW_TO", value_delimiter = ' ')]
    pub(crate) follow_to: Vec<String>,
    /// A command that must succeed, or an http: address that must answer 2xx, while the program runs
    #[arg(long, value_name = "CMD|URL", help_heading = "Hooks")]
    probe: Option<String>,
    /// How long the first success of the probe may take
    #[arg(long, value_name = "DURATION", value_parser = parse, default_value = "30s",
        help_heading = "Hooks")]
    probe_start: Duration,

    /// Where to keep the file of REGENT_FILE [default: a directory of its own]
    #[arg(long, value_name = "FILE", help_heading = "Telling")]
    state_file: Option<PathBuf>,
    /// Answer `GET /` with who leads, on this address
    #[arg(long, value_name = "ADDRESS", help_heading = "Telling")]
    status_listen: Option<SocketAddr>,
    /// Let that be an address beyond loopback, where anybody who reaches it reads who leads
    #[arg(long, help_heading = "Telling")]
    status_insecure: bool,

    /// Hold the election on this store instead, with no server between (`regent store list`)
    #[arg(long, value_name = "URL", help_heading = "Server and output")]
    pub(crate) store: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

impl RunArgs {
    /// What the supervisor is to do.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let mut plan = Plan::new(self.group.clone());
        plan.ttl = self.ttl.unwrap_or(plan.ttl);
        plan.grace = self.grace;
        plan.budget().map_err(|error| Failure::usage(format!("--ttl, --grace: {error}")))?;
        let probe = self.probe.as_deref().map(Probe::parse).transpose();
        let fence = |command: &String| -> Result<_, Failure> {
            Ok(FencePrevious { command: command.clone(), server: self.client.remote()? })
        };
        Ok(Plan {
            priority: self.priority,
            metadata: Metadata::new(self.meta.iter().map(|(key, value)| (key, value)))?,
            drain: self.drain,
            wait: self.wait,
            once: self.once,
            restart: self.restart,
            exit_on_lost: self.exit_on_lost,
            contain: self.contain.into(),
            watchdog: self.watchdog.clone(),
            on_elected: self.on_elected.clone(),
            on_jeopardy: self.on_jeopardy.clone(),
            on_lost: self.on_lost.clone(),
            fence_previous: self.fence_previous.as_ref().map(fence).transpose()?,
            probe: probe.map_err(|why| Failure::usage(format!("--probe: {why}")))?,
            probe_start: self.probe_start,
            state_file: self.state_file.clone(),
            status_listen: self.status_listen,
            status_insecure: self.status_insecure,
            notifies_manager: true,
            ..plan
        })
    }
}
