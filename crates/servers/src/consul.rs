//! A Consul of one server that keeps its log on disk.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::certificates::{Certificates, NAME};
use crate::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// What a server of tests needs beside its ports: elections without the patience of slow machines.
const SETTINGS: &str = "performance { raft_multiplier = 1 } disable_update_check = true";
/// What lets sessions of Consul's be as short as those of tests; its own least is ten seconds.
const SHORT_SESSIONS: &str = "session_ttl_min = \"100ms\"";

/// Starts one, or takes the one of `REGENT_TEST_CONSUL_URL`.
pub fn consul() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_CONSUL_URL").map_or_else(|| starting(own), Ok)
}

/// Starts one of our own that takes sessions as short as those of tests.
pub fn with_short_sessions() -> Result<Server, Skip> {
    start(&format!("{SETTINGS} {SHORT_SESSIONS}"))
}

/// Starts one of our own.
pub fn own() -> Result<Server, Skip> {
    start(SETTINGS)
}

/// Starts one of our own that speaks TLS alone and asks for a certificate of its CA. Its URL says nothing of TLS.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    let (folder, port) = (folder(), free_port());
    certificates.put_into(folder.path())?;
    let settings = format!(
        "{SETTINGS} ca_file = \"ca.crt\" cert_file = \"server.crt\" key_file = \"server.key\" \
         verify_incoming_https = true ports {{ http = -1 https = {port} }}"
    );
    let file = |name: &str| certificates.path(name).display().to_string();
    let files = ["ca.crt", "client.crt", "client.key"].map(file);
    begin(folder, port, &settings, "-https-port", move || {
        let [ca, certificate, key] = &files;
        let mut asking = Command::new("curl");
        asking.args(["-sS", "-m", "5", "--cacert", ca, "--cert", certificate, "--key", key]);
        asking.args(["-o", "/dev/null", "-w", "%{http_code}"]);
        asking.arg(format!("https://{NAME}:{port}/v1/kv/none?consistent"));
        asking.output().is_ok_and(|output| output.stdout == b"404")
    })
}

fn start(settings: &str) -> Result<Server, Skip> {
    let port = free_port();
    begin(folder(), port, settings, "-http-port", move || has_leader(port))
}

fn begin(
    folder: tempfile::TempDir,
    port: u16,
    settings: &str,
    listens: &str,
    is_ready: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Server, Skip> {
    let program = need("consul")?;
    let ports = [("server", free_port()), ("serf-lan", free_port())];
    let mut command =
        words(&program, ["agent", "-server", "-bootstrap-expect=1", "-log-level=warn"]);
    command.extend(["-bind=127.0.0.1", "-client=127.0.0.1", "-data-dir=data"].map(Into::into));
    command.push(format!("{listens}={port}").into());
    command.extend(ports.map(|(name, port)| format!("-{name}-port={port}").into()));
    command.extend(["dns", "grpc", "serf-wan"].map(|name| format!("-{name}-port=-1").into()));
    command.extend(["-hcl", settings].map(Into::into));
    let process = Process::start(folder, command, is_ready)?;
    Ok(Server {
        url: format!("consul://127.0.0.1:{port}"),
        version: version(&program, "--version").replace(" v", " "),
        processes: vec![process],
    })
}

/// Whether it has elected itself: before that it answers, but serves nothing.
fn has_leader(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /v1/kv/none?consistent HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.0 404"))
    };
    ask().unwrap_or(false)
}
