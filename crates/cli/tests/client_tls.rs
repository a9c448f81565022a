//! TLS between clients and a server, as an operator meets it: real processes, certificates of `regent tls`, and what
//! is refused.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod process;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use process::upstream::Upstream;
use process::{Ended, Room, Running, Server, json, until};
use regent_tls::authority::{self, Owner};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned};

/// Exit codes of the command: refused by the server, no server, a wrong configuration.
const REFUSED: i32 = 77;
const UNAVAILABLE: i32 = 69;
const CONFIG: i32 = 78;
const OTHER_CLUSTER: &str = "2f6e63b8d1a04c57a3f4b0c9d8e7f601";

const BINDINGS: &str = r#"
[[binding]]
who = "node:web-*"
role = "participant"
groups = ["billing", "jobs"]

[[binding]]
who = "user:alice"
role = "observer"
groups = ["*"]
"#;

fn yes(ended: Ended) -> String {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

/// A CA, a server with its certificate, and the id of its cluster.
struct Site {
    room: Room,
    server: Server,
    cluster: String,
}

impl Site {
    fn new(client_auth: &str, more: &[&str]) -> Self {
        let room = Room::new();
        yes(room.run(&["tls", "init", "--dir", "ca"]));
        yes(room.run(&["tls", "issue", "--dir", "ca", "--server", "localhost,127.0.0.1"]));
        let data = room.text("data");
        let flags = [
            &["--data-dir", &data, "--auth", "required"][..],
            &["--tls-cert", "ca/server-localhost.crt", "--tls-key", "ca/server-localhost.key"],
            &["--tls-client-auth", client_auth, "--tls-client-ca", "ca/ca.crt"],
            &["--tls-crl", "ca/ca.crl"],
            more,
        ];
        let server = room.serve("127.0.0.1:0", &flags.concat());
        assert!(server.url.starts_with("https://"), "{}", server.url);
        let mut site = Self { room, server, cluster: String::new() };
        let status = yes(site.admin(&["cluster", "status", "--output", "json"]));
        site.cluster = json(&status)["cluster_id"].as_str().unwrap().to_owned();
        fs::write(site.room.path("bindings.toml"), BINDINGS).unwrap();
        yes(site.admin(&["auth", "apply", "--file", "bindings.toml"]));
        site
    }

    /// Asks on the socket, as the user who runs the server.
    fn admin(&self, arguments: &[&str]) -> Ended {
        let socket = format!("unix://{}", self.room.text("data/run/regent.sock"));
        self.room.run(&[arguments, &["--server", &socket]].concat())
    }

    fn issue(&self, whose: &[&str], cluster: &str) {
        let issue = ["tls", "issue", "--dir", "ca", "--cluster", cluster];
        yes(self.room.run(&[&issue[..], whose].concat()));
    }

    fn ask(&self, arguments: &[&str]) -> Ended {
        self.server.ask(&self.room, &[arguments, &["--ca", "ca/ca.crt"]].concat())
    }

    /// Asks with the certificate of these files.
    fn ask_as(&self, stem: &str, arguments: &[&str]) -> Ended {
        let files = [format!("ca/{stem}.crt"), format!("ca/{stem}.key")];
        self.ask(&[arguments, &["--cert", &files[0], "--cert-key", &files[1]]].concat())
    }

    /// Starts something that goes on, with files from the environment.
    fn start_as(&self, stem: &str, arguments: &[&str]) -> Running {
        let mut command = self.room.command(arguments);
        command.env("REGENT_SERVER", &self.server.url).env("REGENT_CA", "ca/ca.crt");
        command.env("REGENT_CERT", format!("ca/{stem}.crt"));
        command.env("REGENT_CERT_KEY", format!("ca/{stem}.key"));
        Running::start(&self.room, command)
    }

    /// A connection of a program that knows nothing of Regent, for HTTP/1.1.
    fn raw(&self, address: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        let ca = rustls::pki_types::CertificateDer::from_pem_file(self.room.path("ca/ca.crt"));
        roots.add(ca.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), host).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// The same after its handshake, whose key exchange must be post-quantum.
    fn post_quantum(&self, address: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let mut raw = self.raw(address);
        while raw.conn.is_handshaking() {
            raw.conn.complete_io(&mut raw.sock).unwrap();
        }
        let group = raw.conn.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, NamedGroup::X25519MLKEM768);
        raw
    }

    fn address(&self) -> String {
        self.server.url.trim_start_matches("https://").to_owned()
    }

    fn reload(&self) {
        let reloads = || self.server.log().matches("certificates were reloaded").count();
        let before = reloads();
        self.server.signal("HUP");
        until("the reload", || reloads() > before);
    }
}

