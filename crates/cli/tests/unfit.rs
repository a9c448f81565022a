//! A store that must not keep elections: `regent doctor` finds it out, and nothing starts on it. Needs
//! `--features object`; the store is a real one, `s3rver`, which speaks S3 and ignores every condition.

#![cfg(feature = "object")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use process::Room;
use regent_servers::object::bad;
use regent_servers::{or_skip, report, starting};

#[test]
fn a_store_that_ignores_conditions_is_found_out_and_nothing_starts_on_it() {
    let Some(server) = or_skip("s3 (bad)", starting(bad)) else { return };
    let room = Room::new();
    let url = server.url.as_str();
    let witness = room.path("somebody-led");
    let witness = witness.to_str().unwrap();
    for (arguments, code) in [
        (&["doctor", "--store", url][..], 77),
        (&["serve", "--listen", "127.0.0.1:0", "--store", url], 78),
        (&["run", "-g", "billing", "--store", url, "--", "touch", witness], 78),
    ] {
        let ended = room.run(arguments);
        assert_eq!(ended.code, code, "{}: {ended:?}", arguments[0]);
        assert!(ended.stderr.contains("If-None-Match is ignored"), "{ended:?}");
        assert!(!ended.stderr.contains("S3RVER:"), "{ended:?}");
    }
    assert!(!std::path::Path::new(witness).exists());
    report("s3 (bad)", &server.version, 1, 0, "doctor finds it out; serve and run refuse it");
}
