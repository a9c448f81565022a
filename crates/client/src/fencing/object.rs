//! Object storage (S3, Google, Azure): a conditional put over the version whose term was read.
//!
//! ```text
//!   regent-fence 1 101 live\n        the first line of the object: the term under which it was written
//!   …the content…                    `gone` in place of `live`: deleted, and only the mark is left
//! ```
//!
//! A write reads the object, refuses if its term is higher, and replaces exactly the version it has read
//! (`If-Match`, at Google a generation), or creates it (`If-None-Match: *`). Whoever loses that race reads
//! again. So between the comparison and the write nobody can come.
//!
//! **Why the term is in the object and not only in its metadata.** What S3 calls a version is a hash of the
//! content alone. A successor that writes the *same content* under a higher term changes the metadata and not
//! the tag, and a leader that read before it would pass with `If-Match`, and lower the mark. With the term in
//! the content no two terms have the same tag. The metadata `term` says it once more, for people.
//!
//! A deletion leaves an object of one line, because the mark must outlive the content.
//!
//! ```no_run
//! # async fn example(store: std::sync::Arc<dyn object_store::ObjectStore>, leadership: &regent::Leadership)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use regent::fencing::object::FencedObject;
//!
//! let report = FencedObject::new(store, "reports/today");
//! let permit = leadership.check()?;
//! report.put(&permit, b"all is well").await?;
//! # Ok(())
//! # }
//! ```
//!
//! **What it does not hold against.** Servers that ignore conditions: try yours (`regent fence test s3://…`).
//! Lifecycle rules that delete objects delete marks. Who writes the object without this adapter is not kept
//! from it. The retries of `object_store` should be off (`RetryConfig { max_retries: 0, .. }`): a put that is
//! sent again by itself meets its own success; that is recognised, unless a successor came in between.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, UpdateVersion,
};
use regent_election::{Fence, Term};

use super::{Proof, WriteError, WriteResult, refuse};

/// What an object that is written here opens with.
const MAGIC: &str = "regent-fence 1 ";
/// The longest first line: the words, and sixteen digits.
const HEAD_BYTES_MAX: usize = 48;
/// Races that are lost before a write gives up. Each one means that somebody else has written.
const TRIES_MAX: usize = 32;

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The term under which it was written.
    pub term: Term,
    /// What; none if it was deleted.
    pub bytes: Option<Vec<u8>>,
}

/// An object behind a fence.
#[derive(Clone, Debug)]
pub struct FencedObject {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

/// What was read: the bytes, and what a put must find in place.
struct Found {
    bytes: Vec<u8>,
    version: UpdateVersion,
}

impl FencedObject {
    /// The object at this path.
    pub fn new(store: Arc<dyn ObjectStore>, path: impl Into<Path>) -> Self {
        Self { store, path: path.into() }
    }

    /// Replaces the content, if no higher term was here.
    pub async fn put(&self, proof: &impl Proof, content: &[u8]) -> WriteResult<()> {
        self.replace(proof, Some(content), async {}).await
    }

    /// Deletes the content, if no higher term was here. The mark stays.
    pub async fn delete(&self, proof: &impl Proof) -> WriteResult<()> {
        self.replace(proof, None, async {}).await
    }

    /// What it holds; none if nothing was ever written here.
    pub async fn get(&self) -> Result<Option<Content>, Box<dyn std::error::Error + Send + Sync>> {
        match self.look().await? {
            Some(found) => Ok(Some(parse(&found.bytes)?)),
            None => Ok(None),
        }
    }

    /// The same with something that happens between the look and the put, for trials.
    #[cfg(feature = "fence-trial")]
    pub async fn put_after(
        &self,
        proof: &impl Proof,
        content: &[u8],
        between: impl Future<Output = ()>,
    ) -> WriteResult<()> {
        self.replace(proof, Some(content), between).await
    }

    async fn replace(
        &self,
        proof: &impl Proof,
        content: Option<&[u8]>,
        between: impl Future<Output = ()>,
    ) -> WriteResult<()> {
        let frame = frame(proof.term(), content);
        let mut between = Some(between);
        for _ in 0..TRIES_MAX {
            let found = self.look().await.map_err(WriteError::failed)?;
            if found.as_ref().is_some_and(|found| found.bytes == frame) && content.is_some() {
                // A lost race against our own put, sent twice by somebody in between, or the same as before.
                return Ok(());
            }
            let mark = match &found {
                Some(found) => parse(&found.bytes).map_err(WriteError::failed)?.term,
                None => Term::NONE,
            };
            Fence::at(mark).admit(proof.term()).map_err(|why| refuse(proof, why))?;
            if let Some(between) = between.take() {
                between.await;
            }
            if self.put_over(found, proof.term(), &frame).await? {
                return Ok(());
            }
        }
        Err(WriteError::failed(format!("{}: {TRIES_MAX} races were lost; try again", self.path)))
    }

