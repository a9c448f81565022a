//! How a session is to be: its node, its timers, and what happens when work does not stop.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use regent_election::limits::{NODE_BYTES_MAX, TTL_MS_DEFAULT};
use regent_election::{Budget, Drift, Group, Node, Term, Wishes};

use crate::error::ConnectError;
use crate::fresh;
use crate::health::Checks;
use crate::limits::NODE_SUFFIX_DIGITS;
use crate::metrics::{Metrics, NoMetrics};
use crate::places::Places;

/// What is called when work did not stop in time.
pub type Overran = Arc<dyn Fn(&Group, Term) + Send + Sync>;

/// What is done about work that still runs when its lease is over.
#[derive(Clone, Default)]
pub enum LastResort {
    /// An error is logged. Fencing protects what is written.
    #[default]
    Log,
    /// This is called, on a thread of its own.
    Call(Overran),
    /// This is called, on a thread of its own, and nothing is logged: it finds out first whether anything still runs.
    Ask(Overran),
    /// The process is ended at once, without clean-up.
    Abort,
}

impl LastResort {
    /// Calls this.
    #[must_use]
    pub fn call_with(callback: impl Fn(&Group, Term) + Send + Sync + 'static) -> Self {
        Self::Call(Arc::new(callback))
    }

    pub(crate) fn call(&self, group: &Group, term: Term) {
        match self {
            Self::Log => {
                tracing::error!(%group, %term, "work still runs though its lease is over; only fencing protects what it writes");
            }
            Self::Call(callback) => {
                tracing::error!(%group, %term, "work still runs though its lease is over; calling the last resort");
                call(callback, group, term);
            }
            Self::Ask(callback) => call(callback, group, term),
            Self::Abort => {
                tracing::error!(%group, %term, "work still runs though its lease is over; ending this process");
                eprintln!(
                    "regent: work of {group} under term {term} did not stop in time; aborting"
                );
                std::process::abort();
            }
        }
    }
}

/// Calls it on a thread of its own.
fn call(callback: &Overran, group: &Group, term: Term) {
    let (called, named) = (Arc::clone(callback), group.clone());
    let spawned = std::thread::Builder::new()
        .name("regent-last-resort".to_owned())
        .spawn(move || called(&named, term));
    if let Err(error) = spawned {
        tracing::error!(%group, %error, "no thread for the last resort; calling it here");
        callback(group, term);
    }
}

impl fmt::Debug for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "Log",
            Self::Call(_) => "Call",
            Self::Ask(_) => "Ask",
            Self::Abort => "Abort",
        })
    }
}

/// Everything about a session that has a default.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) node: Option<String>,
    pub(crate) ttl: Duration,
    pub(crate) wishes: Wishes,
    pub(crate) probes_runtime: bool,
    pub(crate) last_resort: LastResort,
    pub(crate) metrics: Arc<dyn Metrics>,
    pub(crate) checks: Checks,
    pub(crate) follows: bool,
    pub(crate) places: Places,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: None,
            ttl: Duration::from_millis(TTL_MS_DEFAULT),
            wishes: Wishes::default(),
            probes_runtime: true,
            last_resort: LastResort::default(),
            metrics: Arc::new(NoMetrics),
            checks: Checks::default(),
            follows: true,
            places: Places::default(),
        }
    }
}

impl Options {
    pub(crate) fn budget(&self) -> Result<Budget, ConnectError> {
        let ttl_ms = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let drift = Drift::from_ppm(regent_clock::drift_ppm())?;
        Ok(Budget::with(ttl_ms, drift, self.wishes)?)
    }

    /// The name given, or the host's with random digits: two processes on one host are two nodes.
    pub(crate) fn node(&self) -> Result<Node, ConnectError> {
        let name = match &self.node {
            Some(name) => name.clone(),
            None => format!("{}-{:08x}", host_name(), fresh::number()? as u32),
        };
        Ok(Node::new(&name)?)
    }
}

/// The host's name as far as it can be part of a node's.
fn host_name() -> String {
    let system = rustix::system::uname();
    let name: String = system
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_'))
        .take(NODE_BYTES_MAX - NODE_SUFFIX_DIGITS - 1)
        .collect();
    if Node::new(&name).is_ok() { name } else { "node".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_that_were_given_no_name_are_two_nodes() {
        let options = Options::default();
        let (one, other) = (options.node().unwrap(), options.node().unwrap());
        assert_ne!(one, other);
        assert!(one.as_str().starts_with(&host_name()), "{one}");
    }

    #[test]
    fn timers_that_do_not_fit_are_refused_with_the_arithmetic() {
        let wishes = Wishes { stop_grace_ms: Some(9_900), ..Wishes::default() };
        let options = Options { wishes, ..Options::default() };
        let error = options.budget().unwrap_err().to_string();
        assert!(error.contains("ttl 10s"), "{error}");
    }
}
