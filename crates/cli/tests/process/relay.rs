//! A wire between replicas that can be cut, mended and slowed: every peer is dialled through one.
//!
//! A cut wire loses nothing and delivers nothing; mended, it goes on where it stopped, as TCP does.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::cluster::free_port;

/// What opens every connection between replicas, and where it names its sender.
const GREETING_BYTES: usize = 54;
const FROM_AT: usize = 26;
/// How often a pump looks whether its wire is cut.
const RELAY_POLL_EVERY: Duration = Duration::from_millis(2);

/// All wires of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Wires {
    cut: Arc<Mutex<BTreeSet<(u64, u64)>>>,
    delay_ms: Arc<AtomicU64>,
}

impl Wires {
    /// A relay to the replica `to`, which listens at `target`; gives the address to be dialled.
    pub(crate) fn relay(&self, to: u64, target: &str) -> String {
        let host = target.rsplit_once(':').unwrap().0;
        let listener = TcpListener::bind((host, free_port(host))).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (wires, target) = (self.clone(), target.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (wires, target) = (wires.clone(), target.clone());
                thread::spawn(move || wires.carry(stream, to, &target));
            }
        });
        address
    }

    fn carry(&self, mut dialler: TcpStream, to: u64, target: &str) -> Option<()> {
        let mut greeting = [0; GREETING_BYTES];
        dialler.read_exact(&mut greeting).ok()?;
        let from = u64::from_le_bytes(greeting[FROM_AT..FROM_AT + 8].try_into().ok()?);
        self.await_mended(from, to);
        let mut answerer = TcpStream::connect(target).ok()?;
        answerer.write_all(&greeting).ok()?;
        for stream in [&dialler, &answerer] {
            stream.set_nodelay(true).ok()?;
            stream.set_read_timeout(Some(RELAY_POLL_EVERY)).ok()?;
        }
        let there = (dialler.try_clone().ok()?, answerer.try_clone().ok()?);
        let wires = self.clone();
        thread::spawn(move || wires.pump(there.0, there.1, from, to));
        self.pump(answerer, dialler, to, from)
    }

    fn pump(&self, mut source: TcpStream, mut sink: TcpStream, from: u64, to: u64) -> Option<()> {
        let mut buffer = [0; 16 << 10];
        loop {
            self.await_mended(from, to);
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    self.await_mended(from, to);
                    thread::sleep(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed)));
                    if sink.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        let _ = source.shutdown(std::net::Shutdown::Both);
        sink.shutdown(std::net::Shutdown::Both).ok()
    }

    fn await_mended(&self, from: u64, to: u64) {
        while self.cut.lock().unwrap().contains(&(from, to)) {
            thread::sleep(RELAY_POLL_EVERY);
        }
    }

    /// Cuts all wires between different sides, both ways.
    pub(crate) fn part(&self, sides: &[&[u64]]) {
        let mut cut = self.cut.lock().unwrap();
        cut.clear();
        for (place, side) in sides.iter().enumerate() {
            for other in sides.iter().skip(place + 1) {
                for one in *side {
                    cut.extend(other.iter().flat_map(|two| [(*one, *two), (*two, *one)]));
                }
            }
        }
    }

    /// Makes all wires slow, each way.
    pub(crate) fn delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Mends everything.
    pub(crate) fn mend(&self) {
        self.cut.lock().unwrap().clear();
    }
}
