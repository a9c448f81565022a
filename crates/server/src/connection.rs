//! One connection: HTTP/1.1 or HTTP/2, whichever the peer speaks, until it idles or the server goes.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use regent_election::access::Voucher;

use crate::app::{App, Phase};
use crate::audit::Trail;
use crate::config::ServerConfig;
use crate::faces::Faces;
use crate::reply::{Body, Response};
use crate::router::Peer;
use crate::socket::{ConnectionActivity, Exchange, Socket, Stream};

/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Bytes of one HTTP/2 stream, and of all of a connection, that a peer may send ahead.
const HTTP2_WINDOW_BYTES: (u32, u32) = (64 << 10, 1 << 20);

/// How connections are spoken to.
pub(crate) fn protocol(config: &ServerConfig) -> auto::Builder<TokioExecutor> {
    let mut protocol = auto::Builder::new(TokioExecutor::new());
    protocol
        .http1()
        // The socket's own patience with heads, and `serve`'s with idleness, cover this; hyper's
        // would cost every request a timer.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    protocol
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.http2_streams_max)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES.0)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES.1)
        .max_send_buf_size(64 << 10)
        .keep_alive_interval(config.http2_ping_every)
        .keep_alive_timeout(config.http2_ping_timeout);
    protocol
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    stream: Stream,
    client: Option<Arc<dyn Voucher>>,
    activity: Arc<ConnectionActivity>,
    app: Arc<App>,
    faces: Faces,
    protocol: Arc<auto::Builder<TokioExecutor>>,
) {
    let Ok((local, user_id)) = stream.ends() else { return };
    let from: Arc<str> = stream.source().into();
    let config = &app.config;
    let socket =
        Socket::new(stream, Arc::clone(&activity), config.head_timeout, config.write_timeout);
    let service = service_fn(|mut request: Request<Incoming>| {
        let exchange = activity.head_arrived(request.version() == Version::HTTP_2);
        let (client, activity) = (client.clone(), Arc::clone(&activity));
        let trail = Trail::new(&from);
        request.extensions_mut().insert(Peer { local, user_id, client, activity, trail });
        let response = faces.answer(request);
        async move { Ok::<_, Infallible>(hold(response.await, exchange)) }
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        () = activity.given_up() => return,
        () = activity.idle_for(config.idle_timeout) => {}
        () = app.reached(Phase::Closing) => {}
    }
    // What is under way is answered; a peer that then stays is left.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = connection.as_mut() => log_end(ended),
        () = activity.given_up() => {}
        () = activity.idle_for(config.head_timeout) => {}
        () = app.reached(Phase::Over) => {}
    }
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The exchange lasts until the answer's last byte is handed over, not until its head is.
fn hold(response: Response, exchange: Exchange) -> hyper::Response<Held> {
    response.map(|body| Held { body, _exchange: exchange })
}

struct Held {
    body: Body,
    _exchange: Exchange,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
