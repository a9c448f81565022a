//! An upstream behind TLS: requests are passed on if its certificate is trusted, and not otherwise.
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
use regent_election::Group;
use regent_election::fence::doorkeeper::DoorRules;
use regent_gateway::{Gateway, GatewayConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
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
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A storage behind TLS that says what it was asked, head by head, and answers each with a word.
async fn storage(acceptor: TlsAcceptor) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let Ok(mut socket) = acceptor.accept(socket).await else { return };
                let mut read = Vec::new();
                while socket.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
                    let text = String::from_utf8_lossy(&read).into_owned();
                    if text.ends_with("paid") {
                        sender.send(text).unwrap();
                        read.clear();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone";
                        socket.write_all(answer).await.unwrap();
                    }
                }
            });
        }
    });
    (port, heads)
}

fn run_again(url: &str, trusts: &Path, is_trusted: bool) {
    let name = "an_upstream_behind_tls_is_written_to_if_it_is_trusted_and_not_otherwise";
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_behind_tls_is_written_to_if_it_is_trusted_and_not_otherwise() {
    if let Ok(url) = env::var(URL) {
        return write(&url, env::var(IS_TRUSTED).unwrap() == "true").await;
    }
    let (trusted, unknown) = (issuer(), issuer());
    let (port, mut heads) = storage(tls(&trusted)).await;
    let url = format!("https://localhost:{port}/store");
    let folder = tempfile::tempdir().unwrap();
    for (issuer, is_trusted) in [(unknown, false), (trusted, true)] {
        let file = folder.path().join(format!("{is_trusted}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        let url = url.clone();
        tokio::task::spawn_blocking(move || run_again(&url, &file, is_trusted)).await.unwrap();
    }
    // Two writes over the one connection that was trusted, and nothing by the other.
    for _ in 0..2 {
        let head = heads.recv().await.unwrap();
        assert!(head.starts_with("PUT /store/row HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: localhost:{port}\r\n")), "{head}");
        assert!(head.contains("regent-term: 7\r\n"), "{head}");
    }
    assert!(heads.try_recv().is_err());
}

async fn write(url: &str, is_trusted: bool) {
    let room = tempfile::tempdir().unwrap();
    let soon = Duration::from_secs(60);
    let gateway = Gateway::open(GatewayConfig {
        report: None,
        group: Group::new("billing").unwrap(),
        upstream: Some(url.parse().unwrap()),
        data: room.path().to_owned(),
        strict: None,
        signed: None,
        rules: DoorRules { drain_for: soon, settle_for: Duration::ZERO, waiting_max: 16 },
        allows_reads: false,
        keeps_host: false,
        connections_max: 16,
        head_timeout: soon,
        idle_timeout: soon,
        answer_timeout: soon,
        shutdown_grace: soon,
    })
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(gateway.serve(listener, None, std::future::pending()));
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "PUT /row HTTP/1.1\r\nhost: x\r\nregent-term: 7\r\nconnection: close\r\n\
                       content-length: 4\r\n\r\npaid";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        if is_trusted {
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done"), "{answer}");
        } else {
            assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
            assert!(answer.contains("UPSTREAM_UNAVAILABLE"), "{answer}");
        }
    }
}
