//! `s3://`, `gs://`, `az://`: objects in a bucket as a register, written on a condition.
//!
//! An entry is one object below `PREFIX/groups/` and the like, created only if there is none and replaced
//! only over the version that was read (`If-None-Match` and `If-Match`; at Google, generations). Nothing
//! tells of a change, so who waits looks once a second. Every look and every heartbeat is a request that
//! somebody pays for, and a ttl below 15 seconds is a waste here.
//!
//! What S3 calls a version may be a hash of the bytes. That is enough, because no value is ever written
//! twice. The crate's own retries are off: a conditional write that is sent again meets its own success.
//! Blob leases of Azure were not taken: they have no term.
//!
//! There are servers that speak S3 and ignore every condition. So nothing is written, and nobody elected,
//! before the server has refused what it must refuse (`proof`).

mod bucket;
mod open;
mod proof;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use object_store::path::Path;
use regent_election::store::{Description, Level};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::engine::{Effect, Sent, UrlError, fresh, in_time, names};
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterError, RegisterResult, Swapped, Version,
};
use bucket::{Bucket, Cloud, Look};
use proof::Proof;

/// How long a request may take unless told otherwise: a third of the shortest ttl worth paying for. Some
/// servers let those who race for one object wait for whole seconds.
pub const REQUEST_FOR: Duration = Duration::from_secs(5);

/// Objects that are read at once after a listing has named them.
const READ_AT_ONCE_MAX: usize = 16;

/// The bucket and the prefix that a URL names, for whoever asks more of them than a register does. Requests are
/// not sent again by themselves.
pub fn bucket(url: &str, request_for: Duration) -> Result<(Arc<dyn ObjectStore>, Path), UrlError> {
    let opened = open::open(url, request_for)?;
    Ok((opened.store, opened.root))
}

/// A register in a bucket.
pub struct ObjectRegister {
    bucket: Bucket,
    /// What every object opens with.
    root: Path,
    /// The bucket and the prefix, for people.
    place: String,
    /// Whether the server is not the cloud's own.
    is_elsewhere: bool,
    /// How often an object is looked at: each look is paid for.
    look_every: Duration,
    request_for: Duration,
    /// Made before the first write.
    proof: OnceCell<Proof>,
}

impl fmt::Debug for ObjectRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRegister({})", self.bucket.server)
    }
}

impl ObjectRegister {
    /// A register in the bucket that `url` names, like `s3://bucket/prefix?region=eu-west-1`. What the
    /// environment tells (`AWS_…`, `GOOGLE_…`, `AZURE_…`) is honoured; `endpoint` names another server of the
    /// same kind, and a login in the URL is its key and secret. It connects when it is first asked.
    pub fn new(url: &str, request_for: Duration) -> Result<Self, UrlError> {
        let opened = open::open(url, request_for)?;
        let place = format!("{}/{}", opened.bucket, opened.root);
        Ok(Self {
            bucket: Bucket {
                store: opened.store,
                cloud: opened.cloud,
                server: format!("{}://{place}", opened.cloud.scheme()),
            },
            root: opened.root,
            place,
            is_elsewhere: opened.is_elsewhere,
            look_every: opened.look_every,
            request_for: opened.request_for,
            proof: OnceCell::new(),
        })
    }

    fn folder(&self, kind: KeyKind) -> Path {
        self.root.clone().join(kind.word())
    }

    fn path(&self, key: &Key) -> Path {
        // One part below its kind: some servers keep objects as files, where no object lies in another.
        self.folder(key.kind()).join(names::spelled(key.name(), b""))
    }

    /// One request that changes nothing, within its time-out.
    async fn reading<T>(
        &self,
        request: impl Future<Output = RegisterResult<T>>,
    ) -> RegisterResult<T> {
        let request = async |sent: &Sent| {
            sent.leaves_now();
            request.await
        };
        in_time(self.request_for, Effect::Reads, &self.bucket.server, request).await
    }

    /// All keys of a kind.
    async fn keys(&self, kind: KeyKind) -> RegisterResult<Vec<Key>> {
        let folder = self.folder(kind);
        let paths = self.reading(self.bucket.list(&folder)).await?;
        paths.iter().map(|path| key_at(kind, &folder, path)).collect()
    }

    /// Until the object may have another version than `seen`.
    async fn changes(&self, path: &Path, seen: Option<&Version>) -> RegisterResult<()> {
        loop {
            // Not all of those who wait at the same moment.
            let every = u64::try_from(self.look_every.as_millis()).unwrap_or(u64::MAX);
            let pause = every - every / 4 + fresh() % (every / 2 + 1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            match self.reading(self.bucket.look(path, seen)).await? {
                Look::Same => {}
                Look::Other => return Ok(()),
            }
        }
    }
}

/// The key of an object in a folder.
fn key_at(kind: KeyKind, folder: &Path, path: &Path) -> RegisterResult<Key> {
    let mut below = path.prefix_match(folder).into_iter().flatten();
    let name = match (below.next(), below.next()) {
        (Some(part), None) => names::read(part.as_ref(), b""),
        (_, _) => None,
    };
    name.and_then(|name| Key::found(kind, &name)).ok_or_else(|| {
        RegisterError::corrupt(format_args!("the object {path} is no entry of ours"))
    })
}

#[async_trait]
impl Register for ObjectRegister {
    fn describe(&self) -> Description {
        let cloud = "terms rise only while the objects are kept: no rule of the bucket may delete them; every \
                     heartbeat and every look is a paid request, so choose a ttl of 15 seconds or more";
        let (level, caveat) = if self.is_elsewhere {
            let elsewhere = "whether a server of its own kind has written what it acknowledges cannot be \
                             asked of it; let nobody reach one that has just started before it has settled";
            (Level::LeaseOnly, format!("{cloud}; {elsewhere}"))
        } else {
            (Level::Strict, cloud.to_owned())
        };
        Description {
            name: self.bucket.cloud.scheme(),
            place: self.place.clone(),
            level,
            caveat: Some(caveat),
        }
    }

