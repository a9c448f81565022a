//! Settings of `regent serve`: flag, environment, file, default, in that order; checked once.
//!
//! Every value remembers where it came from, because the first question about a setting that is not
//! what one expected is "who says so?" (`regent config show --origin`).
//!
//! One file is read, not a merge of several: what holds should be readable in one place.

mod budget;
mod file;
mod key;
mod place;
mod replica;
mod tls;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regent_audit::DIRECTORY;
use regent_election::{Policy, Settings as StoreSettings};
use regent_server::{AuditConfig, Auth, ServerConfig};
use serde::{Serialize, Serializer};

use crate::socket::SOCKET_NAME;

pub use file::File;
pub use key::{Flag, Key, LOG_FORMATS, LOG_LEVELS, STORE_DEFAULT};
pub use place::Environment;
pub use value::{Value, ValueKind};

use crate::client_tls::ClientPort;
use crate::duration::millis;
use crate::replica::ReplicaSettings;

/// The sample that lists every setting at its default.
pub const SAMPLE: &str = include_str!("../../../../config/regent.toml");

/// Why settings are refused. The message is one line with the place and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file that was named cannot be read.
    #[error("{why}; name another file with --config")]
    Unreadable {
        /// Which, and why.
        why: String,
    },
    /// A line of a file is wrong.
    #[error("{}:{line}: {what}", .path.display())]
    Line {
        path: PathBuf,
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A flag or a variable is wrong.
    #[error("{origin}: {what}")]
    Given {
        origin: Origin,
        /// What is wrong with it.
        what: String,
    },
    /// The settings do not fit together.
    #[error("{what}")]
    Together {
        /// What is wrong, and who said so.
        what: String,
    },
}

/// Who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This flag.
    Flag(String),
    /// This environment variable.
    Variable(String),
    /// This line of a file.
    Line(PathBuf, usize),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// What holds, and who says so.
#[derive(Clone, Debug)]
pub struct Effective {
    values: BTreeMap<Key, (Value, Origin)>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
}

/// Settings of the service, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The Unix socket to listen on, too.
    pub socket: Option<PathBuf>,
    /// How TLS is spoken to clients, if it is.
    pub tls: Option<ClientPort>,
    /// Where the embedded store keeps its data.
    pub data_dir: PathBuf,
    pub store: String,
    /// How much is logged.
    pub log_level: String,
    /// How a line of the log looks.
    pub log_format: String,
    /// What holds for the whole store.
    pub store_settings: StoreSettings,
    /// What holds for this replica of a cluster.
    pub replica: ReplicaSettings,
    /// How many bytes its flight recorder keeps.
    pub flight_bytes: u64,
    /// The command that is run when a second leader is detected. `server` does not run it.
    pub on_split_brain: Option<String>,
    /// The rest.
    pub server: ServerConfig,
}

/// Finds the file to read: the one named by the flag or `REGENT_CONFIG`, which must exist, or the
/// first of the usual places that does.
pub fn find_file(
    flag: Option<&Path>,
    environment: Environment<'_>,
) -> Result<Option<File>, ConfigError> {
    let named = flag
        .map(Path::to_owned)
        .or_else(|| place::set(environment, "REGENT_CONFIG").map(PathBuf::from));
    match named {
        Some(path) => File::read(&path).map(Some),
        None => place::config_files(environment)
            .iter()
            .find(|path| path.is_file())
            .map(|path| File::read(path))
            .transpose(),
    }
}

/// Every setting with its value, its origin and its meaning.
impl Serialize for Effective {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Setting<'a> {
            about: &'a str,
            origin: String,
            value: &'a Value,
        }
        serializer.collect_map(self.iter().map(|(key, value, origin)| {
            (key.name(), Setting { about: key.about(), origin: origin.to_string(), value })
        }))
    }
}

impl Effective {
    /// Settles every setting.
    pub fn resolve(
        flags: &[(Key, String)],
        environment: Environment<'_>,
        file: Option<&File>,
    ) -> Result<Self, ConfigError> {
        let mut values: BTreeMap<Key, (Value, Origin)> =
            Key::ALL.iter().map(|key| (*key, (key.default(), Origin::Default))).collect();
        if let Some(file) = file {
            for (key, value, line) in file.settings()? {
                values.insert(key, (value, Origin::Line(file.path.clone(), line)));
            }
        }
        for key in Key::ALL {
            let name = key.variable();
            if let Some(value) = place::set(environment, &name) {
                let origin = Origin::Variable(name);
                values.insert(*key, (given(*key, &value, &origin)?, origin));
            }
        }
        for (key, text) in flags {
            let origin = Origin::Flag(key.flag());
            values.insert(*key, (given(*key, &OsString::from(text), &origin)?, origin));
        }
        if let Some((Value::Directory(path), _)) = values.get_mut(&Key::DataDir)
            && path.as_os_str().is_empty()
        {
            *path = place::data_dir(environment);
        }
        Ok(Self { values, file: file.map(|file| file.path.clone()) })
    }