    /// Whether the put was made; false if something else stands there.
    async fn put_over(&self, found: Option<Found>, term: Term, frame: &[u8]) -> WriteResult<bool> {
        let mode = found.map_or(PutMode::Create, |found| PutMode::Update(found.version));
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::Metadata("term".into()), term.to_string().into());
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        match self.store.put_opts(&self.path, frame.to_vec().into(), options).await {
            Ok(_) => Ok(true),
            Err(
                Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotModified { .. },
            ) => Ok(false),
            Err(error @ (Error::PermissionDenied { .. } | Error::Unauthenticated { .. })) => {
                Err(WriteError::Failed(error.into()))
            }
            Err(error) => Err(WriteError::Uncertain(error.into())),
        }
    }

    async fn look(&self) -> Result<Option<Found>, Error> {
        let read = match self.store.get_opts(&self.path, GetOptions::default()).await {
            Ok(read) => read,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let version =
            UpdateVersion { e_tag: read.meta.e_tag.clone(), version: read.meta.version.clone() };
        Ok(Some(Found { bytes: read.bytes().await?.to_vec(), version }))
    }

    /// Writes without looking, for trials that must fail.
    #[cfg(feature = "fence-trial")]
    pub async fn put_unfenced(&self, term: Term, content: &[u8]) -> Result<(), Error> {
        self.store.put(&self.path, frame(term, Some(content)).into()).await.map(drop)
    }
}

fn frame(term: Term, content: Option<&[u8]>) -> Vec<u8> {
    let word = if content.is_some() { "live" } else { "gone" };
    let mut bytes = format!("{MAGIC}{term} {word}\n").into_bytes();
    bytes.extend_from_slice(content.unwrap_or_default());
    bytes
}

/// Why an object has no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the object was not written through a fence: its first line is no mark; move it away, or write it through one first"
)]
pub struct NoMark;

fn parse(bytes: &[u8]) -> Result<Content, NoMark> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let end = head.iter().position(|byte| *byte == b'\n').ok_or(NoMark)?;
    let line = std::str::from_utf8(&head[..end]).map_err(|_| NoMark)?;
    let (digits, word) =
        line.strip_prefix(MAGIC).and_then(|rest| rest.split_once(' ')).ok_or(NoMark)?;
    let term = digits.parse().ok().and_then(Term::new).filter(|term| *term != Term::NONE);
    let term = term.ok_or(NoMark)?;
    let rest = &bytes[end + 1..];
    match word {
        "live" => Ok(Content { term, bytes: Some(rest.to_vec()) }),
        "gone" if rest.is_empty() => Ok(Content { term, bytes: None }),
        _ => Err(NoMark),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::super::Pretender;
    use super::*;

    fn leader(term: u64) -> Pretender {
        Pretender::new(Term::new(term).unwrap())
    }

    #[test]
    fn a_first_line_is_a_mark_or_nothing_is() {
        let term = Term::new(101).unwrap();
        for content in [Some(&b"x\ny"[..]), Some(b""), None] {
            let read = parse(&frame(term, content)).unwrap();
            assert_eq!(read, Content { term, bytes: content.map(<[u8]>::to_vec) });
        }
        for bad in [
            "",
            "hello",
            "hello\n",
            "regent-fence 1 0 live\n",
            "regent-fence 1 x live\n",
            "regent-fence 2 7 live\n",
            "regent-fence 1 7 gone\nbut not",
            "regent-fence 1 7 live",
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(NoMark), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn an_object_refuses_a_lower_term_also_after_its_deletion() {
        let object = FencedObject::new(Arc::new(InMemory::new()), "a/b");
        assert_eq!(object.get().await.unwrap(), None);
        object.put(&leader(100), b"old").await.unwrap();
        object.put(&leader(101), b"new").await.unwrap();
        let stale = leader(100);
        let refused = object.put(&stale, b"stale").await.unwrap_err();
        assert_eq!(refused.to_string(), "STALE_TERM: term 100 < current 101");
        assert!(stale.is_refused());
        object.delete(&leader(102)).await.unwrap();
        assert_eq!(object.get().await.unwrap().unwrap().bytes, None);
        assert!(object.put(&leader(101), b"back").await.unwrap_err().refusal().is_some());
        object.put(&leader(102), b"again").await.unwrap();
        assert_eq!(object.get().await.unwrap().unwrap().bytes.unwrap(), b"again");
    }

    /// The successor comes between the look and the put, with the very same content.
    #[tokio::test]
    async fn a_successor_that_writes_the_same_is_not_overwritten() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let object = FencedObject::new(Arc::clone(&store), "a");
        object.put(&leader(1), b"same").await.unwrap();
        let successor = object.clone();
        let deposed = leader(1);
        let late = object.replace(&deposed, Some(b"other"), async {
            successor.put(&leader(2), b"same").await.unwrap();
        });
        let refused = late.await.unwrap_err();
        assert_eq!(refused.to_string(), "STALE_TERM: term 1 < current 2");
        assert_eq!(object.get().await.unwrap().unwrap().term.get(), 2);
    }

    #[tokio::test]
    async fn what_has_no_mark_is_not_overwritten() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        store.put(&Path::from("a"), "somebody's".into()).await.unwrap();
        let object = FencedObject::new(store, "a");
        let error = object.put(&leader(1), b"mine").await.unwrap_err();
        assert!(error.to_string().contains("not written through a fence"), "{error}");
    }
}
