//! The gateway: a reverse proxy that fences any HTTP storage by terms.
//!
//! It admits a request only with a `Regent-Term` that is not lower than the highest it has seen and, in
//! strict mode, is the current one. The life of a request, file by file:
//!
//! 1. `serve` accepts a connection and reads a head.
//! 2. `app` walks it: `headers` refuses what cannot be passed on, the term is read (out of a token that its
//!    service signed, where that is asked for), `current` asks the service in strict mode, and the `door` lets it in or turns it away.
//! 3. `exchange` passes it on over a connection of `upstream`, and carries the answer back (`body`).
//! 4. The door is told how it ended.
//!
//! What may pass when is decided by [`Doorkeeper`](regent_election::fence::doorkeeper::Doorkeeper), a machine without clock
//! or socket. [`mark`] keeps its one number.
//!
//! One gateway stands before one resource. Two of them side by side would each hold back what is inside
//! *themselves* and know nothing of what is inside the other: no shared number makes up for that.

mod app;
mod body;
mod config;
mod current;
mod exchange;
mod front;
mod headers;
mod keeper;
pub mod limits;
pub mod mark;
mod metrics;
mod reply;
mod report;
mod serve;
mod upstream;

pub use config::{GatewayConfig, GatewayError};
pub use front::GatewayCertificate;
pub use report::ReportTarget;
pub use serve::Gateway;
pub use upstream::{Upstream, UpstreamError};

/// Judges the head of a request without a term, for the fuzzer; whether it would be passed on.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(request: &mut hyper::Request<http_body_util::Empty<hyper::body::Bytes>>) -> bool {
    headers::fuzz(request)
}
