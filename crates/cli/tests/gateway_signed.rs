//! Signed terms between processes: keys made by the command, tokens by the library, and a gateway that believes
//! nothing else.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use process::upstream::{Answered, Upstream, answered, put, raw};
use process::{Room, Running, json, mode, until};
use regent_signing::{Claims, KeyFile, sign};

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn claims(group: &str, term: u64) -> Claims {
    let now = wall();
    Claims {
        cluster: "main".to_owned(),
        group: group.to_owned(),
        term,
        node: "web-1".to_owned(),
        session: "digest".to_owned(),
        not_after: now + 3600,
        exp: now + 3600,
        iat: now,
    }
}

/// A token by whichever key of this file signs now.
fn token(room: &Room, file: &str, claims: &Claims) -> String {
    let keys = KeyFile::open(&room.path(file)).unwrap();
    let signer = keys.ring().signer(wall()).unwrap();
    sign(claims, &signer.kid, &signer.pair().unwrap()).unwrap()
}

fn write(address: &str, token: &str, more: &str) -> Answered {
    let request = format!(
        "PUT /row HTTP/1.1\r\nhost: x\r\nconnection: close\r\nregent-token: {token}\r\n{more}content-length: 0\r\n\r\n"
    );
    answered(&raw(address, request.as_bytes()))
}

/// A gateway that believes signed terms only, and where it listens.
fn believer(room: &Room, upstream: &Upstream, more: &[&str]) -> (Running, String) {
    let (data, keys) = (room.text("fence"), room.text("public.json"));
    let fixed = ["fence", "gateway", "--group", "billing", "--upstream", &upstream.url];
    let rest = ["--data", &data, "--listen", "127.0.0.1:0", "--require-signed", "--keys", &keys];
    let running = room.start(&[&fixed[..], &rest[..], more].concat());
    let line = running.line_with("listens on");
    let address = line.split_once("http://").unwrap().1.to_owned();
    (running, address)
}

fn publish(room: &Room) {
    let published = room.run(&["fence", "keys", "publish", &room.text("keys")]);
    assert_eq!(published.code, 0, "{published:?}");
    fs::write(room.path("public.json"), published.stdout).unwrap();
}

