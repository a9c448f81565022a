//! Messages about bindings and tokens, and back.

use super::generated as pb;
use super::read::text;
use crate::problem::Problem;
use crate::{
    AuthTokenBody, AuthTokensResponse, BindingBody, BindingsResponse, CreateAuthTokenRequest,
    CreateAuthTokenResponse, PutBindingsRequest, RevokeAuthTokenRequest, UsageBody, UsageResponse,
};

impl From<BindingBody> for pb::Binding {
    fn from(body: BindingBody) -> Self {
        let BindingBody { who, role, groups, nodes } = body;
        Self { who, role, groups, nodes }
    }
}

impl From<pb::Binding> for BindingBody {
    /// A list of no nodes is one: such a principal stands under no name.
    fn from(message: pb::Binding) -> Self {
        let pb::Binding { who, role, groups, nodes } = message;
        Self { who, role, groups, nodes }
    }
}

impl From<BindingsResponse> for pb::BindingsResponse {
    fn from(response: BindingsResponse) -> Self {
        let bindings = response.bindings.into_iter().map(pb::Binding::from).collect();
        Self { version: response.version, bindings }
    }
}

impl From<pb::PutBindingsRequest> for PutBindingsRequest {
    fn from(message: pb::PutBindingsRequest) -> Self {
        let bindings = message.bindings.into_iter().map(BindingBody::from).collect();
        Self { expected_version: message.expected_version, bindings }
    }
}

impl From<UsageResponse> for pb::UsageResponse {
    fn from(response: UsageResponse) -> Self {
        let UsageResponse { largest, principals, bytes_max_each, state_bytes } = response;
        let message = |UsageBody { principal, bytes }| pb::Usage { principal, bytes };
        let largest = largest.into_iter().map(message).collect();
        Self { largest, principals, bytes_max_each, state_bytes }
    }
}

impl From<AuthTokenBody> for pb::AuthToken {
    fn from(body: AuthTokenBody) -> Self {
        let AuthTokenBody { id, principal, label, created_at, expires_at, revoked } = body;
        Self { id, principal, label, created_at, expires_at, revoked }
    }
}

impl From<AuthTokensResponse> for pb::AuthTokensResponse {
    fn from(response: AuthTokensResponse) -> Self {
        Self { tokens: response.tokens.into_iter().map(pb::AuthToken::from).collect() }
    }
}

impl From<CreateAuthTokenResponse> for pb::CreateAuthTokenResponse {
    fn from(response: CreateAuthTokenResponse) -> Self {
        let CreateAuthTokenResponse { bearer_token, token } = response;
        Self { bearer_token, token: Some(token.into()) }
    }
}

impl pb::CreateAuthTokenRequest {
    /// The request, checked.
    pub fn read(self) -> Result<CreateAuthTokenRequest, Problem> {
        Ok(CreateAuthTokenRequest {
            principal: text("principal", &self.principal)?,
            label: self.label,
            expires_in_ms: self.expires_in_ms,
        })
    }
}

impl pb::RevokeAuthTokenRequest {
    /// The request, checked.
    pub fn read(self) -> Result<RevokeAuthTokenRequest, Problem> {
        Ok(RevokeAuthTokenRequest { id: text("id", &self.id)? })
    }
}
