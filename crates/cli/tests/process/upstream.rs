//! Somebody's storage behind a gateway, and a client before it. Both speak just enough HTTP/1.1, by hand: a
//! test must be able to send what no library would, and to hold a write back where no library lets it.
//!
//! The storage takes a write when all of it is there, may think about it, applies it, and answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// One write, as it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) term: Option<u64>,
    pub(crate) path: String,
    pub(crate) bytes: usize,
}

#[derive(Default)]
struct Shared {
    applied: Mutex<Vec<Applied>>,
    /// How many writes to `/hold` have come whole, and how many of them may be applied.
    held: Mutex<(usize, usize)>,
    changed: Condvar,
}

/// The storage.
pub(crate) struct Upstream {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let inside = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&inside);
                thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let _ = serve(stream, &shared);
                });
            }
        });
        Self { url, shared }
    }

    /// Everything applied so far, in order.
    pub(crate) fn applied(&self) -> Vec<Applied> {
        self.shared.applied.lock().unwrap().clone()
    }

    /// The terms of everything applied, in order.
    pub(crate) fn terms(&self) -> Vec<u64> {
        self.applied().iter().filter_map(|write| write.term).collect()
    }

    /// How many writes to `/hold` have come whole.
    pub(crate) fn held(&self) -> usize {
        self.shared.held.lock().unwrap().0
    }

    /// Lets all writes that are held, and those to come, be applied.
    pub(crate) fn release(&self) {
        self.shared.held.lock().unwrap().1 = usize::MAX;
        self.shared.changed.notify_all();
    }
}

/// Whether an address ends in `/word/NUMBER`, and the number.
fn number(path: &str, word: &str) -> Option<u64> {
    path.split_once(&format!("/{word}/"))?.1.parse().ok()
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers = headers(&mut reader)?;
        let header = |name: &str| {
            headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        let bytes = match (header("content-length"), header("transfer-encoding")) {
            (Some(length), None) => skip(&mut reader, length.parse().map_err(io::Error::other)?)?,
            (None, Some("chunked")) => skip_chunks(&mut reader)?,
            (None, None) => 0,
            both => return Err(io::Error::other(format!("a body of two minds: {both:?}"))),
        };
        if method != "GET" && method != "HEAD" {
            if path.contains("/hold") {
                let mut held = shared.held.lock().unwrap();
                held.0 += 1;
                while held.1 == 0 {
                    held = shared.changed.wait(held).unwrap();
                }
            }
            if let Some(millis) = number(path, "slow") {
                thread::sleep(Duration::from_millis(millis));
            }
            let term = header("regent-term").and_then(|term| term.parse().ok());
            let write = Applied { term, path: path.to_owned(), bytes };
            shared.applied.lock().unwrap().push(write);
        }
        if let Some(total) = number(path, "big") {
            writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let part = [b'x'; 1 << 16];
            let mut left = usize::try_from(total).map_err(io::Error::other)?;
            while left > 0 {
                let count = left.min(part.len());
                write!(writer, "{count:x}\r\n")?;
                writer.write_all(&part[..count])?;
                writer.write_all(b"\r\n")?;
                left -= count;
            }
            writer.write_all(b"0\r\n\r\n")?;
        } else {
            let body = if method == "HEAD" { "" } else { "ok" };
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{body}")?;
        }
        if header("connection") == Some("close") {
            return Ok(());
        }
    }
}

fn headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(headers) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn skip(reader: &mut impl Read, length: u64) -> io::Result<usize> {
    let mut body = reader.take(length);
    let count = io::copy(&mut body, &mut io::sink())?;
    if count < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    usize::try_from(count).map_err(io::Error::other)
}

fn skip_chunks(reader: &mut impl BufRead) -> io::Result<usize> {
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        if length == 0 {
            headers(reader)?;
            return Ok(bytes);
        }
        bytes += skip(reader, length)?;
        skip(reader, 2)?;
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    /// The problem that it tells.
    pub(crate) fn problem(&self) -> serde_json::Value {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        super::json(&self.body)
    }
}

/// Sends these very bytes and reads what comes until the connection ends.
pub(crate) fn raw(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Writes something under a term.
pub(crate) fn put(address: &str, path: &str, term: Option<u64>) -> Answered {
    let term = term.map(|term| format!("regent-term: {term}\r\n")).unwrap_or_default();
    let request = format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{term}content-length: 4\r\n\r\nbody"
    );
    answered(&raw(address, request.as_bytes()))
}

/// What was answered.
pub(crate) fn answered(text: &str) -> Answered {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    Answered { status, head: head.to_owned(), body: body.to_owned() }
}
