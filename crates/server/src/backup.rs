//! `GET /v1/cluster/backup`: one at a time, from a file, piece by piece.
//!
//! A backup is as large as the state, so it is never held in memory for a reader: whoever keeps the cluster writes it
//! into a file without a name, which is read as fast as the client takes it. The place of the one backup is held until
//! its last byte is taken; a reader that is too slow is left, so that it cannot keep others from backups.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use regent_api::{Code, Problem};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::{Ask, Call};
use crate::cluster::cluster;
use crate::count::Entered;
use crate::reply::{self, Reply};

/// How long making a backup may take: writing and reading a snapshot of a million groups takes seconds.
const MADE_WITHIN: Duration = Duration::from_secs(300);
/// How long sending it may take, beside a second for every [`BYTES_PER_SECOND_MIN`] of it.
const SENT_WITHIN: Duration = Duration::from_secs(300);
/// The slowest reader that is waited for.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Bytes of one piece, and pieces that wait for the connection: all that is in memory of a backup.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 2;
/// When to come back while another backup is under way.
const RETRY_MS: u64 = 5000;

/// A backup that is ready to be sent.
#[derive(Debug)]
pub struct BackupFile {
    /// Its bytes, from where the file stands to its end.
    pub file: File,
    /// How many they are.
    pub bytes: u64,
}

/// The backup as it is read, and how many bytes of it are still to come.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) queue: mpsc::Receiver<io::Result<Bytes>>,
    bytes_left: u64,
}

pub(crate) async fn answer(call: Call) -> Reply {
    let pieces = act(&call).await?;
    Ok(reply::dressed("application/octet-stream", reply::streamed(pieces)))
}

pub(crate) async fn act(ask: &Ask) -> Result<Pieces, Problem> {
    let cluster = cluster(ask)?;
    let place = ask.app.backups.enter(1).ok_or_else(|| {
        let why =
            format!("another backup is being taken; nothing happened, try again in {RETRY_MS} ms");
        Problem::new(Code::RateLimited, why).retry_after(RETRY_MS)
    })?;
    let BackupFile { file, bytes } = match timeout(MADE_WITHIN, cluster.backup()).await {
        Ok(made) => made?,
        Err(_) => {
            let why = format!("no backup was made within {} s", MADE_WITHIN.as_secs());
            return Err(Problem::new(Code::StoreUnavailable, why).retry_after(1000));
        }
    };
    tracing::info!(bytes, "a backup was taken");
    let (pieces, queue) = mpsc::channel(PIECES_MAX);
    tokio::spawn(send(file, bytes, pieces, place));
    Ok(Pieces { queue, bytes_left: bytes })
}

/// Reads the file as fast as its reader takes it; gives the place back when it ends.
async fn send(
    mut file: File,
    bytes: u64,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    _place: Entered,
) {
    let seconds = bytes / BYTES_PER_SECOND_MIN;
    let due = Instant::now() + SENT_WITHIN + Duration::from_secs(seconds);
    let mut bytes_left = bytes;
    while bytes_left > 0 {
        let length = PIECE_BYTES.min(usize::try_from(bytes_left).unwrap_or(usize::MAX));
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; length];
            let read = file.read_exact(&mut piece);
            (file, read.map(|()| Bytes::from(piece)))
        });
        let Ok((same, piece)) = read.await else { return };
        file = same;
        let is_broken = piece.is_err();
        match timeout_at(due, pieces.send(piece)).await {
            Ok(Ok(())) if !is_broken => bytes_left -= length as u64,
            Ok(Ok(()) | Err(_)) => return,
            Err(_) => {
                tracing::warn!(bytes_left, "a backup was not read in time and is broken off");
                return;
            }
        }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.queue.poll_recv(cx).map(|piece| match piece {
            Some(Ok(piece)) => {
                self.bytes_left = self.bytes_left.saturating_sub(piece.len() as u64);
                Some(Ok(Frame::data(piece)))
            }
            Some(Err(error)) => Some(Err(error)),
            // The reader must not take a part for the whole.
            None if self.bytes_left > 0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
