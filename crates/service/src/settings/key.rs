//! The table of settings: every name, kind, flag, meaning and default, once.
//!
//! The flag, the environment variable and the key in a file are the same word: `--request-timeout`,
//! `REGENT_REQUEST_TIMEOUT`, `request_timeout`. Defaults come from the parts they configure, so that
//! a library and the command never disagree.

use std::fmt;
use std::time::Duration;

use regent_election::Settings as StoreSettings;
use regent_election::limits::STATE_PERCENT_PER_PRINCIPAL_DEFAULT;
use regent_replica::disk::limits::SEGMENT_BYTES_DEFAULT;
use regent_replica::limits::LOG_ENTRIES_BETWEEN_SNAPSHOTS;
use regent_server::{Auth, ReplaceFailing, ServerConfig};

use super::value::{Value, ValueKind};
use crate::client_tls::ClientAuth;

/// Where the service listens if nobody says: on loopback, where nobody else can reach it.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:7400";
/// Where replicas of the same cluster are listened to if nobody says.
pub(crate) const PEER_LISTEN_DEFAULT: &str = "127.0.0.1:7401";
/// The store if nobody says: our own replicated one, in `data_dir`.
pub const STORE_DEFAULT: &str = "replica:";
/// Bytes of the flight recorder's files if nobody says: some hundred thousand elections.
const FLIGHT_BYTES_DEFAULT: u32 = 64 << 20;
/// Bytes of the audit log's files if nobody says: some four hundred thousand lines.
const AUDIT_BYTES_DEFAULT: u32 = 128 << 20;
/// Words for what is asked of peers that have certificates.
pub(crate) const PEER_TLS: &[&str] = &["required", "accept"];
/// Words for the timers of a cluster: within a data centre, or between several.
pub(crate) const TIMINGS: &[&str] = &["lan", "wan"];
/// Words for what is done about time-outs that do not suit the network.
pub(crate) const TUNES: &[&str] = &["off", "report", "apply"];
/// Words for how much is logged, least first.
pub const LOG_LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// Words for how a line of the log looks.
pub const LOG_FORMATS: &[&str] = &["text", "json"];

/// How a setting looks as a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The section of the help it stands in; empty for the first.
    pub section: &'static str,
    /// What stands for its value in the help.
    pub value: &'static str,
    /// A line of help, shorter than [`Key::about`].
    pub help: &'static str,
    /// Whether it may stand without a value, which then means `true`.
    pub is_switch: bool,
}

impl Flag {
    const fn new(section: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { section, value, help, is_switch: false }
    }

    const fn switch(section: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { section, value, help, is_switch: true }
    }
}

