//! A semaphore of N holders: N groups `name/0` to `name/N-1`, and a holder leads one of them
//! (semantics 33).
//!
//! Whoever wants in takes a place that is vacant; if none is, it stands in every line and takes the
//! place that comes first. Each place has terms of its own, so that what a holder writes can be fenced
//! per place.

use std::time::Duration;

use regent_election::store::Consistency;
use regent_election::{Group, NameError, Term};
use tokio::task::JoinSet;

use crate::error::{CampaignError, Lost, Untold};
use crate::fenced::Permit;
use crate::leadership::{Leadership, Stop};
use crate::limits::{LOCK_WAIT, SEMAPHORE_HOLDERS_MAX};
use crate::lock::LockError;
use crate::regent::{Regent, ToGroup};

/// Why there is no such semaphore.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SemaphoreError {
    /// No holder at all, or too many.
    #[error("a semaphore has 1 to {SEMAPHORE_HOLDERS_MAX} holders, not {0}")]
    Holders(u32),
    /// A name that its groups cannot have.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Regent {
    /// The semaphore of this name with so many holders. Everybody must say the same number.
    pub fn semaphore(&self, name: impl ToGroup, holders: u32) -> Result<Semaphore, SemaphoreError> {
        if !(1..=SEMAPHORE_HOLDERS_MAX).contains(&holders) {
            return Err(SemaphoreError::Holders(holders));
        }
        let name = name.to_group()?;
        let place = |number: u32| Group::new(&format!("{name}/{number}"));
        let places = (0..holders).map(place).collect::<Result<Vec<_>, _>>()?;
        Ok(Semaphore { regent: self.clone(), name, places, wait: LOCK_WAIT })
    }
}

/// A semaphore. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Semaphore {
    regent: Regent,
    name: Group,
    places: Vec<Group>,
    wait: Duration,
}

impl Semaphore {
    /// The same semaphore, waited for so long; 10 s by default.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Takes a place as soon as one is free.
    pub async fn acquire(&self) -> Result<SemaphoreGuard, LockError> {
        match tokio::time::timeout(self.wait, self.acquire_in_time()).await {
            Ok(acquired) => acquired,
            Err(_) => Err(LockError::TimedOut { name: self.name.clone(), waited: self.wait }),
        }
    }

    async fn acquire_in_time(&self) -> Result<SemaphoreGuard, LockError> {
        let session = self.regent.for_locks().await?;
        let mut standing = JoinSet::new();
        // A vacant place first: standing everywhere at once would win several and give them back.
        for place in self.vacant(session).await {
            standing.spawn(session.campaign(&place).into_future());
            let first =
                tokio::time::timeout(session.budget().request_timeout(), standing.join_next());
            if let Ok(Some(Ok(leadership))) = first.await {
                return taken(leadership);
            }
        }
        for place in &self.places {
            standing.spawn(session.campaign(place).into_future());
        }
        while let Some(joined) = standing.join_next().await {
            if let Ok(leadership) = joined {
                // The others are withdrawn; what they may have won meanwhile is given back.
                return taken(leadership);
            }
        }
        Err(LockError::Campaign(CampaignError::Closed))
    }

    /// The places that nobody holds, as far as is known.
    async fn vacant(&self, session: &Regent) -> Vec<Group> {
        let mut vacant = Vec::new();
        for place in &self.places {
            let view = session.session().reads.leader(place, Consistency::Linearizable).await;
            if view.is_ok_and(|view| view.leader.is_none()) {
                vacant.push(place.clone());
            }
        }
        vacant
    }
}

fn taken(leadership: Result<Leadership, CampaignError>) -> Result<SemaphoreGuard, LockError> {
    Ok(SemaphoreGuard { leadership: leadership? })
}

/// A place that is held. Dropping it frees it in the background.
#[derive(Debug)]
#[must_use = "dropping the guard frees the place"]
pub struct SemaphoreGuard {
    leadership: Leadership,
}

impl SemaphoreGuard {
    /// The group of this place.
    #[must_use]
    pub fn place(&self) -> &Group {
        self.leadership.group()
    }

    /// The fencing token of this place.
    #[must_use]
    pub fn term(&self) -> Term {
        self.leadership.term()
    }

    /// Whether the place is held at this instant; see [`Leadership::check`].
    pub fn check(&self) -> Result<Permit, Lost> {
        self.leadership.check()
    }

    /// Waits until the place must be given back; see [`Leadership::lost`].
    pub async fn lost(&self) -> Stop {
        self.leadership.lost().await
    }

    /// Gives the place back and waits until the store knows.
    pub async fn release(self) -> Result<(), Untold> {
        self.leadership.resign().await
    }
}
