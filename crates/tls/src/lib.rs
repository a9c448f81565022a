//! Mutual TLS between the replicas of one cluster.
//!
//! Every replica has a certificate of the cluster's own CA whose only URI names it:
//! `regent://CLUSTER/replica/ID`. Both ends of a link verify the chain and that name during the
//! handshake ([`PeerTls`]); whoever uses the link compares the number with what the peer calls itself.
//! TLS 1.3 only, without resumption and without early data: every link proves both keys anew, so a
//! recorded link replays into nothing, and an expired certificate opens no further link.
//!
//! The CA's key stays off the servers: [`authority`] makes it in a directory of the operator's machine
//! and issues certificates there.
//!
//! The road not taken is host names in certificates: replicas move between addresses, and what must
//! be proved is which vote a message counts for.

pub mod authority;
mod certificate;
mod error;
mod files;
pub mod limits;
mod links;
mod name;
mod verify;

pub use certificate::Certificate;
pub use error::TlsError;
pub use files::PeerFiles;
pub use links::{PeerTls, Reloaded};
pub use name::ReplicaName;
