//! The flags of every setting of `regent serve`, and `regent config`.
//!
//! Flags are taken as text and checked with everything else, so that a bad value is told in the same
//! words wherever it stands.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::{Effective, Key, SAMPLE, Settings, Value, find_file};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::logs::LogArgs;
use crate::output::{Output, Screen, json};

/// One flag per setting; logging has flags of its own, since every verb may log.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Read settings from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Whether callers need a credential: off or required [default: off]
    #[arg(long, value_name = "WORD")]
    auth: Option<String>,
    /// The Unix socket for this machine's administrators
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Where the embedded store keeps its data [default: $XDG_DATA_HOME/regent]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Which store: replica:, replica:DIR, memory: or a URL [default: replica:]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where other replicas are listened to [default: 127.0.0.1:7401]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Cluster")]
    peer_listen: Option<String>,
    /// Where other replicas reach this one, if it founds a cluster of one
    #[arg(long, value_name = "HOST:PORT", help_heading = "Cluster")]
    peer_advertise: Option<String>,
    /// Where clients reach this replica, if it founds a cluster of one
    #[arg(long, value_name = "HOST:PORT", help_heading = "Cluster")]
    client_advertise: Option<String>,
    /// This replica's certificate, for mutual TLS between replicas
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    peer_cert: Option<String>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    peer_key: Option<String>,
    /// The certificates of the CAs that peers are believed by
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    peer_ca: Option<String>,
    /// Whether peers without TLS and clients without auth may be elsewhere
    #[arg(long, value_name = "BOOL", help_heading = "Cluster", num_args = 0..=1,
        default_missing_value = "true")]
    insecure: Option<String>,
    /// Timers of the cluster: lan or wan [default: lan]
    #[arg(long, value_name = "PROFILE", help_heading = "Cluster")]
    timing: Option<String>,
    /// Shortest silence before a replica stands for election [default: by timing]
    #[arg(long, value_name = "DURATION", help_heading = "Cluster")]
    election_min: Option<String>,
    /// Longest such silence [default: by timing]
    #[arg(long, value_name = "DURATION", help_heading = "Cluster")]
    election_max: Option<String>,
    /// How often the leading replica shows itself [default: by timing]
    #[arg(long, value_name = "DURATION", help_heading = "Cluster")]
    heartbeat: Option<String>,
    /// How long a peer has to answer [default: by timing]
    #[arg(long, value_name = "DURATION", help_heading = "Cluster")]
    peer_request: Option<String>,
    /// Whether time-outs follow the network: off, report or apply [default: report]
    #[arg(long, value_name = "WORD", help_heading = "Cluster")]
    tune: Option<String>,
    /// Changes between two snapshots of a replica
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    snapshot_every: Option<String>,
    /// Bytes of one file of the log [default: 67108864]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    segment_bytes: Option<String>,
    /// Most bytes of the flight recorder's files; 0: none
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    flight_bytes: Option<String>,
    /// Whether a replica that joins is a witness [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Cluster", num_args = 0..=1,
        default_missing_value = "true")]
    witness: Option<String>,
    /// Whether the first campaign in a group creates it [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Store")]
    auto_create: Option<String>,
    /// Most groups, whoever created them
    #[arg(long, value_name = "N", help_heading = "Store")]
    groups_max: Option<String>,
    /// Shortest ttl in groups without a policy of their own [default: 500ms]
    #[arg(long, value_name = "DURATION", help_heading = "Store")]
    ttl_min: Option<String>,
    /// Longest ttl any session may have [default: 1h]
    #[arg(long, value_name = "DURATION", help_heading = "Store")]
    ttl_max: Option<String>,
    /// The cluster label in metrics [default: regent]
    #[arg(long, value_name = "NAME", help_heading = "Service")]
    cluster: Option<String>,
    /// Host names under which browsers may use this server
    #[arg(long, value_name = "NAMES", help_heading = "Service")]
    hosts_allowed: Option<String>,
    /// The file of keys by which terms are signed
    #[arg(long, value_name = "FILE", help_heading = "Service")]
    signing_keys: Option<String>,
    /// A command to run when somebody acts as leader who must not
    #[arg(long, value_name = "COMMAND", help_heading = "Service")]
    on_split_brain: Option<String>,
    /// About leaders that will soon fail: report, hand-over or off
    #[arg(long, value_name = "WHAT", help_heading = "Service")]
    replace_failing: Option<String>,
    /// How often a silent watch shows that it lives
    #[arg(long, value_name = "DURATION", help_heading = "Service")]
    watch_bookmark_every: Option<String>,
    /// How long requests under way may take when the server shuts down
    #[arg(long, value_name = "DURATION", help_heading = "Service")]
    shutdown_grace: Option<String>,
    /// Most groups with a label of their own in metrics
    #[arg(long, value_name = "N", help_heading = "Service")]
    metrics_groups_max: Option<String>,
    /// Most connections at once
    #[arg(long, value_name = "N", help_heading = "Limits")]
    connections_max: Option<String>,
    /// Most connections from one address
    #[arg(long, value_name = "N", help_heading = "Limits")]
    connections_per_address_max: Option<String>,
    /// Most requests that ask the store at once
    #[arg(long, value_name = "N", help_heading = "Limits")]
    requests_max: Option<String>,
    /// Most requests that wait
    #[arg(long, value_name = "N", help_heading = "Limits")]
    waiting_max: Option<String>,
    /// Most requests at once on one HTTP/2 connection
    #[arg(long, value_name = "N", help_heading = "Limits")]
    http2_streams_max: Option<String>,
    /// How long a peer may take to send the head of a request
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    head_timeout: Option<String>,
    /// How long a peer may take to send the body of a request
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    body_timeout: Option<String>,
    /// How long a connection may lie idle
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    idle_timeout: Option<String>,
    /// How long a peer may read nothing
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    write_timeout: Option<String>,
    /// How long the store may take for an answer
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    request_timeout: Option<String>,
    /// How often an HTTP/2 peer is asked whether it lives
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    http2_ping_every: Option<String>,
    /// How long an HTTP/2 peer may take to say so
    #[arg(long, value_name = "DURATION", help_heading = "Limits")]
    http2_ping_timeout: Option<String>,
}

