//! `regent doctor` and `regent fence` on servers that require TLS.

#![cfg(all(feature = "postgres", feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::{Room, json};
use regent_servers::certificates::{Certificates, NAME};
use regent_servers::{or_skip, postgres, redis, starting};

#[test]
fn a_redis_that_requires_tls_is_examined_and_fenced_over_it() {
    let certificates = Certificates::make().unwrap();
    let start = || redis::with_tls(&certificates);
    let Some(server) = or_skip("doctor redis", starting(start)) else { return };
    let file = |name: &str| certificates.path(name).display().to_string();
    let (ca, certificate, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let url = server.url.replace("redis://127.0.0.1", &format!("rediss://{NAME}"));
    let url = format!("{url}?cacert={ca}&cert={certificate}&key={key}");
    let room = Room::new();

    let ended = room.run(&["doctor", "--store", &url, "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(json(&ended.stdout)["connection"], "encrypted, server verified");
    let tried = room.run(&["fence", "test", &url, "--trials", "50", "-o", "json"]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert_eq!(json(&tried.stdout)["verdict"], "pass");

    let other = url.replace(&ca, &file("other-ca.crt"));
    let refused = room.run(&["doctor", "--store", &other]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.stderr.contains("from a CA that is not trusted"), "{refused:?}");
    let refused = room.run(&["fence", "test", &other, "--trials", "50"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.stderr.contains("from a CA that is not trusted"), "{refused:?}");
}

#[test]
fn a_fence_is_installed_over_tls() {
    let certificates = Certificates::make().unwrap();
    let start = || postgres::with_tls(&certificates);
    let Some(server) = or_skip("fence postgres", starting(start)) else { return };
    let file = |name: &str| certificates.path(name).display().to_string();
    let url = server.url.replace("127.0.0.1", NAME);
    let url = format!(
        "{url}?sslmode=verify-full&sslrootcert={}&sslcert={}&sslkey={}",
        file("ca.crt"),
        file("client.crt"),
        file("client.key")
    );
    let room = Room::new();
    // It got as far as to look for the table.
    let missing = room.run(&["fence", "install", &url, "--table", "public.nowhere"]);
    assert_eq!(missing.code, 77, "{missing:?}");
    assert!(missing.stderr.contains("there is no table public.nowhere"), "{missing:?}");
    let plain = room.run(&["fence", "install", &server.url, "--table", "public.nowhere"]);
    assert_ne!(plain.code, 0, "{plain:?}");
    assert!(plain.stderr.contains("no encryption"), "{plain:?}");
}
