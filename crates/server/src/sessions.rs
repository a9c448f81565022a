//! `POST /v1/sessions/open`, `…/heartbeat`, `…/show`, `…/close`.

use regent_api::{
    CloseSessionRequest, Code, Done, HeartbeatRequest, HeartbeatResponse, OpenSessionRequest,
    Problem, SessionResponse, ShowSessionRequest,
};

use regent_election::SessionId;
use regent_election::store::Heartbeat;

use crate::app::{Ask, Call, fresh_session};
use crate::reply::{self, Reply};

pub(crate) async fn open(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_open(&call, request).await?)
}

pub(crate) async fn act_open(
    ask: &Ask,
    request: OpenSessionRequest,
) -> Result<SessionResponse, Problem> {
    chosen(request.session_id)?;
    let open = request.into_open(fresh_session)?;
    let session_id = open.session;
    let view = ask.change(ask.store().open(open)).await?;
    ask.carries(session_id, view.ttl_ms);
    ask.app.claim_monitor.opened(session_id, view.node.clone());
    Ok(SessionResponse::new(session_id, view))
}

/// Refuses an id that its client cannot have drawn at random: whoever guesses it acts for the session.
pub(crate) fn chosen(session: Option<SessionId>) -> Result<(), Problem> {
    if session.is_none_or(SessionId::looks_random) {
        return Ok(());
    }
    let why = "this session_id is not random, and whoever guesses it can act for the session: draw 128 random bits (openssl rand -hex 16), or leave it out and use the one that the answer names";
    Err(Problem::new(Code::BadRequest, why).at("session_id"))
}

pub(crate) async fn heartbeat(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_heartbeat(&call, request).await?)
}

pub(crate) async fn act_heartbeat(
    ask: &Ask,
    request: HeartbeatRequest,
) -> Result<HeartbeatResponse, Problem> {
    let mut heartbeat = Heartbeat::from(request);
    let (session, beliefs) = (heartbeat.session, heartbeat.beliefs.take());
    let heard = ask.change(ask.store().heartbeat(heartbeat)).await;
    // The renewal comes first; then what its node holds itself for, even if its session has expired: who acts without
    // one is whom this is about. Only what is older than the last heartbeat says nothing.
    // So does whoever may not speak for it.
    let says_nothing = |problem: &Problem| {
        matches!(
            problem.code,
            Code::HeartbeatNotNewer
                | Code::Forbidden
                | Code::SessionOfAnother
                | Code::CredentialOver
                | Code::Unauthenticated
        )
    };
    if let Some(mut beliefs) = beliefs.filter(|_| !heard.as_ref().is_err_and(says_nothing)) {
        ask.only_own(&mut beliefs).await;
        ask.app.heartbeat(session, heard.is_ok(), beliefs);
    }
    let heard = heard?;
    ask.carries(session, heard.ttl_ms);
    Ok(HeartbeatResponse::from(heard))
}

pub(crate) async fn show(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_show(&call, request).await?)
}

pub(crate) async fn act_show(
    ask: &Ask,
    request: ShowSessionRequest,
) -> Result<SessionResponse, Problem> {
    let ShowSessionRequest { session_id } = request;
    let view = ask.read(ask.store().session(session_id)).await?;
    Ok(SessionResponse::new(session_id, view))
}

pub(crate) async fn close(call: Call) -> Reply {
    let request = call.body()?;
    reply::json(&act_close(&call, request).await?)
}

pub(crate) async fn act_close(ask: &Ask, request: CloseSessionRequest) -> Result<Done, Problem> {
    let CloseSessionRequest { session_id } = request;
    ask.change(ask.store().close(session_id)).await?;
    ask.app.connection_limit.closed(session_id);
    // Of a session that has expired every principal may say that it is closed. What is heard of those who act on is
    // forgotten at the word of its owner only.
    if ask.guard.as_ref().is_none_or(|guarded| guarded.remembers_as_own(session_id)) {
        ask.app.claim_monitor.closed(session_id);
        ask.app.failure_forecast.closed(session_id);
    }
    Ok(Done::YES)
}
