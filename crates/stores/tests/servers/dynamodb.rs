//! Emulators of DynamoDB, which nobody can run: moto knows most of it and keeps it in memory, dynalite knows
//! less and keeps it on disk, so that it may be killed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{Process, Server, Skip, folder, free_port, need, starting, version, words};

/// Starts a moto, or takes what `REGENT_TEST_DYNAMODB_URL` names.
pub(crate) fn dynamodb() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_DYNAMODB_URL").map_or_else(|| starting(moto), Ok)
}

/// Starts a moto.
pub(crate) fn moto() -> Result<Server, Skip> {
    let program = need("moto_server")?;
    let (folder, port) = (folder(), free_port());
    let command = words(&program, ["-H", "127.0.0.1", "-p", &port.to_string()]);
    let process = Process::start(folder, command, move || answers(port))?;
    let said = version(&program, "--version");
    let number = said.split_whitespace().last().unwrap_or("?").to_owned();
    Ok(Server {
        url: url(port),
        version: format!("emulated: moto {number}"),
        processes: vec![process],
    })
}

/// Starts a dynalite.
pub(crate) fn dynalite() -> Result<Server, Skip> {
    let program = need("dynalite")?;
    let (folder, port) = (folder(), free_port());
    let listen = port.to_string();
    let command = words(&program, ["--host", "127.0.0.1", "--port", &listen, "--path", "data"]);
    let process = Process::start(folder, command, move || answers(port))?;
    Ok(Server {
        url: url(port),
        version: "emulated: dynalite 4.0.0".into(),
        processes: vec![process],
    })
}

fn url(port: u16) -> String {
    format!("dynamodb://key:secret@elections?region=us-east-1&endpoint=http://127.0.0.1:{port}")
}

/// Whether somebody answers, whatever it is.
fn answers(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(&answer == b"HTTP/")
    };
    ask().unwrap_or(false)
}
