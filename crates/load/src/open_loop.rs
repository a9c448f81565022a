//! Requests by the clock, whether or not those before are answered: an open loop.
//!
//! One thread visits all connections in turn, many times a second. At each visit it reads what has arrived, works out by
//! the clock how many requests are due, and sends them in one piece. A connection has at most [`WAITING_MAX`] requests
//! without an answer; what is due beyond that counts as offered and is not sent. So the load does not wait for the
//! service, and costs little: two system calls for several requests, nothing is parsed but the head of an answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use std::{io, thread};

use regent_election::Moment;

use crate::wire::content_length;

/// Requests on one connection that have no answer yet.
pub(crate) const WAITING_MAX: usize = 16;
/// How often a connection is visited in an open loop.
const VISIT_EVERY: Duration = Duration::from_millis(50);
/// The same in a closed loop, in which a request waits for a visit.
const CLOSED_VISIT_EVERY: Duration = Duration::from_millis(5);
/// What each connection of a closed loop has under way.
const CLOSED_WAITING_MAX: usize = 4;
/// How long the last answers are awaited.
const DRAIN_FOR: Duration = Duration::from_secs(1);
/// How long a connection may take to be made again, while all others wait.
const CONNECT_WITHIN: Duration = Duration::from_millis(200);
/// The same before the flood begins: hundreds are made at once, and a server whose queue is full takes the next one when
/// the system asks again, after a second or more.
const CONNECT_FIRST_WITHIN: Duration = Duration::from_secs(10);

/// What the clients of the flood ask: those who watch, who read and who campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    Watch,
    Read,
    Campaign,
}

impl Flood {
    pub(crate) const ALL: [Self; 3] = [Self::Watch, Self::Read, Self::Campaign];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Read => "read",
            Self::Campaign => "campaign",
        }
    }
}

/// What became of requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Due by the clock.
    pub(crate) offered: u64,
    /// Not sent: the connection waited for as many answers as it may.
    pub(crate) unsent: u64,
    /// 200.
    pub(crate) answered: u64,
    /// 429.
    pub(crate) refused: u64,
    /// 503.
    pub(crate) unavailable: u64,
    /// Another answer, or a connection that broke.
    pub(crate) failed: u64,
}

impl Tally {
    fn note(&mut self, status: &[u8]) {
        *match status {
            b"200" => &mut self.answered,
            b"429" => &mut self.refused,
            b"503" => &mut self.unavailable,
            _ => &mut self.failed,
        } += 1;
    }
}

/// By kind, in the order of [`Flood::ALL`].
pub(crate) type Tallies = [Tally; 3];

/// A connection that asks the same again and again.
pub(crate) struct Line {
    pub(crate) what: Flood,
    place: SocketAddr,
    stream: Option<TcpStream>,
    /// The request, as often as it may have to be sent at once, and once more.
    requests: Vec<u8>,
    length: usize,
    /// Bytes of requests that are due and did not fit into the socket.
    behind: usize,
    /// Requests without an answer.
    waiting: usize,
    offered: u64,
    /// The beginning of an answer, and what is still to come of a body.
    answer: Vec<u8>,
    body_left: usize,
    tally: Tally,
}

impl Line {
    /// A connection to `host:port` for this request.
    pub(crate) fn connect(what: Flood, host: &str, request: &[u8]) -> io::Result<Self> {
        let found = host.to_socket_addrs()?.next();
        let place = found.ok_or_else(|| io::Error::other(format!("{host} is no address")))?;
        let mut line = Self {
            what,
            place,
            stream: None,
            requests: request.repeat(WAITING_MAX + 1),
            length: request.len(),
            behind: 0,
            waiting: 0,
            offered: 0,
            answer: Vec::new(),
            body_left: 0,
            tally: Tally::default(),
        };
        line.reconnect(CONNECT_FIRST_WITHIN)?;
        Ok(line)
    }

