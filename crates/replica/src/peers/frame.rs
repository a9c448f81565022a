//! Frames on a connection between two replicas.
//!
//! ```text
//! greeting   "RGNTPEER", version u8, purpose u8, cluster u128 LE, from u64 LE, to u64 LE,
//!            incarnation u64 LE, crc32 u32 LE: once in each direction, before anything else
//! frame      length u32 LE of what follows up to the checksum, kind u8, payload, crc32 u32 LE
//! ```
//! A greeting that does not fit ends the connection: replicas of two clusters, or two lives of one
//! disk, never speak to each other. Lengths are bounded before anything is allocated.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::member::ReplicaId;

const MAGIC: &[u8; 8] = b"RGNTPEER";
/// 2: a heartbeat names the tenure that it must prove. 3: what is declined says why.
/// 4: also for the share of a principal.
const VERSION: u8 = 4;
const GREETING_BYTES: usize = 8 + 1 + 1 + 16 + 8 + 8 + 8 + 4;

/// Most bytes in one frame: a full message of entries and some more.
pub(super) const FRAME_BYTES_MAX: usize = 8 << 20;
/// Bytes of a snapshot in one frame.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Messages, both ways.
    Messages,
    /// One snapshot, one way.
    Snapshot,
}

/// Who speaks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) purpose: Purpose,
    pub(super) cluster: u128,
    pub(super) from: ReplicaId,
    pub(super) to: ReplicaId,
    /// One life of the sender's disk.
    pub(super) incarnation: u64,
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Ping,
    Pong,
    /// The message that announces a snapshot.
    Announcement,
    Chunk,
    /// The snapshot is complete; also the receiver's word that it has it.
    End,
}

impl Kind {
    const ALL: [(u8, Self); 6] = [
        (1, Self::Message),
        (2, Self::Ping),
        (3, Self::Pong),
        (4, Self::Announcement),
        (5, Self::Chunk),
        (6, Self::End),
    ];

    fn tag(self) -> u8 {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or(0, |(tag, _)| *tag)
    }
}

fn broken(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl Greeting {
    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(GREETING_BYTES);
        out.extend(MAGIC);
        out.push(VERSION);
        out.push(match self.purpose {
            Purpose::Messages => 1,
            Purpose::Snapshot => 2,
        });
        out.extend(self.cluster.to_le_bytes());
        out.extend(self.from.get().to_le_bytes());
        out.extend(self.to.get().to_le_bytes());
        out.extend(self.incarnation.to_le_bytes());
        out.extend(crc32fast::hash(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; GREETING_BYTES]) -> io::Result<Self> {
        let (body, sum) = bytes.split_at(GREETING_BYTES - 4);
        if &body[..8] != MAGIC {
            return Err(broken("this is no replica of Regent"));
        }
        if sum != crc32fast::hash(body).to_le_bytes() {
            return Err(broken("the greeting is damaged"));
        }
        if body[8] != VERSION {
            return Err(broken(format!("the peer speaks version {}, not {VERSION}", body[8])));
        }
        let purpose = match body[9] {
            1 => Purpose::Messages,
            2 => Purpose::Snapshot,
            tag => return Err(broken(format!("the peer wants {tag}, whatever that is"))),
        };
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&body[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&body[10..26]);
        let replica = |at| ReplicaId::new(number(at)).ok_or_else(|| broken("nobody greets"));
        Ok(Self {
            purpose,
            cluster: u128::from_le_bytes(cluster),
            from: replica(26)?,
            to: replica(34)?,
            incarnation: number(42),
        })
    }

    pub(super) async fn send(self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        to.write_all(&self.encode()).await?;
        to.flush().await
    }

    pub(super) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; GREETING_BYTES];
        from.read_exact(&mut bytes).await?;
        Self::decode(&bytes)
    }
}

/// Appends a frame whose payload `fill` writes.
pub(super) fn put_frame(kind: Kind, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; 4]);
    out.push(kind.tag());
    fill(out);
    let length = u32::try_from(out.len() - at - 4).expect("frames are bounded far below 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    let sum = crc32fast::hash(&out[at + 4..]);
    out.extend(sum.to_le_bytes());
}

/// Reads one frame into `buffer` and returns its kind; the payload is what `buffer` then holds.
pub(super) async fn take_frame(
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> io::Result<Kind> {
    let length = from.read_u32_le().await? as usize;
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(broken(format!("a frame of {length} bytes; at most {FRAME_BYTES_MAX}")));
    }
    buffer.clear();
    buffer.resize(length, 0);
    from.read_exact(buffer).await?;
    let sum = from.read_u32_le().await?;
    if sum != crc32fast::hash(buffer) {
        return Err(broken("a frame is damaged"));
    }
    let tag = buffer.remove(0);
    let kind = Kind::ALL.iter().find(|(known, _)| *known == tag).map(|(_, kind)| *kind);
    kind.ok_or_else(|| broken(format!("a frame of kind {tag}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            purpose: Purpose::Messages,
            cluster: 0x1234_5678_9abc,
            from: ReplicaId::new(1).unwrap(),
            to: ReplicaId::new(2).unwrap(),
            incarnation: 77,
        }
    }

    #[test]
    fn a_greeting_survives_and_any_flipped_bit_ends_it() {
        let bytes: [u8; GREETING_BYTES] = greeting().encode().try_into().unwrap();
        assert_eq!(Greeting::decode(&bytes).unwrap(), greeting());
        for at in 0..GREETING_BYTES * 8 {
            let mut flipped = bytes;
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(Greeting::decode(&flipped).is_err(), "bit {at}");
        }
    }

    #[tokio::test]
    async fn frames_survive_and_damage_is_noticed() {
        let mut out = Vec::new();
        put_frame(Kind::Message, &mut out, |out| out.extend(b"hello"));
        put_frame(Kind::Ping, &mut out, |_| {});
        let mut buffer = Vec::new();
        let mut input = out.as_slice();
        assert_eq!(take_frame(&mut input, &mut buffer).await.unwrap(), Kind::Message);
        assert_eq!(buffer, b"hello");
        assert_eq!(take_frame(&mut input, &mut buffer).await.unwrap(), Kind::Ping);
        assert!(take_frame(&mut input, &mut buffer).await.is_err(), "the end is no frame");
        for at in 0..14 * 8 {
            let mut flipped = out.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            let mut input = flipped.as_slice();
            assert!(take_frame(&mut input, &mut buffer).await.is_err(), "bit {at}");
        }
    }

    #[tokio::test]
    async fn an_absurd_length_is_refused_before_it_allocates() {
        let bytes = u32::MAX.to_le_bytes();
        let mut buffer = Vec::new();
        assert!(take_frame(&mut bytes.as_slice(), &mut buffer).await.is_err());
        assert_eq!(buffer.capacity(), 0);
    }
}