    /// Every setting with its value and origin, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Value, &Origin)> {
        self.values.iter().map(|(key, (value, origin))| (*key, value, origin))
    }

    /// All settings as a file that could be used, one a line; with who says so, as a comment behind each.
    #[must_use]
    pub fn to_file(&self, with_origins: bool) -> String {
        let lines: Vec<(String, &Origin)> = self
            .iter()
            .map(|(key, value, origin)| (format!("{} = {value}", key.name()), origin))
            .collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
        let lines = lines.into_iter().map(|(line, origin)| match with_origins {
            true => format!("{line:width$}  # {origin}"),
            false => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Who says what this setting is.
    pub fn origin(&self, key: Key) -> &Origin {
        &self.values[&key].1
    }

    /// The settings as the parts take them, if they fit together.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let path = |key| Some(self.text(key)).filter(|it| !it.is_empty()).map(PathBuf::from);
        let server = ServerConfig {
            cluster: self.text(Key::Cluster),
            auth: Auth::find(&self.text(Key::Auth)).unwrap_or_default(),
            token_issuers: path(Key::TokenIssuers),
            hosts_allowed: self.words(Key::HostsAllowed),
            signing_keys: path(Key::SigningKeys),
            audit: self.audit()?,
            on_split_brain: None,
            replace_failing: self.text(Key::ReplaceFailing).parse().unwrap_or_default(),
            connections_max: self.count(Key::ConnectionsMax) as usize,
            connections_per_address_max: self.count(Key::ConnectionsPerAddressMax) as usize,
            requests_max: self.count(Key::RequestsMax) as usize,
            queue_delay_max: self.duration(Key::QueueDelayMax),
            waiting_max: self.count(Key::WaitingMax) as usize,
            requests_per_principal: self.count(Key::RequestsPerPrincipal),
            renewals_per_principal: self.count(Key::RenewalsPerPrincipal),
            head_timeout: self.duration(Key::HeadTimeout),
            body_timeout: self.duration(Key::BodyTimeout),
            idle_timeout: self.duration(Key::IdleTimeout),
            write_timeout: self.duration(Key::WriteTimeout),
            request_timeout: self.duration(Key::RequestTimeout),
            watch_bookmark_every: self.duration(Key::WatchBookmarkEvery),
            http2_streams_max: self.count(Key::Http2StreamsMax),
            http2_ping_every: self.duration(Key::Http2PingEvery),
            http2_ping_timeout: self.duration(Key::Http2PingTimeout),
            shutdown_grace: self.duration(Key::ShutdownGrace),
            metrics_groups_max: self.count(Key::MetricsGroupsMax) as usize,
        };
        let server = server.check().map_err(|error| {
            let what = error.to_string();
            let meant = Key::ALL.iter().find(|key| what.starts_with(key.name()));
            let said = meant.map_or(&Origin::Default, |key| self.origin(*key));
            ConfigError::Together { what: format!("{what} (from {said})") }
        })?;
        let store_settings = self.store_settings()?;
        let replica = self.replica_settings()?;
        let socket = match (self.text(Key::Socket), server.auth) {
            (path, _) if !path.is_empty() => Some(PathBuf::from(path)),
            (_, Auth::Required) => Some(self.directory(Key::DataDir).join(SOCKET_NAME)),
            (_, Auth::Off) => None,
        };
        Ok(Settings {
            listen: self.address(Key::Listen),
            socket,
            tls: self.client_port()?,
            data_dir: self.directory(Key::DataDir),
            store: self.text(Key::Store),
            log_level: self.text(Key::LogLevel),
            log_format: self.text(Key::LogFormat),
            store_settings,
            replica,
            flight_bytes: u64::from(self.count(Key::FlightBytes)),
            on_split_brain: Some(self.text(Key::OnSplitBrain)).filter(|line| !line.is_empty()),
            server,
        })
    }

    /// Where the audit log is written, if callers are known and there is a place for it.
    fn audit(&self) -> Result<Option<AuditConfig>, ConfigError> {
        let (named, bytes_max) = (self.text(Key::AuditDir), u64::from(self.count(Key::AuditBytes)));
        if self.text(Key::Auth) != Auth::Required.word() {
            if named.is_empty() {
                return Ok(None);
            }
            let said = self.origin(Key::AuditDir);
            let what = format!(
                "audit_dir is set (from {said}) and auth is off: there is nobody to name; set auth = \"required\""
            );
            return Err(ConfigError::Together { what });
        }
        if bytes_max == 0 {
            return Ok(None);
        }
        let store = self.text(Key::Store);
        let directory = match (named.as_str(), store.strip_prefix(STORE_DEFAULT)) {
            ("", Some("")) => self.directory(Key::DataDir).join(DIRECTORY),
            ("", Some(directory)) => PathBuf::from(directory).join(DIRECTORY),
            ("", None) => return Ok(None),
            (named, _) => PathBuf::from(named),
        };
        Ok(Some(AuditConfig { directory, bytes_max }))
    }

    /// Refuses to serve whoever comes from another machine without authentication, unless that is wanted.
    pub fn check_exposure(&self) -> Result<(), ConfigError> {
        let listen = self.address(Key::Listen);
        let is_open = self.text(Key::Auth) == Auth::Off.word();
        if listen.ip().to_canonical().is_loopback() || !is_open || self.bool(Key::Insecure) {
            return Ok(());
        }
        let (address, auth) = (self.origin(Key::Listen), self.origin(Key::Auth));
        let what = format!(
            "listen {listen} (from {address}) can be reached from other machines, and auth is off (from {auth}): whoever can connect could end any leadership; set auth = \"required\", listen on loopback, or accept it with insecure = true"
        );
        Err(ConfigError::Together { what })
    }

    /// What holds for the whole store. The bounds of ttls are those of every group that has no
    /// policy of its own, too.
    pub fn store_settings(&self) -> Result<StoreSettings, ConfigError> {
        let ttl_ms_ceiling = millis(self.duration(Key::TtlMax));
        let settings = StoreSettings {
            ttl_ms_ceiling,
            auto_create: self.bool(Key::AutoCreate),
            groups_max: self.count(Key::GroupsMax).into(),
            default_policy: Policy {
                ttl_ms_min: millis(self.duration(Key::TtlMin)),
                ttl_ms_max: ttl_ms_ceiling,
                ..Policy::default()
            },
        };
        settings.check().map_err(|error| {
            let said = [Key::TtlMin, Key::TtlMax].map(|key| self.origin(key).to_string());
            let what = format!("ttl_min and ttl_max: {error} (from {})", said.join(" and "));
            ConfigError::Together { what }
        })
    }

    /// What a setting that holds text says.
    pub fn text(&self, key: Key) -> String {
        match &self.values[&key].0 {
            Value::Text(text) => text.clone(),
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn words(&self, key: Key) -> Vec<String> {
        match &self.values[&key].0 {
            Value::Words(words) => words.clone(),
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn count(&self, key: Key) -> u32 {
        match &self.values[&key].0 {
            Value::Count(count) => *count,
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn bool(&self, key: Key) -> bool {
        match &self.values[&key].0 {
            Value::Bool(is_so) => *is_so,
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn duration(&self, key: Key) -> Duration {
        match &self.values[&key].0 {
            Value::Duration(duration) => *duration,
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn address(&self, key: Key) -> SocketAddr {
        match &self.values[&key].0 {
            Value::Address(address) => *address,
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }

    fn directory(&self, key: Key) -> PathBuf {
        match &self.values[&key].0 {
            Value::Directory(path) => path.clone(),
            other => unreachable!("{key} holds {other:?}, which its kind never makes"),
        }
    }
}

fn given(key: Key, value: &OsString, origin: &Origin) -> Result<Value, ConfigError> {
    let refuse = |what| ConfigError::Given { origin: origin.clone(), what };
    let text = value.to_str().ok_or_else(|| refuse("this is not UTF-8".to_owned()))?;
    key.kind().parse_text(text).map_err(refuse)
}

/// Variables that look like a misspelt setting. Others that open with `REGENT_` are left alone: a
/// container platform sets some of its own for a service of that name.
pub fn misspelt<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    names
        .filter_map(|name| {
            let word = name.strip_prefix("REGENT_")?.to_ascii_lowercase();
            let near = Key::nearest(&word).filter(|key| key.name() != word)?;
            let is_sure = strsim::damerau_levenshtein(&word, near.name()) <= 2;
            is_sure.then(|| (name.to_owned(), near.variable()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
