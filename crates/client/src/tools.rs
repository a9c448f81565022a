//! What the tools of this repository need beyond an application: elections over a store or an office by value,
//! and by another clock. Only with the feature `tools`, and not stable.

use std::sync::Arc;

use regent_election::Moment;
use regent_election::store::Store;
#[cfg(feature = "embedded")]
use regent_replica::ReplicaStore;

use crate::backend::Backend;
use crate::connect::{BackendChoice, Connect};
use crate::driver::Input;
#[cfg(feature = "embedded")]
use crate::embedded::Replica;
use crate::leadership::Leadership;
use crate::regent::Regent;
use crate::session::Clock;

impl Regent {
    /// A session over a store that is open in this process.
    pub fn over(store: Arc<dyn Store>) -> Connect {
        Connect::new(BackendChoice::Store(store))
    }

    /// A session at any office, real or simulated.
    pub fn through(office: Arc<dyn Backend>) -> Connect {
        Connect::new(BackendChoice::Given(office))
    }
}

impl Leadership {
    /// The work of this term failed by itself: it ended, hung or could not begin. Soon after an election this costs a
    /// growing pause before this process stands there again. The term is given up as usual.
    pub fn failed(&self) {
        let (group, term) = (self.group().clone(), self.term());
        self.hold().session().tell(Input::Failed { group, term });
    }
}

impl Connect {
    /// Another clock than the lease clock of this machine: for simulations and tests, in which time
    /// is theirs. It must never run backwards.
    pub fn lease_clock(mut self, now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(now);
        self
    }
}

#[cfg(feature = "embedded")]
impl Replica {
    /// The store itself, for its condition and its members.
    #[must_use]
    pub const fn store(&self) -> &Arc<ReplicaStore> {
        &self.store
    }
}
