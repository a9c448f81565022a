//! TLS of servers, clients and the replicas of a cluster.
//!
//! | module | who uses it |
//! |---|---|
//! | `links` | replicas: mutual TLS between them |
//! | `server` | the port of clients: TLS, and principals from client certificates (`principal`) |
//! | `client` | whoever asks a server |
//! | `authority` | the operator: an offline CA for people without a PKI (feature `authority`) |
//!
//! What they share: `files` reads what nobody else can change, `kept` and `fresh` read it again while the process runs, `verify`
//! judges chains, revocation and names within the handshake.
//!
//! Every replica has a certificate of the cluster's own CA whose only URI names it:
//! `regent://CLUSTER/replica/ID`. Both ends of a link verify the chain and that name during the
//! handshake ([`PeerTls`]); whoever uses the link compares the number with what the peer calls itself.
//! TLS 1.3 only there, without resumption and without early data: every link proves both keys anew, so a
//! recorded link replays into nothing, and an expired certificate opens no further link.
//!
//! The CA's key stays off the servers: `authority` makes it in a directory of the operator's machine
//! and issues certificates there.
//!
//! The road not taken is host names in certificates of replicas: they move between addresses, and what must
//! be proved is which vote a message counts for.

#[cfg(feature = "authority")]
pub mod authority;
mod certificate;
mod client;
mod error;
mod facts;
mod files;
mod fresh;
#[cfg(feature = "authority")]
mod guide;
mod kept;
pub mod limits;
mod links;
mod name;
mod principal;
mod server;
mod told;
mod verify;

pub use certificate::Certificate;
pub use client::client_config;
pub use error::TlsError;
pub use files::{ClientCa, ClientFiles, PeerFiles, ServerFiles};
pub use fresh::keep_fresh;
pub use kept::{Reload, Reloaded};
pub use links::PeerTls;
pub use name::ReplicaName;
pub use principal::ClientNames;
pub use server::{ClientIdentity, ServerTls};
pub use told::client_failure;

/// Reads the bytes as a certificate, in DER and in PEM, and as lists of revoked ones, for the fuzzer.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let path = std::path::Path::new("fuzzed.crt");
    let _ = Certificate::read(path, bytes);
    let _ = certificate::revocation_lists(path, bytes);
    let _ = certificate::private_key(path, bytes).is_ok();
    let Ok(facts) = facts::Facts::of(&bytes.into()) else { return };
    for (dns, common_name) in [(true, false), (false, true), (true, true)] {
        let names = ClientNames { cluster: Some(0xab), dns, common_name };
        if let Ok(who) = principal::principal(&facts, names) {
            let text = who.to_string();
            assert_eq!(text.parse(), Ok(who), "{text} is no spelling of a principal");
        }
    }
}
