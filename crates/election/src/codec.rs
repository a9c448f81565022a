//! Bytes for entries and states: small, deterministic, versioned, and safe to read from anywhere.
//!
//! Numbers are LEB128, texts and lists open with their length, enums with an explicit tag, structs
//! are their fields in order. No length is believed before it is compared with the bytes that are
//! left, so a hostile length cannot allocate. Names pass their checks again when they are read.
//! Written by hand instead of derived: the tags stand in the source, so a moved variant cannot change
//! the format by accident.

use crate::command::{Entry, Finding, IfLost, Opening, WaitKind};
use crate::door::{Door, Step};
use crate::name::{Group, Home, Metadata, Node, Reason, RequestId, Resource, SessionId, SessionNo};
use crate::outcome::{Cause, Change};
use crate::policy::{NodePattern, Policy, Settings};
use crate::term::{Revision, Term};

/// The version that opens every encoded entry.
pub const ENTRY_VERSION: u8 = 1;

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end too early.
    #[error("the bytes end in the middle of {0}")]
    Short(&'static str),
    /// Bytes are left over.
    #[error("{0} bytes are left over")]
    Long(usize),
    /// A tag or version this program does not know.
    #[error("{what} {tag} is unknown to this version")]
    Unknown { what: &'static str, tag: u64 },
    /// A value that breaks a rule.
    #[error("{what} is malformed: {why}")]
    Malformed { what: &'static str, why: String },
}

pub(crate) fn malformed<E: ToString>(what: &'static str) -> impl Fn(E) -> CodecError {
    move |why| CodecError::Malformed { what, why: why.to_string() }
}

/// Bytes being read.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(CodecError::Short(what))?;
        self.0 = rest;
        Ok(head)
    }

    /// The next byte, which stays where it is.
    pub(crate) const fn peek(&self) -> Option<u8> {
        match self.0 {
            [first, ..] => Some(*first),
            [] => None,
        }
    }

    /// How many items follow; never more than bytes are left, since each takes at least one.
    pub fn count(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let count = usize::try_from(u64::take(self)?).unwrap_or(usize::MAX);
        if count > self.0.len() { Err(CodecError::Short(what)) } else { Ok(count) }
    }

    /// Bytes that open with their length.
    pub fn block(&mut self, what: &'static str) -> Result<&'a [u8], CodecError> {
        let count = self.count(what)?;
        self.bytes(count, what)
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, CodecError> {
        std::str::from_utf8(self.block(what)?).map_err(malformed(what))
    }

    /// Everything that is left.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Fails unless every byte was read.
    pub const fn end(self) -> Result<(), CodecError> {
        if self.0.is_empty() { Ok(()) } else { Err(CodecError::Long(self.0.len())) }
    }
}

/// A value with one way to be written and read.
pub trait Wire: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads the value.
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError>;
}

/// Encodes an entry with its version.
#[must_use]
pub fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut out = vec![ENTRY_VERSION];
    entry.put(&mut out);
    out
}

/// Decodes what [`encode_entry`] wrote.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, CodecError> {
    let mut input = Input::new(bytes);
    let version = u8::take(&mut input)?;
    if version != ENTRY_VERSION {
        return Err(CodecError::Unknown { what: "entry version", tag: version.into() });
    }
    let entry = Entry::take(&mut input)?;
    input.end()?;
    Ok(entry)
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Ok(input.bytes(1, "a byte")?[0])
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(CodecError::Unknown { what: "truth value", tag: tag.into() }),
        }
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push((rest as u8) | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = input.bytes(1, "a number")?[0];
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                // One way to write each number: the last byte of a longer form is never zero.
                let is_shortest = shift == 0 || byte != 0;
                return if is_shortest { Ok(number) } else { break_number() };
            }
        }
        break_number()
    }
}

fn break_number() -> Result<u64, CodecError> {
    Err(CodecError::Malformed {
        what: "a number",
        why: "not in its shortest form of 64 bits".into(),
    })
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Self::try_from(u64::take(input)?).map_err(malformed("a number"))
    }
}

impl Wire for i16 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let bytes = input.bytes(2, "a priority")?;
        Ok(Self::from_le_bytes([bytes[0], bytes[1]]))
    }
}

