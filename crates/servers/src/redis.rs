//! A Redis that syncs every write, as the engine asks for.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::certificates::Certificates;
use crate::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// Starts one, or takes the one of `REGENT_TEST_REDIS_URL`.
pub fn redis() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_REDIS_URL").map_or_else(|| starting(own), Ok)
}

/// Starts one of our own.
pub fn own() -> Result<Server, Skip> {
    let program = need("redis-server")?;
    let (folder, port) = (folder(), free_port());
    let listen = port.to_string();
    let arguments = ["--bind", "127.0.0.1", "--port", &listen, "--save", "", "--appendonly", "yes"];
    let mut command = words(&program, arguments);
    command.extend(["--appendfsync", "always"].map(Into::into));
    let process = Process::start(folder, command, move || {
        TcpStream::connect(("127.0.0.1", port)).is_ok_and(|mut stream| {
            stream.set_read_timeout(Some(READ_WITHIN)).is_ok() && answers(&mut stream)
        })
    })?;
    Ok(Server {
        url: format!("redis://127.0.0.1:{port}"),
        version: version_said(&program),
        processes: vec![process],
    })
}

/// Starts one of our own that listens for TLS alone and asks for a certificate of its CA. Its URL says nothing of TLS.
pub fn with_tls(certificates: &Certificates) -> Result<Server, Skip> {
    let program = need("redis-server")?;
    let (folder, port) = (folder(), free_port());
    certificates.put_into(folder.path())?;
    let (listen, socket) = (port.to_string(), folder.path().join("socket"));
    let mut command =
        words(&program, ["--bind", "127.0.0.1", "--port", "0", "--tls-port", &listen]);
    command
        .extend(["--tls-cert-file", "server.crt", "--tls-key-file", "server.key"].map(Into::into));
    command.extend(["--tls-ca-cert-file", "ca.crt", "--tls-auth-clients", "yes"].map(Into::into));
    command
        .extend(["--save", "", "--appendonly", "yes", "--appendfsync", "always"].map(Into::into));
    command.extend(["--unixsocket".into(), socket.clone().into()]);
    let process = Process::start(folder, command, move || {
        UnixStream::connect(&socket).is_ok_and(|mut stream| {
            stream.set_read_timeout(Some(READ_WITHIN)).is_ok() && answers(&mut stream)
        })
    })?;
    Ok(Server {
        url: format!("redis://127.0.0.1:{port}"),
        version: version_said(&program),
        processes: vec![process],
    })
}

fn version_said(program: &std::path::Path) -> String {
    let version = version(program, "--version");
    let number = version.split_whitespace().find_map(|word| word.strip_prefix("v="));
    format!("Redis {}", number.unwrap_or("?"))
}

/// How long a ping may take.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// Whether it serves: while it loads its file it answers, but not this.
fn answers(stream: &mut (impl std::io::Read + std::io::Write)) -> bool {
    let mut ping = || {
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}
