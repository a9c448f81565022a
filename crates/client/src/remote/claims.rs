//! Who acts, as a server has heard it.

use std::time::Duration;

use regent_api::{ClaimsQuery, ClaimsResponse, Operation};

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// One page of what the server has heard; `next` of the answer asks for the one after.
    pub async fn claims(&self, query: &ClaimsQuery) -> RemoteResult<ClaimsResponse> {
        let path = Operation::Claims.route().path.to_owned();
        let call = Call::bare(Operation::Claims, path).query(query);
        self.call(call, Duration::ZERO).await
    }
}