/// What a server answers to these bytes on a connection.
fn exchange(mut stream: impl Read + Write, sent: &str) -> String {
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Whoever closes without a farewell has still answered.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(path: &str, token: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    )
}

#[test]
fn a_certificate_says_who_calls_and_a_node_acts_only_as_itself() {
    let site = Site::new("optional", &[]);
    site.issue(&["--node", "web-1"], &site.cluster);
    site.issue(&["--node", "web-2"], &site.cluster);
    site.issue(&["--user", "alice"], &site.cluster);
    let campaign = |node| ["campaign", "billing", "--node", node, "--ttl", "60s"];
    let won = yes(site.ask_as("node-web-1", &campaign("web-1")));
    assert!(won.contains("elected") && won.contains("yes"), "{won}");
    let other = site.ask_as("node-web-2", &campaign("web-1"));
    assert_eq!(other.code, REFUSED, "{other:?}");
    assert!(other.stderr.contains("allows other nodes: self"), "{other:?}");
    let watching = site.ask_as("user-alice", &campaign("alice"));
    assert!(watching.stderr.contains("lacks the right stand"), "{watching:?}");
    let led = yes(site.ask_as("user-alice", &["leader", "billing"]));
    assert!(led.contains("web-1"), "{led}");
    let nobody = site.ask(&["leader", "billing"]);
    assert_eq!(nobody.code, REFUSED, "{nobody:?}");
    assert!(nobody.stderr.contains("no credential was shown"), "{nobody:?}");

    // The library keeps an office over the session stream (gRPC), with files from the environment.
    let kept = site.start_as("node-web-2", &["campaign", "billing", "--node", "web-2", "--keep"]);
    kept.line_with("standing by");
    // `regent run` does as well, and its program does not get them.
    let script = "echo ran with ${REGENT_CERT_KEY-none}; sleep 60";
    let run = ["run", "--group", "jobs", "--node", "web-1", "--", "sh", "-c", script];
    site.start_as("node-web-1", &run).line_with("ran with none");

    // A token counts over TLS as well, and beside a certificate only for the same principal.
    let token = yes(site.admin(&["auth", "token", "create", "user:alice"]));
    let file = site.room.path("alice.token");
    fs::write(&file, &token).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let shown = ["leader", "billing", "--token-file", "alice.token"];
    yes(site.ask(&shown));
    yes(site.ask_as("user-alice", &shown));
    let two = site.ask_as("node-web-1", &shown);
    assert_eq!(two.code, REFUSED, "{two:?}");
    let both = "the client certificate is of node:web-1 and the token is of user:alice";
    assert!(two.stderr.contains(both), "{two:?}");

    // A program that knows nothing of Regent.
    let raw = site.post_quantum(&site.address());
    let metrics = exchange(raw, &get("/metrics", token.trim()));
    assert!(metrics.contains("regent_tls_expires_seconds{what=\"client\"} 3"), "{metrics}");
    assert!(metrics.contains("regent_tls_reload_failures_total{what=\"client\"} 0"), "{metrics}");
}

