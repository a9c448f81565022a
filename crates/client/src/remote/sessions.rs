//! Sessions: one run of one node, the unit of liveness.

use std::time::Duration;

use regent_api::{
    CloseSessionRequest, Done, HeartbeatRequest, HeartbeatResponse, OpenSessionRequest, Operation,
    SessionResponse, ShowSessionRequest,
};
use serde::Serialize;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Opens a session. With a `session_id` of the caller's choice it may be repeated.
    pub async fn open_session(
        &self,
        request: &OpenSessionRequest,
    ) -> RemoteResult<SessionResponse> {
        self.session_answer(Operation::OpenSession, request).await
    }

    /// Keeps a session and all its tenures alive. The validity counts from when this was sent.
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> RemoteResult<HeartbeatResponse> {
        let heard: HeartbeatResponse =
            self.call(of_sessions(Operation::Heartbeat, request), Duration::ZERO).await?;
        self.note(heard.revision);
        Ok(heard)
    }

    /// Shows a session to its owner.
    pub async fn show_session(
        &self,
        request: &ShowSessionRequest,
    ) -> RemoteResult<SessionResponse> {
        self.session_answer(Operation::ShowSession, request).await
    }

    /// Ends a session. Ending one that is not open is done already, so this may be repeated.
    pub async fn close_session(&self, request: &CloseSessionRequest) -> RemoteResult<()> {
        let call = of_sessions(Operation::CloseSession, request);
        let _: Done = self.call(call, Duration::ZERO).await?;
        Ok(())
    }

    async fn session_answer(
        &self,
        operation: Operation,
        request: &impl Serialize,
    ) -> RemoteResult<SessionResponse> {
        let answer: SessionResponse =
            self.call(of_sessions(operation, request), Duration::ZERO).await?;
        self.note(answer.revision);
        Ok(answer)
    }
}

fn of_sessions(operation: Operation, request: &impl Serialize) -> Call {
    Call::with_body(operation, operation.route().path.to_owned(), request)
}
