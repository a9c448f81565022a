//! What a server says about itself.

use std::time::Duration;

use regent_api::{HealthResponse, Operation, ReadyResponse};

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Whether a server turns, and its version.
    pub async fn health(&self) -> RemoteResult<HealthResponse> {
        let path = Operation::Healthz.route().path.to_owned();
        self.call(Call::bare(Operation::Healthz, path), Duration::ZERO).await
    }

    /// Whether its store serves.
    pub async fn ready(&self) -> RemoteResult<ReadyResponse> {
        let path = Operation::Readyz.route().path.to_owned();
        self.call(Call::bare(Operation::Readyz, path), Duration::ZERO).await
    }
}