macro_rules! keys {
    ($($variant:ident = $name:literal, $kind:expr, $flag:expr, $about:literal;)+) => {
        /// One setting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Key {
            $(#[doc = $about] $variant,)+
        }

        impl Key {
            /// All of them, in the order in which they are shown.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in a file.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it may hold.
            pub const fn kind(self) -> ValueKind {
                match self { $(Self::$variant => $kind,)+ }
            }

            /// How it is given on the command line, beside its name.
            pub const fn on_command_line(self) -> Flag {
                match self { $(Self::$variant => $flag,)+ }
            }

            /// What it means, in a sentence.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }
    };
}

keys! {
    Listen = "listen", ValueKind::Address,
        Flag::new("", "ADDR:PORT", "Where to listen [default: 127.0.0.1:7400]"),
        "where the service listens; beyond loopback it needs auth = required, or insecure";
    Auth = "auth", ValueKind::OneOf(&Auth::WORDS),
        Flag::new("", "WORD", "Whether callers need a credential: off or required [default: off]"),
        "whether callers need a credential and a right: off (whoever reaches the service may do everything) or required";
    Socket = "socket", ValueKind::Text,
        Flag::new("", "PATH", "The Unix socket for this machine's administrators"),
        "the Unix socket on which root and the server's own user are administrators; empty means run/regent.sock in data_dir if auth is required, and none otherwise";
    TokenIssuers = "token_issuers", ValueKind::Text,
        Flag::new("", "FILE", "The file of issuers whose JSON Web Tokens are believed"),
        "the file of issuers whose JSON Web Tokens are credentials beside the cluster's own tokens (docs/security.md); empty means none";
    TlsCert = "tls_cert", ValueKind::Text,
        Flag::new("TLS", "FILE", "The server's certificate: with it, clients speak TLS only"),
        "the file of the certificate that clients see (regent tls issue --server); with tls_key the port of clients speaks TLS only; empty means plaintext";
    TlsKey = "tls_key", ValueKind::Text,
        Flag::new("TLS", "FILE", "The key of that certificate"),
        "the file of the key of tls_cert, which only the server's user may read";
    TlsClientAuth = "tls_client_auth", ValueKind::OneOf(&ClientAuth::WORDS),
        Flag::new("TLS", "WORD", "Client certificates: off, optional or required [default: off]"),
        "whether clients are asked for a certificate: off, optional (one that is shown must be good) or required (no connection without one); with auth = required a certificate says who calls";
    TlsClientCa = "tls_client_ca", ValueKind::Text,
        Flag::new("TLS", "FILE", "The certificates of the CAs that clients are believed by"),
        "the file of the certificates of the CAs that clients are believed by";
    TlsClientNames = "tls_client_names", ValueKind::Words,
        Flag::new("TLS", "NAMES", "Names of client certificates that count beside URIs: dns, cn [default: dns]"),
        "which names of a client certificate name its node if no regent:// or spiffe:// URI does: dns, cn";
    TlsCrl = "tls_crl", ValueKind::Text,
        Flag::new("TLS", "FILE", "Revocation lists for client certificates"),
        "the file of certificate revocation lists for client certificates, one of every CA that issues any; empty means that none is revoked";
    AuditDir = "audit_dir", ValueKind::Text,
        Flag::new("", "DIR", "Where changes and denials are recorded [default: audit in the data directory]"),
        "where changes and denials are recorded if auth is required; empty means audit in the data directory of our own store, and nowhere with another store";
    AuditBytes = "audit_bytes", ValueKind::Count,
        Flag::new("", "N", "Most bytes of the audit log's files; 0: none"),
        "most bytes of the audit log's files, of which the oldest go first; 0 records nothing";
    DataDir = "data_dir", ValueKind::Directory,
        Flag::new("", "DIR", "Where the embedded store keeps its data [default: $XDG_DATA_HOME/regent]"),
        "where the embedded store keeps its data; empty means $XDG_DATA_HOME/regent, ~/.local/share/regent or ./regent-data";
    Store = "store", ValueKind::Text,
        Flag::new("", "URL", "Which store: replica:, replica:DIR, memory: or a URL [default: replica:]"),
        "which store: replica: (our own, durable, alone or in a cluster, in data_dir), replica:DIR, memory: (nothing survives a restart), or a URL that `regent store list` shows";
    PeerListen = "peer_listen", ValueKind::Address,
        Flag::new("Cluster", "ADDR:PORT", "Where other replicas are listened to [default: 127.0.0.1:7401]"),
        "where replicas of the same cluster are listened to, once there are any; beyond loopback peer_cert, peer_key and peer_ca are needed";
    PeerAdvertise = "peer_advertise", ValueKind::Text,
        Flag::new("Cluster", "HOST:PORT", "Where other replicas reach this one, if it founds a cluster of one"),
        "where other replicas reach this one, written into a cluster of one when it is founded; empty means where it listens";
    ClientAdvertise = "client_advertise", ValueKind::Text,
        Flag::new("Cluster", "HOST:PORT", "Where clients reach this replica, if it founds a cluster of one"),
        "where clients reach this replica, written into a cluster of one when it is founded; empty means where it listens";
    PeerCert = "peer_cert", ValueKind::Text,
        Flag::new("Cluster", "FILE", "This replica's certificate, for mutual TLS between replicas"),
        "the file of this replica's certificate (regent tls issue); with peer_key and peer_ca all peer links use mutual TLS; empty means plaintext, on loopback only";
    PeerKey = "peer_key", ValueKind::Text,
        Flag::new("Cluster", "FILE", "The key of that certificate"),
        "the file of the key of peer_cert, which only the server's user may read";
    PeerCa = "peer_ca", ValueKind::Text,
        Flag::new("Cluster", "FILE", "The certificates of the CAs that peers are believed by"),
        "the file of the certificates of the CAs that peers are believed by (regent tls init)";
    PeerCrl = "peer_crl", ValueKind::Text,
        Flag::new("Cluster", "FILE", "Revocation lists for certificates of peers"),
        "the file of certificate revocation lists for certificates of peers, one of every CA in peer_ca; empty means that none is revoked";
    PeerTls = "peer_tls", ValueKind::OneOf(PEER_TLS),
        Flag::new("Cluster", "WORD", "Whether peers must speak TLS: required, or accept both [default: required]"),
        "whether peers must speak TLS, with peer_cert: required, or accept, which takes links without TLS too, only while a running cluster changes from plaintext to TLS replica by replica";
    Insecure = "insecure", ValueKind::Bool,
        Flag::switch("Cluster", "BOOL", "Whether peers without TLS and clients without auth may be elsewhere"),
        "whether peer links without TLS, and clients without authentication, may leave this machine; any host that reaches the ports can then depose leaders and read secrets";
    Timing = "timing", ValueKind::OneOf(TIMINGS),
        Flag::new("Cluster", "PROFILE", "Timers of the cluster: lan or wan [default: lan]"),
        "timers of the cluster: lan (replicas in one data centre) or wan (in several); the same on every replica";
    ElectionMin = "election_min", ValueKind::Duration,
        Flag::new("Cluster", "DURATION", "Shortest silence before a replica stands for election [default: by timing]"),
        "shortest silence after which a replica stands for election; 0s means that of timing";
    ElectionMax = "election_max", ValueKind::Duration,
        Flag::new("Cluster", "DURATION", "Longest such silence [default: by timing]"),
        "longest such silence; each is drawn by lot between the two; 0s means that of timing";
    Heartbeat = "heartbeat", ValueKind::Duration,
        Flag::new("Cluster", "DURATION", "How often the leading replica shows itself [default: by timing]"),
        "how often the leading replica shows itself, less than half of election_min; 0s means that of timing";
    PeerRequest = "peer_request", ValueKind::Duration,
        Flag::new("Cluster", "DURATION", "How long a peer has to answer [default: by timing]"),
        "how long a peer has to answer, less than heartbeat; 0s means that of timing";
    Tune = "tune", ValueKind::OneOf(TUNES),
        Flag::new("Cluster", "WORD", "Whether time-outs follow the network: off, report or apply [default: report]"),
        "whether a replica measures how its time-outs suit the network: off, report (regent cluster status and metrics tell), or apply (it waits longer before it stands for election, too)";
    SnapshotEvery = "snapshot_every", ValueKind::Count,
        Flag::new("Cluster", "N", "Changes between two snapshots of a replica"),
        "changes between two snapshots of a replica, which bound how long a restart takes";
    SegmentBytes = "segment_bytes", ValueKind::Count,
        Flag::new("Cluster", "N", "Bytes of one file of the log [default: 67108864]"),
        "bytes of one file of the log, of which at least three are on the disk";
    FlightBytes = "flight_bytes", ValueKind::Count,
        Flag::new("Cluster", "N", "Most bytes of the flight recorder's files; 0: none"),
        "most bytes of the flight recorder's files in data_dir/flight, which tell what a replica did; 0 records nothing";
    Witness = "witness", ValueKind::Bool,
        Flag::switch("Cluster", "BOOL", "Whether a replica that joins is a witness [default: false]"),
        "whether a replica that joins votes and keeps the log but no state, and serves no clients";
    AutoCreate = "auto_create", ValueKind::Bool,
        Flag::new("Store", "BOOL", "Whether the first campaign in a group creates it [default: true]"),
        "whether the first campaign in a group creates it";
    GroupsMax = "groups_max", ValueKind::Count,
        Flag::new("Store", "N", "Most groups, whoever created them"),
        "most groups, whoever created them";
    StateMibMax = "state_mib_max", ValueKind::Count,
        Flag::new("Store", "N", "Most memory for the state in MiB; 0: 1024, or a quarter of memory"),
        "most memory for groups, sessions and policies, in MiB; beyond it whatever grows is refused with FULL; 0 means 1024, or a quarter of this machine's memory if that is less";
    StatePercentPerPrincipal = "state_percent_per_principal", ValueKind::Count,
        Flag::new("Store", "N", "Most of state_mib_max for one principal in percent; 0: no bound [default: 25]"),
        "most of state_mib_max that one principal may take, in percent, with auth = \"required\"; beyond it what it adds is refused with FULL; 0 is no bound";
    TtlMin = "ttl_min", ValueKind::Duration,
        Flag::new("Store", "DURATION", "Shortest ttl in groups without a policy of their own [default: 500ms]"),
        "shortest ttl in groups without a policy of their own";
    TtlMax = "ttl_max", ValueKind::Duration,
        Flag::new("Store", "DURATION", "Longest ttl any session may have [default: 1h]"),
        "longest ttl any session may have; no policy may exceed it";
    Cluster = "cluster", ValueKind::Text,
        Flag::new("Service", "NAME", "The cluster label in metrics [default: regent]"),
        "the value of the cluster label in metrics";
    HostsAllowed = "hosts_allowed", ValueKind::Words,
        Flag::new("Service", "NAMES", "Host names under which browsers may use this server"),
        "host names under which browsers, and everybody on the loopback address, may use this server, beside addresses and localhost";
    SigningKeys = "signing_keys", ValueKind::Text,
        Flag::new("Service", "FILE", "The file of keys by which terms are signed"),
        "the file of keys by which terms are signed, shared by all instances (regent fence keys new FILE); empty signs nothing";
    OnSplitBrain = "on_split_brain", ValueKind::Text,
        Flag::new("Service", "COMMAND", "A command to run when somebody acts as leader who must not"),
        "a command that is run when somebody acts under a term that is not the one in office; empty runs none";
    ReplaceFailing = "replace_failing", ValueKind::OneOf(&ReplaceFailing::WORDS),
        Flag::new("Service", "WHAT", "About leaders that will soon fail: report, hand-over or off"),
        "what is done about a leader whose renewals are about to come too late: report (told in log, metrics and history), hand-over (asked to hand over to a standby that does better) or off";
    LogLevel = "log_level", ValueKind::OneOf(LOG_LEVELS),
        Flag::new("Log", "LEVEL", "How much to log on stderr"),
        "how much is logged on stderr: off, error, warn, info, debug or trace";
    LogFormat = "log_format", ValueKind::OneOf(LOG_FORMATS),
        Flag::new("Log", "FORMAT", "How a line of the log looks"),
        "how a line of the log looks: text or json";
    ConnectionsMax = "connections_max", ValueKind::Count,
        Flag::new("Limits", "N", "Most connections at once"),
        "most connections at once";
    ConnectionsPerAddressMax = "connections_per_address_max", ValueKind::Count,
        Flag::new("Limits", "N", "Most connections from one address"),
        "most connections from one address; behind a proxy all clients share one";
    RequestsMax = "requests_max", ValueKind::Count,
        Flag::new("Limits", "N", "Most requests that ask the store at once"),
        "most requests that ask the store at once; renewals are the last to be shed";
    QueueDelayMax = "queue_delay_max", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How late the server may run before it refuses watches, reads, campaigns"),
        "how late the server's tasks may run before it refuses watches, then reads and campaigns; renewals are never refused for that";
    WaitingMax = "waiting_max", ValueKind::Count,
        Flag::new("Limits", "N", "Most requests that wait"),
        "most requests that wait: watches, and campaigns with a wait";
    RequestsPerPrincipal = "requests_per_principal", ValueKind::Count,
        Flag::new("Limits", "N", "Requests a second of one principal or address, renewals aside"),
        "requests a second of one principal, or of one address without auth, beside renewals and resignations; 0 is no limit";
    RenewalsPerPrincipal = "renewals_per_principal", ValueKind::Count,
        Flag::new("Limits", "N", "Renewals and resignations a second of one principal or address"),
        "the same for heartbeats, renewals, resignations: a budget of their own; 0 is no limit";
    HeadTimeout = "head_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long a peer may take to send the head of a request"),
        "how long a peer may take to send the head of a request";
    BodyTimeout = "body_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long a peer may take to send the body of a request"),
        "how long a peer may take to send the body of a request";
    IdleTimeout = "idle_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long a connection may lie idle"),
        "how long a connection may lie idle between two requests";
    WriteTimeout = "write_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long a peer may read nothing"),
        "how long a peer may read nothing while there is something for it to read";
    RequestTimeout = "request_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long the store may take for an answer"),
        "how long the store may take for an answer, beside the time a request asked to wait";
    WatchBookmarkEvery = "watch_bookmark_every", ValueKind::Duration,
        Flag::new("Service", "DURATION", "How often a silent watch shows that it lives"),
        "how often a silent watch shows that it lives; clients give up after 45 s of silence";
    Http2StreamsMax = "http2_streams_max", ValueKind::Count,
        Flag::new("Limits", "N", "Most requests at once on one HTTP/2 connection"),
        "most requests at once on one HTTP/2 connection";
    Http2PingEvery = "http2_ping_every", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How often an HTTP/2 peer is asked whether it lives"),
        "how often an HTTP/2 peer is asked whether it lives";
    Http2PingTimeout = "http2_ping_timeout", ValueKind::Duration,
        Flag::new("Limits", "DURATION", "How long an HTTP/2 peer may take to say so"),
        "how long an HTTP/2 peer may take to say so";
    ShutdownGrace = "shutdown_grace", ValueKind::Duration,
        Flag::new("Service", "DURATION", "How long requests under way may take when the server shuts down"),
        "how long requests under way may take when the server shuts down";
    MetricsGroupsMax = "metrics_groups_max", ValueKind::Count,
        Flag::new("Service", "N", "Most groups with a label of their own in metrics"),
        "most groups with a label of their own in metrics; the others share _other";
}

