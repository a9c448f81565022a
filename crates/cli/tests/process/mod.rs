//! Real processes of the real binary: a server on a free port, commands that ask it, and lines of
//! those that go on. Whatever was started is killed by its own id when it is dropped.

#![allow(dead_code, reason = "not every test uses every helper")]
#![allow(clippy::unwrap_used, reason = "a test may")]

pub(crate) mod cluster;
pub(crate) mod recorder;
pub(crate) mod relay;
pub(crate) mod slow;
pub(crate) mod upstream;
pub(crate) mod wire;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything here takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// What Rust writes when a thread panics.
const PANIC: &str = "panicked at";

/// A place of its own for one test: a home, a data directory, session files.
pub(crate) struct Room {
    directory: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A server.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    log: PathBuf,
}

/// A command that goes on, line by line.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The binary with an environment of its own.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regent"));
        command.args(arguments).current_dir(self.directory.path()).env_clear();
        command.env("HOME", self.directory.path()).env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        finish(self.command(arguments))
    }

    /// Starts a server on a free port, or on the port of `listen`, and waits until it listens.
    pub(crate) fn serve(&self, listen: &str, more: &[&str]) -> Server {
        let arguments = [&["serve", "--listen", listen], more].concat();
        self.serve_as(self.command(&arguments))
    }

    /// Starts a server by this command.
    pub(crate) fn serve_as(&self, mut command: Command) -> Server {
        let log =
            self.path(&format!("server-{}.log", fs::read_dir(self.path("")).unwrap().count()));
        command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut greeting = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        greeting.read_line(&mut line).unwrap();
        let Some((_, url)) = line.trim().split_once("listens on ") else {
            let _ = child.kill();
            panic!("no greeting: {line:?}, {}", fs::read_to_string(&log).unwrap());
        };
        let url = url.to_owned();
        Server { child, url, log }
    }

    /// Starts something that goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self, self.command(arguments))
    }

    /// A server with its data in this room.
    pub(crate) fn server(&self) -> Server {
        self.serve("127.0.0.1:0", &["--data-dir", &self.text("data")])
    }
}

/// Whatever was done to them, no process of the binary may have panicked.
impl Drop for Room {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let files = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        for log in files.filter(|path| path.extension().is_some_and(|it| it == "log")) {
            let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
            assert!(!text.contains(PANIC), "{}: {text}", log.display());
        }
    }
}

impl Server {
    /// Asks this server something.
    pub(crate) fn ask(&self, room: &Room, arguments: &[&str]) -> Ended {
        let mut command = room.command(arguments);
        command.env("REGENT_SERVER", &self.url);
        finish(command)
    }

    /// The same, which must succeed; gives what it printed.
    pub(crate) fn yes(&self, room: &Room, arguments: &[&str]) -> String {
        let ended = self.ask(room, arguments);
        assert_eq!(ended.code, 0, "regent {}: {ended:?}", arguments.join(" "));
        ended.stdout
    }

    /// How many stand in the line of a group.
    pub(crate) fn standbys(&self, room: &Room, group: &str) -> u64 {
        let shown = self.yes(room, &["group", "show", group, "--output", "json"]);
        json(&shown)["standbys_count"].as_u64().unwrap()
    }

    /// Starts something that goes on.
    pub(crate) fn start(&self, room: &Room, arguments: &[&str]) -> Running {
        let mut command = room.command(arguments);
        command.env("REGENT_SERVER", &self.url);
        Running::start(room, command)
    }

    /// The body that answers a plain request.
    pub(crate) fn get(&self, path: &str) -> String {
        self.speak(&format!("GET {path}"), "")
    }

    /// The body that answers a request with one.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        self.speak(&format!("POST {path}"), body)
    }

    /// The body that answers a plain request with a bearer token.
    pub(crate) fn get_as(&self, path: &str, token: &str) -> String {
        self.send(&format!("GET {path}"), &format!("authorization: Bearer {token}\r\n"), "")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn speak(&self, what: &str, body: &str) -> String {
        self.send(what, "", body)
    }

    fn send(&self, what: &str, headers: &str, body: &str) -> String {
        let host = self.listen();
        let mut stream = TcpStream::connect(&host).unwrap();
        let length = body.len();
        let request = format!(
            "{what} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    /// The address to listen on once more.
    pub(crate) fn listen(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    pub(crate) fn wait(&mut self) -> i32 {
        wait(&mut self.child)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn start(room: &Room, mut command: Command) -> Self {
        let count = fs::read_dir(room.path("")).unwrap().count();
        let errors = room.path(&format!("errors-{count}.log"));
        command.stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, errors }
    }

    /// The next line; it must come.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            panic!("no line came ({error}); errors: {}", self.errors());
        })
    }

    /// The next line that holds this.
    pub(crate) fn line_with(&self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// The lines that have come and were not read.
    pub(crate) fn so_far(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// All lines until it ends.
    pub(crate) fn rest(&self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("it did not end: {lines:?}"),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn wait(&mut self) -> i32 {
        wait(&mut self.child)
    }

    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by name, with the shell's own `kill`: no `unsafe` for a test.
fn signal(child: &Child, name: &str) {
    let line = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success(), "{line}");
}

fn wait(child: &mut Child) -> i32 {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if since.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the process did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs to the end, reading both pipes so that neither can block it.
pub(crate) fn finish(mut command: Command) -> Ended {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        let mut pipe = pipe.unwrap();
        std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        })
    };
    let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let code = wait(&mut child);
    let ended = Ended { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    assert!(!ended.stderr.contains(PANIC), "{ended:?}");
    ended
}

/// Waits until something is so; it must become so.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(becomes_so(is_so), "it did not come about: {what}");
}

/// Waits until something is so, and says whether it became so in time.
pub(crate) fn becomes_so(mut is_so: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while !is_so() {
        if since.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The one JSON object that was printed.
pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// A field of a printed table of facts.
pub(crate) fn fact<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix("  ").map(str::trim))
        .unwrap_or_else(|| panic!("no {name} in {text:?}"))
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}
