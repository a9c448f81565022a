//! A relay between clients and a server, whose connections can be cut and healed.
//!
//! It hands bytes on in both directions. When it is cut, every connection ends at once, with whatever was on
//! its way: a request that was taken and whose answer never comes, and one that the server never saw. Until
//! it is healed, new connections end as soon as they are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Relays in front of all servers of a URL.
pub(crate) struct Relay {
    /// The URL that leads through it.
    pub(crate) url: String,
    is_cut: Arc<AtomicBool>,
    cuts: watch::Sender<u64>,
    listening: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Puts a relay in front of every `127.0.0.1:port` that a URL names.
    pub(crate) async fn before(url: &str) -> Self {
        let (is_cut, cuts) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
        let mut relay = Self { url: String::new(), is_cut, cuts, listening: Vec::new() };
        let mut parts = url.split("127.0.0.1:");
        relay.url = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
            let (port, rest) = part.split_at(digits);
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
            let own = listener.local_addr().expect("it has an address").port();
            relay.listen(listener, port.parse().expect("a URL names ports"));
            relay.url += &format!("127.0.0.1:{own}{rest}");
        }
        assert!(!relay.listening.is_empty(), "a URL of servers elsewhere");
        relay
    }

    fn listen(&mut self, listener: TcpListener, port: u16) {
        let (is_cut, cuts) = (Arc::clone(&self.is_cut), self.cuts.subscribe());
        self.listening.push(tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (is_cut, mut cuts) = (Arc::clone(&is_cut), cuts.clone());
                tokio::spawn(async move {
                    cuts.mark_unchanged();
                    if is_cut.load(Ordering::Acquire) {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        }));
    }

    /// Ends every connection, and all that are made until it is healed.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.cuts.send_modify(|count| *count += 1);
    }

    /// Lets connections be made again.
    pub(crate) fn heal(&self) {
        self.is_cut.store(false, Ordering::Release);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
        for task in &self.listening {
            task.abort();
        }
    }
}
