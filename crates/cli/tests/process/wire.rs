//! A wire between a client and its server that can be cut and mended.
//!
//! A cut wire loses nothing and delivers nothing; mended, it goes on where it stopped, as TCP does.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often a pump looks whether its wire is cut.
const WIRE_POLL_EVERY: Duration = Duration::from_millis(2);

/// One client's way to its server.
pub(crate) struct Wire {
    pub(crate) url: String,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    /// A wire to a server that listens at this address.
    pub(crate) fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_cut = Arc::new(AtomicBool::new(false));
        let (target, cut) = (target.to_owned(), Arc::clone(&is_cut));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                carry(stream, server, &cut);
            }
        });
        Self { url, is_cut }
    }

    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn carry(client: TcpStream, server: TcpStream, cut: &Arc<AtomicBool>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WIRE_POLL_EVERY)).unwrap();
    }
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    for (source, sink) in [(client, server), back] {
        let cut = Arc::clone(cut);
        thread::spawn(move || pump(source, sink, &cut));
    }
}

fn pump(mut source: TcpStream, mut sink: TcpStream, cut: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                while cut.load(Ordering::SeqCst) {
                    thread::sleep(WIRE_POLL_EVERY);
                }
                if sink.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = source.shutdown(Shutdown::Both);
    let _ = sink.shutdown(Shutdown::Both);
}