#[test]
fn a_file_of_keys_is_made_rotated_and_shown_without_its_secrets() {
    let room = Room::new();
    let keys = room.text("keys");
    let made = room.run(&["fence", "keys", "new", &keys]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(mode(&room.path("keys")), 0o600);
    assert_eq!(room.run(&["fence", "keys", "new", &keys]).code, 77, "there is one already");
    let list = || json(&room.run(&["fence", "keys", "list", &keys, "-o", "json"]).stdout);
    let old = list()[0]["kid"].as_str().unwrap().to_owned();
    let only = room.run(&["fence", "keys", "retire", &keys, &old]);
    assert_eq!(only.code, 77, "the only key that signs: {only:?}");
    room.run(&["fence", "keys", "rotate", &keys]);
    assert_eq!(
        (&list()[0]["standing"], &list()[1]["standing"]),
        (&"signs".into(), &"coming".into())
    );
    room.run(&["fence", "keys", "rotate", &keys, "--sign-from", "0s"]);
    assert_eq!(list()[2]["standing"], "signs");
    let retired = room.run(&["fence", "keys", "retire", &keys, &old, "--after", "0s"]);
    assert_eq!(retired.code, 0, "{retired:?}");
    assert_eq!(list()[0]["standing"], "retired");
    let published = json(&room.run(&["fence", "keys", "publish", &keys]).stdout);
    assert_eq!(published["keys"].as_array().unwrap().len(), 2, "who is retired is not published");
    assert_eq!(published["keys"][0]["crv"], "Ed25519");
    let file = fs::read_to_string(room.path("keys")).unwrap();
    let secret = json(&file)["keys"][2]["secret"].as_str().unwrap().to_owned();
    for words in [&["list", keys.as_str()][..], &["publish", &keys], &["list", &keys, "-o", "json"]]
    {
        let shown = room.run(&[&["fence", "keys"], words].concat());
        assert!(!shown.stdout.contains(&secret), "{shown:?}");
    }
    fs::set_permissions(room.path("keys"), fs::Permissions::from_mode(0o640)).unwrap();
    let open = room.run(&["fence", "keys", "list", &keys]);
    assert_eq!(open.code, 74, "{open:?}");
    assert!(open.stderr.contains("can be read by others"), "{open:?}");
}

/// A resource refuses a forged term without asking anybody.
#[test]
fn a_gateway_that_requires_signed_terms_believes_nothing_else() {
    let (room, upstream) = (Room::new(), Upstream::start());
    room.run(&["fence", "keys", "new", &room.text("keys")]);
    room.run(&["fence", "keys", "new", &room.text("forger")]);
    publish(&room);
    let (_running, address) = believer(&room, &upstream, &["--cluster", "main"]);
    let address = address.as_str();
    let good = token(&room, "keys", &claims("billing", 7));
    assert_eq!(write(address, &good, "").status, 200);
    assert_eq!(write(address, &good, "regent-term: 7\r\n").status, 200);
    assert_eq!(write(address, &good, "regent-term: 9\r\n").status, 400);
    assert_eq!(write(address, &good, &format!("regent-token: {good}\r\n")).status, 400);
    assert_eq!(put(address, "/row", Some(9)).status, 428, "a plain number is not believed");
    let forged = [
        token(&room, "forger", &claims("billing", 9)),
        token(&room, "keys", &claims("shipping", 9)),
        token(&room, "keys", &Claims { cluster: "other".to_owned(), ..claims("billing", 9) }),
        token(&room, "keys", &Claims { not_after: wall(), exp: wall(), ..claims("billing", 9) }),
        good.replace('.', ""),
        format!("{good}x"),
        "none".to_owned(),
    ];
    for token in &forged {
        let refused = write(address, token, "");
        assert_eq!((refused.status, &refused.problem()["code"]), (403, &"TOKEN_REFUSED".into()));
    }
    let next = token(&room, "keys", &claims("billing", 8));
    assert_eq!(write(address, &next, "").status, 200);
    let stale = write(address, &good, "").problem();
    assert_eq!((&stale["code"], &stale["current_term"]), (&"STALE_TERM".into(), &8.into()));
    // Rotated: the gateway learns the new key by itself.
    room.run(&["fence", "keys", "rotate", &room.text("keys"), "--sign-from", "0s"]);
    let rotated = token(&room, "keys", &claims("billing", 9));
    assert_eq!(write(address, &rotated, "").status, 403, "not published yet");
    publish(&room);
    until("the new key is known", || write(address, &rotated, "").status == 200);
    assert_eq!(upstream.applied().len(), 4);
}

#[test]
fn a_service_publishes_its_keys_and_takes_no_file_that_others_can_read() {
    let room = Room::new();
    let keys = room.text("keys");
    room.run(&["fence", "keys", "new", &keys]);
    let none = room.serve("127.0.0.1:0", &["--store", "memory:"]);
    assert_eq!(none.get("/.well-known/regent-keys"), r#"{"keys":[]}"#);
    let kids = |text: &str| {
        let published = json(text);
        let keys = published["keys"].as_array().unwrap();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let server = room.serve("127.0.0.1:0", &["--store", "memory:", "--signing-keys", &keys]);
    let first = kids(&server.get("/.well-known/regent-keys"));
    assert_eq!(first.len(), 1);
    room.run(&["fence", "keys", "rotate", &keys]);
    until("the new key is published", || {
        let now = kids(&server.get("/.well-known/regent-keys"));
        now.len() == 2 && now.contains(&first[0])
    });
    let secret = json(&fs::read_to_string(room.path("keys")).unwrap());
    let secret = secret["keys"][0]["secret"].as_str().unwrap();
    assert!(!server.get("/.well-known/regent-keys").contains(secret));
    fs::set_permissions(room.path("keys"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = room.run(&[
        "serve",
        "--store",
        "memory:",
        "--listen",
        "127.0.0.1:0",
        "--signing-keys",
        &keys,
    ]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("can be read by others"), "{refused:?}");
}

/// From the campaign to the storage: the service signs for whoever holds the office and for nobody else, and the
/// gateway believes it without asking.
#[test]
fn a_leader_writes_with_the_term_that_its_service_signed() {
    let room = Room::new();
    let keys = room.text("keys");
    room.run(&["fence", "keys", "new", &keys]);
    publish(&room);
    let server = room.serve("127.0.0.1:0", &["--store", "memory:", "--signing-keys", &keys]);
    let upstream = Upstream::start();
    let (_running, address) = believer(&room, &upstream, &[]);
    let signed = |session: &str| {
        let words = ["token", "show", "billing", "--session-file", session, "--output", "json"];
        let shown = json(&server.yes(&room, &words));
        shown["token"].as_str().map(ToOwned::to_owned)
    };
    for (node, term) in [("a", 1), ("b", 2)] {
        let words = ["campaign", "billing", "--node", node, "--session-file", node, "--ttl", "60s"];
        server.yes(&room, &words);
        let token = signed(node).expect("the holder is given one");
        assert_eq!(write(&address, &token, "").status, 200, "term {term}");
        if node == "a" {
            server
                .yes(&room, &["step-down", "billing", "--reason", "test", "--immediate", "--yes"]);
            fs::write(room.path("old"), token).unwrap();
        }
    }
    assert_eq!(signed("a"), None, "who lost the office is given nothing");
    let old = fs::read_to_string(room.path("old")).unwrap();
    let stale = write(&address, &old, "").problem();
    assert_eq!((&stale["code"], &stale["current_term"]), (&"STALE_TERM".into(), &2.into()));
    assert_eq!(upstream.applied().len(), 2);
}