impl Wire for u128 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let bytes = input.bytes(16, "a session id")?;
        Ok(Self::from_le_bytes(bytes.try_into().map_err(malformed("a session id"))?))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        if bool::take(input)? { T::take(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let count = input.count("a list")?;
        // An item is larger in memory than on the wire: grow with what is read, not with a promise.
        let mut items = Self::with_capacity(count.min(1024));
        for _ in 0..count {
            items.push(T::take(input)?);
        }
        Ok(items)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        T::take(input).map(Self::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

/// Appends bytes behind their length.
pub fn put_block(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u64).put(out);
    out.extend(bytes);
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_block(text.as_bytes(), out);
}

macro_rules! wire_text {
    ($($type:ident = $what:literal),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                put_text(self.as_str(), out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
                $type::new(input.text($what)?).map_err(malformed($what))
            }
        }
    )*};
}

wire_text!(
    Group = "a group name",
    Node = "a node id",
    Home = "a group's place",
    Resource = "a resource name",
    Reason = "a reason",
    NodePattern = "a pattern"
);

macro_rules! wire_number {
    ($($type:ident),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
                Wire::take(input).map($type)
            }
        }
    )*};
}

wire_number!(SessionNo, Revision);

impl Wire for Term {
    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Self::new(u64::take(input)?).ok_or_else(|| malformed("a term")("above 2^53"))
    }
}

impl Wire for SessionId {
    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        Self::new(u128::take(input)?).map_err(malformed("a session id"))
    }
}

