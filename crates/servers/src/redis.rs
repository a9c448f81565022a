//! A Redis that syncs every write, as the engine asks for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

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
    let process = Process::start(folder, command, move || answers(port))?;
    let version = version(&program, "--version");
    let number = version.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(Server {
        url: format!("redis://127.0.0.1:{port}"),
        version: format!("Redis {}", number.unwrap_or("?")),
        processes: vec![process],
    })
}

/// Whether it serves: while it loads its file it answers, but not this.
fn answers(port: u16) -> bool {
    let ping = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}
