//! `GET /v1/cluster/backup`: one at a time, from a file, piece by piece.
//!
//! A backup is as large as the state, so it is never held in memory for a reader: whoever keeps the cluster writes it
//! into a file without a name, which is read as fast as the client takes it. A reader that is too slow is left, so that it
//! cannot keep others from backups.
//!
//! **The place of the one backup belongs to the work, not to the request.** Reading and encoding a state go on when the
//! client that asked for them has gone, so making and sending are one task, and the place is free when that task ends.
//! Otherwise a client that asks and hangs up, again and again, has as many whole states in memory as it likes.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use regent_api::{Code, Operation, Problem};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::{Ask, Call};
use crate::audit::Pending;
use crate::cluster::cluster;
use crate::count::Count;
use crate::reply::{self, Reply};

/// How long a client waits for its backup to be made: a snapshot of a million groups takes seconds. One that takes
/// longer keeps its place until it is made.
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
    queue: mpsc::Receiver<io::Result<Bytes>>,
    bytes_left: u64,
}

pub(crate) async fn answer(call: Call) -> Reply {
    let pieces = act(&call).await?;
    Ok(reply::dressed("application/octet-stream", reply::streamed(pieces)))
}

pub(crate) async fn act(ask: &Ask) -> Result<Pieces, Problem> {
    let cluster = Arc::clone(cluster(ask)?);
    // It changes nothing, but hands out everything: that is worth a line.
    let pending = Pending::beside_store(ask, Operation::Backup, "");
    let begun = begin(&ask.app.backups, async move { cluster.backup().await }).await;
    pending.settle(&begun);
    begun
}

/// Makes a backup if no other is under way, and begins to send it.
async fn begin(
    backups: &Arc<Count>,
    make: impl Future<Output = Result<BackupFile, Problem>> + Send + 'static,
) -> Result<Pieces, Problem> {
    let place = backups.enter(1).ok_or_else(|| {
        let why =
            format!("another backup is being taken; nothing happened, try again in {RETRY_MS} ms");
        Problem::new(Code::RateLimited, why).retry_after(RETRY_MS)
    })?;
    let (tell, made) = oneshot::channel();
    tokio::spawn(async move {
        let _place = place;
        let (pieces, queue) = mpsc::channel(PIECES_MAX);
        match make.await {
            Ok(BackupFile { file, bytes }) => {
                tracing::info!(bytes, "a backup was taken");
                // A client that has gone gets nothing, and its file goes with this task.
                if tell.send(Ok(Pieces { queue, bytes_left: bytes })).is_ok() {
                    send(file, bytes, pieces).await;
                }
            }
            Err(problem) => {
                let _ = tell.send(Err(problem));
            }
        }
    });
    match timeout(MADE_WITHIN, made).await {
        Ok(Ok(pieces)) => pieces,
        Ok(Err(_)) => Err(Problem::new(Code::Internal, "the backup broke off")),
        Err(_) => {
            let why = format!("no backup was made within {} s", MADE_WITHIN.as_secs());
            Err(Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS))
        }
    }
}

/// Reads the file as fast as its reader takes it.
async fn send(mut file: File, bytes: u64, pieces: mpsc::Sender<io::Result<Bytes>>) {
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

impl Pieces {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.queue.poll_recv(cx).map(|piece| match piece {
            Some(Ok(piece)) => {
                self.bytes_left = self.bytes_left.saturating_sub(piece.len() as u64);
                Some(Ok(piece))
            }
            Some(Err(error)) => Some(Err(error)),
            // The reader must not take a part for the whole.
            None if self.bytes_left > 0 => {
                let why = format!("the backup broke off {} bytes before its end", self.bytes_left);
                Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)))
            }
            None => None,
        })
    }
}

/// For gRPC, which has no length that tells its client of a part.
#[cfg(feature = "grpc")]
impl tokio_stream::Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_piece(cx)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;

    use super::*;

    /// A backup of this many bytes.
    fn made(bytes: usize) -> BackupFile {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.rewind().unwrap();
        BackupFile { file, bytes: bytes as u64 }
    }

    /// A client that asks for a backup and hangs up, again and again, has one in the making and no more.
    #[tokio::test]
    async fn a_backup_whose_client_has_gone_keeps_its_place_until_it_is_made() {
        let backups = Arc::<Count>::default();
        let (begun, may_end) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
        for _ in 0..5 {
            let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
            let make = async move {
                // The work of another thread: it ends when it ends.
                let work = tokio::spawn(async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    may_end.notified().await;
                    made(10)
                });
                Ok(work.await.unwrap())
            };
            let request = begin(&backups, make);
            tokio::select! {
                biased;
                answer = request => assert_eq!(answer.unwrap_err().code, Code::RateLimited),
                () = async { for _ in 0..10 { tokio::task::yield_now().await } } => {}
            }
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1, "others began before the first had ended");
        assert_eq!(backups.now(), 1);
        may_end.notify_one();
        backups.emptied().await;
        let pieces = begin(&backups, async { Ok(made(600_000)) }).await.unwrap();
        assert_eq!(pieces.collect().await.unwrap().to_bytes().len(), 600_000);
        backups.emptied().await;
    }

    #[cfg(feature = "grpc")]
    #[tokio::test]
    async fn a_backup_that_breaks_off_ends_with_an_error_whichever_face_sends_it() {
        use tokio_stream::StreamExt;

        let broken = || {
            let (sender, queue) = mpsc::channel(PIECES_MAX);
            sender.try_send(Ok(Bytes::from_static(b"part"))).unwrap();
            Pieces { queue, bytes_left: 10 }
        };
        let told: Vec<_> = broken().take(2).collect().await;
        assert_eq!(told[0].as_ref().unwrap().as_ref(), b"part");
        assert!(told[1].as_ref().unwrap_err().to_string().contains("6 bytes before its end"));
        assert!(BodyExt::collect(broken()).await.is_err());
    }
}
