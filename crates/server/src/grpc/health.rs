//! `grpc.health.v1.Health`: the empty name is `/healthz`, the service's name is `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use regent_api::Code;
use regent_api::grpc::SERVICE;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::app::{App, Ask, Phase};
use crate::count::Entered;
use crate::process;
use crate::router::Peer;

/// How often a watched store is asked whether it serves.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Says how the process is.
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) app: Arc<App>,
}

#[tonic::async_trait]
impl Health for Pulse {
    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (ask, name) = self.enter(request);
        match status(&ask, &name).await {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("there is no such service; ask for {SERVICE}")))
            }
            known => Ok(Response::new(HealthCheckResponse { status: known.into() })),
        }
    }

    /// Tells the status, and every change of it that lasts long enough to be seen.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (ask, name) = self.enter(request);
        let place = self.app.wait_in_the_open(&ask.activity)?;
        let (statuses, queue) = mpsc::channel(1);
        tokio::spawn(tell(ask, name, statuses, place));
        Ok(Response::new(ReceiverStream::new(queue)))
    }
}

impl Pulse {
    fn enter(&self, request: Request<HealthCheckRequest>) -> (Ask, String) {
        let peer = request.extensions().get::<Peer>().cloned();
        let Peer { activity, trail, .. } =
            peer.expect("the connection put itself into every request");
        let ask = Ask { app: Arc::clone(&self.app), guard: None, activity, trail, place: None };
        (ask, request.into_inner().service)
    }
}

async fn status(ask: &Ask, name: &str) -> ServingStatus {
    if name.is_empty() {
        return ServingStatus::Serving;
    }
    if name != SERVICE {
        return ServingStatus::ServiceUnknown;
    }
    match process::check_ready(ask).await {
        Ok(()) => ServingStatus::Serving,
        Err(problem) => {
            // Why not is in the log and at /readyz; this answer has no room for it.
            let is_expected = problem.code == Code::ShuttingDown;
            tracing::debug!(%problem, is_expected, "not ready");
            ServingStatus::NotServing
        }
    }
}

type Statuses = mpsc::Sender<Result<HealthCheckResponse, Status>>;

async fn tell(ask: Ask, name: String, statuses: Statuses, _place: Entered) {
    let mut told = None;
    loop {
        let is_closing = *ask.app.phase.borrow() != Phase::Serving;
        let status = match is_closing {
            true => ServingStatus::NotServing,
            false => status(&ask, &name).await,
        };
        if told != Some(status) {
            told = Some(status);
            let response = HealthCheckResponse { status: status.into() };
            // A reader that takes nothing for long is left; it may ask again.
            let patience = ask.app.config.write_timeout;
            match tokio::time::timeout(patience, statuses.send(Ok(response))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
        if is_closing {
            return;
        }
        tokio::select! {
            () = statuses.closed() => return,
            () = ask.app.reached(Phase::Closing) => {}
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
    }
}
