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
pub mod local;
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
pub use local::{LocalError, LocalStore, Options};

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
        /// The scheme.
        name: &'static str,
        /// What to build with.
        feature: &'static str,
    },
    /// A URL that its own store does not understand, or a place that it cannot use.
    #[error("{name}: {why}; a URL is written like {example}")]
    Url {
        /// The scheme.
        name: &'static str,
        /// What is wrong.
        why: String,
        /// How it is written.
        example: &'static str,
    },
    /// The store is of this process alone, and there is no register behind it.
    #[error("{name} is a store of one process alone, so there is nothing to share or to examine")]
    NoRegister {
        /// The scheme.
        name: &'static str,
    },
    /// The store is there but cannot be opened.
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// Everything that a URL may open with, for messages.
fn known() -> String {
    let words: Vec<String> = SCHEMES.iter().map(|scheme| format!("{}:", scheme.name)).collect();
    format!("{} and a path like ./data", words.join(", "))
}

/// Opens the store that `url` names. To be called within a runtime. Nothing is sent yet: a server that
/// is down is no error here.
pub fn open_url(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_url_with(url, Options::default())
}

/// The same; `options` are for stores of this process.
pub fn open_url_with(url: &str, options: Options) -> Result<Arc<dyn Store>, OpenError> {
    let scheme = scheme_of(url)?;
    Ok(match scheme.opener {
        Opener::Memory if matches!(url, "memory" | "memory:") => {
            Arc::new(LocalStore::memory_with(options)?)
        }
        Opener::Memory => return Err(bad(scheme, "memory has no place".into())),
        Opener::Local => {
            let directory = scheme::directory_of(url).map_err(|why| bad(scheme, why))?;
            Arc::new(LocalStore::open_with(directory, options)?)
        }
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
        (Opener::Memory | Opener::Local | Opener::Missing, _) => {
            Err(OpenError::NoRegister { name: scheme.name })
        }
    }
}

fn scheme_of(url: &str) -> Result<&'static Scheme, OpenError> {
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
            assert!(error.contains("known are memory:, local:"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(open_url("local:").unwrap_err().to_string().contains("no directory is named"));
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
