//! What a gateway is told, and what it does not accept.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use regent::fencing::signed::Verifier;
use regent::remote::Remote;
use regent_election::Group;
use regent_election::fence::doorkeeper::DoorRules;

use crate::app::Timing;
use crate::front::GatewayCertificate;
use crate::mark::MarkError;
use crate::report::ReportTarget;
use crate::upstream::Upstream;

/// What a gateway is told.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Whose terms are compared.
    pub group: Group,
    /// Where requests go.
    pub upstream: Option<Upstream>,
    /// Where the mark is kept.
    pub data: PathBuf,
    /// The service that is asked which term is the current one; `None` compares with the mark alone.
    pub strict: Option<Remote>,
    /// The service that is told which terms passed and which were refused.
    pub report: Option<ReportTarget>,
    /// Terms are taken from tokens that this one believes, and from nowhere else.
    pub signed: Option<Verifier>,
    /// What the doorkeeper assumes and how long it waits.
    pub rules: DoorRules,
    /// Whether `GET`, `HEAD` and `OPTIONS` pass without a term.
    pub allows_reads: bool,
    /// Whether the client's `Host` is passed on; otherwise it is the upstream's.
    pub keeps_host: bool,
    /// Most clients at once.
    pub connections_max: usize,
    /// How long a client may take for a head, or stay without asking.
    pub head_timeout: Duration,
    /// How long a client may take for the next part of a body, to send it or to read it.
    pub idle_timeout: Duration,
    /// How long the upstream may take to answer, or for the next part of an answer.
    pub answer_timeout: Duration,
    /// How long requests under way are waited for in the end.
    pub shutdown_grace: Duration,
    /// What clients see by TLS; none: they speak HTTP in the clear.
    pub tls: Option<GatewayCertificate>,
}

/// Why a gateway does not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The mark cannot be had.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// A setting makes no sense.
    #[error("{name} must be above zero")]
    Zero { name: &'static str },
    /// More connections than can be counted.
    #[error("connections-max {given} is more than {max}")]
    TooMany {
        /// What was asked for.
        given: usize,
        /// What there can be.
        max: usize,
    },
    /// There is nowhere to pass requests on to.
    #[error("there is no upstream")]
    NoUpstream,
    /// The certificate cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The system gave no thread.
    #[error("no thread to keep the mark: {0}")]
    Thread(io::Error),
}

/// Most clients at once that may be asked for.
const CONNECTIONS_CEILING: usize = 1 << 20;

impl GatewayConfig {
    pub(crate) fn check(&self) -> Result<(), GatewayError> {
        for (name, time) in [
            ("drain-timeout", self.rules.drain_for),
            ("head-timeout", self.head_timeout),
            ("idle-timeout", self.idle_timeout),
            ("answer-timeout", self.answer_timeout),
        ] {
            if time.is_zero() {
                return Err(GatewayError::Zero { name });
            }
        }
        match self.connections_max {
            0 => Err(GatewayError::Zero { name: "connections-max" }),
            given if given > CONNECTIONS_CEILING => {
                Err(GatewayError::TooMany { given, max: CONNECTIONS_CEILING })
            }
            _ => Ok(()),
        }
    }

    pub(crate) const fn timing(&self) -> Timing {
        Timing { head: self.head_timeout, idle: self.idle_timeout, answer: self.answer_timeout }
    }
}
