//! The service: HTTP/JSON and gRPC over any [`Store`](regent_election::store::Store).
//!
//! The life of a request, file by file:
//!
//! 1. `listen` accepts a connection, if the `connection_limit` has room for it; `tls` has the handshake, if the port
//!    speaks TLS.
//! 2. `connection` speaks HTTP/1.1 or HTTP/2 on it; the `socket` below gives up on peers that
//!    are slow to ask or slow to read.
//! 3. `router` finds the row of the table of routes and walks the request through the same door
//!    as every other: `origin` (no other web site's requests), `auth` (who calls, and may it), `body` (bounded in bytes and
//!    time), `rate` (nobody too often), `admission` (the important ones first), the verb, the answer.
//! 4. The verb's own file (`campaign.rs`, `leader.rs`, …, named as in `regent-api`; those of a tenure share
//!    `tenure.rs`): parse, one call of the store, answer. No rule is decided here.
//!
//! Requests labelled `application/grpc` turn off after `connection` to `grpc` (a feature), walk
//! through the same checks in the same order, and meet the same verbs.
//!
//! Beside requests there is one long-running task, the `observer`, which watches the store for
//! the log and the metrics. [`serve`](serve()) starts everything and ends it in order.

mod access;
mod address;
mod admission;
mod app;
mod audit;
mod auth;
mod backup;
mod beliefs;
mod body;
mod campaign;
mod cluster;
mod config;
mod connection;
mod connection_limit;
mod count;
mod dashboard;
mod delay;
mod election_metrics;
mod faces;
mod forecast;
mod group_metrics;
mod groups;
#[cfg(feature = "grpc")]
mod grpc;
mod held;
mod history;
mod issuers;
mod known_peer;
mod leader;
mod limits;
mod listen;
mod metrics;
mod observer;
mod origin;
mod owners;
mod process;
mod quiet;
mod rate;
mod reason;
mod replica_metrics;
mod reply;
mod router;
mod serve;
mod sessions;
mod signing;
mod socket;
mod step_down;
mod stream;
mod tenure;
mod tls;
mod token;
mod watch;

pub use backup::BackupFile;
pub use beliefs::Alarm;
pub use cluster::{CertificateState, Cluster, Durations, Measured};
pub use config::{AuditConfig, Auth, ConfigError, ServerConfig};
pub use forecast::ReplaceFailing;
pub use listen::{Listener, bind};
pub use serve::{ServeError, serve, serve_cluster};
pub use signing::{Signing, TermStatement};
pub use tls::{ByteStream, Secured, Tls};