impl Key {
    /// The setting of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// The setting whose name is nearest to this one, if any is near.
    pub fn nearest(name: &str) -> Option<Self> {
        let likeness = |key: &Self| strsim::jaro_winkler(&name.replace('-', "_"), key.name());
        let best = Self::ALL.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
        (likeness(&best) > 0.8).then_some(best)
    }

    /// The environment variable.
    pub fn variable(self) -> String {
        format!("REGENT_{}", self.name().to_ascii_uppercase())
    }

    /// The flag.
    pub fn flag(self) -> String {
        format!("--{}", self.name().replace('_', "-"))
    }

    /// What it holds if nobody says.
    pub fn default(self) -> Value {
        let text = |text: &str| {
            self.kind().parse_text(text).expect("a default is a value of its own kind")
        };
        let count = |count: usize| Value::Count(u32::try_from(count).unwrap_or(u32::MAX));
        let server = ServerConfig::default();
        let store = StoreSettings::default();
        let time = |ms| Value::Duration(Duration::from_millis(ms));
        match self {
            Self::Listen => text(LISTEN_DEFAULT),
            Self::Auth => text(server.auth.word()),
            Self::DataDir | Self::Socket | Self::AuditDir => text(""),
            Self::AuditBytes => Value::Count(AUDIT_BYTES_DEFAULT),
            Self::Store => text(STORE_DEFAULT),
            Self::PeerListen => text(PEER_LISTEN_DEFAULT),
            Self::PeerAdvertise | Self::ClientAdvertise => text(""),
            Self::PeerCert | Self::PeerKey | Self::PeerCa | Self::PeerCrl => text(""),
            Self::TlsCert | Self::TlsKey | Self::TlsClientCa | Self::TlsCrl => text(""),
            Self::TlsClientAuth => text(ClientAuth::WORDS[0]),
            Self::TlsClientNames => Value::Words(vec!["dns".to_owned()]),
            Self::PeerTls => text(PEER_TLS[0]),
            Self::Insecure => Value::Bool(false),
            Self::Timing => text(TIMINGS[0]),
            Self::ElectionMin | Self::ElectionMax | Self::Heartbeat | Self::PeerRequest => time(0),
            Self::Tune => text(TUNES[1]),
            Self::SnapshotEvery => {
                count(usize::try_from(LOG_ENTRIES_BETWEEN_SNAPSHOTS).unwrap_or(usize::MAX))
            }
            Self::SegmentBytes => {
                count(usize::try_from(SEGMENT_BYTES_DEFAULT).unwrap_or(usize::MAX))
            }
            Self::FlightBytes => Value::Count(FLIGHT_BYTES_DEFAULT),
            Self::Witness => Value::Bool(false),
            Self::AutoCreate => Value::Bool(store.auto_create),
            Self::GroupsMax => count(usize::try_from(store.groups_max).unwrap_or(usize::MAX)),
            Self::StateMibMax => Value::Count(0),
            Self::StatePercentPerPrincipal => Value::Count(STATE_PERCENT_PER_PRINCIPAL_DEFAULT),
            Self::TtlMin => time(store.default_policy.ttl_ms_min),
            Self::TtlMax => time(store.ttl_ms_ceiling),
            Self::Cluster => Value::Text(server.cluster),
            Self::HostsAllowed => Value::Words(server.hosts_allowed),
            Self::SigningKeys | Self::OnSplitBrain | Self::TokenIssuers => text(""),
            Self::ReplaceFailing => text(server.replace_failing.word()),
            Self::LogLevel => text("info"),
            Self::LogFormat => text("text"),
            Self::ConnectionsMax => count(server.connections_max),
            Self::ConnectionsPerAddressMax => count(server.connections_per_address_max),
            Self::RequestsMax => count(server.requests_max),
            Self::QueueDelayMax => Value::Duration(server.queue_delay_max),
            Self::WaitingMax => count(server.waiting_max),
            Self::RequestsPerPrincipal => Value::Count(server.requests_per_principal),
            Self::RenewalsPerPrincipal => Value::Count(server.renewals_per_principal),
            Self::HeadTimeout => Value::Duration(server.head_timeout),
            Self::BodyTimeout => Value::Duration(server.body_timeout),
            Self::IdleTimeout => Value::Duration(server.idle_timeout),
            Self::WriteTimeout => Value::Duration(server.write_timeout),
            Self::RequestTimeout => Value::Duration(server.request_timeout),
            Self::WatchBookmarkEvery => Value::Duration(server.watch_bookmark_every),
            Self::Http2StreamsMax => Value::Count(server.http2_streams_max),
            Self::Http2PingEvery => Value::Duration(server.http2_ping_every),
            Self::Http2PingTimeout => Value::Duration(server.http2_ping_timeout),
            Self::ShutdownGrace => Value::Duration(server.shutdown_grace),
            Self::MetricsGroupsMax => count(server.metrics_groups_max),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_default_of_its_own_kind() {
        for key in Key::ALL {
            let shown = key.default().to_string();
            let parsed = toml::de::DeValue::parse(&shown).unwrap();
            assert_eq!(key.kind().parse_toml(parsed.get_ref()), Ok(key.default()), "{key}");
            assert!(!key.about().is_empty() && !key.about().ends_with('.'), "{key}");
        }
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour_and_nonsense_finds_none() {
        assert_eq!(Key::nearest("listn"), Some(Key::Listen));
        assert_eq!(Key::nearest("data-dir"), Some(Key::DataDir));
        assert_eq!(Key::nearest("request_time_out"), Some(Key::RequestTimeout));
        assert_eq!(Key::nearest("zzzz"), None);
    }
}
