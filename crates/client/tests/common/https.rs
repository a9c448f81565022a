//! A certificate authority and a TLS server for tests of whom a process trusts.
//!
//! Whom a process trusts it learns when it starts, so each case is a process of its own: the test starts
//! itself again, and the environment says what to expect.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::env;
use std::process::Command;
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const URL: &str = "REGENT_TEST_TLS_URL";
const IS_TRUSTED: &str = "REGENT_TEST_TLS_IS_TRUSTED";

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn issuer() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this host, and what proves it.
pub(crate) fn tls(issuer: &Issuer) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// In a process that was started again: the URL to use, and whether its certificate is trusted.
pub(crate) fn case() -> Option<(String, bool)> {
    let url = env::var(URL).ok()?;
    Some((url, env::var(IS_TRUSTED).unwrap() == "true"))
}

/// Runs the test of this name again, once for each issuer as the only one that the process trusts.
pub(crate) async fn run_again(
    name: &'static str,
    url: &str,
    cases: impl IntoIterator<Item = (Issuer, bool)>,
) {
    let folder = tempfile::tempdir().unwrap();
    for (issuer, is_trusted) in cases {
        let trusts = folder.path().join(format!("{is_trusted}.pem"));
        std::fs::write(&trusts, issuer.pem()).unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again
            .args([name, "--exact", "--nocapture"])
            .env(URL, url)
            .env(IS_TRUSTED, is_trusted.to_string())
            .env("SSL_CERT_FILE", trusts)
            .env_remove("SSL_CERT_DIR");
        let ended = tokio::task::spawn_blocking(move || again.output()).await.unwrap().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{told}{}", String::from_utf8_lossy(&ended.stderr));
        assert!(told.contains("1 passed"), "{told}");
    }
}
