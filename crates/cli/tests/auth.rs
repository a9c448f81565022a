//! Authentication and authorisation as an operator meets them: real processes, a token over the Unix socket, and what it
//! opens and what it does not.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use process::{Ended, Room, Server};
use regent_election::access::{BearerToken, TokenId};

/// Exit codes of the command: refused by the server, and a wrong configuration.
const REFUSED: i32 = 77;
const CONFIG: i32 = 78;

const BINDINGS: &str = r#"
[[binding]]
who = "node:web-1"
role = "participant"
groups = ["billing"]
"#;

fn guarded(room: &Room) -> Server {
    room.serve("127.0.0.1:0", &["--data-dir", &room.text("data"), "--auth", "required"])
}

/// Asks on the socket, as the user who runs the server.
fn admin(room: &Room, arguments: &[&str]) -> Ended {
    let socket = format!("unix://{}", room.text("data/run/regent.sock"));
    room.run(&[arguments, &["--server", &socket]].concat())
}

fn yes(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

/// Makes a token for a principal and keeps it in a private file.
fn token(room: &Room, who: &str, file: &str) -> String {
    let text = yes(admin(room, &["auth", "token", "create", who]));
    let path = room.path(file);
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    text.trim().to_owned()
}

#[test]
fn a_token_opens_what_it_is_bound_to_until_it_is_revoked_and_then_only_gives_up() {
    let room = Room::new();
    let server = guarded(&room);
    let secret = token(&room, "node:web-1", "web-1.token");
    fs::write(room.path("bindings.toml"), BINDINGS).unwrap();

    let apply = ["auth", "apply", "--file", "bindings.toml"];
    let dry = yes(admin(&room, &[&apply[..], &["--dry-run"]].concat()));
    assert!(dry.contains("+ node:web-1 is participant in billing"), "{dry}");
    let as_web = |arguments: &[&str]| {
        server.ask(&room, &[arguments, &["--token-file", "web-1.token"]].concat())
    };
    // A dry run bound nobody.
    let campaign =
        ["campaign", "billing", "--node", "web-1", "--session-file", "s", "--ttl", "60s"];
    let early = as_web(&campaign);
    assert_eq!(early.code, REFUSED, "{early:?}");
    assert!(early.stderr.contains("no binding names it"), "{early:?}");
    yes(admin(&room, &apply));

    let won = yes(as_web(&campaign));
    assert!(won.contains("elected") && won.contains("yes"), "{won}");
    yes(as_web(&["renew", "billing", "--session-file", "s"]));

    // Without a credential nothing, and with one nothing else.
    let nobody = server.ask(&room, &["leader", "billing"]);
    assert_eq!(nobody.code, REFUSED, "{nobody:?}");
    assert!(nobody.stderr.contains("no credential was shown"), "{nobody:?}");
    for (arguments, why) in [
        (&["campaign", "orders", "--node", "web-1"][..], "gives it in other groups"),
        (&["campaign", "billing", "--node", "web-2"][..], "allows other nodes: self"),
        (&["step-down", "billing", "--reason", "x", "--yes"][..], "lacks the right operate"),
        (&["auth", "token", "list"][..], "lacks the right administer"),
    ] {
        let denied = as_web(arguments);
        assert_eq!(denied.code, REFUSED, "{arguments:?} {denied:?}");
        assert!(denied.stderr.contains(why), "{arguments:?} {denied:?}");
    }
    let can = admin(&room, &["auth", "can", "node:web-1", "campaign", "orders", "--node", "web-1"]);
    assert_eq!((can.code, can.stdout.contains("other groups")), (1, true), "{can:?}");

    let id = secret.split('_').nth(1).unwrap();
    yes(admin(&room, &["auth", "token", "revoke", id]));
    let renewal = as_web(&["renew", "billing", "--session-file", "s"]);
    assert_eq!(renewal.code, REFUSED, "{renewal:?}");
    assert!(renewal.stderr.contains("the credential is revoked"), "{renewal:?}");
    yes(as_web(&["resign", "billing", "--session-file", "s"]));
    // Nobody leads: the command says so by its exit code, too.
    let led = admin(&room, &["leader", "billing", "--output", "json"]);
    assert_eq!((led.code, led.stdout.contains("\"leader\":null")), (1, true), "{led:?}");
    let listed = yes(admin(&room, &["auth", "token", "list"]));
    assert!(listed.contains("node:web-1") && !listed.contains(&secret), "{listed}");
    // The secret is nowhere in what the server wrote: log, snapshot, recording.
    assert!(!server.log().contains(&secret[..40]), "the log holds a token");
}

/// The library's session stream carries the token as well, and a restart keeps what was bound.
#[test]
fn a_candidate_that_keeps_its_office_shows_its_token_and_bindings_survive_a_restart() {
    let room = Room::new();
    let server = guarded(&room);
    token(&room, "node:web-1", "web-1.token");
    fs::write(room.path("bindings.toml"), BINDINGS).unwrap();
    yes(admin(&room, &["auth", "apply", "--file", "bindings.toml"]));
    drop(server);
    let server = guarded(&room);
    let kept = server.start(
        &room,
        &["campaign", "billing", "--node", "web-1", "--keep", "--token-file", "web-1.token"],
    );
    kept.line_with("web-1 leads");
}

/// Whoever takes a right or a token away need not wait for a lease: the leader stops at its next heartbeat and resigns.
#[test]
fn a_leader_that_loses_its_right_or_its_token_stops_at_once_and_the_next_one_leads() {
    let room = Room::new();
    let server = guarded(&room);
    let bind = |names: &[&str]| {
        let one = |name: &&str| {
            format!("[[binding]]\nwho = \"{name}\"\nrole = \"participant\"\ngroups = [\"*\"]\n")
        };
        let text: String = names.iter().map(one).collect();
        fs::write(room.path("bindings.toml"), text).unwrap();
        yes(admin(&room, &["auth", "apply", "--file", "bindings.toml"]));
    };
    bind(&["node:web-*"]);
    let stand = |name: &str| {
        let file = format!("{name}.token");
        let secret = token(&room, &format!("node:{name}"), &file);
        let keep = ["campaign", "billing", "--node", name, "--keep", "--ttl", "6s"];
        let kept = server.start(&room, &[&keep[..], &["--token-file", &file]].concat());
        (kept, secret)
    };
    let (first, _) = stand("web-1");
    first.line_with("web-1 leads");
    let (second, secret) = stand("web-2");
    second.line_with("web-1 leads");
    bind(&["node:web-2", "node:web-3"]);
    first.line_with("the right to lead was withdrawn");
    second.line_with("web-2 leads");
    let history = yes(admin(&room, &["history", "billing"]));
    assert!(history.contains("policy"), "{history}");

    let (third, _) = stand("web-3");
    third.line_with("web-2 leads");
    yes(admin(&room, &["auth", "token", "revoke", secret.split('_').nth(1).unwrap()]));
    second.line_with("the right to lead was withdrawn");
    third.line_with("web-3 leads");
}

#[test]
fn a_server_without_authentication_stays_on_this_machine_unless_that_is_wanted() {
    let room = Room::new();
    let data = room.text("data");
    let open = room.run(&["serve", "--listen", "0.0.0.0:0", "--data-dir", &data]);
    assert_eq!(open.code, CONFIG, "{open:?}");
    assert!(open.stderr.contains("auth is off") && open.stderr.contains("--listen"), "{open:?}");
    let server = room.serve("0.0.0.0:0", &["--data-dir", &data, "--insecure"]);
    assert!(server.log().contains("INSECURE"), "{}", server.log());
    let shown = server.yes(&room, &["cluster", "status", "--output", "json"]);
    assert!(shown.contains("\"auth\":\"off\""), "{shown}");
    // What is printed can be used as it is, wherever the data directory is.
    let guarded = room.serve("127.0.0.1:0", &["--data-dir", "beside", "--auth", "required"]);
    let socket = format!("--server unix://{}", room.text("beside/run/regent.sock"));
    assert!(guarded.log().contains(&socket), "{}", guarded.log());
}

/// Runs a command with this on its standard input.
fn piped(room: &Room, arguments: &[&str], input: &str) -> Ended {
    let path = room.path("input");
    fs::write(&path, input).unwrap();
    let mut command = room.command(arguments);
    command.stdin(fs::File::open(&path).unwrap());
    process::finish(command)
}

#[test]
fn a_login_is_tried_before_it_is_kept_and_used_by_every_verb_until_the_logout() {
    let room = Room::new();
    let server = guarded(&room);
    let secret = token(&room, "node:web-1", "web-1.token");
    let bindings = format!(
        "{BINDINGS}\n[[binding]]\nwho = \"user:alice\"\nrole = \"observer\"\ngroups = [\"*\"]\n"
    );
    fs::write(room.path("bindings.toml"), bindings).unwrap();
    yes(admin(&room, &["auth", "apply", "--file", "bindings.toml"]));
    let contexts = room.path(".config/regent/contexts.json");

    // A credential that the server does not know is not kept.
    let forged = BearerToken::new(TokenId(7), [7; 32]).reveal();
    let refused = piped(&room, &["login", &server.url, "--token-stdin"], &forged);
    assert_eq!(refused.code, REFUSED, "{refused:?}");
    assert!(refused.stderr.contains("does not know the token"), "{refused:?}");
    assert!(!contexts.exists() && !refused.stderr.contains(&forged), "{refused:?}");

    let node = ["login", &server.url, "--name", "node", "--token-file", "web-1.token"];
    let told = yes(room.run(&node));
    assert!(told.contains("node:web-1") && told.contains("participant in billing"), "{told}");
    let alice = yes(admin(&room, &["auth", "token", "create", "user:alice"]));
    let told =
        yes(piped(&room, &["login", &server.url, "--name", "alice", "--token-stdin"], &alice));
    assert!(told.contains("user:alice") && told.contains("observer in *"), "{told}");
    let kept = fs::read_to_string(&contexts).unwrap();
    let own =
        fs::read_dir(room.path(".config/regent/tokens")).unwrap().next().unwrap().unwrap().path();
    for text in [&told, &kept] {
        assert!(!text.contains(alice.trim()) && !text.contains(&secret), "{text}");
    }
    assert_eq!((process::mode(&contexts), process::mode(&own)), (0o600, 0o600));

    // The last login is the current context; a flag, and the environment, choose another one.
    let campaign =
        ["campaign", "billing", "--node", "web-1", "--session-file", "s", "--ttl", "60s"];
    let denied = room.run(&campaign);
    assert_eq!(denied.code, REFUSED, "{denied:?}");
    assert!(denied.stderr.contains("asked with the context alice"), "{denied:?}");
    yes(room.run(&[&campaign[..], &["--context", "node"]].concat()));
    let mut command = room.command(&["renew", "billing", "--session-file", "s"]);
    command.env("REGENT_CONTEXT", "node");
    yes(process::finish(command));
    yes(room.run(&["leader", "billing"]));
    // Servers that are named by hand get no credential of a context.
    let bare = room.run(&["leader", "billing", "--server", &server.url]);
    assert!(bare.stderr.contains("no credential was shown"), "{bare:?}");
    let both = room.run(&["leader", "billing", "--server", &server.url, "--context", "node"]);
    assert_eq!(both.code, 64, "{both:?}");
    // A token that a flag names takes the place of the context's.
    yes(room.run(&["renew", "billing", "--session-file", "s", "--token-file", "web-1.token"]));
    // The library, `run` and the gateway ask the same servers.
    yes(room.run(&["context", "use", "node"]));
    let run = ["run", "--group", "billing", "--once", "--node", "web-1", "--", "true"];
    assert_eq!(room.run(&run).code, 1, "another session of the node leads");
    yes(room.run(&["resign", "billing", "--session-file", "s"]));
    let ran = room.run(&run);
    assert_eq!(ran.code, 0, "{ran:?}");
    yes(room.run(&["doctor", "split-brain", "--context", "alice"]));
    let none = room.run(&["context", "use", "other"]);
    assert!(none.stderr.contains("there are alice, node"), "{none:?}");

    // Others must not be able to read it: refused, and not passed over.
    fs::set_permissions(&contexts, Permissions::from_mode(0o644)).unwrap();
    let open = room.run(&["leader", "billing"]);
    assert!(open.code != 0 && open.stderr.contains("chmod 600"), "{open:?}");
    fs::set_permissions(&contexts, Permissions::from_mode(0o600)).unwrap();

    yes(room.run(&["logout"]));
    yes(room.run(&["context", "remove", "alice"]));
    assert!(!own.exists() && room.path("web-1.token").exists());
    let listed = yes(room.run(&["context", "list", "--json"]));
    assert_eq!(listed.trim(), "[]");
    let shown = yes(room.run(&["context", "show"]));
    assert!(shown.contains("http://127.0.0.1:7400"), "{shown}");
}

#[test]
fn a_token_that_is_over_still_withdraws_and_closes_its_session() {
    let room = Room::new();
    let server = guarded(&room);
    let secret = token(&room, "node:web-1", "web-1.token");
    fs::write(room.path("bindings.toml"), BINDINGS).unwrap();
    yes(admin(&room, &["auth", "apply", "--file", "bindings.toml"]));
    let as_web = |arguments: &[&str]| {
        server.ask(&room, &[arguments, &["--token-file", "web-1.token"]].concat())
    };
    yes(as_web(&["campaign", "billing", "--node", "web-1", "--session-file", "s", "--ttl", "60s"]));
    yes(as_web(&["session", "open", "--node", "web-1", "--session-file", "t", "--ttl", "60s"]));
    let id = secret.split('_').nth(1).unwrap();
    yes(admin(&room, &["auth", "token", "revoke", id]));
    yes(as_web(&["withdraw", "billing", "--session-file", "s"]));
    let led = admin(&room, &["leader", "billing", "--output", "json"]);
    assert!(led.stdout.contains("\"state\":\"ending\""), "{led:?}");
    yes(as_web(&["session", "close", "--session-file", "t"]));
}
