//! A snapshot on a connection of its own: announced, sent in chunks at the receiver's pace, confirmed.
//!
//! Whoever receives it gathers it in a file: a peer that holds many of them open, or all peers at once, take no memory.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use raft::eraftpb::{Message, MessageType};
use tokio::io::{AsyncRead, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::Shared;
use super::frame::{CHUNK_BYTES, Kind, Purpose, put_frame, take_frame};
use super::handshake::dial;
use super::inbox::InboxPlace;
use super::roll::Standing;
use super::transport::Channel;
use crate::core::check_shape;
use crate::disk::arriving::ArrivingSnapshot;
use crate::io::{Input, PeerMessage};
use crate::member::ReplicaId;
use crate::replicated::ReplicatedState;

/// Most bytes of a snapshot: a million groups take a tenth of it.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;
/// How long a snapshot may take to arrive: the largest one at 2 MB a second.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(10 * 60);
/// A receiver or sender that does nothing for this long is gone.
const CHUNK_WITHIN: Duration = Duration::from_secs(10);

fn stalled<E>(_: E) -> io::Error {
    io::ErrorKind::TimedOut.into()
}

pub(super) async fn send(
    shared: &Shared,
    to: ReplicaId,
    announcement: &PeerMessage,
    bytes: &[u8],
) -> io::Result<()> {
    let (channel, greeting) = dial(shared, to, Purpose::Snapshot).await?;
    let Channel { mut reader, mut writer, .. } = channel;
    if !shared.is_the_same(to, greeting.incarnation).await {
        return Err(io::Error::other("it is not the replica that was met before"));
    }
    let mut out = Vec::new();
    put_frame(Kind::Announcement, &mut out, |out| announcement.put(out));
    for chunk in bytes.chunks(CHUNK_BYTES) {
        put_frame(Kind::Chunk, &mut out, |out| out.extend(chunk));
        timeout(CHUNK_WITHIN, writer.write_all(&out)).await.map_err(stalled)??;
        out.clear();
    }
    put_frame(Kind::End, &mut out, |out| out.extend(crc32fast::hash(bytes).to_le_bytes()));
    timeout(CHUNK_WITHIN, writer.write_all(&out)).await.map_err(stalled)??;
    timeout(CHUNK_WITHIN, writer.flush()).await.map_err(stalled)??;
    // The receiver reads and checks the whole before it confirms.
    let mut buffer = Vec::new();
    let confirmed = timeout(CHUNK_WITHIN * 6, take_frame(&mut reader, &mut buffer)).await;
    match confirmed.map_err(stalled)?? {
        Kind::End => Ok(()),
        Kind::Message | Kind::Ping | Kind::Pong | Kind::Announcement | Kind::Chunk => {
            Err(io::Error::other("the receiver did not confirm"))
        }
    }
}

/// Takes the snapshot that a peer sends on this connection: into a file first, and into the memory when it is whole and
/// no other one is there.
pub(super) async fn receive(shared: &Shared, from: ReplicaId, channel: Channel) -> io::Result<()> {
    let _place = Place::take(shared, from)?;
    let Channel { reader, mut writer, .. } = channel;
    let gathering = gather(shared, from, BufReader::new(reader));
    let (message, arrived, sum) = timeout(SNAPSHOT_WITHIN, gathering).await.map_err(stalled)??;
    let reading = Arc::clone(&shared.reading).acquire_owned().await.map_err(io::Error::other)?;
    let read = tokio::task::spawn_blocking(move || -> io::Result<_> {
        let bytes: Arc<[u8]> = arrived.read()?.into();
        drop(arrived);
        if crc32fast::hash(&bytes) != sum {
            return Err(io::Error::other("the snapshot is damaged"));
        }
        let replicated = ReplicatedState::decode(&bytes).map_err(io::Error::other)?;
        Ok((bytes, Box::new(replicated)))
    });
    let (bytes, replicated) = read.await.map_err(io::Error::other)??;
    // It took its time, in which the sender may have been removed.
    if shared.standing(from) == Standing::Stranger {
        return Err(io::Error::other("it is no member any more"));
    }
    let input = Input::Snapshot { from, message, bytes, replicated };
    if !(shared.deliver)(input, Some(InboxPlace::new(reading))) {
        return Err(io::Error::other("too much waits here already"));
    }
    let mut out = Vec::new();
    put_frame(Kind::End, &mut out, |_| {});
    writer.write_all(&out).await?;
    writer.flush().await
}

/// The place of the one snapshot that a peer may send at a time.
struct Place<'a>(&'a Shared, ReplicaId);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared, from: ReplicaId) -> io::Result<Self> {
        let mut receiving = shared.receiving.lock().unwrap_or_else(PoisonError::into_inner);
        if receiving.insert(from) {
            Ok(Self(shared, from))
        } else {
            Err(io::Error::other("a snapshot of it arrives here already"))
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.receiving.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Gathers a snapshot in a file: what announced it, the file, and the checksum that it must have.
async fn gather(
    shared: &Shared,
    from: ReplicaId,
    mut reader: impl AsyncRead + Unpin,
) -> io::Result<(Box<Message>, ArrivingSnapshot, u32)> {
    let mut buffer = Vec::new();
    let kind = timeout(CHUNK_WITHIN, take_frame(&mut reader, &mut buffer)).await;
    if kind.map_err(stalled)?? != Kind::Announcement {
        return Err(io::Error::other("nothing was announced"));
    }
    let message = announcement(&buffer)?;
    // What cannot be is not gathered first.
    let own = shared.identity.id.get();
    check_shape(own, from.get(), &message).map_err(io::Error::other)?;
    let arrivals = shared.arrivals.clone();
    let mut arriving = on_disk(move || arrivals.begin(from)).await?;
    loop {
        let kind = timeout(CHUNK_WITHIN, take_frame(&mut reader, &mut buffer)).await;
        match kind.map_err(stalled)?? {
            Kind::Chunk => {
                if arriving.bytes() + buffer.len() as u64 > SNAPSHOT_BYTES_MAX {
                    return Err(io::Error::other("the snapshot is larger than a snapshot can be"));
                }
                (arriving, buffer) = on_disk(move || {
                    arriving.append(&buffer)?;
                    Ok((arriving, buffer))
                })
                .await?;
            }
            Kind::End => break,
            Kind::Announcement | Kind::Message | Kind::Ping | Kind::Pong => {
                return Err(io::Error::other("this does not belong to a snapshot"));
            }
        }
    }
    let sum = <[u8; 4]>::try_from(buffer.as_slice());
    let sum = sum.map_err(|_| io::Error::other("the snapshot has no checksum"))?;
    Ok((message, arriving, u32::from_le_bytes(sum)))
}

/// Does something with the disk, which may take its time.
async fn on_disk<T: Send + 'static>(
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(act).await.map_err(io::Error::other)?
}

fn announcement(bytes: &[u8]) -> io::Result<Box<raft::eraftpb::Message>> {
    match PeerMessage::decode(bytes).map_err(io::Error::other)? {
        PeerMessage::Raft(message) if message.msg_type == MessageType::MsgSnapshot => Ok(message),
        PeerMessage::Raft(_)
        | PeerMessage::Propose { .. }
        | PeerMessage::Declined { .. }
        | PeerMessage::Heartbeat { .. }
        | PeerMessage::Look { .. }
        | PeerMessage::Seen { .. }
        | PeerMessage::HeartbeatAnswer { .. }
        | PeerMessage::Removed { .. } => Err(io::Error::other("another message was announced")),
    }
}
