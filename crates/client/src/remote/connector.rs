//! How connections are made: in the clear, or by TLS where an address says so.
//!
//! Whom to trust is the system's business unless a file of CAs is named (`tls.rs`): its certificates are used, or
//! those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::address::{Address, AddressError};
use super::socket::Connector;
#[cfg(feature = "tls")]
use super::tls::to_servers;
use crate::limits::CONNECT_TIMEOUT;

/// What makes connections through the network.
#[cfg(feature = "tls")]
pub(super) type NetConnector = hyper_rustls::HttpsConnector<HttpConnector>;
/// What makes connections through the network.
#[cfg(not(feature = "tls"))]
pub(super) type NetConnector = HttpConnector;
/// A connection through the network.
#[cfg(feature = "tls")]
pub(super) type NetStream = hyper_rustls::MaybeHttpsStream<TokioIo<TcpStream>>;
/// A connection through the network.
#[cfg(not(feature = "tls"))]
pub(super) type NetStream = TokioIo<TcpStream>;

/// What makes connections to these. They are all at the same socket of this machine, or none is.
pub(crate) fn connector(addresses: &[Address], spoken: Spoken) -> Result<Connector, AddressError> {
    match addresses.first().and_then(Address::socket) {
        Some(socket) => Ok(Connector::Unix(socket.to_owned())),
        None => through_network(addresses, spoken).map(Connector::Net),
    }
}

/// What is spoken on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// HTTP/1.1.
    One,
    /// HTTP/2 alone.
    #[cfg(feature = "grpc")]
    Two,
}

fn plain() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    connector
}

/// What makes connections to these.
#[cfg(not(feature = "tls"))]
fn through_network(_: &[Address], _: Spoken) -> Result<NetConnector, AddressError> {
    Ok(plain())
}

/// What makes connections to these.
#[cfg(feature = "tls")]
fn through_network(addresses: &[Address], spoken: Spoken) -> Result<NetConnector, AddressError> {
    let mut plain = plain();
    plain.enforce_http(false);
    let is_tls = addresses.iter().any(Address::is_tls);
    let config = if is_tls { to_servers(roots)? } else { config(rustls::RootCertStore::empty())? };
    let builder =
        hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    Ok(match spoken {
        Spoken::One => builder.enable_http1().wrap_connector(plain),
        #[cfg(feature = "grpc")]
        Spoken::Two => builder.enable_http2().wrap_connector(plain),
    })
}

#[cfg(feature = "tls")]
fn config(roots: rustls::RootCertStore) -> Result<rustls::ClientConfig, AddressError> {
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| AddressError::Tls { why: error.to_string() })?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// How TLS is spoken to whoever this system trusts, for those who make their connections themselves.
#[cfg(feature = "tls")]
pub fn tls_config() -> Result<rustls::ClientConfig, AddressError> {
    config(roots()?)
}

/// The certificates that this system trusts, read once: connections are made again and again, by threads
/// that have better things to do.
#[cfg(feature = "tls")]
fn roots() -> Result<rustls::RootCertStore, AddressError> {
    static ROOTS: std::sync::OnceLock<rustls::RootCertStore> = std::sync::OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let why = format!(
            "this system trusts no certificate {}; name a file of them with --ca, REGENT_CA or SSL_CERT_FILE",
            reasons.join(", ")
        );
        return Err(AddressError::Tls { why });
    }
    Ok(ROOTS.get_or_init(|| roots).clone())
}
