//! A small web service of one's own that no deposed leader can write to: `FenceLayer` before an axum handler.
//!
//! ```text
//! cargo run -p regent --features fence-http --example fenced_service -- 127.0.0.1:8080 notes
//! regent fence test http://127.0.0.1:8080/notes --one-mark --trials 1000
//! ```
//! With `unfenced` as a third word the same service compares nothing, and the same trials find stale writes.
//!
//! Two things are easily forgotten, and are marked below. The whole body is read *before* the fence: a leader
//! that sends half of it and falls asleep would otherwise keep its successor waiting. And what goes on when
//! its client has left keeps the [`Admitted`] of its request: as long as that lives, no higher term enters.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path as Named, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, put};
use axum::{Extension, Router};
use regent::Term;
use regent::fencing::http::{Admitted, DoorRules, FenceLayer, KeepMark};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

/// The largest note.
const NOTE_BYTES_MAX: usize = 1 << 20;
/// How long a higher term waits for handlers of a lower one, how long for those whose end nobody saw, and
/// how many may wait.
const RULES: DoorRules = DoorRules {
    drain_for: Duration::from_secs(10),
    settle_for: Duration::from_secs(1),
    waiting_max: 1024,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address: SocketAddr = words.next().unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?;
    let place = PathBuf::from(words.next().unwrap_or_else(|| "notes".into()));
    let is_fenced = words.next().as_deref() != Some("unfenced");
    let listener = TcpListener::bind(address).await?;
    println!("notes are at http://{}/notes/NAME", listener.local_addr()?);
    axum::serve(listener, service(&place, is_fenced)?).await?;
    Ok(())
}

/// Notes in a folder, behind a fence or, to see what it is good for, without.
pub fn service(place: &Path, is_fenced: bool) -> io::Result<Router> {
    fs::create_dir_all(place)?;
    let place: Arc<Path> = place.into();
    let mut writes = put(write);
    if is_fenced {
        let fence = FenceLayer::new(Mark::at(&place)?, RULES);
        // The layer that is added last is the first to see a request: gather, compare, write.
        writes = writes.layer(fence).layer(from_fn(gather));
    }
    let notes = writes.merge(get(read));
    Ok(Router::new().route("/notes/{name}", notes).with_state(place))
}

/// Reads the whole body before anybody compares terms.
async fn gather(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match to_bytes(body, NOTE_BYTES_MAX).await {
        Ok(whole) => next.run(Request::from_parts(head, Body::from(whole))).await,
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
    }
}

async fn write(
    State(place): State<Arc<Path>>,
    Named(name): Named<String>,
    admitted: Option<Extension<Admitted>>,
    note: Bytes,
) -> Response {
    if !is_name(&name) {
        return (StatusCode::BAD_REQUEST, "a note's name has letters, digits and dashes")
            .into_response();
    }
    let written = spawn_blocking(move || {
        // Kept until the note stands: a client that leaves drops the handler, and not this.
        let _admitted = admitted;
        replace(&place.join(format!("{name}.note")), &note)
    });
    match written.await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn read(State(place): State<Arc<Path>>, Named(name): Named<String>) -> Response {
    if !is_name(&name) {
        return StatusCode::NOT_FOUND.into_response();
    }
    match fs::read(place.join(format!("{name}.note"))) {
        Ok(note) => note.into_response(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            StatusCode::NOT_FOUND.into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn is_name(name: &str) -> bool {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    !name.is_empty() && name.len() <= 200 && name.chars().all(is_fine)
}

/// The highest term that ever wrote, in a file beside the notes.
struct Mark {
    file: PathBuf,
    highest: Arc<Mutex<Term>>,
}

impl Mark {
    fn at(place: &Path) -> io::Result<Self> {
        let file = place.join("mark");
        let highest = match fs::read_to_string(&file) {
            // A mark that cannot be read admits nobody: the service does not start.
            Ok(text) => {
                let number = text.trim().parse().map_err(io::Error::other)?;
                Term::new(number).ok_or_else(|| io::Error::other("the mark is no term"))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Term::NONE,
            Err(error) => return Err(error),
        };
        Ok(Self { file, highest: Arc::new(Mutex::new(highest)) })
    }
}

impl KeepMark for Mark {
    type Error = io::Error;

    async fn raise(&self, term: Term) -> io::Result<Term> {
        let (file, highest) = (self.file.clone(), Arc::clone(&self.highest));
        let raised = spawn_blocking(move || {
            let mut highest = highest.lock().unwrap_or_else(PoisonError::into_inner);
            if term > *highest {
                replace(&file, term.get().to_string().as_bytes())?;
                *highest = term;
            }
            Ok(*highest)
        });
        raised.await.map_err(io::Error::other)?
    }
}

/// All of it or nothing, and no crash takes it back: written beside, synced, renamed.
fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    // Two writes of one leader may come at once: each has a file of its own.
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let beside = file.with_extension(format!("new-{number}"));
    let mut open = File::create(&beside)?;
    open.write_all(content)?;
    open.sync_all()?;
    fs::rename(&beside, file)?;
    File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
}