#[test]
fn a_login_with_a_certificate_is_kept_by_paths_and_used_by_the_gateway_and_run() {
    let site = Site::new("required", &[]);
    site.issue(&["--node", "web-1"], &site.cluster);
    site.issue(&["--user", "alice"], &site.cluster);
    let login = |stem: &str, more: &[&str]| {
        let files = [format!("ca/{stem}.crt"), format!("ca/{stem}.key")];
        let login = ["login", &site.server.url, "--ca", "ca/ca.crt"];
        let shown = ["--cert", &files[0], "--cert-key", &files[1]];
        site.room.run(&[&login[..], &shown, more].concat())
    };
    let told = yes(login("user-alice", &["--name", "alice"]));
    assert!(told.contains("user:alice") && told.contains("observer in *"), "{told}");
    let told = yes(login("node-web-1", &["--json"]));
    assert_eq!(json(&told)["principal"], "node:web-1", "{told}");
    let shown = yes(site.room.run(&["context", "show"]));
    assert!(shown.contains(&site.room.text("ca/node-web-1.key")), "{shown}");
    // No flag and no variable names a server or a file from here on.
    let script = "echo ran with ${REGENT_TERM-none}; sleep 60";
    let run = ["run", "--group", "jobs", "--node", "web-1", "--", "sh", "-c", script];
    site.room.start(&run).line_with("ran with 1");
    yes(site.room.run(&["campaign", "billing", "--node", "web-1", "--ttl", "60s"]));
    let upstream = Upstream::start();
    let place = ["--upstream", &upstream.url, "--data", "fence", "--listen", "127.0.0.1:0"];
    let gateway = ["fence", "gateway", "--group", "billing", "--strict", "--context", "alice"];
    let gateway = site.room.start(&[&gateway[..], &place].concat());
    let line = gateway.line_with("listens on");
    let address = line.split_once("http://").unwrap().1;
    let put = "PUT /row HTTP/1.1\r\nhost: localhost\r\nregent-term: 1\r\nconnection: close\r\ncontent-length: 4\r\n\r\npaid";
    let passed = exchange(TcpStream::connect(address).unwrap(), put);
    assert!(passed.starts_with("HTTP/1.1 200"), "{passed}");
}