impl Wire for RequestId {
    fn put(&self, out: &mut Vec<u8>) {
        self.seen.put(out);
        put_text(self.nonce(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let seen = Revision::take(input)?;
        Self::new(seen, input.text("a request id")?).map_err(malformed("a request id"))
    }
}

impl Wire for Metadata {
    fn put(&self, out: &mut Vec<u8>) {
        (self.iter().count() as u64).put(out);
        for (key, value) in self.iter() {
            put_text(key, out);
            put_text(value, out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        let count = input.count("metadata")?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push((input.text("a metadata key")?, input.text("a metadata value")?));
        }
        // One way to write it: keys rise and none comes twice.
        let metadata = Self::new(entries.iter().copied()).map_err(malformed("metadata"))?;
        if metadata.iter().ne(entries) {
            return Err(malformed("metadata")("its keys are out of order"));
        }
        Ok(metadata)
    }
}

/// Fields in the order of the format.
macro_rules! wire_struct {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(
                input: &mut $crate::codec::Input<'_>,
            ) -> Result<Self, $crate::codec::CodecError> {
                Ok(Self { $($field: $crate::codec::Wire::take(input)?,)* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Variants with their tags and fields. A tag, once released, is never given to another variant.
macro_rules! wire_enum {
    ($type:ident $what:literal { $($tag:literal = $variant:ident $({ $($field:ident),* $(,)? })?),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        out.push($tag);
                        $($($field.put(out);)*)?
                    })*
                }
            }
            fn take(
                input: &mut $crate::codec::Input<'_>,
            ) -> Result<Self, $crate::codec::CodecError> {
                match u8::take(input)? {
                    $($tag => Ok(Self::$variant $({
                        $($field: $crate::codec::Wire::take(input)?,)*
                    })?),)*
                    tag => Err($crate::codec::CodecError::Unknown { what: $what, tag: tag.into() }),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

impl Wire for Policy {
    fn put(&self, out: &mut Vec<u8>) {
        self.ttl_ms_min.put(out);
        self.ttl_ms_max.put(out);
        self.retry_ms_min.put(out);
        self.retry_ms_max.put(out);
        self.lock_delay_ms.put(out);
        self.minimum_tenure_ms.put(out);
        // Two truths in one byte, so that a policy without the later one is written as it always was.
        out.push(u8::from(self.prefer_priority) | (u8::from(self.four_eyes) << 1));
        self.allow.put(out);
        self.priorities.put(out);
        self.standbys_max.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, CodecError> {
        // Unchecked: a policy that is refused is refused by the state machine, with its reason, and
        // an entry that carries one must be readable wherever it went.
        let (ttl_ms_min, ttl_ms_max) = (Wire::take(input)?, Wire::take(input)?);
        let (retry_ms_min, retry_ms_max) = (Wire::take(input)?, Wire::take(input)?);
        let (lock_delay_ms, minimum_tenure_ms) = (Wire::take(input)?, Wire::take(input)?);
        let truths = u8::take(input)?;
        if truths > 3 {
            return Err(CodecError::Unknown { what: "truth value", tag: truths.into() });
        }
        Ok(Self {
            ttl_ms_min,
            ttl_ms_max,
            retry_ms_min,
            retry_ms_max,
            lock_delay_ms,
            minimum_tenure_ms,
            prefer_priority: truths & 1 != 0,
            four_eyes: truths & 2 != 0,
            allow: Wire::take(input)?,
            priorities: Wire::take(input)?,
            standbys_max: Wire::take(input)?,
        })
    }
}

wire_struct!(Settings { ttl_ms_ceiling, auto_create, groups_max, default_policy });
wire_struct!(Opening { node, ttl_ms, passing });
wire_struct!(Entry { command, request, silent, wall_ms });
wire_struct!(Change { revision, wall_ms, term, leader, cause, reason });
wire_enum!(IfLost "a loser's wish" { 1 = Stand, 2 = Leave });
wire_enum!(Finding "a finding" { 1 = SplitBrain, 2 = StaleAttempt, 3 = NearMiss, 4 = Failing });
wire_enum!(WaitKind "a kind of wait" { 1 = LockDelay, 2 = Ending, 3 = Acceptance, 4 = MinimumTenure, 5 = Approval });
wire_enum!(Cause "a cause" {
    1 = Elected, 2 = Resigned, 3 = Transferred, 4 = Expired, 5 = SteppedDown,
    6 = Forced, 7 = Withdrawn, 8 = Policy, 9 = Deleted, 10 = PassedOver, 11 = Moved,
    12 = SplitBrain, 13 = StaleAttempt, 14 = NearMiss, 15 = Failing,
});
wire_enum!(Step "a step of a move" {
    1 = Expect { from }, 2 = Depart { to }, 3 = Arrive { since, above, heir },
    4 = Stop, 5 = Resume { since },
});
wire_enum!(Door "a door" {
    1 = Open, 2 = Expected { from, since }, 3 = Moved { to }, 4 = Stopped { since },
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    #[test]
    fn numbers_have_one_way_to_be_written() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            number.put(&mut out);
            assert_eq!(u64::take(&mut Input::new(&out)), Ok(number));
        }
        for bytes in [&[0x80, 0x00][..], &[0xff; 10], &[0x80], &[]] {
            assert!(u64::take(&mut Input::new(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_hostile_length_is_refused_before_it_allocates() {
        let mut bytes = Vec::new();
        u64::MAX.put(&mut bytes);
        assert!(Vec::<SessionNo>::take(&mut Input::new(&bytes)).is_err());
        assert!(Group::take(&mut Input::new(&bytes)).is_err());
    }

    #[test]
    fn every_cut_of_an_entry_is_an_error_and_not_a_panic() {
        let entry = Entry {
            command: Command::Campaign {
                group: Group::new("billing").unwrap(),
                session: SessionId::new(7).unwrap(),
                opening: Some(Opening {
                    node: Node::new("a").unwrap(),
                    ttl_ms: Some(10_000),
                    passing: true,
                }),
                if_lost: IfLost::Leave,
                priority: -3,
                metadata: Metadata::new([("zone", "b")]).unwrap(),
            },
            request: Some("5-abc".parse().unwrap()),
            silent: vec![SessionNo(3), SessionNo(900)],
            wall_ms: 1,
        };
        let bytes = encode_entry(&entry);
        assert_eq!(decode_entry(&bytes), Ok(entry));
        for cut in 0..bytes.len() {
            assert!(decode_entry(&bytes[..cut]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(decode_entry(&longer), Err(CodecError::Long(1)));
    }

    #[test]
    fn an_entry_whose_policy_will_be_refused_can_still_be_read() {
        let policy = Policy { ttl_ms_min: 0, standbys_max: u32::MAX, ..Policy::default() };
        let group = Group::new("billing").unwrap();
        let entry = Entry::bare(Command::PutPolicy { group, policy: Some(Box::new(policy)) });
        assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    }
}
