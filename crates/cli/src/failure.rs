//! Why a command did not do what it was asked: one sentence, one exit code.

use std::io;
use std::path::Path;

use regent::fresh::NoRandomness;
use regent::remote::{AddressError, RemoteError};
use regent::{CampaignError, ConnectError, NotElected};
use regent_api::{Code, Problem};
use regent_election::error_text::plain;
use regent_election::store::StoreError;
use regent_election::{Group, NameError, Refusal};
use regent_operate::retry::OnceError;
use regent_operate::way_out::way_out;
use regent_recording::ReadError;

use crate::client::asked_by;
use crate::config::ConfigError;
use crate::exit::Exit;
use regent_operate::escape::on_one_line;

/// A sentence for a person, a code for a script, and what the server said, for a program.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// The sentence; none if there is nobody left to read it.
    pub(crate) message: Option<String>,
    /// What the server said.
    pub(crate) problem: Option<Box<Problem>>,
}

/// What every verb returns: how it ended, or why it failed.
pub(crate) type CommandResult = Result<Exit, Failure>;

impl Failure {
    /// A failure with this sentence.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()), problem: None }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A file could not be read or written.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::new(Exit::Files, format!("{}: {}", path.display(), plain(error)))
    }

    /// Writing to standard output failed. A reader that has seen enough (`| head -1`) is no
    /// failure, and there is nobody left to tell.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::Done, message: None, problem: None };
        }
        Self::new(Exit::Files, format!("standard output: {}", plain(error)))
    }

    /// The failure as an object for programs: the server's own words if it said anything.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.problem {
            Some(problem) => serde_json::to_value(problem)
                .unwrap_or_else(|_| serde_json::Value::String(problem.detail.clone())),
            None => serde_json::json!({
                "type": format!("urn:regent:problem:{}", self.exit.word().to_ascii_lowercase()),
                "title": self.exit.meaning(),
                "code": self.exit.word(),
                "detail": self.message,
            }),
        }
    }
}

/// What a refusal means for a script.
pub(crate) fn exit_of(code: Code) -> Exit {
    match code {
        Code::NotLeader
        | Code::TenureEnding
        | Code::StaleTerm
        | Code::TermOver
        | Code::SessionExpired
        | Code::HeartbeatNotNewer => Exit::Lost,
        Code::NobodyLeads => Exit::No,
        Code::RateLimited | Code::RequestTimeout | Code::GroupEnding | Code::FenceClosed => {
            Exit::TryAgain
        }
        Code::StoreUnavailable | Code::ShuttingDown | Code::UpstreamUnavailable => {
            Exit::Unavailable
        }
        Code::Uncertain | Code::Internal | Code::StoreCorrupt | Code::Unrecognised => {
            Exit::Uncertain
        }
        Code::BadRequest
        | Code::Unauthenticated
        | Code::CredentialOver
        | Code::Forbidden
        | Code::SessionOfAnother
        | Code::AuthTokenUnknown
        | Code::AuthTokenExists
        | Code::SecondApprovalNeeded
        | Code::BindingsChanged
        | Code::AccessRefused
        | Code::CrossOrigin
        | Code::NotAllowed
        | Code::NotFound
        | Code::GroupUnknown
        | Code::MethodNotAllowed
        | Code::SessionMismatch
        | Code::Moved
        | Code::OnItsWay
        | Code::NotExpected
        | Code::GroupStopped
        | Code::StillLed
        | Code::NeverGranted
        | Code::FenceUnknown
        | Code::TermMissing
        | Code::TokenRefused
        | Code::Full
        | Code::SuccessorUnknown
        | Code::SuccessorAmbiguous
        | Code::SuccessorSilent
        | Code::NoOffer
        | Code::RequestTooOld
        | Code::RequestAhead
        | Code::RequestReused
        | Code::TermsExhausted
        | Code::OtherReplicaLeads
        | Code::MemberRefused
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType
        | Code::TtlOutOfBounds
        | Code::PolicyRefused
        | Code::Unsupported => Exit::Refused,
    }
}

