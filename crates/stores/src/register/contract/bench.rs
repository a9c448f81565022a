//! What the cases share: fresh keys, fresh values, patience.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use regent_election::Moment;

use super::{Fault, Harness, ensure};
use crate::register::{
    Found, Key, KeyKind, Record, Register, RegisterResult, ServerSessions, Swapped, Version,
};

/// How long a case waits for what must happen; far above what any register needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The workplace of one case.
#[derive(Clone)]
pub(super) struct Bench {
    harness: Arc<dyn Harness>,
}

impl Bench {
    pub(super) fn new(harness: Arc<dyn Harness>) -> Self {
        Self { harness }
    }

    pub(super) fn register(&self) -> Arc<dyn Register> {
        self.harness.register()
    }

    pub(super) fn other(&self) -> Arc<dyn Register> {
        self.harness.other()
    }

    pub(super) fn now(&self) -> Moment {
        self.harness.time().now()
    }

    pub(super) async fn sleep(&self, for_how_long: Duration) {
        self.harness.time().sleep(for_how_long).await;
    }

    pub(super) fn unique(&self) -> u128 {
        self.harness.unique()
    }

    /// A name that opens like no other.
    pub(super) fn name(&self) -> String {
        format!("contract/{:032x}", self.unique())
    }

    /// The key of a group nobody has named.
    pub(super) fn key(&self) -> Result<Key, Fault> {
        key(KeyKind::Group, &self.name())
    }

    /// A value like no other.
    pub(super) fn record(&self) -> Record {
        Record::bare(self.unique().to_be_bytes().to_vec())
    }

    /// A key with an entry, and its version.
    pub(super) async fn entry(&self) -> Result<(Key, Version), Fault> {
        let key = self.key()?;
        let version = done("creating", self.register().swap(&key, None, self.record()).await)?;
        Ok((key, version))
    }

    /// The entry, which must be there.
    pub(super) async fn load(&self, key: &Key) -> Result<Found, Fault> {
        match self.register().load(key).await? {
            Some(found) => Ok(found),
            None => Err(Fault::Broken(format!("{key} is not there"))),
        }
    }

    /// The shortest time, on this machine's clock, that may pass as `span` on the server's.
    pub(super) fn at_least(&self, span: Duration) -> Duration {
        let parts = 1_000_000 - self.harness.drift_ppm().min(1_000_000);
        span * parts / 1_000_000
    }

    /// The answer, unless it takes longer than patience.
    pub(super) async fn in_time<T>(
        &self,
        what: &str,
        future: impl Future<Output = T> + Send,
    ) -> Result<T, Fault> {
        tokio::select! {
            biased;
            answer = future => Ok(answer),
            () = self.harness.time().sleep(PATIENCE) => {
                Err(Fault::Broken(format!("{what}: not within {PATIENCE:?}")))
            }
        }
    }

    /// Does this until it says that it is done.
    pub(super) async fn until<L>(
        &self,
        what: &str,
        mut look: impl FnMut() -> L + Send,
    ) -> Result<(), Fault>
    where
        L: Future<Output = Result<bool, Fault>> + Send,
    {
        let given_up_at = self.now() + PATIENCE;
        while !look().await? {
            ensure!(self.now() < given_up_at, "{what}: not within {PATIENCE:?}");
        }
        Ok(())
    }
}

pub(super) fn key(kind: KeyKind, name: &str) -> Result<Key, Fault> {
    Key::found(kind, name).ok_or_else(|| Fault::Broken(format!("{name:?} is no name")))
}

/// The version of a swap that must succeed.
pub(super) fn done(what: &str, answer: RegisterResult<Swapped>) -> Result<Version, Fault> {
    match answer? {
        Swapped::Done(version) => Ok(version),
        Swapped::Conflict => Err(Fault::Broken(format!("{what}: conflicts"))),
    }
}

/// A swap that must conflict.
pub(super) fn conflicts(what: &str, answer: RegisterResult<Swapped>) -> Result<(), Fault> {
    match answer? {
        Swapped::Conflict => Ok(()),
        Swapped::Done(version) => Err(Fault::Broken(format!("{what}: done, as {version:?}"))),
    }
}

/// The sessions of this register; a case about them is skipped where there are none.
pub(super) fn sessions(register: &dyn Register) -> Result<&dyn ServerSessions, Fault> {
    let none = || Fault::Skipped("its sessions are timed by those who watch them".into());
    register.sessions().ok_or_else(none)
}
