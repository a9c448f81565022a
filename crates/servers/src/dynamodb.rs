//! Emulators of DynamoDB, which nobody can run.
//!
//! dynalite takes one step at a time and keeps what it has on disk, so that it may be killed: what races and
//! what must last is tested on it. moto knows more of what surrounds a table, but it looks at a condition and
//! writes later, each request in a thread of its own, without a lock: two puts were seen to pass the same
//! condition. So nothing that races is tested on it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Process, Server, Skip, folder, free_port, need, starting, words};

/// Starts a dynalite, or takes what `REGENT_TEST_DYNAMODB_URL` names.
pub fn dynamodb() -> Result<Server, Skip> {
    Server::given("REGENT_TEST_DYNAMODB_URL").map_or_else(|| starting(dynalite), Ok)
}

/// Starts a dynalite.
pub fn dynalite() -> Result<Server, Skip> {
    let program = need("dynalite")?;
    let (folder, port) = (folder(), free_port());
    let listen = port.to_string();
    let command = words(&program, ["--host", "127.0.0.1", "--port", &listen, "--path", "data"]);
    let process = Process::start(folder, command, move || answers(port))?;
    let version = format!("emulated: dynalite {}", dynalite_version(&program).unwrap_or_default());
    Ok(Server { url: url(port), version, processes: vec![process] })
}

/// What its package says.
fn dynalite_version(program: &Path) -> Option<String> {
    let package = program.canonicalize().ok()?.with_file_name("package.json");
    let package: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(package).ok()?).ok()?;
    Some(package["version"].as_str()?.to_owned())
}

/// Starts a moto.
pub fn moto() -> Result<Server, Skip> {
    let program = need("moto_server")?;
    let (folder, port) = (folder(), free_port());
    let command = words(&program, ["-H", "127.0.0.1", "-p", &port.to_string()]);
    let process = Process::start(folder, command, move || answers(port))?;
    let python = program.canonicalize().unwrap_or(program).with_file_name("python3");
    let said =
        Command::new(python).args(["-c", "import moto; print(moto.__version__)"]).output().ok();
    let number = said
        .map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
        .unwrap_or_default();
    let version = format!("emulated: moto {number}");
    Ok(Server { url: url(port), version, processes: vec![process] })
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
