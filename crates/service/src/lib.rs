//! A server over a replica of our own store, to be embedded in any process.
//!
//! [`Service::on_replica`] opens a data directory, or founds a cluster of one in an empty one, and
//! [`Service::serve`] serves it until it is told to end. Nothing here prints or ends the
//! process: `regent serve` and its kin do that with what these functions return.
//!
//! - `replica`: which directory becomes a replica, and how it starts.
//! - `founding`, `restore`, `recover`: the first data of a replica, from nothing, from a backup, or from
//!   the one replica that survived.
//! - `invitation`: one file with which a machine joins a cluster.
//! - [`settings`]: the table of settings of a server, from flags, environment and file.
//! - [`dev`]: a whole cluster of server processes on this machine, to try things out.
//! - `client_tls`, `secure`: TLS to clients and between replicas.
//! - `port`: the cluster behind the service, for operators (`/v1/cluster`).
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use regent_service::{ReplicaOptions, Service};
//! use tokio::net::TcpListener;
//!
//! let listener = TcpListener::bind("127.0.0.1:7400").await?;
//! let options = ReplicaOptions::new("/var/lib/regent", listener.local_addr()?);
//! let service = Service::on_replica(options).await?;
//! service.serve(vec![listener], std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod backup;
mod client_tls;
pub mod dev;
mod directory;
pub mod duration;
mod error;
mod founding;
#[cfg(feature = "tls")]
mod invitation;
pub mod members;
mod port;
mod random;
mod recover;
mod replica;
mod restore;
mod secure;
mod service;
pub mod settings;
pub mod socket;
mod steps;
mod wall;

pub use address::{host_and_port, reachable};
pub use backup::write_backup;
pub use client_tls::{ClientAuth, ClientPort};
pub use directory::holds_replica;
pub use error::{ReplicaError, ReplicaFault};
pub use founding::{Founded, bootstrap, bootstrap_all, cluster_id, prepare_to_join};
#[cfg(feature = "tls")]
pub use invitation::{
    GoodFor, Invitation, InvitationError, InvitationFile, ListenAt, join, may_invite,
};
pub use recover::{Recovery, Survivor};
pub use replica::{ReplicaOptions, ReplicaSettings, StartTape};
pub use restore::{Restore, Restored};
pub use secure::PeerCertificates;
pub use service::Service;
pub use steps::{RestoredBy, join_steps};
