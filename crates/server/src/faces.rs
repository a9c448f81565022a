//! Which face of the service a request is for: HTTP/JSON, or gRPC where that is built in.
//!
//! Both share one port: gRPC is HTTP/2 with a label of its own, so the first request that carries it
//! tells them apart, and one connection may carry both.

use std::future::Future;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;

use crate::app::App;
#[cfg(feature = "grpc")]
use crate::grpc::{self, Grpc};
use crate::reply::Response;
use crate::router;

/// Everything that answers requests.
#[derive(Clone)]
pub(crate) struct Faces {
    app: Arc<App>,
    #[cfg(feature = "grpc")]
    grpc: Arc<Grpc>,
}

impl Faces {
    pub(crate) fn new(app: &Arc<App>) -> Self {
        Self {
            app: Arc::clone(app),
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
            router::answer(faces.app, request).await
        }
    }
}