    fn reconnect(&mut self, within: Duration) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&self.place, within)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.stream = Some(stream);
        Ok(())
    }

    /// Reads what has come and sends what is due; without a number, as many as may wait.
    fn visit(&mut self, due: Option<usize>, waiting_max: usize, scratch: &mut [u8]) {
        let done = self.read(scratch).and_then(|()| {
            let free = waiting_max.saturating_sub(self.waiting);
            let due = due.unwrap_or(free);
            let now = due.min(free);
            self.tally.offered += due as u64;
            self.tally.unsent += (due - now) as u64;
            self.waiting += now;
            self.behind += now * self.length;
            self.write()
        });
        if done.is_err() {
            self.tally.failed += self.waiting as u64;
            (self.waiting, self.behind, self.body_left) = (0, 0, 0);
            self.answer.clear();
            self.stream = None;
            // One that cannot be made is tried at the next visit.
            let _ = self.reconnect(CONNECT_WITHIN);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        while self.behind > 0 {
            // All requests are alike: where the last write ended says where this one begins.
            let from = (self.length - self.behind % self.length) % self.length;
            match stream.write(&self.requests[from..from + self.behind]) {
                Ok(written) => self.behind -= written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        while self.waiting > 0 {
            let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
            match stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.answered(&scratch[..count])?;
                    if count < scratch.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts the answers in these bytes.
    fn answered(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let skipped = self.body_left.min(bytes.len());
                self.body_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let had = self.answer.len();
            self.answer.extend_from_slice(bytes);
            let Some(head_length) = self.answer.windows(4).position(|four| four == b"\r\n\r\n")
            else {
                return Ok(());
            };
            self.body_left = content_length(&self.answer[..head_length])?;
            self.tally.note(self.answer.get(9..12).unwrap_or_default());
            self.waiting = self.waiting.saturating_sub(1);
            self.answer.clear();
            bytes = &bytes[head_length + 4 - had..];
        }
        Ok(())
    }
}

/// Everything that is asked, on one thread.
pub(crate) struct Flooding {
    lines: Vec<Line>,
    scratch: Vec<u8>,
}

impl Flooding {
    pub(crate) fn new(lines: Vec<Line>) -> Self {
        Self { lines, scratch: vec![0; 64 << 10] }
    }

    /// Offers so many requests a second, for so long.
    pub(crate) fn offer(&mut self, per_second: f64, time: Duration) -> Tallies {
        let each = per_second / self.lines.len().max(1) as f64;
        let start = regent_clock::now();
        self.rounds(start, self.lines.len(), VISIT_EVERY, time, |line, now| {
            let due = (each * now.since(start).as_secs_f64()) as u64;
            let more = due.saturating_sub(line.offered);
            line.offered = due;
            (Some(usize::try_from(more).unwrap_or(usize::MAX)), WAITING_MAX)
        });
        self.finish()
    }

    /// Asks the next thing as soon as there is an answer, on so many connections, for so long: what the service can
    /// take.
    pub(crate) fn ask(&mut self, connections: usize, time: Duration) -> Tallies {
        let start = regent_clock::now();
        let due = |_: &mut Line, _| (None, CLOSED_WAITING_MAX);
        self.rounds(start, connections, CLOSED_VISIT_EVERY, time, due);
        self.finish()
    }

    /// Visits the first `count` connections, all of them once in `every`.
    fn rounds(
        &mut self,
        start: Moment,
        count: usize,
        every: Duration,
        time: Duration,
        mut due: impl FnMut(&mut Line, Moment) -> (Option<usize>, usize),
    ) {
        let count = count.clamp(1, self.lines.len().max(1));
        let mut visits: u64 = 0;
        'rounds: loop {
            for line in self.lines.iter_mut().take(count) {
                let visit_at = start + every.mul_f64(visits as f64 / count as f64);
                visits += 1;
                let now = regent_clock::now();
                if now.since(start) >= time {
                    break 'rounds;
                }
                // A shorter sleep costs more than it waits.
                let ahead = now.until(visit_at);
                if ahead > Duration::from_millis(1) {
                    thread::sleep(ahead);
                }
                let (more, waiting_max) = due(line, regent_clock::now());
                line.visit(more, waiting_max, &mut self.scratch);
            }
            if self.lines.is_empty() {
                break;
            }
        }
    }

    /// Waits a moment for the last answers; what has come of all requests since the last time.
    fn finish(&mut self) -> Tallies {
        let until = regent_clock::now() + DRAIN_FOR;
        while regent_clock::now() < until && self.lines.iter().any(|line| line.waiting > 0) {
            for line in self.lines.iter_mut().filter(|line| line.waiting > 0) {
                line.visit(Some(0), WAITING_MAX, &mut self.scratch);
            }
            thread::sleep(CLOSED_VISIT_EVERY);
        }
        let mut all = Tallies::default();
        for line in &mut self.lines {
            let tally = std::mem::take(&mut line.tally);
            line.offered = 0;
            let of = &mut all[line.what as usize];
            of.offered += tally.offered;
            of.unsent += tally.unsent;
            of.answered += tally.answered;
            of.refused += tally.refused;
            of.unavailable += tally.unavailable;
            of.failed += tally.failed;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    fn line() -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let line = Line::connect(Flood::Read, &host, REQUEST).unwrap();
        (line, listener.accept().unwrap().0)
    }

    /// Visits until this much has been answered, since bytes take their time even on one machine.
    fn visit_until(line: &mut Line, is_done: impl Fn(&Tally) -> bool) {
        let mut scratch = [0; 64];
        while !is_done(&line.tally) {
            line.visit(Some(0), WAITING_MAX, &mut scratch);
        }
    }

    #[test]
    fn what_is_due_beyond_the_bound_counts_as_offered_and_is_not_sent() {
        let (mut line, mut service) = line();
        line.visit(Some(WAITING_MAX + 5), WAITING_MAX, &mut [0; 64]);
        line.visit(Some(3), WAITING_MAX, &mut [0; 64]);
        let mut sent = vec![0; WAITING_MAX * REQUEST.len()];
        service.read_exact(&mut sent).unwrap();
        assert_eq!(sent, REQUEST.repeat(WAITING_MAX));
        let Tally { offered, unsent, .. } = line.tally;
        assert_eq!((offered, unsent), (WAITING_MAX as u64 + 8, 8));
        assert_eq!(line.behind, 0);
    }

    /// Answers are told apart however their bytes are cut.
    #[test]
    fn answers_are_counted_by_their_status() {
        let (mut line, mut service) = line();
        line.visit(Some(4), WAITING_MAX, &mut [0; 64]);
        let answers = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\nHTTP/1.1 503 No\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
        for piece in answers.chunks(7) {
            service.write_all(piece).unwrap();
        }
        visit_until(&mut line, |tally| tally.failed > 0);
        let Tally { answered, refused, unavailable, failed, .. } = line.tally;
        assert_eq!((answered, refused, unavailable, failed), (1, 1, 1, 1));
        assert_eq!(line.waiting, 0);
    }

    #[test]
    fn a_connection_that_breaks_fails_what_waits() {
        let (mut line, service) = line();
        line.visit(Some(2), WAITING_MAX, &mut [0; 64]);
        drop(service);
        visit_until(&mut line, |tally| tally.failed > 0);
        assert_eq!((line.tally.failed, line.waiting), (2, 0));
    }
}