    async fn examine(&self) -> RegisterResult<Vec<String>> {
        let proving = async |_: &Sent| proof::prove(&self.bucket, &self.root).await;
        // Ten requests one after the other, and each may take its time.
        let within = self.request_for.saturating_mul(proof::REQUESTS);
        let proof = in_time(within, Effect::Reads, &self.bucket.server, proving).await?;
        proof.holds()?;
        let _ = self.proof.set(proof);
        Ok(weaknesses(self.bucket.cloud, self.is_elsewhere))
    }

    async fn load(&self, key: &Key) -> RegisterResult<Option<Found>> {
        self.reading(self.bucket.read(&self.path(key))).await
    }

    async fn swap(
        &self,
        key: &Key,
        expected: Option<&Version>,
        record: Record,
    ) -> RegisterResult<Swapped> {
        let path = self.path(key);
        let writing = async |sent: &Sent| {
            let proving = || proof::prove(&self.bucket, &self.root);
            self.proof.get_or_try_init(proving).await?.holds()?;
            sent.leaves_now();
            self.bucket.write(&path, expected, record).await
        };
        in_time(self.request_for, Effect::Writes, &self.bucket.server, writing).await
    }

    async fn wait(
        &self,
        key: &Key,
        seen: Option<&Version>,
        patience: Duration,
    ) -> RegisterResult<()> {
        // The end of a patience is no failure.
        let path = self.path(key);
        let changes = self.changes(&path, seen);
        tokio::time::timeout(patience, changes).await.unwrap_or(Ok(()))
    }

    async fn list(
        &self,
        kind: KeyKind,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> RegisterResult<Vec<(Key, Found)>> {
        let mut keys = self.keys(kind).await?;
        keys.retain(|key| {
            key.name().starts_with(prefix) && after.is_none_or(|after| key.name() > after)
        });
        keys.sort_unstable();
        keys.truncate(count);
        let mut entries = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READ_AT_ONCE_MAX) {
            let mut reading = JoinSet::new();
            for key in keys {
                let (bucket, key, path) = (self.bucket.clone(), key.clone(), self.path(key));
                reading.spawn(async move { (key, bucket.read(&path).await) });
            }
            let all = async { Ok(reading.join_all().await) };
            for (key, found) in self.reading(all).await? {
                // One that is gone since the listing was deleted by somebody else; it is not there.
                entries.extend(found?.map(|found| (key, found)));
            }
        }
        entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(entries)
    }
}

/// What in a deployment is weaker than it looks, as far as it can be told from here.
fn weaknesses(cloud: Cloud, is_elsewhere: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_elsewhere {
        warnings.push(format!(
            "a server of its own speaks {}:// here: it keeps conditions, but whether it has written what it \
             acknowledges, and whether all of its nodes agree, cannot be asked of it",
            cloud.scheme()
        ));
        warnings.push(
            "a server that has just started may keep conditions less well than one that has settled, and no \
             probe is sure to find that out: SeaweedFS was seen to tell two that they have written, at the \
             moment when its gateway learned which filer decides; let nobody reach it before that"
                .to_owned(),
        );
    }
    if cloud == Cloud::Google {
        warnings.push(
            "Google takes about one write a second to one object: choose a ttl of 5 seconds or more"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_one_part_below_its_kind_and_what_is_no_name_is_refused() {
        let url = "s3://key:secret@bucket/some/where?region=x&endpoint=http://127.0.0.1:1";
        let register = ObjectRegister::new(url, Duration::from_secs(1)).unwrap();
        assert_eq!(register.describe().place, "bucket/some/where");
        assert_eq!(register.describe().level, Level::LeaseOnly);
        assert!(!format!("{register:?}").contains("secret"));
        let key = Key::found(KeyKind::Group, "a/b.c").unwrap();
        let path = register.path(&key);
        assert_eq!(path.as_ref(), "some/where/groups/a=2Fb=2Ec");
        let folder = register.folder(KeyKind::Group);
        assert_eq!(key_at(KeyKind::Group, &folder, &path).unwrap(), key);
        for foreign in ["some/where/groups/a/b", "some/where/groups/a.txt", "some/where/groups"] {
            let refusal = key_at(KeyKind::Group, &folder, &Path::from(foreign)).unwrap_err();
            assert!(matches!(refusal, RegisterError::Corrupt { .. }), "{refusal:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_was_never_asked() {
        // Port 1 of this host: nobody listens.
        let url = "s3://key:secret@bucket?region=x&endpoint=http://127.0.0.1:1";
        let register = ObjectRegister::new(url, Duration::from_secs(30)).unwrap();
        let key = Key::setting("gone");
        let refusal = register.load(&key).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
        let refusal = register.swap(&key, None, Record::bare(b"x".to_vec())).await.unwrap_err();
        assert!(matches!(refusal, RegisterError::Unavailable { .. }), "{refusal:?}");
    }

    #[test]
    fn what_cannot_be_asked_or_is_slow_is_warned_of() {
        assert_eq!(weaknesses(Cloud::Amazon, false), Vec::<String>::new());
        let elsewhere = weaknesses(Cloud::Amazon, true);
        assert!(elsewhere[0].contains("s3://"), "{elsewhere:?}");
        assert!(elsewhere[1].contains("has just started"), "{elsewhere:?}");
        assert!(weaknesses(Cloud::Google, false)[0].contains("one write a second"));
    }
}