#[test]
fn what_is_not_believed_is_refused_with_the_way_out() {
    let site = Site::new("required", &[]);
    site.issue(&["--node", "web-1"], &site.cluster);
    site.issue(&["--node", "web-9"], OTHER_CLUSTER);
    site.issue(&["--replica", "1"], &site.cluster);
    yes(site.room.run(&["tls", "init", "--dir", "other"]));
    let issue = ["tls", "issue", "--dir", "other", "--node", "web-1", "--cluster"];
    yes(site.room.run(&[&issue[..], &[&site.cluster]].concat()));
    let leader = ["leader", "billing"];
    let mut silent = TcpStream::connect(site.address()).unwrap();
    let no = |ended: Ended, code: i32, why: &str| {
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.stderr.contains(why), "{why}: {ended:?}");
    };

    // Whom the client does not believe. Nothing was sent, so nothing is uncertain.
    let campaign = ["campaign", "billing", "--node", "web-1"];
    let stranger =
        site.server.ask(&site.room, &[&campaign[..], &["--ca", "other/ca.crt"]].concat());
    no(stranger, UNAVAILABLE, "no CA that is believed here has issued it; name the file of its CA");
    yes(site.room.run(&["tls", "issue", "--dir", "ca", "--server", "elsewhere.example"]));
    let stem = "ca/server-elsewhere.example";
    let (certificate, key) = (format!("{stem}.crt"), format!("{stem}.key"));
    let (data, files) =
        (site.room.text("elsewhere"), ["--tls-cert", &certificate, "--tls-key", &key]);
    let elsewhere = site.room.serve("127.0.0.1:0", &[&["--data-dir", &data][..], &files].concat());
    let said = elsewhere.ask(&site.room, &["leader", "billing", "--ca", "ca/ca.crt"]);
    no(said, UNAVAILABLE, "it is for elsewhere.example and not for 127.0.0.1");

    // Whom the server does not believe.
    no(site.ask(&campaign), UNAVAILABLE, "the server asks for a client certificate");
    for stem in ["node-web-9", "replica-1"] {
        no(site.ask_as(stem, &campaign), UNAVAILABLE, "the server refuses the handshake");
    }
    let foreign = [
        "--ca",
        "ca/ca.crt",
        "--cert",
        "other/node-web-1.crt",
        "--cert-key",
        "other/node-web-1.key",
    ];
    let foreign = site.server.ask(&site.room, &[&campaign[..], &foreign].concat());
    no(foreign, UNAVAILABLE, "the server refuses the client certificate: no CA that it believes");
    let log = site.server.log();
    assert!(log.contains("belongs to another cluster") && log.contains("is a replica"), "{log}");

    // Files that do not go together, or are over.
    let files = ["--cert", "ca/node-web-1.crt", "--cert-key", "ca/node-web-9.key"];
    no(site.ask(&[&leader[..], &files].concat()), CONFIG, "does not fit the key");
    no(site.ask(&[&leader[..], &files[..2]].concat()), CONFIG, "needs its key");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let owner = Owner::Node("web-9".parse().unwrap());
    authority::renew(&site.room.path("ca"), &owner, 1, false, now_s - 172_800).unwrap();
    no(site.ask_as("node-web-9", &leader), CONFIG, "it has expired");

    // Plaintext to TLS, and TLS to plaintext.
    let plain = format!("http://{}", site.address());
    let said = site.room.run(&["leader", "billing", "--server", &plain]);
    no(said, REFUSED, "this port speaks TLS only; use https://");
    let answer = exchange(TcpStream::connect(site.address()).unwrap(), "POST / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
    let garbage = exchange(TcpStream::connect(site.address()).unwrap(), "\u{1}\u{2}\u{3}");
    assert!(!garbage.contains("HTTP"), "{garbage}");
    let open = site.room.serve("127.0.0.1:0", &["--data-dir", &site.room.text("open")]);
    let secure = open.url.replace("http://", "https://");
    let said = site.room.run(&["leader", "billing", "--server", &secure, "--ca", "ca/ca.crt"]);
    no(said, UNAVAILABLE, "the server does not speak TLS there; use http://");

    yes(site.ask_as("node-web-1", &campaign));
    // A client that never begins its handshake is left.
    assert!(!matches!(silent.read(&mut [0]), Ok(1)));
    until("a line about it", || site.server.log().contains("why=\"slow\""));
    assert!(!site.server.log().contains("panicked"), "{}", site.server.log());
}

#[test]
fn certificates_change_while_the_server_runs_and_a_revoked_one_loses_its_office() {
    let site = Site::new("required", &[]);
    site.issue(&["--node", "web-1"], &site.cluster);
    site.issue(&["--node", "web-2"], &site.cluster);
    let keep = |node| ["campaign", "billing", "--node", node, "--keep", "--ttl", "3s"];
    let first = site.start_as("node-web-1", &keep("web-1"));
    first.line_with("web-1 leads");

    let shown = |site: &Site| {
        let mut raw = site.raw(&site.address());
        let _ = raw.conn.complete_io(&mut raw.sock);
        raw.conn.peer_certificates().unwrap()[0].as_ref().to_vec()
    };
    let before = shown(&site);
    let renew = ["tls", "renew", "--dir", "ca", "--server", "localhost", "--new-key"];
    yes(site.room.run(&renew));
    site.reload();
    assert_ne!(shown(&site), before);
    // A key that does not fit changes nothing.
    fs::copy(site.room.path("ca/node-web-2.key"), site.room.path("ca/server-localhost.key"))
        .unwrap();
    site.server.signal("HUP");
    until("the refusal", || site.server.log().contains("certificates were not reloaded"));
    yes(site.ask_as("node-web-1", &["leader", "billing"]));
    yes(site.room.run(&renew));
    site.reload();

    // The office was kept on its connection all the time; now its certificate is revoked.
    let second = site.start_as("node-web-2", &keep("web-2"));
    second.line_with("standing by");
    yes(site.room.run(&["tls", "revoke", "--dir", "ca", "--node", "web-1"]));
    site.reload();
    second.line_with("web-2 leads");
    first.line_with("must stop");
    let (certificate, key) = revoked_files(&site);
    let revoked = site.ask(&["leader", "billing", "--cert", &certificate, "--cert-key", &key]);
    assert_eq!(revoked.code, UNAVAILABLE, "{revoked:?}");
    assert!(revoked.stderr.contains("it was revoked"), "{revoked:?}");
    let anew = ["tls", "issue", "--dir", "ca", "--node", "web-1", "--cluster", &site.cluster];
    yes(site.room.run(&anew));
    yes(site.ask_as("node-web-1", &["leader", "billing"]));
}

