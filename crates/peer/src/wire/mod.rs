//! What peers send each other: one small datagram per message, the same head on each.
//!
//! | byte | what |
//! |---|---|
//! | 0..4 | `rgpr` |
//! | 4 | the version of this format: 1 |
//! | 5 | the algorithm: 1 bully, 2 ring, 3 chang-roberts |
//! | 6 | the sender's number: its place in the sorted list, from 0 |
//! | 7 | the kind of message; [`words`] lists those of each algorithm |
//! | 8..16 | the digest of names, addresses and paces |
//! | 16..20 | the sender's run |
//! | 20..28 | the sender's nonce |
//! | 28.. | what the message carries |
//!
//! Numbers are big-endian. There is one way to write a message, so whatever can be read is written again
//! as the very same bytes; anything else, to the last byte, is refused. Nothing is signed: whoever can send
//! from a peer's address is that peer.
//!
//! The road not taken is JSON, which a person could read: it would need bounds of its own for depth,
//! numbers and doubled keys, and `regent peer --log-level debug` shows every message in words.

pub(crate) mod words;

use std::net::SocketAddr;

use regent_protocols::{NodeId, Protocol};

use crate::Algorithm;
use crate::limits::{DATAGRAM_BYTES_MAX, HEAD_BYTES};

/// What every datagram of ours opens with.
const MARK: [u8; 4] = *b"rgpr";
/// The version of the format.
const VERSION: u8 = 1;

/// A process that has just come into being.
const HELLO: u8 = 0;
/// The answer to a process whose earlier life is known.
const KNOWN: u8 = 1;

/// One process under a name: which run of it, and which process if two count alike.
///
/// A process begins as run 1 and knows of no earlier one; whoever does says so, and it begins again above.
/// So tokens of an earlier run, which others remember by number, are never taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// Which run, as far as is known.
    pub(crate) run: u32,
    /// Random.
    pub(crate) nonce: u64,
}

/// What every datagram says beside its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) algorithm: Algorithm,
    pub(crate) sender: NodeId,
    pub(crate) digest: u64,
    pub(crate) life: Life,
}

/// What a datagram is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word<M> {
    /// I have come into being. Not part of any algorithm: it asks whether an earlier life is known.
    Hello,
    /// You have lived before, as this one.
    Known(Life),
    /// A message of the algorithm.
    Said(M),
}

/// A machine whose messages can be written and read.
///
/// It keeps nothing over a crash, and the compiler says so: there is no file in this room.
pub(crate) trait Spoken: Protocol<Kept = ()> {
    /// Which one it is.
    const ALGORITHM: Algorithm;

    /// Writes what a message carries and gives its kind; none if it carries more than fits.
    fn write(message: &Self::Message, body: &mut Vec<u8>) -> Option<u8>;

    /// Reads what a message of this kind carries; none if it is no such message.
    fn read(kind: u8, body: &mut Reader<'_>) -> Option<Self::Message>;
}

/// Why a datagram is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("it is longer than any of ours ({DATAGRAM_BYTES_MAX} bytes)")]
    TooLong,
    #[error("it cannot be read")]
    Unreadable,
    #[error(
        "it is of version {0} of the format, and this is version {VERSION}; run the same regent everywhere"
    )]
    OtherVersion(u8),
    #[error("its sender runs {}; give every process the same --algorithm", .0.name())]
    OtherAlgorithm(Algorithm),
    #[error(
        "its sender was given other --peers or other paces; give every process the same --peers, \
         --heartbeat, --patience and --answer"
    )]
    OtherList,
    #[error("it says that it is from a peer that has another address")]
    Stranger,
    #[error("it is from an earlier life of its sender")]
    Stale,
    #[error("too much is under way here already")]
    Busy,
}

impl Dropped {
    /// All kinds of reasons, in the order in which they are told.
    pub(crate) const REASONS: [&str; 8] = [
        "too long",
        "unreadable",
        "of another version",
        "of another algorithm",
        "of another list",
        "from strangers",
        "of an earlier life",
        "while too busy",
    ];

    /// Which of them this is.
    pub(crate) const fn reason(self) -> usize {
        match self {
            Self::TooLong => 0,
            Self::Unreadable => 1,
            Self::OtherVersion(_) => 2,
            Self::OtherAlgorithm(_) => 3,
            Self::OtherList => 4,
            Self::Stranger => 5,
            Self::Stale => 6,
            Self::Busy => 7,
        }
    }
}

/// A datagram and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// Writes a datagram; none if its message carries more than fits.
pub(crate) fn write<P: Spoken>(head: &Head, word: &Word<P::Message>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let kind = match word {
        Word::Hello => HELLO,
        Word::Known(life) => {
            write_life(*life, &mut body);
            KNOWN
        }
        Word::Said(message) => P::write(message, &mut body)?,
    };
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(MARK);
    bytes.extend([VERSION, head.algorithm.code(), u8::try_from(head.sender.0).ok()?, kind]);
    bytes.extend(head.digest.to_be_bytes());
    write_life(head.life, &mut bytes);
    bytes.extend(body);
    (bytes.len() <= DATAGRAM_BYTES_MAX).then_some(bytes)
}

/// Reads the head of a datagram; what follows is the kind and the body.
pub(crate) fn read_head(bytes: &[u8]) -> Result<(Head, u8, &[u8]), Dropped> {
    if bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(Dropped::TooLong);
    }
    let mut reader = Reader { bytes, nodes: u16::MAX };
    let mark = reader.take(MARK.len()).ok_or(Dropped::Unreadable)?;
    if mark != MARK {
        return Err(Dropped::Unreadable);
    }
    let version = reader.byte().ok_or(Dropped::Unreadable)?;
    if version != VERSION {
        return Err(Dropped::OtherVersion(version));
    }
    let (head, kind) = read_rest(&mut reader).ok_or(Dropped::Unreadable)?;
    Ok((head, kind, reader.bytes))
}

/// Reads what a datagram is for, among this many nodes.
pub(crate) fn read_word<P: Spoken>(
    kind: u8,
    body: &[u8],
    nodes: u16,
) -> Result<Word<P::Message>, Dropped> {
    let mut reader = Reader { bytes: body, nodes };
    let word = match kind {
        HELLO => Some(Word::Hello),
        KNOWN => reader.life().map(Word::Known),
        other => P::read(other, &mut reader).map(Word::Said),
    };
    word.filter(|_| reader.bytes.is_empty()).ok_or(Dropped::Unreadable)
}

fn write_life(life: Life, into: &mut Vec<u8>) {
    into.extend(life.run.to_be_bytes());
    into.extend(life.nonce.to_be_bytes());
}

fn read_rest(reader: &mut Reader<'_>) -> Option<(Head, u8)> {
    let algorithm = Algorithm::of_code(reader.byte()?)?;
    let sender = NodeId(u16::from(reader.byte()?));
    let kind = reader.byte()?;
    let digest = reader.number()?;
    let life = reader.life()?;
    Some((Head { algorithm, sender, digest, life }, kind))
}

/// Bytes that are read from the front. Whatever is not there is none, and nothing is read twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Names are below this.
    nodes: u16,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(front)
    }

    /// One byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Eight bytes as a number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// One byte as the name of a node that there is.
    pub(crate) fn node(&mut self) -> Option<NodeId> {
        let node = NodeId(u16::from(self.byte()?));
        (node.0 < self.nodes).then_some(node)
    }

    fn life(&mut self) -> Option<Life> {
        let run = self.take(4)?.try_into().ok().map(u32::from_be_bytes)?;
        Some(Life { run, nonce: self.number()? })
    }
}

#[cfg(test)]
mod tests;
