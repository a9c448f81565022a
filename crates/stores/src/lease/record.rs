//! What the entry of a group holds, field by field.
//!
//! ```text
//! version        u8, 1
//! nonce          of the write that made this value; never repeated
//! before         the nonces of the writes before it, newest last, at most NONCES_MAX
//! writes         how many writes made this value
//! untold         sessions whose epoch rose here and whose own entries may not say so yet
//! news from      every event after this revision is below
//! news           the last events, oldest first
//! state          a whole small state machine that knows this group alone
//! ```
//! The nonces settle "did my write land?" even if others wrote on top of it. The untold are what makes
//! an end safe when a process dies halfway: whoever comes next tells them first.
//!
//! Sessions are known here by the digests of their secrets, so that what lies in somebody else's store
//! lets nobody act as another.

use regent_election::codec::{CodecError, Input, Wire, put_block};
use regent_election::{Event, Group, Revision, Settings, State};

use crate::register::{HumanSummary, Record};
use std::time::Duration;

/// The version that opens the value.
const VERSION: u8 = 1;
/// Nonces of earlier writes that are kept: a writer whose reply was lost looks again long before this
/// many others have written, or says that it does not know.
pub(super) const NONCES_MAX: usize = 12;
/// Most bytes of events kept for watchers that resume.
const NEWS_BYTES_MAX: usize = 16 << 10;
/// Most events kept.
const NEWS_MAX: usize = 64;
/// Ids of requests without a session that are kept.
const REQUESTS_MAX: usize = 64;
/// Sessions kept that neither lead nor stand here: only for their request ids.
const IDLE_MAX: usize = 24;

/// The entry of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupRecord {
    pub(super) nonce: u128,
    pub(super) before: Vec<u128>,
    pub(super) writes: u64,
    pub(super) untold: Vec<u128>,
    pub(super) news_from: Revision,
    pub(super) news: Vec<Event>,
    pub(super) state: State,
}

/// Whether a write is part of what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    Yes,
    No,
    /// Too many others have written since.
    Unknown,
}

impl GroupRecord {
    /// A group that nobody has named.
    pub(super) fn new() -> Self {
        Self {
            nonce: 0,
            before: Vec::new(),
            writes: 0,
            untold: Vec::new(),
            news_from: Revision(0),
            news: Vec::new(),
            state: State::new(Settings::default()),
        }
    }

    /// The next value, to be written over this one: what can be forgotten is.
    pub(super) fn sealed(mut self, nonce: u128) -> Self {
        if self.writes > 0 {
            self.before.push(self.nonce);
        }
        let surplus = self.before.len().saturating_sub(NONCES_MAX);
        self.before.drain(..surplus);
        self.nonce = nonce;
        self.writes += 1;
        self.state.trim(REQUESTS_MAX, IDLE_MAX);
        self
    }

    /// Remembers events for watchers, forgetting the oldest beyond the bounds.
    pub(super) fn tell(&mut self, events: &[Event]) {
        self.news.extend_from_slice(events);
        let mut bytes: usize = self.news.iter().map(size).sum();
        let mut surplus = 0;
        while surplus < self.news.len()
            && (bytes > NEWS_BYTES_MAX || self.news.len() - surplus > NEWS_MAX)
        {
            bytes -= size(&self.news[surplus]);
            self.news_from = self.news_from.max(self.news[surplus].revision);
            surplus += 1;
        }
        self.news.drain(..surplus);
    }

    /// Whether the write with this nonce, made over a value of so many writes, is in here.
    pub(super) fn has_landed(&self, nonce: u128, writes_before: u64) -> Landed {
        if self.nonce == nonce || self.before.contains(&nonce) {
            return Landed::Yes;
        }
        let later = self.writes.saturating_sub(writes_before);
        // Fewer writes than before means that the engine forgot some: nothing is certain then.
        if self.writes < writes_before || later > self.before.len() as u64 + 1 {
            Landed::Unknown
        } else {
            Landed::No
        }
    }

    /// The value as bytes, with what people may see beside it.
    pub(super) fn record(&self, group: &Group) -> Record {
        let mut out = vec![VERSION];
        self.nonce.put(&mut out);
        self.before.put(&mut out);
        self.writes.put(&mut out);
        self.untold.put(&mut out);
        self.news_from.put(&mut out);
        (self.news.len() as u64).put(&mut out);
        for event in &self.news {
            put_event(event, &mut out);
        }
        put_block(&self.state.encode(), &mut out);
        let holder = self.state.holder(group);
        let session = holder.map(|holder| holder.session);
        let summary = HumanSummary {
            leader: session.and_then(|session| self.state.node(session)).cloned(),
            term: Some(self.state.last_term(group)),
            ttl: session.and_then(|session| self.state.ttl_ms(session)).map(Duration::from_millis),
        };
        Record { value: out, summary }
    }

    /// The value that [`GroupRecord::record`] wrote.
    pub(super) fn decode(group: &Group, bytes: &[u8]) -> Result<Self, CodecError> {
        let mut input = Input::new(bytes);
        let version = u8::take(&mut input)?;
        if version != VERSION {
            return Err(CodecError::Unknown { what: "group entry version", tag: version.into() });
        }
        let mut record = Self {
            nonce: Wire::take(&mut input)?,
            before: Wire::take(&mut input)?,
            writes: Wire::take(&mut input)?,
            untold: Wire::take(&mut input)?,
            news_from: Wire::take(&mut input)?,
            ..Self::new()
        };
        for _ in 0..input.count("events")? {
            record.news.push(take_event(group, &mut input)?);
        }
        record.state = State::decode(input.block("a state")?)?;
        input.end()?;
        Ok(record)
    }
}

fn size(event: &Event) -> usize {
    let told: usize = event.metadata.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    told + event.leader.as_ref().map_or(0, |leader| leader.as_str().len()) + 32
}

fn put_event(event: &Event, out: &mut Vec<u8>) {
    event.revision.put(out);
    event.ordinal.put(out);
    event.term.put(out);
    event.leader.put(out);
    event.metadata.put(out);
    event.cause.put(out);
}

fn take_event(group: &Group, input: &mut Input<'_>) -> Result<Event, CodecError> {
    Ok(Event {
        group: group.clone(),
        revision: Wire::take(input)?,
        ordinal: Wire::take(input)?,
        term: Wire::take(input)?,
        leader: Wire::take(input)?,
        metadata: Wire::take(input)?,
        cause: Wire::take(input)?,
    })
}
