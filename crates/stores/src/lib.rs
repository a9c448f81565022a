//! Stores behind the Store port, opened by URL.
