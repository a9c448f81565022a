//! The settings of `regent serve`; their table is part of the service.

pub(crate) use regent_service::settings::*;
