//! Why a remote gave no answer of the kind asked for, told by what the caller may do next.
//!
//! The hard part is to know what is *not* known. A connection that could not be made carried
//! nothing, so nothing happened. One that was lost after a request left may have carried it all the
//! way; for anything but a read the honest answer is then "perhaps".

use std::time::Duration;

use regent_api::problem::{Code, Problem};

use super::address::AddressError;
use crate::fresh::NoRandomness;
use crate::limits::ECHO_BYTES_MAX;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// A definite no, with its reason. Nothing happened, and repeating it is pointless.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// Nothing happened. Try again when you like, or after the time named.
    #[error("{why}")]
    Unavailable {
        /// What is wrong.
        why: String,
        /// When to try again, if the server said so.
        retry_after: Option<Duration>,
        /// What the server said, if it was reached.
        problem: Option<Box<Problem>>,
    },
    /// It may have happened. Look, or repeat with the same ids, before you decide anything.
    #[error("{why}")]
    Uncertain {
        /// What is wrong.
        why: String,
        /// What the server said, if it answered.
        problem: Option<Box<Problem>>,
    },
    /// The other side does not speak this protocol. If it was no read, it may have happened.
    #[error("{why}")]
    Protocol {
        /// What came instead.
        why: String,
    },
}

impl RemoteError {
    /// What the server said, whole, if it said anything.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unavailable { problem, .. } | Self::Uncertain { problem, .. } => {
                problem.as_deref()
            }
            Self::Protocol { .. } => None,
        }
    }

    /// The server's code, if it gave one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// When to try again, if the server said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after_ms).map(Duration::from_millis)
    }

    pub(crate) fn unreachable(why: String) -> Self {
        Self::Unavailable { why, retry_after: None, problem: None }
    }

    pub(crate) fn lost(why: String) -> Self {
        Self::Uncertain { why, problem: None }
    }
}

impl From<NoRandomness> for RemoteError {
    fn from(error: NoRandomness) -> Self {
        Self::unreachable(error.to_string())
    }
}

impl From<AddressError> for RemoteError {
    fn from(error: AddressError) -> Self {
        Self::unreachable(error.to_string())
    }
}

/// What an answer that is no success means.
///
/// `reads` says that the request could change nothing whatever became of it.
pub(crate) fn judge(reads: bool, status: u16, body: &[u8]) -> RemoteError {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => RemoteError::judged(reads, status, problem),
        Err(_) => judge_foreign(reads, status, body),
    }
}

impl RemoteError {
    /// What a problem that came with this status means.
    pub(crate) fn judged(reads: bool, status: u16, problem: Problem) -> Self {
        let problem = Box::new(problem);
        let code = problem.code;
        // A code of a later version: by the rules of HTTP, 4xx is a no.
        let is_later_no = code == Code::Unrecognised && (400..500).contains(&status);
        let nothing_happened = reads || code.nothing_happened() || is_later_no;
        let try_again = matches!(
            code,
            Code::StoreUnavailable
                | Code::ShuttingDown
                | Code::RateLimited
                | Code::RequestTimeout
                | Code::UpstreamUnavailable
                | Code::FenceClosed
        );
        match (nothing_happened, try_again) {
            (_, true) => Self::Unavailable {
                why: problem.detail.clone(),
                retry_after: problem.retry_after_ms.map(Duration::from_millis),
                problem: Some(problem),
            },
            (true, false) => Self::Refused(problem),
            (false, false) => {
                Self::Uncertain { why: problem.detail.clone(), problem: Some(problem) }
            }
        }
    }
}

/// Something between us and the server answered, or it is no Regent server at all.
fn judge_foreign(reads: bool, status: u16, body: &[u8]) -> RemoteError {
    let said = echo(body);
    let why = format!("status {status} came without problem details: {said:?}");
    match status {
        // A proxy that gave up may have passed the request on before.
        502..=504 if reads => RemoteError::unreachable(format!("a proxy answered {why}")),
        502..=504 => {
            RemoteError::lost(format!("a proxy answered {why}; it may have passed the request on"))
        }
        _ => RemoteError::Protocol { why: format!("this is no Regent server: {why}") },
    }
}

/// The beginning of a foreign text, safe to print.
pub(crate) fn echo(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(ECHO_BYTES_MAX)];
    String::from_utf8_lossy(start).chars().filter(|character| !character.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: Code) -> Vec<u8> {
        serde_json::to_vec(&Problem::new(code, "because").retry_after(250)).unwrap()
    }

    #[test]
    fn every_code_that_says_perhaps_is_uncertain_for_a_write_and_no_other() {
        for code in Code::ALL {
            let error = judge(false, code.status(), &told(*code));
            let is_uncertain = matches!(error, RemoteError::Uncertain { .. });
            assert_eq!(is_uncertain, !code.nothing_happened(), "{code}: {error:?}");
            assert_eq!(error.code(), Some(*code));
        }
    }

    #[test]
    fn a_read_is_never_uncertain() {
        for code in Code::ALL {
            let error = judge(true, code.status(), &told(*code));
            assert!(!matches!(error, RemoteError::Uncertain { .. }), "{code}: {error:?}");
        }
        for status in [400, 404, 500, 502, 503, 504] {
            let error = judge(true, status, b"<html>");
            assert!(!matches!(error, RemoteError::Uncertain { .. }), "{status}: {error:?}");
        }
    }

    #[test]
    fn a_busy_server_says_when_to_come_back() {
        let error = judge(false, 429, &told(Code::RateLimited));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(250)));
        assert!(matches!(error, RemoteError::Unavailable { .. }));
    }

    #[test]
    fn a_proxy_that_gave_up_may_have_passed_a_write_on() {
        for status in [502, 503, 504] {
            let error = judge(false, status, b"<html>bad gateway</html>");
            assert!(matches!(error, RemoteError::Uncertain { .. }), "{status}: {error:?}");
        }
    }

    #[test]
    fn somebody_elses_answer_is_told_as_such_and_cleaned() {
        let error = judge(false, 404, b"\x1b[31mnginx\0 \xff");
        let RemoteError::Protocol { why } = error else { panic!("{error:?}") };
        assert!(why.contains("status 404") && why.contains("nginx"), "{why}");
        assert!(!why.contains('\x1b') && !why.contains("\\u{1b}"), "{why}");
    }

    #[test]
    fn a_code_of_a_later_version_is_judged_by_its_status() {
        let mut json = serde_json::to_value(Problem::new(Code::Full, "x")).unwrap();
        json["code"] = "OF_THE_FUTURE".into();
        let body = serde_json::to_vec(&json).unwrap();
        assert!(matches!(judge(false, 409, &body), RemoteError::Refused(_)));
        assert!(matches!(judge(false, 500, &body), RemoteError::Uncertain { .. }));
    }
}
