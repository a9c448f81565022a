//! `POST /v1/sessions/open`, `…/renew`, `…/show`, `…/close`.

use regent_api::{
    CloseSessionRequest, Done, Heard, OpenSessionRequest, RenewSessionRequest, SessionResponse,
    ShowSessionRequest,
};

use crate::app::{Call, fresh_session};
use crate::reply::{self, Reply};

pub(crate) async fn open(call: Call) -> Reply {
    let request: OpenSessionRequest = call.body()?;
    let open = request.into_open(fresh_session()?);
    let session_id = open.session;
    let view = call.change(call.store().open(open)).await?;
    reply::json(&SessionResponse::new(session_id, view))
}

pub(crate) async fn renew(call: Call) -> Reply {
    let request: RenewSessionRequest = call.body()?;
    let heard = call.change(call.store().heartbeat(request.into())).await?;
    reply::json(&Heard::from(heard))
}

pub(crate) async fn show(call: Call) -> Reply {
    let ShowSessionRequest { session_id } = call.body()?;
    let view = call.read(call.store().session(session_id)).await?;
    reply::json(&SessionResponse::new(session_id, view))
}

pub(crate) async fn close(call: Call) -> Reply {
    let CloseSessionRequest { session_id } = call.body()?;
    call.change(call.store().close(session_id)).await?;
    reply::json(&Done::YES)
}
