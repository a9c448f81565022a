//! Offer: the first step of a hand-over.

use std::time::Duration;

use regent_api::{Done, OfferRequest, Operation};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Asks a standby to get warm; the caller goes on leading.
    pub async fn offer(&self, group: &Group, request: &OfferRequest) -> RemoteResult<()> {
        let path = Operation::Offer.route().of_group(group);
        let call = Call::with_body(Operation::Offer, path, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }
}
