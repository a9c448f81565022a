//! Every bound of certificates and handshakes, each with its reason.
//!
//! The length of a certificate that is shown in a handshake is bounded by rustls (64 KiB for the whole message), and
//! what its verification costs by webpki (100 signatures).

use std::time::Duration;

/// Most bytes of a file of certificates or of a key: a hundred times what any of them needs.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Days that a CA made here is good: longer than most clusters live, so that its end surprises nobody.
pub const CA_DAYS: u32 = 3650;
/// Days that a replica's certificate is good if nobody says: renewed once a year.
pub const CERTIFICATE_DAYS: u32 = 365;
/// Most days that anything made here is good.
pub const DAYS_MAX: u32 = 36_500;
/// How far back a certificate's time begins: clocks of other machines may be behind this one's.
pub const VALID_SINCE_S: u64 = 3600;
/// Most bytes of a host's name: what DNS allows.
pub const HOST_BYTES_MAX: usize = 253;
/// How long a handshake that failed is still listened to, so that the peer can read why.
pub const LINGER_FOR: Duration = Duration::from_secs(1);
/// How many bytes are swallowed meanwhile.
pub const LINGER_BYTES_MAX: u64 = 1 << 16;
