//! One bucket: what is asked of it, and what its answers mean.

use std::sync::Arc;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, UpdateVersion,
};
use tokio_stream::StreamExt as _;

use crate::engine::Effect;
use crate::register::{
    Found, HumanSummary, Record, RegisterError, RegisterResult, Swapped, Version,
};

/// Whose objects they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    Amazon,
    Google,
    Azure,
}

impl Cloud {
    /// What its URLs open with.
    pub(super) const fn scheme(self) -> &'static str {
        match self {
            Self::Amazon => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// What tells one state of an object from another, and may be asked for in a condition.
    fn version(self, e_tag: Option<String>, generation: Option<String>) -> Option<Version> {
        match self {
            Self::Amazon | Self::Azure => e_tag,
            Self::Google => generation,
        }
        .map(Version)
    }

    /// The condition that an object still has this version.
    fn condition(self, version: &Version) -> UpdateVersion {
        let version = Some(version.0.clone());
        match self {
            Self::Amazon | Self::Azure => UpdateVersion { e_tag: version, version: None },
            Self::Google => UpdateVersion { e_tag: None, version },
        }
    }
}

/// What a look at an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It has the version that was seen, or still is not there.
    Same,
    Other,
}

/// A bucket and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) cloud: Cloud,
    /// Shown to people; nothing is decided by it.
    pub(super) server: String,
}

impl Bucket {
    /// Reads an object.
    pub(super) async fn read(&self, path: &Path) -> RegisterResult<Option<Found>> {
        let read = match self.store.get(path).await {
            Ok(read) => read,
            Err(error) if is_not_there(&error) => return Ok(None),
            Err(error) => return Err(self.failure(Effect::Reads, &error)),
        };
        let (e_tag, generation) = (read.meta.e_tag.clone(), read.meta.version.clone());
        let version = self.cloud.version(e_tag, generation);
        let version = version.ok_or_else(|| RegisterError::unavailable(self.untagged()))?;
        let value = read.bytes().await.map_err(|error| self.failure(Effect::Reads, &error))?;
        Ok(Some(Found { value: value.to_vec(), version }))
    }

    /// Whether an object has another version than `seen`; its bytes are not sent.
    pub(super) async fn look(&self, path: &Path, seen: Option<&Version>) -> RegisterResult<Look> {
        let if_none_match = match self.cloud {
            Cloud::Amazon | Cloud::Azure => seen.map(|version| version.0.clone()),
            // A generation is no tag; it is compared here.
            Cloud::Google => None,
        };
        let options = GetOptions { if_none_match, head: true, ..GetOptions::default() };
        let found = match self.store.get_opts(path, options).await {
            Ok(read) => self.cloud.version(read.meta.e_tag, read.meta.version),
            Err(Error::NotModified { .. }) => return Ok(Look::Same),
            Err(error) if is_not_there(&error) => None,
            Err(error) => return Err(self.failure(Effect::Reads, &error)),
        };
        Ok(if found.as_ref() == seen { Look::Same } else { Look::Other })
    }

    /// Writes an object on its condition, and settles what a doubled write would hide: whoever stands between
    /// may send a request twice, and the second is refused by the success of the first.
    pub(super) async fn write(
        &self,
        path: &Path,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        match self.put(path, expected, record.clone()).await? {
            done @ Swapped::Done(_) => Ok(done),
            Swapped::Conflict => match self.read(path).await {
                // No two values are the same, so this is the one.
                Ok(Some(found)) if found.value == record.value => Ok(Swapped::Done(found.version)),
                Ok(_) => Ok(Swapped::Conflict),
                Err(error) => Err(RegisterError::uncertain(error)),
            },
        }
    }

    /// Writes an object on its condition, and takes the answer as it comes.
    pub(super) async fn put(
        &self,
        path: &Path,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let mode = match expected {
            None => PutMode::Create,
            Some(version) => PutMode::Update(self.cloud.condition(version)),
        };
        let options =
            PutOptions { mode, attributes: attributes(&record.summary), ..PutOptions::default() };
        match self.store.put_opts(path, record.value.into(), options).await {
            Ok(written) => match self.cloud.version(written.e_tag, written.version) {
                Some(version) => Ok(Swapped::Done(version)),
                None => Err(RegisterError::uncertain(self.untagged())),
            },
            Err(error) if is_refused(&error) => Ok(Swapped::Conflict),
            Err(error) => Err(self.failure(Effect::Writes, &error)),
        }
    }

