//! The token service, for a resource that cannot keep a mark of its own.
//!
//! The fence is kept where the elections are, in every kind of store. Check and write are two steps here:
//! between them anything may happen. So this is for resources that nothing else fits, and it shuts a
//! predecessor out only from what is written *after* it asks in vain.

use regent_election::store::StoreError;
use regent_election::{FenceError, Refusal, Resource};

use super::{WriteError, WriteResult, refuse};
use crate::fenced::Permit;

impl Permit {
    /// Asks the store in which this term was won to admit it at `resource`, and to admit no lower one there any
    /// more. To be called by a successor before it reads what it builds on, and before every write.
    ///
    /// A refusal for a higher term is the loss of the office.
    pub async fn admit_at(&self, resource: &Resource) -> WriteResult<()> {
        let (group, term) = (self.group().clone(), self.term());
        match self.session().reads.admit(&group, resource, term).await {
            Ok(()) => Ok(()),
            Err(StoreError::Refused(Refusal::StaleTerm { given, current, .. })) => {
                Err(refuse(self, FenceError::Stale { given, current }))
            }
            Err(StoreError::Refused(Refusal::NeverGranted { .. })) => {
                Err(WriteError::Refused(FenceError::NeverGranted))
            }
            Err(error @ StoreError::Uncertain { .. }) => Err(WriteError::uncertain(error)),
            Err(error) => Err(WriteError::failed(error)),
        }
    }
}
