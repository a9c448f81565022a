//! The service: HTTP over any Store.
