//! `https://`: a service behind TLS is asked if its certificate is trusted, and not otherwise.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "common/https.rs"]
mod https;

use std::sync::Arc;
use std::time::Duration;

use regent::Regent;
use regent::remote::{Remote, RemoteError};
use regent_api::Consistency;
use regent_election::Group;
use regent_server::{ServerConfig, serve_cluster};
use regent_stores::MemoryStore;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use https::{issuer, run_again, tls};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_asked_over_tls_if_it_is_trusted_and_not_otherwise() {
    if let Some((url, is_trusted)) = https::case() {
        return ask(&url, is_trusted).await;
    }
    let (trusted, unknown) = (issuer(), issuer());
    let url = format!("https://localhost:{}", serve(tls(&trusted)).await);
    let name = "a_service_is_asked_over_tls_if_it_is_trusted_and_not_otherwise";
    run_again(name, &url, [(trusted, true), (unknown, false)]).await;
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
