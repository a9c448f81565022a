//! Attacks on the mark: one request must not close the gateway for ever.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::fs;
use std::net::SocketAddr;

use regent_election::{Group, Term};
use regent_gateway::limits::{REASON_BYTES_MAX, TERM_STEP_MAX};
use regent_gateway::mark::{LastEnd, MarkError, MarkFile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use common::{answer_each, billing, config, serve};

fn term(number: u64) -> Term {
    Term::new(number).unwrap()
}

/// A storage that answers everything.
async fn storage() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer_each(socket, "\r\n\r\n", "ok", drop));
        }
    });
    url
}

/// The answer to a write under a term.
async fn write(address: SocketAddr, term: u64) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "DELETE /row HTTP/1.1\r\nhost: x\r\nregent-term: {term}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_with_the_highest_term_does_not_close_the_gateway() {
    let room = tempfile::tempdir().unwrap();
    let address = serve(config(room.path(), &storage().await)).await;
    // On a gateway that has seen no term, and on one that has.
    for term in [1, 7] {
        let answer = write(address, (1 << 53) - 1).await;
        assert!(answer.starts_with("HTTP/1.1 409 "), "{answer}");
        assert!(answer.contains("NEVER_GRANTED") && answer.contains("--reset-mark"), "{answer}");
        let answer = write(address, term).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "the leader still writes: {answer}");
    }
    let answer = write(address, 6).await;
    assert!(answer.contains("STALE_TERM"), "and the fence still holds: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_may_rise_by_the_bound_and_no_further() {
    let room = tempfile::tempdir().unwrap();
    let address = serve(config(room.path(), &storage().await)).await;
    let step = TERM_STEP_MAX;
    for (given, status) in [(step + 1, 409), (step, 200), (2 * step + 1, 409), (2 * step, 200)] {
        let answer = write(address, given).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{given}: {answer}");
    }
}

#[test]
fn an_operator_sets_a_mark_with_a_reason_while_the_gateway_is_stopped() {
    let room = tempfile::tempdir().unwrap();
    let reset = |to, why: &str| MarkFile::reset(room.path(), &billing(), to, why, 1_700_000_000);
    assert!(matches!(reset(term(7), "attack"), Err(MarkError::Unused { .. })));
    let (mark, _, _) = MarkFile::open(room.path(), &billing()).unwrap();
    mark.keep(term(1 << 40), LastEnd::Quiet).unwrap();
    assert!(matches!(reset(term(7), "attack"), Err(MarkError::InUse { .. })), "it runs");
    drop(mark);
    let long = "x".repeat(REASON_BYTES_MAX + 1);
    for bad in ["", " ", "two\nlines", "\u{1b}[2J", &long] {
        assert!(matches!(reset(term(7), bad), Err(MarkError::Reason)), "{bad:?}");
    }
    assert!(matches!(reset(Term::NONE, "attack"), Err(MarkError::NoTerm)));
    let other = Group::new("other").unwrap();
    let refused = MarkFile::reset(room.path(), &other, term(7), "attack", 0);
    assert!(matches!(refused, Err(MarkError::OtherGroup { .. })));
    assert!(!room.path().join("resets").exists(), "a refusal changes nothing");
    assert_eq!(reset(term(7), "a stranger sent it").unwrap(), term(1 << 40));
    assert_eq!(reset(term(9), "restored").unwrap(), term(7));
    let (_mark, kept, end) = MarkFile::open(room.path(), &billing()).unwrap();
    assert_eq!((kept, end), (term(9), LastEnd::Unknown), "what passed is given time");
    let notes = fs::read_to_string(room.path().join("resets")).unwrap();
    assert_eq!(
        notes,
        "1700000000 from 1099511627776 to 7: a stranger sent it\n1700000000 from 7 to 9: restored\n"
    );
}
