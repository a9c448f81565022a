//! What the gateway costs: the same writes to the same storage, past it and through it, in turns.
//!
//! The storage is part of this process and does next to nothing, so that what is measured is the way there.
//! Turns alternate: on a shared machine one minute is not like the next.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use regent::remote::Address;
use regent_clock::now;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::at_share;
use crate::error::LoadError;
use crate::usage::Processes;
use crate::wire::Wire;

/// Turns of each kind.
const TURNS: usize = 5;
/// Bytes of one write.
const BODY: &str = "a row of a table, as an application would write it: forty-two, paid, delivered";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The smallest, the middle and the largest of several turns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub smallest: f64,
    pub median: f64,
    pub largest: f64,
}

/// One way to the storage.
#[derive(Debug, Serialize)]
pub struct Way {
    pub through: &'static str,
    pub per_second: Spread,
    pub p50_us: Spread,
    pub p99_us: Spread,
}

/// Both ways with this many clients.
#[derive(Debug, Serialize)]
pub struct GatewayCost {
    pub clients: usize,
    pub ways: Vec<Way>,
    /// Writes per second through the gateway for one past it; medians.
    pub ratio: f64,
    /// CPU of the gateway's process for one write.
    pub cpu_us: f64,
}

pub(crate) fn spread(mut numbers: Vec<f64>) -> Spread {
    numbers.sort_by(f64::total_cmp);
    let at = |index: usize| numbers.get(index).copied().unwrap_or_default();
    Spread { smallest: at(0), median: at(numbers.len() / 2), largest: at(numbers.len().max(1) - 1) }
}

/// One turn: how many were answered in a second, and how long they took.
struct Turn {
    answered: u64,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The gateway's process; ended when this is dropped.
struct Gateway {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Gateway {
    fn start(program: &Path, upstream: SocketAddr) -> Result<Self, LoadError> {
        let unavailable = |source| LoadError::io("the gateway", source);
        let folder = tempfile::tempdir().map_err(unavailable)?;
        let mut child = Command::new(program)
            .args(["fence", "gateway", "--group", "bench", "--listen", "127.0.0.1:0"])
            .args(["--upstream", &format!("http://{upstream}"), "--data"])
            .arg(folder.path())
            .env("REGENT_LOG_LEVEL", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(unavailable)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        match line.trim().split_once("listens on ") {
            Some((_, url)) => Ok(Self { url: url.to_owned(), child, _folder: folder }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(LoadError::Unavailable("the gateway did not start".to_owned()))
            }
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures both ways with each number of clients.
pub(crate) async fn measure(
    program: &Path,
    clients: &[usize],
    seconds: u64,
) -> Result<Vec<GatewayCost>, LoadError> {
    let upstream = storage()?;
    let gateway = Gateway::start(program, upstream)?;
    let processes = Processes::of(vec![gateway.child.id()]);
    let past = format!("http://{upstream}");
    let mut costs = Vec::new();
    for &count in clients {
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        let mut cpu_us = 0;
        // The first turn of each warms up what is to be warm.
        for turn in 0..=TURNS {
            let one = run(&past, count, seconds).await?;
            let before = processes.cpu_us()?;
            let other = run(&gateway.url, count, seconds).await?;
            if turn > 0 {
                cpu_us += processes.cpu_us()? - before;
                direct.push(one);
                through.push(other);
            }
        }
        let answered: u64 = through.iter().map(|turn| turn.answered).sum();
        let ways = vec![way("nothing", &direct), way("gateway", &through)];
        let ratio = ways[1].per_second.median / ways[0].per_second.median;
        costs.push(GatewayCost {
            clients: count,
            ratio,
            cpu_us: cpu_us as f64 / answered.max(1) as f64,
            ways,
        });
    }
    Ok(costs)
}

fn way(through: &'static str, turns: &[Turn]) -> Way {
    let of = |number: fn(&Turn) -> f64| spread(turns.iter().map(number).collect());
    Way {
        through,
        per_second: of(|turn| turn.per_second),
        p50_us: of(|turn| turn.p50_us),
        p99_us: of(|turn| turn.p99_us),
    }
}

async fn run(url: &str, clients: usize, seconds: u64) -> Result<Turn, LoadError> {
    let address: Address = url.parse()?;
    let request = format!(
        "PUT /row HTTP/1.1\r\nhost: bench\r\nregent-term: 1\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let lost = |source| LoadError::io("a write failed", source);
    let began_at = now();
    let until = began_at + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (address, request) = (address.clone(), request.clone().into_bytes());
        tasks.spawn(async move {
            let mut wire = Wire::connect(&address).await?;
            let mut took_us = Vec::new();
            loop {
                let sent_at = now();
                if sent_at >= until {
                    return Ok(took_us);
                }
                if wire.ask(&request).await?.is_none() {
                    return Err(std::io::Error::other("it was refused"));
                }
                took_us.push(u64::try_from(now().since(sent_at).as_micros()).unwrap_or(u64::MAX));
            }
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.extend(ended?.map_err(lost)?);
    }
    let elapsed = now().since(began_at).as_secs_f64();
    all.sort_unstable();
    Ok(Turn {
        answered: all.len() as u64,
        per_second: all.len() as f64 / elapsed,
        p50_us: at_share(&all, 0.5) as f64,
        p99_us: at_share(&all, 0.99) as f64,
    })
}

/// A storage on a thread of its own that takes every write and does nothing.
fn storage() -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::io("a storage to write to", source);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = serve(stream).await;
                });
            }
        });
    });
    Ok(address)
}

/// Answers every request, whose bodies all have the one length.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(4096);
    loop {
        let whole = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
                && bytes.len() >= at + 4 + BODY.len()
            {
                break at + 4 + BODY.len();
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        bytes.drain(..whole);
        stream.write_all(ANSWER).await?;
    }
}
