//! A snapshot on a connection of its own: announced, sent in chunks at the receiver's pace, confirmed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::MessageType;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::Shared;
use super::frame::{CHUNK_BYTES, Kind, Purpose, put_frame, take_frame};
use super::handshake::dial;
use super::roll::Standing;
use super::transport::Channel;
use crate::core::check_shape;
use crate::io::{Input, PeerMessage};
use crate::member::ReplicaId;
use crate::replicated::ReplicatedState;

/// Most bytes of a snapshot: a million groups take a tenth of it.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
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

pub(super) async fn receive(shared: &Shared, from: ReplicaId, channel: Channel) -> io::Result<()> {
    let Channel { reader, mut writer, .. } = channel;
    let mut reader = BufReader::new(reader);
    let mut buffer = Vec::new();
    let mut bytes = Vec::new();
    let mut announced = None;
    loop {
        let kind = timeout(CHUNK_WITHIN, take_frame(&mut reader, &mut buffer)).await;
        match kind.map_err(stalled)?? {
            Kind::Announcement if announced.is_none() => {
                let message = announcement(&buffer)?;
                // What cannot be is not gathered first.
                let own = shared.identity.id.get();
                check_shape(own, from.get(), &message).map_err(io::Error::other)?;
                announced = Some(message);
            }
            Kind::Chunk if announced.is_some() => {
                if bytes.len() + buffer.len() > SNAPSHOT_BYTES_MAX {
                    return Err(io::Error::other("the snapshot is larger than a snapshot can be"));
                }
                bytes.extend_from_slice(&buffer);
            }
            Kind::End => break,
            Kind::Announcement | Kind::Chunk | Kind::Message | Kind::Ping | Kind::Pong => {
                return Err(io::Error::other("this does not belong to a snapshot"));
            }
        }
    }
    let message = announced.ok_or_else(|| io::Error::other("nothing was announced"))?;
    if buffer != crc32fast::hash(&bytes).to_le_bytes() {
        return Err(io::Error::other("the snapshot is damaged"));
    }
    let bytes: Arc<[u8]> = bytes.into();
    let reading = Arc::clone(&bytes);
    let replicated = tokio::task::spawn_blocking(move || ReplicatedState::decode(&reading))
        .await
        .map_err(io::Error::other)?
        .map_err(io::Error::other)?;
    // It took its time, in which the sender may have been removed.
    if shared.standing(from) == Standing::Stranger {
        return Err(io::Error::other("it is no member any more"));
    }
    if !(shared.deliver)(Input::Snapshot { from, message, bytes, replicated: Box::new(replicated) })
    {
        return Err(io::Error::other("too much waits here already"));
    }
    let mut out = Vec::new();
    put_frame(Kind::End, &mut out, |_| {});
    writer.write_all(&out).await?;
    writer.flush().await
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
        | PeerMessage::HeartbeatAnswer { .. } => {
            Err(io::Error::other("another message was announced"))
        }
    }
}
