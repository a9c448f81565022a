//! Every setting of the service, its default and its reason.

use std::path::PathBuf;
use std::time::Duration;

use crate::beliefs::Alarm;
use crate::forecast::ReplaceFailing;

/// Whether callers must say who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// Whoever reaches the service may do everything.
    #[default]
    Off,
    /// Every request but those of health needs a credential and a right.
    Required,
}

impl Auth {
    /// The words of both.
    pub const WORDS: [&'static str; 2] = ["off", "required"];

    /// The word for files and people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => Self::WORDS[0],
            Self::Required => Self::WORDS[1],
        }
    }

    /// The one of this word.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        [Self::Off, Self::Required].into_iter().find(|auth| auth.word() == word)
    }
}

/// Where the audit log is written. It needs [`Auth::Required`]: without it there is nobody to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    pub directory: PathBuf,
    /// Most bytes of its files, more or less.
    pub bytes_max: u64,
}

/// Settings of the service. [`ServerConfig::default`] serves; change what you must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The value of the `cluster` label in metrics.
    pub cluster: String,
    /// Whether callers must say who they are.
    pub auth: Auth,
    /// The file of issuers whose JSON Web Tokens are believed; `None` believes none.
    pub token_issuers: Option<PathBuf>,
    /// Host names under which browsers may use this server, beside addresses and `localhost`. A
    /// name that is not listed may be another site's, pointed at this machine (DNS rebinding).
    pub hosts_allowed: Vec<String>,
    /// The file of keys by which terms are signed; `None` signs nothing.
    pub signing_keys: Option<PathBuf>,
    /// Where changes and denials are recorded; `None` records nothing.
    pub audit: Option<AuditConfig>,
    /// Who is called when somebody acts under a term that is not the one in office.
    pub on_split_brain: Option<Alarm>,
    /// What is done about a leader whose renewals say that it is about to fail.
    pub replace_failing: ReplaceFailing,
    /// Most connections at once. Lowered to what the open-files limit allows.
    pub connections_max: usize,
    /// Most connections from one address; behind a proxy all clients share one.
    pub connections_per_address_max: usize,
    /// Most requests that ask the store at once. Lower classes are shed earlier, so that renewals
    /// still get through.
    pub requests_max: usize,
    /// How late the server's tasks may run before it refuses watches, then reads and the rest, and never renewals.
    pub queue_delay_max: Duration,
    /// Most requests that wait: watches and campaigns with `wait_ms`.
    pub waiting_max: usize,
    /// Requests a second of one principal, or of one address where callers are not authenticated, beside what
    /// keeps and frees offices; zero is no limit. A quarter of what a server of a few cores answers.
    pub requests_per_principal: u32,
    /// The same for heartbeats, renewals, resignations and whatever else keeps or frees an office: a budget of its
    /// own. So much that an address with 100,000 sessions keeps them all.
    pub renewals_per_principal: u32,
    /// How long a peer may take to send a request's head, from connecting or from its first byte.
    pub head_timeout: Duration,
    /// How long a peer may take to send a request's body.
    pub body_timeout: Duration,
    /// How long a connection may lie idle between two requests.
    pub idle_timeout: Duration,
    /// How long a peer may read nothing while there is something for it to read.
    pub write_timeout: Duration,
    /// How long the store may take for an answer, beside the time a request asked to wait.
    pub request_timeout: Duration,
    /// How often a silent watch shows that it lives.
    pub watch_bookmark_every: Duration,
    /// Most requests at once on one HTTP/2 connection.
    pub http2_streams_max: u32,
    /// How often an HTTP/2 peer is asked whether it lives.
    pub http2_ping_every: Duration,
    /// How long it may take to say so.
    pub http2_ping_timeout: Duration,
    /// How long requests under way may take when the server shuts down.
    pub shutdown_grace: Duration,
    /// Most groups with a label of their own in metrics; the others share `_other`.
    pub metrics_groups_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            cluster: "regent".to_owned(),
            auth: Auth::default(),
            token_issuers: None,
            hosts_allowed: Vec::new(),
            signing_keys: None,
            audit: None,
            on_split_brain: None,
            replace_failing: ReplaceFailing::default(),
            connections_max: 20_000,
            connections_per_address_max: 4_000,
            requests_max: 4_096,
            queue_delay_max: Duration::from_millis(250),
            waiting_max: 20_000,
            requests_per_principal: 5_000,
            renewals_per_principal: 50_000,
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(20),
            request_timeout: Duration::from_secs(10),
            watch_bookmark_every: Duration::from_secs(15),
            http2_streams_max: 128,
            http2_ping_every: Duration::from_secs(15),
            http2_ping_timeout: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
            metrics_groups_max: 1_000,
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A bound or a duration of zero: nothing could ever be served.
    #[error("{setting} must be more than zero")]
    Zero { setting: &'static str },
}

impl ServerConfig {
    /// These settings, if a server can serve under them.
    pub fn check(self) -> Result<Self, ConfigError> {
        let counts = [
            ("connections_max", self.connections_max),
            ("connections_per_address_max", self.connections_per_address_max),
            ("requests_max", self.requests_max),
            ("waiting_max", self.waiting_max),
            ("http2_streams_max", self.http2_streams_max as usize),
        ];
        let times = [
            ("queue_delay_max", self.queue_delay_max),
            ("head_timeout", self.head_timeout),
            ("body_timeout", self.body_timeout),
            ("idle_timeout", self.idle_timeout),
            ("write_timeout", self.write_timeout),
            ("request_timeout", self.request_timeout),
            ("watch_bookmark_every", self.watch_bookmark_every),
            ("http2_ping_every", self.http2_ping_every),
            ("http2_ping_timeout", self.http2_ping_timeout),
        ];
        let no_count = counts.iter().find(|(_, count)| *count == 0).map(|(setting, _)| *setting);
        let no_time = times.iter().find(|(_, time)| time.is_zero()).map(|(setting, _)| *setting);
        match no_count.or(no_time) {
            Some(setting) => Err(ConfigError::Zero { setting }),
            None => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_zero_is_refused_by_name() {
        assert!(ServerConfig::default().check().is_ok());
        let none = ServerConfig { requests_max: 0, ..ServerConfig::default() };
        assert_eq!(none.check().unwrap_err().to_string(), "requests_max must be more than zero");
        let never = ServerConfig { body_timeout: Duration::ZERO, ..ServerConfig::default() };
        assert!(never.check().is_err());
    }
}
