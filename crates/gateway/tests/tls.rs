//! An upstream behind TLS: requests are passed on if its certificate is trusted, and not otherwise.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "../../client/tests/common/https.rs"]
mod https;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use common::{answer_each, config, serve};
use https::{issuer, run_again, tls};

/// A storage behind TLS that says what it was asked, head by head, and answers each with a word.
async fn storage(acceptor: TlsAcceptor) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let seen = |text| sender.send(text).unwrap();
                answer_each(socket, "paid", "done", seen).await;
            });
        }
    });
    (port, heads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_behind_tls_is_written_to_if_it_is_trusted_and_not_otherwise() {
    if let Some((url, is_trusted)) = https::case() {
        return write(&url, is_trusted).await;
    }
    let (trusted, unknown) = (issuer(), issuer());
    let (port, mut heads) = storage(tls(&trusted)).await;
    let url = format!("https://localhost:{port}/store");
    let name = "an_upstream_behind_tls_is_written_to_if_it_is_trusted_and_not_otherwise";
    run_again(name, &url, [(unknown, false), (trusted, true)]).await;
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
    let address = serve(config(room.path(), url)).await;
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
