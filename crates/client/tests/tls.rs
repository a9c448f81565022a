//! `https://`: a service behind TLS is asked if its certificate is trusted, and not otherwise.
//!
//! Whom a process trusts it learns when it starts, so each case is a process of its own: this very test,
//! told by its environment what to expect.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use regent::Regent;
use regent::remote::{Remote, RemoteError};
use regent_api::Consistency;
use regent_election::Group;
use regent_server::{ServerConfig, serve_cluster};
use regent_stores::MemoryStore;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig as TlsConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const URL: &str = "REGENT_TEST_TLS_URL";
const IS_TRUSTED: &str = "REGENT_TEST_TLS_IS_TRUSTED";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer() -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this host, and what proves it.
fn tls(issuer: &Issuer) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = TlsConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server in the clear, and one with TLS before it; the port of the latter.
async fn serve(acceptor: TlsAcceptor) -> u16 {
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inner = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let store = Arc::new(MemoryStore::new().unwrap());
        let forever = std::future::pending();
        serve_cluster(vec![plain], store, None, ServerConfig::default(), forever).await.unwrap();
    });
    let outer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outer.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = outer.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut socket) = acceptor.accept(socket).await else { return };
                let mut within = TcpStream::connect(inner).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut socket, &mut within).await;
            });
        }
    });
    port
}

fn run_again(url: &str, trusts: &Path, is_trusted: bool) {
    let name = "a_service_is_asked_over_tls_if_it_is_trusted_and_not_otherwise";
    let ended = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(URL, url)
        .env(IS_TRUSTED, is_trusted.to_string())
        .env("SSL_CERT_FILE", trusts)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{told}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(told.contains("1 passed"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_asked_over_tls_if_it_is_trusted_and_not_otherwise() {
    if let Ok(url) = env::var(URL) {
        return ask(&url, env::var(IS_TRUSTED).unwrap() == "true").await;
    }
    let (trusted, unknown) = (issuer(), issuer());
    let url = format!("https://localhost:{}", serve(tls(&trusted)).await);
    let folder = tempfile::tempdir().unwrap();
    for (issuer, is_trusted) in [(trusted, true), (unknown, false)] {
        let file = folder.path().join(format!("{is_trusted}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        let url = url.clone();
        tokio::task::spawn_blocking(move || run_again(&url, &file, is_trusted)).await.unwrap();
    }
}

async fn ask(url: &str, is_trusted: bool) {
    let group = Group::new("billing").unwrap();
    let remote = Remote::new(url).unwrap();
    let read = remote.leader(&group, Consistency::Linearizable).await;
    if !is_trusted {
        let Err(RemoteError::Unavailable { why, .. }) = read else { panic!("{read:?}") };
        assert!(why.contains("certificate"), "{why}");
        return;
    }
    assert_eq!(read.unwrap().office.leader, None);
    let regent = Regent::at(url).ttl(Duration::from_secs(5)).connect().await.unwrap();
    let leadership = regent.campaign(group).await.unwrap();
    assert_eq!(leadership.term().get(), 1);
    drop(leadership);
    assert!(regent.close().await);
}