impl From<RemoteError> for Failure {
    fn from(error: RemoteError) -> Self {
        // A server's words: they must not look like another line of ours.
        let message = on_one_line(&error.to_string()).into_owned();
        let (exit, message) = match &error {
            RemoteError::Refused(problem) => {
                (exit_of(problem.code), message + &asked_by(problem.code) + &way_out(problem))
            }
            RemoteError::Unavailable { problem: Some(problem), .. } => {
                (exit_of(problem.code), message)
            }
            RemoteError::Unavailable { problem: None, .. } => (
                Exit::Unavailable,
                format!(
                    "{message}; nothing happened: start a server with `regent serve`, or name one with --server"
                ),
            ),
            RemoteError::Uncertain { .. } | RemoteError::Protocol { .. } => {
                (Exit::Uncertain, message)
            }
        };
        let problem = error.problem().cloned().map(Box::new);
        Self { exit, message: Some(message), problem }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Io { path, error } => Self::file(path, error),
            ReadError::NoRecording { .. } | ReadError::Line { .. } => {
                Self::new(Exit::Files, error.to_string())
            }
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Config, error.to_string())
    }
}

impl From<NoRandomness> for Failure {
    fn from(error: NoRandomness) -> Self {
        Self::new(Exit::Unavailable, error.to_string())
    }
}

impl From<OnceError> for Failure {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Remote(error) => error.into(),
            OnceError::NoRandomness(error) => error.into(),
        }
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Self {
        if matches!(error, AddressError::Credential { .. } | AddressError::Tls { .. }) {
            return Self::new(Exit::Config, error.to_string());
        }
        Self::usage(format!("--server: {error}"))
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address(error) => error.into(),
            ConnectError::Budget(error) => Self::usage(format!("--ttl: {error}")),
            ConnectError::Name(error) => error.into(),
            ConnectError::Context(_) => Self::new(Exit::Config, error.to_string()),
            ConnectError::UnknownScheme { .. }
            | ConnectError::FeatureMissing { .. }
            | ConnectError::NotByUrl { .. } => Self::usage(format!("--server: {error}")),
            ConnectError::NoRuntime
            | ConnectError::System(_)
            | ConnectError::StaysHere
            | ConnectError::NotAllowedThere
            | ConnectError::NotExpectedThere { .. }
            | ConnectError::NoWordThere(_)
            | ConnectError::Store(_) => Self::new(Exit::Unavailable, error.to_string()),
        }
    }
}

/// Why a candidate may never stand.
impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        let (exit, problem): (_, Option<Box<Problem>>) = match &error {
            CampaignError::Name(_) => (Exit::Usage, None),
            CampaignError::Refused(refusal) => {
                (Exit::Refused, Some(Box::new(Problem::from(refusal.clone()))))
            }
            CampaignError::CannotFollow { .. }
            | CampaignError::TermNotAbove { .. }
            | CampaignError::TooManyGroups => (Exit::Refused, None),
            CampaignError::Closed => (Exit::Unavailable, None),
        };
        let help = |problem: &Problem| asked_by(problem.code) + &way_out(problem);
        let help = problem.as_deref().map(help).unwrap_or_default();
        Self { exit, message: Some(format!("{error}{help}")), problem }
    }
}

impl Failure {
    /// The office was not won in time: another node leads, or it is not known who does.
    pub(crate) fn not_elected(group: &Group, why: &NotElected) -> Self {
        let refused = |refusal: &Refusal| Problem::from(refusal.clone());
        let (exit, help) = match why {
            NotElected::OtherLeads { .. } => (Exit::No, String::new()),
            NotElected::Vacant => (Exit::TryAgain, "; try again a little later".to_owned()),
            NotElected::Obstacle(StoreError::Refused(refusal)) => {
                (exit_of(refused(refusal).code), way_out(&refused(refusal)))
            }
            NotElected::Obstacle(_) => {
                let help = "; start a server with `regent serve`, or name one with --server";
                (Exit::Unavailable, help.to_owned())
            }
        };
        let why = on_one_line(&why.to_string()).into_owned();
        Self::new(exit, format!("not elected in {group}: {why}{help}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_never_ends_like_what_did_not() {
        for code in Code::ALL {
            let is_uncertain = exit_of(*code) == Exit::Uncertain;
            assert_eq!(is_uncertain, !code.nothing_happened(), "{code}");
        }
    }

    #[test]
    fn a_program_gets_the_servers_problem_whole_or_one_of_our_own() {
        let problem = Problem::new(Code::NotLeader, "stop").retry_after(5);
        let failure = Failure::from(RemoteError::Refused(Box::new(problem.clone())));
        assert_eq!(failure.exit, Exit::Lost);
        assert_eq!(failure.to_json(), serde_json::to_value(problem).unwrap());
        let own = Failure::usage("no such thing").to_json();
        assert_eq!((&own["code"], &own["detail"]), (&"USAGE".into(), &"no such thing".into()));
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure() {
        let failure = Failure::stdout(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit, failure.message), (Exit::Done, None));
    }
}
