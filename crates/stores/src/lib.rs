//! Stores behind the Store port, opened by URL.
//!
//! Each engine is a room of its own; a URL chooses one, and nothing outside needs to know which.

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod lease;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
pub mod register;
pub mod scheme;
pub mod time;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::sync::Arc;

use regent_election::store::Store;

use register::Register;
use scheme::{Opener, SCHEMES, Scheme};

pub use lease::LeaseStore;
pub use memory::{MemoryError, MemoryOptions, MemoryStore};

/// Why a URL opens no store. The URL itself is never shown: it may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No store of that scheme.
    #[error("{scheme:?} names no store; known are {}", known())]
    Unknown {
        /// What the URL opens with.
        scheme: String,
    },
    /// A store that this build does not have.
    #[error("{name} is not built in; build with --features {feature}, or with --features full")]
    NotBuiltIn {
        name: &'static str,
        /// What to build with.
        feature: &'static str,
    },
    /// A URL that its own store does not understand, or a place that it cannot use.
    #[error("{name}: {why}; a URL is written like {example}")]
    Url {
        name: &'static str,
        /// What is wrong.
        why: String,
        /// How it is written.
        example: &'static str,
    },
    /// The store is of this process alone, and there is no register behind it.
    #[error("{name} is a store of one process alone, so there is nothing to share or to examine")]
    NoRegister { name: &'static str },
    /// A store that earlier builds had.
    #[error(
        "local:DIR was removed, a single replica does the same; to keep its groups and terms, serve the directory with the last build that has local: and run its `regent migrate`, or start empty with `regent serve` (replica:), `memory:` or file:///DIR"
    )]
    Removed,
    /// There is no room for a store in this process.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Everything that a URL may open with, for messages.
fn known() -> String {
    let words: Vec<String> = SCHEMES.iter().map(|scheme| format!("{}:", scheme.name)).collect();
    words.join(", ")
}

/// Opens the store that `url` names. To be called within a runtime. Nothing is sent yet: a server that
/// is down is no error here.
pub fn open_url(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_url_with(url, MemoryOptions::default())
}

/// The same; `options` are for stores of this process.
pub fn open_url_with(url: &str, options: MemoryOptions) -> Result<Arc<dyn Store>, OpenError> {
    let scheme = scheme_of(url)?;
    Ok(match scheme.opener {
        Opener::Memory if matches!(url, "memory" | "memory:") => {
            Arc::new(MemoryStore::with(options)?)
        }
        Opener::Memory => return Err(bad(scheme, "memory has no place".into())),
        Opener::Register(_) | Opener::Missing => Arc::new(LeaseStore::new(open_register(url)?)),
    })
}

/// Opens the register that `url` names, to be examined.
pub fn open_register(url: &str) -> Result<Arc<dyn Register>, OpenError> {
    let scheme = scheme_of(url)?;
    match (scheme.opener, scheme.feature) {
        (Opener::Register(open), _) => open(url).map_err(|why| bad(scheme, why)),
        (Opener::Missing, Some(feature)) => {
            Err(OpenError::NotBuiltIn { name: scheme.name, feature })
        }
        (Opener::Memory | Opener::Missing, _) => Err(OpenError::NoRegister { name: scheme.name }),
    }
}

fn scheme_of(url: &str) -> Result<&'static Scheme, OpenError> {
    // A bare path meant the same.
    if url.starts_with("local:") || url.starts_with(['/', '.']) {
        return Err(OpenError::Removed);
    }
    Scheme::of(url).ok_or_else(|| {
        let scheme = url.split(':').next().unwrap_or_default();
        OpenError::Unknown { scheme: scheme.to_owned() }
    })
}

fn bad(scheme: &Scheme, why: String) -> OpenError {
    OpenError::Url { name: scheme.name, why, example: scheme.example }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_opened_says_why_and_shows_no_secret() {
        for url in ["", "zebra://a:secret@b", "data", "LOCAL:x", "http://a:secret@b"] {
            let error = open_url(url).unwrap_err().to_string();
            assert!(error.contains("known are memory:, file:"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for url in ["local:", "local:data", "./data", "/var/lib/regent"] {
            for error in [open_url(url).unwrap_err(), open_register(url).unwrap_err()] {
                let error = error.to_string();
                assert!(error.contains("removed") && error.contains("regent migrate"), "{error}");
            }
        }
        assert!(open_url("memory:x").unwrap_err().to_string().contains("memory has no place"));
        let alone = open_register("memory:").unwrap_err().to_string();
        assert!(alone.contains("one process alone"), "{alone}");
    }

    #[cfg(not(feature = "redis"))]
    #[tokio::test]
    async fn what_is_not_built_in_says_how_to_build_it() {
        let error = open_url("redis://host").unwrap_err().to_string();
        assert!(error.contains("--features redis"), "{error}");
    }
}
