//! The bearer token that this process shows to servers.
//!
//! One process has one identity, so the token is that of the process: named by the program
//! ([`Credential::set_default`]), by `REGENT_TOKEN` or `REGENT_TOKEN_FILE`, or by the context in use. A file is looked at
//! again when it has changed, so that a token can be replaced without a restart.
//!
//! A token is one that the cluster made (`rgt_…`), of which a typing error is found here, or a JSON Web Token of
//! another issuer, which only the server can judge.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use hyper::header::HeaderValue;
use regent_election::access::{BearerToken, TokenError};
use regent_files::{FileError, Trust};

/// Most bytes of a token file: the longest JSON Web Token that a server reads, and the end of its line.
const TOKEN_FILE_BYTES_MAX: u64 = (16 << 10) + 2;

static DEFAULT: OnceLock<Credential> = OnceLock::new();
/// That of a context, which counts if neither the program nor the environment names another.
static FALLBACK: OnceLock<Credential> = OnceLock::new();

/// A bearer token, or the file that holds it.
#[derive(Clone)]
pub struct Credential(Arc<Source>);

enum Source {
    Token(HeaderValue),
    File { path: PathBuf, seen: Mutex<Seen> },
}

/// What was read of a file, and when it had been changed last.
struct Seen {
    /// The change whose file could not be read, so that it is said once.
    warned_of: Option<SystemTime>,
    changed_at: Option<SystemTime>,
    value: HeaderValue,
}

/// Why there is no credential where one was named. Nothing of a token is repeated.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("{0}")]
    File(#[from] FileError),
    #[error("{place}: {source}")]
    Token { place: String, source: TokenError },
}

impl Credential {
    /// This token.
    pub fn token(text: &str, place: &str) -> Result<Self, CredentialError> {
        Ok(Self(Arc::new(Source::Token(header(text, place)?))))
    }

    /// The token in a file that only this user may read.
    pub fn file(path: &Path) -> Result<Self, CredentialError> {
        let seen = Mutex::new(read(path)?);
        Ok(Self(Arc::new(Source::File { path: path.to_owned(), seen })))
    }

    /// Makes this the credential of the process. The first one stays.
    pub fn set_default(self) {
        let _ = DEFAULT.set(self);
    }

    /// Makes this the credential of the process unless it has another. The first one stays.
    pub(super) fn set_fallback(self) {
        let _ = FALLBACK.set(self);
    }

    /// The file that it is read from, if it is read from one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &*self.0 {
            Source::Token(_) => None,
            Source::File { path, .. } => Some(path),
        }
    }

    /// The token itself: to be kept, and never to be shown.
    #[must_use]
    pub fn reveal(&self) -> String {
        let value = self.value();
        value.to_str().unwrap_or_default().trim_start_matches("Bearer ").to_owned()
    }

    /// The credential of the process, if it has one.
    pub fn of_process() -> Result<Option<Self>, CredentialError> {
        if let Some(known) = DEFAULT.get() {
            return Ok(Some(known.clone()));
        }
        let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let found = if let Some(token) = given("REGENT_TOKEN") {
            Self::token(&token.to_string_lossy(), "REGENT_TOKEN")?
        } else if let Some(path) = given("REGENT_TOKEN_FILE") {
            Self::file(Path::new(&path))?
        } else {
            return Ok(FALLBACK.get().cloned());
        };
        Ok(Some(DEFAULT.get_or_init(|| found).clone()))
    }

    /// The value of the `Authorization` header. If a file cannot be read any more, what it held last.
    pub(crate) fn value(&self) -> HeaderValue {
        match &*self.0 {
            Source::Token(value) => value.clone(),
            Source::File { path, seen } => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let changed_at = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
                if changed_at != seen.changed_at {
                    match read(path) {
                        Ok(fresh) => *seen = fresh,
                        // Tried again with the next request: a change of its mode leaves its time as it is.
                        Err(error) if seen.warned_of != changed_at => {
                            tracing::warn!(%error, "the token file cannot be read; the old token is used");
                            seen.warned_of = changed_at;
                        }
                        Err(_) => {}
                    }
                }
                seen.value.clone()
            }
        }
    }
}

fn read(path: &Path) -> Result<Seen, CredentialError> {
    // Before the bytes: a change in between is seen the next time.
    let changed_at = std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    let text = regent_files::read_text(path, TOKEN_FILE_BYTES_MAX, Trust::Secret)?;
    Ok(Seen { changed_at, warned_of: None, value: header(&text, &path.display().to_string())? })
}

fn header(text: &str, place: &str) -> Result<HeaderValue, CredentialError> {
    let wrong = |source| CredentialError::Token { place: place.to_owned(), source };
    let text = text.trim();
    if !is_jwt(text) {
        text.parse::<BearerToken>().map_err(wrong)?;
    }
    let mut value =
        HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| wrong(TokenError::Shape))?;
    // Kept out of logs and out of the compression tables of HTTP/2.
    value.set_sensitive(true);
    Ok(value)
}

/// Whether a text has the shape of a JSON Web Token: three parts of base64url.
fn is_jwt(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.split('.').count() == 3 && text.split('.').all(is_part) && !text.starts_with("rgt_")
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Source::Token(_) => f.write_str("a token"),
            Source::File { path, .. } => write!(f, "the token in {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use regent_election::access::TokenId;

    use super::*;

    #[test]
    fn a_token_is_of_this_cluster_or_a_jwt_and_nothing_else() {
        let jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2ln";
        assert_eq!(Credential::token(jwt, "x").unwrap().value(), format!("Bearer {jwt}"));
        for text in ["", "a.b", "a..c", "a.b.c.d", "a.b c.d", "a.b.c\r\nx: y", "rgt_a.b.c"] {
            assert!(Credential::token(text, "x").is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_token_file_is_read_again_when_it_changes_and_must_be_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let text = |n: u8| BearerToken::new(TokenId(n.into()), [n; 32]).reveal();
        fs::write(&path, text(1) + "\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = Credential::file(&path).unwrap_err().to_string();
        assert!(!error.contains("0101"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let credential = Credential::file(&path).unwrap();
        assert_eq!(credential.value(), format!("Bearer {}", text(1)));
        fs::write(&path, text(2)).unwrap();
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_eq!(credential.value(), format!("Bearer {}", text(2)));
        // One that has become unreadable leaves the old one in use.
        fs::write(&path, "nonsense").unwrap();
        assert_eq!(credential.value(), format!("Bearer {}", text(2)));
        assert!(!format!("{credential:?} {:?}", credential.value()).contains("0202"));
    }
}
