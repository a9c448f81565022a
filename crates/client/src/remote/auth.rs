//! Bindings and tokens, for administrators.

use std::time::Duration;

use regent_api::{
    AuthTokensResponse, BindingsResponse, CreateAuthTokenRequest, CreateAuthTokenResponse, Done,
    Operation, PutBindingsRequest, RevokeAuthTokenRequest, UsageResponse,
};

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Which principals have which role in which groups.
    pub async fn bindings(&self) -> RemoteResult<BindingsResponse> {
        self.bare(Operation::ShowBindings).await
    }

    /// Replaces all bindings, if they are still at the version that was read.
    pub async fn put_bindings(
        &self,
        request: &PutBindingsRequest,
    ) -> RemoteResult<BindingsResponse> {
        self.sent(Operation::PutBindings, request).await
    }

    /// Which principals take most of the state.
    pub async fn usage(&self) -> RemoteResult<UsageResponse> {
        self.bare(Operation::ShowUsage).await
    }

    /// All bearer tokens, without their secrets.
    pub async fn auth_tokens(&self) -> RemoteResult<AuthTokensResponse> {
        self.bare(Operation::ListAuthTokens).await
    }

    /// Makes a bearer token.
    pub async fn create_auth_token(
        &self,
        request: &CreateAuthTokenRequest,
    ) -> RemoteResult<CreateAuthTokenResponse> {
        self.sent(Operation::CreateAuthToken, request).await
    }

    /// Makes a bearer token useless.
    pub async fn revoke_auth_token(&self, request: &RevokeAuthTokenRequest) -> RemoteResult<Done> {
        self.sent(Operation::RevokeAuthToken, request).await
    }

    async fn bare<A: serde::de::DeserializeOwned>(&self, operation: Operation) -> RemoteResult<A> {
        let path = operation.route().path.to_owned();
        self.call(Call::bare(operation, path), Duration::ZERO).await
    }

    async fn sent<A: serde::de::DeserializeOwned>(
        &self,
        operation: Operation,
        body: &impl serde::Serialize,
    ) -> RemoteResult<A> {
        let path = operation.route().path.to_owned();
        self.call(Call::with_body(operation, path, body), Duration::ZERO).await
    }
}