/// What was kept of the revoked certificate and its key.
fn revoked_files(site: &Site) -> (String, String) {
    let names = fs::read_dir(site.room.path("ca")).unwrap();
    let mut found: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".revoked-"))
        .map(|name| format!("ca/{name}"))
        .collect();
    found.sort();
    let [certificate, key] = found.try_into().unwrap();
    (certificate, key)
}

#[test]
fn silent_connections_do_not_keep_clients_from_their_handshake() {
    // So long that only a newcomer can end them.
    let site = Site::new("optional", &["--head-timeout", "1h"]);
    site.issue(&["--node", "web-1"], &site.cluster);
    let silent: Vec<TcpStream> =
        (0..700).map(|_| TcpStream::connect(site.address()).unwrap()).collect();
    yes(site.ask_as("node-web-1", &["campaign", "billing", "--node", "web-1"]));
    let token = yes(site.admin(&["auth", "token", "create", "user:alice"]));
    let metrics = exchange(site.post_quantum(&site.address()), &get("/metrics", token.trim()));
    let series = "regent_tls_handshakes_failed_total{reason=\"gave_way\"}";
    assert!(metrics.contains(series), "{metrics}");
    assert!(!metrics.contains(&format!("{series} 0")), "{metrics}");
    drop(silent);
}

#[test]
fn a_gateway_speaks_tls_to_its_clients_and_to_the_service() {
    let site = Site::new("required", &[]);
    site.issue(&["--node", "web-1"], &site.cluster);
    site.issue(&["--user", "alice"], &site.cluster);
    yes(site.ask_as("node-web-1", &["campaign", "billing", "--node", "web-1", "--ttl", "60s"]));
    let upstream = Upstream::start();
    let place = ["--upstream", &upstream.url, "--data", "fence", "--listen", "127.0.0.1:0"];
    let own = ["--tls-cert", "ca/server-localhost.crt", "--tls-key", "ca/server-localhost.key"];
    let gateway = ["fence", "gateway", "--group", "billing", "--strict"];
    let gateway = site.start_as("user-alice", &[&gateway[..], &place, &own].concat());
    let line = gateway.line_with("listens on");
    let address = line.split_once("https://").unwrap().1;
    let put = |term: u64| {
        let request = format!(
            "PUT /row HTTP/1.1\r\nhost: localhost\r\nregent-term: {term}\r\nconnection: close\r\ncontent-length: 4\r\n\r\npaid"
        );
        exchange(site.post_quantum(address), &request)
    };
    let passed = put(1);
    assert!(passed.starts_with("HTTP/1.1 200"), "{passed}");
    let forged = put(2);
    assert!(forged.starts_with("HTTP/1.1 4"), "{forged}");
    assert_eq!(upstream.terms(), [1]);
    let plain = exchange(TcpStream::connect(address).unwrap(), "PUT /row HTTP/1.1\r\n\r\n");
    assert!(!plain.contains("HTTP/1.1 200"), "{plain}");
}
