//! The wire over gRPC: the same verbs, the same words, the same refusals.
//!
//! `proto/regent/v1/` says what travels. The folder `generated/` is written from it and committed: a
//! generator in the build would cost every first build 28 s of CPU. `tests/proto.rs` compares the two and
//! rewrites the one from the other; read the `.proto` files instead.
//!
//! - [`methods`] says where the methods are that mirror the rows of the table of routes.
//! - `read.rs` turns messages into the checked requests of this crate and `write.rs` its answers into
//!   messages, so that both faces share every rule behind them; `received.rs` is a client's side of
//!   the same.
//! - [`status`] carries a [`Problem`](crate::Problem) inside a gRPC status.
//!
//! The road not taken is a gateway that translates gRPC into calls of the HTTP face: it would parse
//! everything twice, and streams would be streams of text in streams of messages.
//!
//! Unlike JSON, messages keep no unknown fields out: a later version's field is skipped in silence,
//! as every reader of protocol buffers expects.

/// Prints a message that holds a secret by its name alone.
macro_rules! secretive {
    ($($message:ident)+) => {
        $(impl std::fmt::Debug for $crate::grpc::generated::$message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })+
    };
}

mod auth;
mod codec;
#[path = "../../generated/regent_v1.rs"]
#[rustfmt::skip]
#[allow(
    clippy::all,
    unreachable_pub,
    rust_2018_idioms,
    missing_debug_implementations,
    reason = "it is written by a program"
)]
mod generated;
pub mod methods;
mod read;
mod received;
pub mod status;
mod words;
mod write;

pub use codec::PlainCodec;
pub use generated::*;

/// The full name of the service.
pub const SERVICE: &str = regent_server::SERVICE_NAME;

/// All files of the service, encoded as a `FileDescriptorSet`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("../../generated/descriptors.bin");

secretive! {
    CampaignRequest CampaignResponse RenewRequest WithdrawRequest OpenSessionRequest HeartbeatRequest
    ShowSessionRequest CloseSessionRequest SessionResponse TokenRequest Hello CreateAuthTokenResponse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_a_secret_does_not_print_it() {
        let session_id = "0123456789abcdef0123456789abcdef".to_owned();
        let request = Hello { session_id, ..Hello::default() };
        let up = SessionUp { message: Some(session_up::Message::Hello(request)) };
        assert!(!format!("{up:?}").contains("0123456789"));
    }
}