impl SettingsArgs {
    /// What holds, from these flags, the environment, the file and the defaults.
    pub(crate) fn resolve(&self, log: &LogArgs) -> Result<Effective, Failure> {
        let environment = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let file = find_file(self.config.as_deref(), &environment)?;
        Ok(Effective::resolve(&self.given(log), &environment, file.as_ref())?)
    }

    fn given(&self, log: &LogArgs) -> Vec<(Key, String)> {
        let of = |key: Key| match key {
            Key::Listen => &self.listen,
            Key::Auth => &self.auth,
            Key::Socket => &self.socket,
            Key::DataDir => &self.data_dir,
            Key::Store => &self.store,
            Key::PeerListen => &self.peer_listen,
            Key::PeerAdvertise => &self.peer_advertise,
            Key::ClientAdvertise => &self.client_advertise,
            Key::PeerCert => &self.peer_cert,
            Key::PeerKey => &self.peer_key,
            Key::PeerCa => &self.peer_ca,
            Key::Insecure => &self.insecure,
            Key::Timing => &self.timing,
            Key::ElectionMin => &self.election_min,
            Key::ElectionMax => &self.election_max,
            Key::Heartbeat => &self.heartbeat,
            Key::PeerRequest => &self.peer_request,
            Key::Tune => &self.tune,
            Key::SnapshotEvery => &self.snapshot_every,
            Key::SegmentBytes => &self.segment_bytes,
            Key::FlightBytes => &self.flight_bytes,
            Key::Witness => &self.witness,
            Key::AutoCreate => &self.auto_create,
            Key::GroupsMax => &self.groups_max,
            Key::TtlMin => &self.ttl_min,
            Key::TtlMax => &self.ttl_max,
            Key::Cluster => &self.cluster,
            Key::HostsAllowed => &self.hosts_allowed,
            Key::SigningKeys => &self.signing_keys,
            Key::OnSplitBrain => &self.on_split_brain,
            Key::ReplaceFailing => &self.replace_failing,
            Key::LogLevel => &log.log_level,
            Key::LogFormat => &log.log_format,
            Key::ConnectionsMax => &self.connections_max,
            Key::ConnectionsPerAddressMax => &self.connections_per_address_max,
            Key::RequestsMax => &self.requests_max,
            Key::WaitingMax => &self.waiting_max,
            Key::HeadTimeout => &self.head_timeout,
            Key::BodyTimeout => &self.body_timeout,
            Key::IdleTimeout => &self.idle_timeout,
            Key::WriteTimeout => &self.write_timeout,
            Key::RequestTimeout => &self.request_timeout,
            Key::WatchBookmarkEvery => &self.watch_bookmark_every,
            Key::Http2StreamsMax => &self.http2_streams_max,
            Key::Http2PingEvery => &self.http2_ping_every,
            Key::Http2PingTimeout => &self.http2_ping_timeout,
            Key::ShutdownGrace => &self.shutdown_grace,
            Key::MetricsGroupsMax => &self.metrics_groups_max,
        };
        Key::ALL.iter().filter_map(|key| Some((*key, of(*key).clone()?))).collect()
    }
}

