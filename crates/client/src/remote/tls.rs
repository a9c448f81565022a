//! The files of TLS that this process uses with servers: whom it believes, and what it shows.
//!
//! As the token, they are those of the process: named by the program ([`TlsFiles::set_default`]), by `REGENT_CA`,
//! `REGENT_CERT` and `REGENT_CERT_KEY`, or by the context in use. They are looked at again with every handshake.

use std::path::PathBuf;
use std::sync::OnceLock;

static DEFAULT: OnceLock<TlsFiles> = OnceLock::new();
/// Those of a context, each of which counts if neither the program nor the environment names another.
static FALLBACK: OnceLock<TlsFiles> = OnceLock::new();

/// The files of TLS that this process uses with servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the CAs that are believed; none: those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate that servers are shown.
    pub certificate: Option<PathBuf>,
    /// Its key, which only this user may read.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Makes these the files of the process, each before the one that the environment names. The first ones stay; none at all are
    /// not the first.
    pub fn set_default(self) {
        if self != Self::default() {
            let _ = DEFAULT.set(self);
        }
    }

    /// Makes these the files of the process where it has no others. The first ones stay.
    pub(super) fn set_fallback(self) {
        let _ = FALLBACK.set(self);
    }

    /// The files of the process.
    #[must_use]
    pub fn of_process() -> Self {
        let given = DEFAULT.get().cloned().unwrap_or_default();
        let last = FALLBACK.get().cloned().unwrap_or_default();
        let or = |given: Option<PathBuf>, name: &str, last: Option<PathBuf>| {
            let named = || std::env::var_os(name).filter(|path| !path.is_empty());
            given.or_else(|| named().map(PathBuf::from)).or(last)
        };
        Self {
            ca: or(given.ca, "REGENT_CA", last.ca),
            certificate: or(given.certificate, "REGENT_CERT", last.certificate),
            key: or(given.key, "REGENT_CERT_KEY", last.key),
        }
    }
}

/// How TLS is spoken to servers of ours.
#[cfg(feature = "tls")]
pub(super) fn to_servers(
    system: impl FnOnce() -> Result<rustls::RootCertStore, super::AddressError>,
) -> Result<rustls::ClientConfig, super::AddressError> {
    let wrong = |why: String| super::AddressError::Tls { why };
    let TlsFiles { ca, certificate, key } = TlsFiles::of_process();
    let certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(wrong(
                "a client certificate needs its key (--cert-key, REGENT_CERT_KEY)".to_owned(),
            ));
        }
        (None, Some(_)) => {
            return Err(wrong("a key needs its certificate (--cert, REGENT_CERT)".to_owned()));
        }
    };
    let system = if ca.is_none() { Some(system()?) } else { None };
    let files = regent_tls::ClientFiles { ca, certificate };
    regent_tls::client_config(files, system).map_err(|error| wrong(error.to_string()))
}

/// What TLS has to do with an error of a connection, if it has: why, and whether nothing was sent.
#[cfg(feature = "tls")]
pub(crate) fn failure(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    regent_tls::client_failure(error)
}

/// A build without TLS has no such errors.
#[cfg(not(feature = "tls"))]
pub(crate) const fn failure(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}