    /// The objects below a folder.
    pub(super) async fn list(&self, folder: &Path) -> RegisterResult<Vec<Path>> {
        let mut listed = self.store.list(Some(folder));
        let mut paths = Vec::new();
        while let Some(object) = listed.next().await {
            let object = object.map_err(|error| self.failure(Effect::Reads, &error))?;
            // A folder that somebody made by hand is an object of no bytes with the folder's own name.
            if object.location != *folder {
                paths.push(object.location);
            }
        }
        Ok(paths)
    }

    /// Deletes an object that nothing was decided from: whether it can be is no concern.
    pub(super) async fn forget(&self, path: &Path) {
        if let Err(error) = self.store.delete(path).await {
            tracing::debug!(server = self.server, %path, %error, "an object of a probe is left");
        }
    }

    fn untagged(&self) -> String {
        format!("{}: an object without a version cannot be compared", self.server)
    }

    /// The error of a request that was not answered as it must be.
    fn failure(&self, effect: Effect, error: &Error) -> RegisterError {
        let why = format!("{}: {error}", self.server);
        let never_happened = is_unsent(error)
            || is_bucket_missing(error)
            || matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
        if never_happened { RegisterError::unavailable(why) } else { effect.unanswered(why) }
    }
}

/// Whether the object is not there; a bucket that is not there is another matter.
fn is_not_there(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !is_bucket_missing(error)
}

/// Whether a write was refused by its condition. S3 says 409 of two at once, which is neither's success, and
/// 404 of a version of what is not there.
fn is_refused(error: &Error) -> bool {
    let is_conflict = matches!(
        error,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }
    );
    is_conflict && !is_bucket_missing(error)
}

/// Whether it is the bucket that is not there, by the codes that S3, Google and Azure say it with.
fn is_bucket_missing(error: &Error) -> bool {
    let words = error.to_string();
    ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"]
        .iter()
        .any(|code| words.contains(code))
}

/// Whether no connection was made, so that nothing was ever sent.
fn is_unsent(error: &Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return error.kind() == HttpErrorKind::Connect;
        }
        cause = error.source();
    }
    false
}

/// What people see beside an object: who leads, under which term. Azure takes letters and digits only.
fn attributes(summary: &HumanSummary) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some(leader) = &summary.leader {
        attributes.insert(Attribute::Metadata("leader".into()), leader.to_string().into());
    }
    if let Some(term) = summary.term {
        attributes.insert(Attribute::Metadata("term".into()), term.get().to_string().into());
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &str) -> Box<dyn std::error::Error + Send + Sync> {
        words.into()
    }

    #[test]
    fn each_cloud_is_asked_for_what_its_conditions_know() {
        let both = || (Some("\"tag\"".to_owned()), Some("7".to_owned()));
        for (cloud, expected) in
            [(Cloud::Amazon, "\"tag\""), (Cloud::Azure, "\"tag\""), (Cloud::Google, "7")]
        {
            let (e_tag, generation) = both();
            let version = cloud.version(e_tag, generation).unwrap();
            assert_eq!(version, Version(expected.into()));
            let condition = cloud.condition(&version);
            assert_eq!(condition.e_tag.or(condition.version).as_deref(), Some(expected));
        }
        assert_eq!(Cloud::Google.version(Some("\"tag\"".into()), None), None);
        assert_eq!(Cloud::Amazon.version(None, Some("7".into())), None);
    }

    #[test]
    fn a_missing_bucket_is_no_missing_object_and_no_conflict() {
        let path = || "a".to_owned();
        let object = Error::NotFound { path: path(), source: error("NoSuchKey") };
        assert!(is_not_there(&object));
        let bucket = Error::NotFound { path: path(), source: error("NoSuchBucket") };
        assert!(!is_not_there(&bucket));
        // How the crate tells a 404 to a conditional write.
        let bucket = Error::Precondition { path: path(), source: error("NoSuchBucket") };
        assert!(!is_refused(&bucket));
        let stale = Error::Precondition { path: path(), source: error("PreconditionFailed") };
        assert!(is_refused(&stale));
    }

    #[test]
    fn only_what_was_never_sent_leaves_no_doubt() {
        let failed = |kind| {
            let source = Box::new(HttpError::new(kind, std::io::Error::other("x")));
            is_unsent(&Error::Generic { store: "s3", source })
        };
        assert!(failed(HttpErrorKind::Connect));
        for kind in [HttpErrorKind::Request, HttpErrorKind::Timeout, HttpErrorKind::Interrupted] {
            assert!(!failed(kind));
        }
        assert!(!is_unsent(&Error::Generic { store: "s3", source: error("500") }));
    }
}
