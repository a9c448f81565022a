//! The proof that a server keeps conditions, on objects of its own that are thrown away.
//!
//! A server that speaks S3 and ignores `If-None-Match` makes everybody a leader who asks. It says nothing
//! about that; only what it refuses tells. The proof is short enough to be made before every first write: a
//! server that passes it may still decide late between two at once, which the races of `regent doctor` find.
//! What no race can be sure to find is a server that errs for one moment after its start (SeaweedFS does, see
//! `docs/stores.md`): a longer proof would be slow everywhere and miss it as well.

use object_store::path::Path;
use tokio::task::JoinSet;

use super::bucket::Bucket;
use crate::engine::fresh;
use crate::register::{Record, RegisterError, RegisterResult, Swapped, Version};

/// Who want to create the same object at once. More would be made to wait by some servers, and find no more:
/// a server that decides late is found by many races, which are not for here.
const RACERS: usize = 2;
/// Requests of a proof, those of a race counted as one.
pub(super) const REQUESTS: u32 = 10;

/// What a proof came to: why the server keeps no conditions, if it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof(Result<(), String>);

impl Proof {
    /// Refuses a server that keeps no conditions.
    pub(super) fn holds(&self) -> RegisterResult<()> {
        self.0.clone().map_err(RegisterError::unfit)
    }
}

/// What a server made of conditions that it must keep.
#[derive(Debug)]
struct Answers {
    created: Swapped,
    created_again: Swapped,
    replaced: Swapped,
    /// Over the version that was replaced.
    replaced_stale: Swapped,
    /// What the object holds in the end, as a version and whether it is what was written last.
    left: Option<(Version, bool)>,
    /// How many created the same object.
    winners: usize,
}

impl Answers {
    /// Why the server is not fit, if it is not.
    fn fault(&self) -> Result<(), &'static str> {
        let Swapped::Done(first) = &self.created else {
            return Err("it refuses to create what is not there");
        };
        if self.created_again != Swapped::Conflict {
            return Err("it creates what is there already (If-None-Match is ignored)");
        }
        let Swapped::Done(second) = &self.replaced else {
            return Err("it refuses to replace the version that is there");
        };
        if second == first {
            return Err("it calls two values by one version");
        }
        if self.replaced_stale != Swapped::Conflict {
            return Err("it replaces a version that is not there any more (If-Match is ignored)");
        }
        if self.left != Some((second.clone(), true)) {
            return Err("it does not read what was written last");
        }
        if self.winners != 1 {
            return Err("several create the same object at once, or none does");
        }
        Ok(())
    }
}

/// Asks the server for what it must refuse.
pub(super) async fn prove(bucket: &Bucket, root: &Path) -> RegisterResult<Proof> {
    let path = || root.clone().join("probes").join(format!("{:016x}", fresh()));
    let (alone, contested) = (path(), path());
    let answers = ask(bucket, &alone, &contested).await;
    bucket.forget(&alone).await;
    bucket.forget(&contested).await;
    let answers = answers.map_err(|error| match error {
        // A doubt about a probe is none about what is asked for after it.
        RegisterError::Uncertain { why } => RegisterError::Unavailable { why },
        other => other,
    })?;
    Ok(Proof(answers.fault().map_err(|fault| {
        format!(
            "{} does not keep the conditions of a write: {fault}. Two would be told that they lead",
            bucket.server
        )
    })))
}

async fn ask(bucket: &Bucket, alone: &Path, contested: &Path) -> RegisterResult<Answers> {
    let record = || Record::bare(fresh().to_be_bytes().to_vec());
    let version = |swapped: &Swapped| match swapped {
        Swapped::Done(version) => Some(version.clone()),
        Swapped::Conflict => None,
    };
    let created = bucket.put(alone, None, record()).await?;
    let created_again = bucket.put(alone, None, record()).await?;
    let first = version(&created);
    let last = record();
    let replaced = bucket.put(alone, first.as_ref(), last.clone()).await?;
    let replaced_stale = bucket.put(alone, first.as_ref(), record()).await?;
    let left = bucket.read(alone).await?;
    let left = left.map(|found| (found.version, found.value == last.value));
    let mut race = JoinSet::new();
    for _ in 0..RACERS {
        let (bucket, contested, record) = (bucket.clone(), contested.clone(), record());
        race.spawn(async move { bucket.put(&contested, None, record).await });
    }
    let mut winners = 0;
    for swapped in race.join_all().await {
        winners += usize::from(matches!(swapped?, Swapped::Done(_)));
    }
    Ok(Answers { created, created_again, replaced, replaced_stale, left, winners })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(version: &str) -> Swapped {
        Swapped::Done(Version(version.into()))
    }

    fn good() -> Answers {
        Answers {
            created: done("1"),
            created_again: Swapped::Conflict,
            replaced: done("2"),
            replaced_stale: Swapped::Conflict,
            left: Some((Version("2".into()), true)),
            winners: 1,
        }
    }

    #[test]
    fn a_server_that_refuses_what_it_must_is_fit_and_every_fault_is_told() {
        assert_eq!(good().fault(), Ok(()));
        let bad = [
            (Answers { created: Swapped::Conflict, ..good() }, "refuses to create"),
            (Answers { created_again: done("3"), ..good() }, "If-None-Match"),
            (Answers { replaced: Swapped::Conflict, ..good() }, "refuses to replace"),
            (Answers { replaced: done("1"), ..good() }, "by one version"),
            (Answers { replaced_stale: done("3"), ..good() }, "If-Match"),
            (Answers { left: None, ..good() }, "written last"),
            (Answers { left: Some((Version("2".into()), false)), ..good() }, "written last"),
            (Answers { winners: 2, ..good() }, "at once"),
            (Answers { winners: 0, ..good() }, "at once"),
        ];
        for (answers, word) in bad {
            assert!(answers.fault().unwrap_err().contains(word), "{answers:?}");
        }
    }
}
