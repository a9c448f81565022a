//! `regent tls` and a server with its certificates, as an operator meets them.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, json};

const CLUSTER: &str = "2f6e63b8d1a04c57a3f4b0c9d8e7f601";

#[test]
fn a_ca_issues_and_renews_certificates_and_writes_nothing_over() {
    let room = Room::new();
    let ca = room.text("ca");
    let run = |arguments: &[&str]| room.run(&[&["tls"], arguments].concat());
    let made = run(&["init", "--dir", &ca]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stdout.contains("good for 3650 days"), "{made:?}");
    assert_eq!(run(&["init", "--dir", &ca]).code, 77);

    let issue = ["issue", "--dir", &ca, "--replica", "1", "--cluster", CLUSTER];
    let made = run(&[&issue[..], &["--output", "json"]].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let name = format!("regent://{CLUSTER}/replica/1");
    assert_eq!(json(&made.stdout)["name"].as_str(), Some(name.as_str()));
    let again = run(&issue);
    assert_eq!(again.code, 77, "{again:?}");
    assert!(again.stderr.contains("nothing was written"), "{again:?}");

    let key = std::fs::read(room.path("ca").join("replica-1.key")).unwrap();
    let renewed = run(&["renew", "--dir", &ca, "--replica", "1", "--days", "90"]);
    assert!(renewed.stdout.contains("good for 90 days"), "{renewed:?}");
    assert_eq!(std::fs::read(room.path("ca").join("replica-1.key")).unwrap(), key);
    let too_long = run(&["renew", "--dir", &ca, "--replica", "1", "--days", "4000"]);
    assert_eq!(too_long.code, 77, "{too_long:?}");
    assert!(too_long.stderr.contains("make another CA"), "{too_long:?}");
}

#[test]
fn a_server_whose_peers_are_elsewhere_does_not_start_without_certificates() {
    let room = Room::new();
    let data = room.text("data");
    room.serve("127.0.0.1:0", &["--data-dir", &data]).kill();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let ended = room.run(&[&serve[..], &["--peer-listen", "0.0.0.0:0"]].concat());
    assert_eq!(ended.code, 78, "{ended:?}");
    for way_out in ["--peer-cert", "regent tls", "--insecure"] {
        assert!(ended.stderr.contains(way_out), "{ended:?}");
    }
    let ended = room.run(&[&serve[..], &["--peer-cert", "x.crt"]].concat());
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.stderr.contains("go together"), "{ended:?}");
    let insecure = ["--data-dir", &data, "--peer-listen", "0.0.0.0:0", "--insecure"];
    let server = room.serve("127.0.0.1:0", &insecure);
    server.yes(&room, &["campaign", "billing", "--node", "a"]);
    assert!(server.log().contains("INSECURE"), "{}", server.log());
}
