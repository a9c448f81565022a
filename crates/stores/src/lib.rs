//! Stores behind the Store port, opened by URL.
//!
//! Each engine is a room of its own; a URL chooses one, and nothing outside needs to know which.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub mod engine;
pub mod file;
pub mod lease;
pub mod local;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
pub mod register;
pub mod time;

use std::path::PathBuf;
use std::sync::Arc;

use regent_election::store::Store;

pub use lease::LeaseStore;
pub use local::{LocalError, LocalStore, Options};

/// What a URL may name, for messages.
const KNOWN: &str = "memory:, local:DIRECTORY (or file:DIRECTORY, or a path like ./data)";

/// Why a URL opens no store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No store of that scheme.
    #[error("{url:?} names no store; known are {KNOWN}")]
    Unknown {
        /// The URL.
        url: String,
    },
    /// A scheme whose place is missing.
    #[error("{url:?} names no directory; write it like local:./data")]
    NoDirectory {
        /// The URL.
        url: String,
    },
    /// A place where none belongs.
    #[error("{url:?} names a place, but memory has none; write memory:")]
    PlaceInMemory {
        /// The URL.
        url: String,
    },
    /// The store is there but cannot be opened.
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// Where a URL points.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Local(PathBuf),
}

/// Opens the store that `url` names.
pub fn open_url(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    open_url_with(url, Options::default())
}

/// The same; `options` are for stores of this process.
pub fn open_url_with(url: &str, options: Options) -> Result<Arc<dyn Store>, OpenError> {
    Ok(match place(url)? {
        Place::Memory => Arc::new(LocalStore::memory_with(options)?),
        Place::Local(directory) => Arc::new(LocalStore::open_with(directory, options)?),
    })
}

fn place(url: &str) -> Result<Place, OpenError> {
    let directory_of = |path: &str| {
        // An empty authority says the same as none: file:///var is /var.
        let path = match path.strip_prefix("//") {
            Some(rest) if rest.starts_with('/') => rest,
            Some(_) | None => path,
        };
        if path.is_empty() || path.contains('\0') {
            return Err(OpenError::NoDirectory { url: url.into() });
        }
        Ok(Place::Local(PathBuf::from(path)))
    };
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Place::Memory),
        Some(("memory", _)) => Err(OpenError::PlaceInMemory { url: url.into() }),
        Some(("local" | "file", path)) => directory_of(path),
        Some(_) | None if url == "memory" => Ok(Place::Memory),
        Some(_) | None if url.starts_with(['/', '.']) => directory_of(url),
        Some(_) | None => Err(OpenError::Unknown { url: url.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_place() {
        for (url, path) in [
            ("local:data", "data"),
            ("local:/var/lib/regent", "/var/lib/regent"),
            ("file:///var/lib/regent", "/var/lib/regent"),
            ("./data", "./data"),
            ("../data", "../data"),
            ("/srv/with:colon", "/srv/with:colon"),
        ] {
            assert_eq!(place(url).unwrap(), Place::Local(path.into()), "{url}");
        }
        assert_eq!(place("memory:").unwrap(), Place::Memory);
        assert_eq!(place("memory").unwrap(), Place::Memory);
    }

    #[test]
    fn other_urls_are_refused_with_what_is_known() {
        for url in ["", "etcd://host:2379", "data", "LOCAL:x", "http://a/b"] {
            let error = place(url).unwrap_err().to_string();
            assert!(error.contains("known are memory:, local:"), "{error}");
        }
        assert!(place("local:").unwrap_err().to_string().contains("names no directory"));
        assert!(place("memory:x").unwrap_err().to_string().contains("memory has none"));
    }
}
