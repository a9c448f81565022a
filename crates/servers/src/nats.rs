//! A NATS with JetStream that syncs every write, as the engine asks for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::certificates::Certificates;
use crate::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// Starts one, or takes the one of `REGENT_TEST_NATS_URL`.
pub fn nats() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_NATS_URL").map_or_else(|| starting(own), Ok)
}

/// Starts one of our own.
pub fn own() -> Result<Server, Skip> {
    start(None)
}

/// Starts one of our own that speaks TLS alone and asks for a certificate of its CA. Its URL says nothing of TLS.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    start(Some(certificates))
}

fn start(tls: Option<&Certificates>) -> Result<Server, Skip> {
    let program = need("nats-server")?;
    let (folder, port, health) = (folder(), free_port(), free_port());
    let mut settings = format!(
        "listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{health}\n\
         jetstream {{ store_dir: data, sync_interval: always }}\n"
    );
    if let Some(certificates) = tls {
        certificates.put_into(folder.path())?;
        settings +=
            "tls { cert_file: server.crt, key_file: server.key, ca_file: ca.crt, verify: true }\n";
    }
    std::fs::write(folder.path().join("nats.conf"), settings).map_err(|error| error.to_string())?;
    let command = words(&program, ["-c", "nats.conf"]);
    let process = Process::start(folder, command, move || is_healthy(health))?;
    Ok(Server {
        url: format!("nats://127.0.0.1:{port}"),
        version: version(&program, "--version").replace("nats-server: v", "NATS "),
        processes: vec![process],
    })
}

/// Whether it serves streams: it listens before it has read them.
fn is_healthy(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.0 200"))
    };
    ask().unwrap_or(false)
}
