//! `--status-listen`: a page for programs that ask a sidecar.
//!
//! `GET /` tells the view as JSON. `GET /leading` answers 200 while this process leads and 503
//! otherwise, for load balancers that look at nothing else. One request per connection, of bounded
//! size and time; beyond a few at once, connections wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::view::Shared;

/// More at once than any sidecar is asked, and few enough to hold no memory worth a word.
const CONNECTIONS_MAX: usize = 32;
/// A request line and the usual headers.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// How long one may take to ask and to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers for ever.
pub(crate) async fn serve(listener: TcpListener, view: Shared) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let view = view.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(PATIENCE, answer(stream, &view)).await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely; the lease matters more than this page.
            Err(error) => {
                tracing::warn!(%error, "status endpoint: accept failed, retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, view: &Shared) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = stream.read(&mut part).await?;
        if count == 0 || request.len() + count > REQUEST_BYTES_MAX {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    stream.write_all(page(line, view).as_bytes()).await?;
    stream.shutdown().await
}

fn page(line: &[u8], view: &Shared) -> String {
    let now = regent_clock::now();
    let view = view.get();
    let mut words = line.split(|byte| *byte == b' ');
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_read = verb == b"GET" || verb == b"HEAD";
    let (status, body) = match path.split(|byte| *byte == b'?').next().unwrap_or_default() {
        _ if !is_read => ("405 Method Not Allowed", "{\"error\":\"only GET\"}".to_owned()),
        b"/" => ("200 OK", view.json(now)),
        b"/leading" if view.remaining(now).is_zero() => ("503 Service Unavailable", view.json(now)),
        b"/leading" => ("200 OK", view.json(now)),
        _ => ("404 Not Found", "{\"error\":\"there is / and /leading\"}".to_owned()),
    };
    let length = body.len() + 1;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n"
    );
    if verb == b"HEAD" { head } else { format!("{head}{body}\n") }
}
