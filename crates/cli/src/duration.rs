//! Durations as people write them.

pub(crate) use regent_service::duration::*;
