//! Answers that are lost on the way: what was done once stays done once, and "perhaps" is said so.
//!
//! Between the command and a real server stands a relay that passes everything on, and swallows the
//! first answer to one kind of request after the server has given it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use process::{Room, Server, fact};

/// A relay to `server` and how many answers it has swallowed. Its threads end with the test process.
fn relay(server: &Server, swallow: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (upstream, swallowed) = (server.listen(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&swallowed);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (upstream, count) = (upstream.clone(), Arc::clone(&count));
            std::thread::spawn(move || pass_on(client, &upstream, swallow, &count));
        }
    });
    (format!("http://{address}"), swallowed)
}

/// Passes requests and answers on until either side ends, or an answer is swallowed.
fn pass_on(mut client: TcpStream, upstream: &str, swallow: &str, count: &AtomicUsize) {
    let Ok(mut server) = TcpStream::connect(upstream) else { return };
    while let Some(request) = read_message(&mut client) {
        if server.write_all(&request).is_err() {
            return;
        }
        let Some(answer) = read_message(&mut server) else { return };
        let head = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let is_meant = head.lines().next().is_some_and(|line| line.contains(swallow));
        if is_meant && count.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return;
        }
        if client.write_all(&answer).is_err() {
            return;
        }
    }
}

/// One request or answer: a head, and as many bytes as it announces.
fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some(bytes);
            }
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

#[test]
fn a_resignation_whose_answer_was_lost_happens_once() {
    let room = Room::new();
    let server = room.server();
    let (url, swallowed) = relay(&server, "/resign");
    let (a, b) = (room.text("a.session"), room.text("b.session"));
    server.yes(&room, &["campaign", "billing", "--node", "a", "--session-file", &a]);
    let stands = ["campaign", "billing", "--node", "b", "--session-file", &b];
    assert_eq!(server.ask(&room, &stands).code, 1);
    let resigned = room.run(&["resign", "billing", "--session-file", &a, "--server", &url]);
    assert_eq!(resigned.code, 0, "{resigned:?}");
    assert_eq!(swallowed.load(Ordering::SeqCst), 1);
    let history = server.yes(&room, &["history", "billing"]);
    assert_eq!(history.matches("resigned").count(), 1, "{history}");
}

#[test]
fn a_step_down_whose_answer_was_lost_ends_one_tenure_and_not_the_next() {
    let room = Room::new();
    let server = room.server();
    let (url, swallowed) = relay(&server, "/step-down");
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    let b = room.text("b.session");
    let stands = ["campaign", "billing", "--node", "b", "--session-file", &b];
    assert_eq!(server.ask(&room, &stands).code, 1);
    let forced =
        ["step-down", "billing", "--reason", "x", "--immediate", "--yes", "--server", &url];
    let ended = room.run(&forced);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(swallowed.load(Ordering::SeqCst), 1);
    let history = server.yes(&room, &["history", "billing"]);
    assert_eq!(history.matches("forced").count(), 1, "{history}");
    assert_eq!(server.yes(&room, &["leader", "billing"]), "b\n");
}

#[test]
fn a_campaign_whose_answer_was_lost_is_repeated_while_there_is_time_and_keeps_its_term() {
    let room = Room::new();
    let server = room.server();
    let (url, swallowed) = relay(&server, "/campaign");
    let won = room.run(&["campaign", "billing", "--node", "a", "--wait", "50s", "--server", &url]);
    assert_eq!(won.code, 0, "{won:?}");
    assert_eq!(swallowed.load(Ordering::SeqCst), 1);
    assert_eq!((fact(&won.stdout, "elected"), fact(&won.stdout, "term")), ("yes", "1"));
}

#[test]
fn a_campaign_whose_answer_was_lost_says_perhaps_when_there_is_no_time() {
    let room = Room::new();
    let server = room.server();
    let (url, _swallowed) = relay(&server, "/campaign");
    let arguments = ["campaign", "billing", "--node", "a", "--server", &url, "--output", "json"];
    let unsure = room.run(&arguments);
    assert_eq!((unsure.code, unsure.stdout.as_str()), (70, ""), "{unsure:?}");
    assert!(unsure.stderr.contains("it may have happened"), "{unsure:?}");
    let problem = process::json(unsure.stderr.lines().last().unwrap());
    assert_eq!(problem["code"], "UNCERTAIN");
}
