//! A road to a server that becomes longer: everything sent over it arrives a while later, nothing is lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// A road, and how long it is.
pub(crate) struct Slow {
    pub(crate) url: String,
    delay_ms: Arc<AtomicU64>,
}

impl Slow {
    /// A road to this server.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let delay_ms = Arc::new(AtomicU64::new(0));
        let (target, delay) = (server.to_owned(), Arc::clone(&delay_ms));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                carry(near, far, Arc::clone(&delay));
                carry(back.0, back.1, Arc::default());
            }
        });
        Self { url, delay_ms }
    }

    /// What is sent from here on arrives so much later.
    pub(crate) fn delay(&self, ms: u64) {
        self.delay_ms.store(ms, Ordering::Relaxed);
    }
}

/// Carries one way. Two pieces that follow each other are late together, not one after the other.
fn carry(mut source: TcpStream, mut sink: TcpStream, delay_ms: Arc<AtomicU64>) {
    let _ = sink.set_nodelay(true);
    let (send, pieces) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = source.read(&mut buffer) {
            let delay = Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            if send.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due_at, piece) in pieces {
            thread::sleep(due_at.saturating_duration_since(Instant::now()));
            if sink.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = sink.shutdown(Shutdown::Both);
    });
}
