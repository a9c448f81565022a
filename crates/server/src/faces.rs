//! Which face of the service a request is for: HTTP/JSON, or gRPC where that is built in.
//!
//! Both share one port: gRPC is HTTP/2 with a label of its own, so the first request that carries it
//! tells them apart, and one connection may carry both.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use tower::Service;

use crate::app::App;
use crate::direct;
#[cfg(feature = "grpc")]
use crate::grpc::{self, Grpc};
use crate::router::{router, serve};

/// Everything that answers requests.
#[derive(Clone)]
pub(crate) struct Faces {
    app: Arc<App>,
    http: Router,
    #[cfg(feature = "grpc")]
    grpc: Arc<Grpc>,
}

impl Faces {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        Self {
            app: Arc::clone(app),
            http: router(app),
            #[cfg(feature = "grpc")]
            grpc: Arc::new(Grpc::new(app)),
        }
    }

    /// Answers one request.
    pub(crate) fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response> + Send + use<> {
        let faces = self.clone();
        async move {
            #[cfg(feature = "grpc")]
            if request.version() == hyper::Version::HTTP_2 && grpc::is_grpc(request.headers()) {
                // Boxed, so that the future of every other request stays small.
                return Box::pin(faces.grpc.serve(request)).await;
            }
            if let Some(route) = direct::find(request.method(), request.uri().path()) {
                return serve(faces.app, route, request.map(Body::new)).await;
            }
            let answered: Result<Response, Infallible> = faces.http.clone().call(request).await;
            match answered {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    }
}