/// Settings that matter when data are founded.
#[derive(Clone, Debug, Args)]
pub(crate) struct FoundingArgs {
    /// Read settings from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the replica keeps its data [default: $XDG_DATA_HOME/regent]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Bytes of one file of the log [default: 67108864]
    #[arg(long, value_name = "N")]
    segment_bytes: Option<String>,
    /// Whether the first campaign in a group creates it [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Store")]
    auto_create: Option<String>,
    /// Most groups, whoever created them
    #[arg(long, value_name = "N", help_heading = "Store")]
    groups_max: Option<String>,
    /// Shortest ttl in groups without a policy of their own [default: 500ms]
    #[arg(long, value_name = "DURATION", help_heading = "Store")]
    ttl_min: Option<String>,
    /// Longest ttl any session may have [default: 1h]
    #[arg(long, value_name = "DURATION", help_heading = "Store")]
    ttl_max: Option<String>,
}

impl FoundingArgs {
    /// What holds, from these flags, the environment, the file and the defaults, as for `regent
    /// serve`: both read the same file the same way.
    pub(crate) fn resolve(self, log: &LogArgs) -> Result<Settings, Failure> {
        Ok(self.effective(log)?.settings()?)
    }

    /// The same with who says so.
    pub(crate) fn effective(self, log: &LogArgs) -> Result<Effective, Failure> {
        let Self { config, data_dir, segment_bytes, auto_create, groups_max, ttl_min, ttl_max } =
            self;
        let settings = SettingsArgs {
            config,
            data_dir,
            segment_bytes,
            auto_create,
            groups_max,
            ttl_min,
            ttl_max,
            ..SettingsArgs::default()
        };
        settings.resolve(log)
    }
}

/// Verbs of `regent config`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent config show --origin
  regent config sample > regent.toml")]
pub(crate) enum ConfigVerb {
    /// Show the settings `regent serve` would run with
    Show(Box<ShowArgs>),
    /// Print a complete sample file
    Sample(SampleArgs),
}

/// Flags of `regent config show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent config show --origin
  regent config show --config regent.toml --listen 127.0.0.1:7500
  regent config show --output json")]
pub(crate) struct ShowArgs {
    /// Say where each setting comes from
    #[arg(long)]
    origin: bool,
    /// For people or for programs
    #[arg(long, short, env = "REGENT_OUTPUT", value_enum, default_value_t)]
    pub(crate) output: Output,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// Flags of `regent config sample`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent config sample > regent.toml")]
pub(crate) struct SampleArgs {}

/// Runs one of the verbs.
pub(crate) fn run(verb: &ConfigVerb, log: &LogArgs) -> CommandResult {
    match verb {
        ConfigVerb::Show(args) => show(args, log),
        ConfigVerb::Sample(SampleArgs {}) => {
            Screen { output: Output::Text }.line(SAMPLE)?;
            Ok(Exit::Done)
        }
    }
}

/// As text it is a file that could be used; as JSON every setting has its origin and meaning.
fn show(args: &ShowArgs, log: &LogArgs) -> CommandResult {
    let effective = args.settings.resolve(log)?;
    effective.settings()?;
    let screen = Screen { output: args.output };
    match args.output {
        Output::Json => {
            let object: serde_json::Map<String, serde_json::Value> = effective
                .iter()
                .map(|(key, value, origin)| {
                    let told = serde_json::json!({
                        "value": value, "origin": origin.to_string(), "about": key.about(),
                    });
                    (key.name().to_owned(), told)
                })
                .collect();
            screen.line(&json(&object))?;
        }
        Output::Text => {
            let settings: Vec<(String, String)> = effective
                .iter()
                .map(|(key, value, origin)| (line(key, value), origin.to_string()))
                .collect();
            let width = settings.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
            for (line, origin) in settings {
                screen.line(&if args.origin {
                    format!("{line:width$}  # {origin}")
                } else {
                    line
                })?;
            }
        }
    }
    Ok(Exit::Done)
}

fn line(key: Key, value: &Value) -> String {
    format!("{key} = {value}")
}
