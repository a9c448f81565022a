//! One turn of a group: what was read, what is known, what is wished, and what is to be written.
//!
//! Pure: it reads no clock and touches no register. Everything that decides about an office is the
//! small state machine's; here it is only fed in the right order. Sessions that ended go first, so that
//! a wish meets the office as it really is.

use regent_election::{
    Adds, Answer, Command, Entry, Event, Group, Node, Refusal, RequestId, Revision, SessionId,
    SessionNo, State, Term,
};

use super::record::GroupRecord;
use crate::register::{Record, VALUE_BYTES_MAX};

/// Revisions that a request may claim to have seen: far more than are ever written, and far from the
/// end of the numbers.
const REVISION_MAX: u64 = 1 << 52;

/// How large an entry may become by what is new to it: somebody who has not stood there, a fence that was not.
/// What is left, an eighth, is for those who are inside: an entry in which nobody could resign, be renewed or be
/// ended any more would keep its office for ever. One of these adds a few hundred bytes at most, and
/// most of them take something away.
const NEWCOMER_BYTES_MAX: usize = VALUE_BYTES_MAX - VALUE_BYTES_MAX / 8;

/// What somebody asks for.
#[derive(Clone, Debug)]
pub(super) struct LeaseRequest {
    pub(super) command: Command,
    pub(super) request: Option<RequestId>,
    /// The session that asks, as its own entry has it: the group may know it under another ttl or not
    /// at all.
    pub(super) asker: Option<Asker>,
}

/// A session that asks.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) session: SessionId,
    pub(super) node: Node,
    pub(super) ttl_ms: u64,
}

/// What is known beside the record.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    pub(super) group: &'a Group,
    /// The highest term ever seen in this group.
    pub(super) seen_term: Term,
    /// The highest revision ever seen anywhere.
    pub(super) highest: Revision,
    /// Sessions whose own entries have ended.
    pub(super) ended: &'a [u128],
    /// Sessions that were not heard for half their ttl.
    pub(super) silent: &'a [u128],
    /// How long these sessions may count on being alive unheard; the group may know a shorter time.
    pub(super) holds: &'a [(u128, u64)],
    /// The wall clock, as a note for people.
    pub(super) wall_ms: u64,
    /// A fresh random number.
    pub(super) nonce: u128,
}

/// What came of a turn.
#[derive(Clone, Debug)]
pub(super) struct Turned {
    pub(super) answer: Result<Answer, Refusal>,
    /// The group as it is once that is written.
    pub(super) record: GroupRecord,
    /// What is to be written; none if nothing changed.
    pub(super) write: Option<Record>,
    /// Passing sessions that neither lead nor stand in this group any more. Others may know them.
    pub(super) over: Vec<u128>,
}

/// Turns a group. Everybody who was untold in `before` must have been told.
///
/// A wish that finds no room is refused; what is due without it is done all the same.
pub(super) fn turn(before: &GroupRecord, known: &Known<'_>, wish: Option<LeaseRequest>) -> Turned {
    let bytes_max = match &wish {
        Some(wish) if is_new(before, known.group, &wish.command) => NEWCOMER_BYTES_MAX,
        Some(_) | None => VALUE_BYTES_MAX,
    };
    let has_wish = wish.is_some();
    attempt(before, known, wish, bytes_max).unwrap_or_else(|Full| {
        let max = bytes_max as u64;
        let answer = Err(Refusal::Full { what: "the entry of this group, in bytes,", max });
        let without = has_wish.then(|| attempt(before, known, None, VALUE_BYTES_MAX));
        match without {
            Some(Ok(turned)) => Turned { answer, ..turned },
            Some(Err(Full)) | None => {
                Turned { answer, record: before.clone(), write: None, over: Vec::new() }
            }
        }
    })
}

/// Whether a command brings something into the entry that is not there and stays.
fn is_new(before: &GroupRecord, group: &Group, command: &Command) -> bool {
    let state = &before.state;
    match command.adds() {
        Adds::Nothing => false,
        Adds::Candidate => command.session().is_none_or(|id| state.find_session(id).is_none()),
        Adds::Fence => command.resource().is_none_or(|resource| {
            let page = state.fences_page(group, resource.as_str(), None, 1);
            page.fences.first().is_none_or(|found| found.resource != *resource)
        }),
    }
}

/// What came about does not fit.
struct Full;

fn attempt(
    before: &GroupRecord,
    known: &Known<'_>,
    wish: Option<LeaseRequest>,
    bytes_max: usize,
) -> Result<Turned, Full> {
    let mut work = Work { record: before.clone(), events: Vec::new(), known };
    work.record.untold.clear();
    work.state().leap(known.highest);
    if let Some(seen) = wish.as_ref().and_then(|wish| wish.request.as_ref()).map(|id| id.seen)
        && seen.0 < REVISION_MAX
    {
        work.state().leap(seen);
    }
    let start = work.record.state.clone();
    if let Some(raised) = work.record.state.raise_terms(known.group, known.seen_term, known.wall_ms)
    {
        work.events.extend(raised.events);
    }
    let ended: Vec<SessionNo> = known.ended.iter().filter_map(|id| work.no_of(*id)).collect();
    if !ended.is_empty() {
        // Ending what has ended cannot be refused.
        let _ = work.apply(Command::Expire { sessions: ended }, None);
    }
    for (id, hold_ms) in known.holds {
        work.lengthen(*id, *hold_ms);
    }
    let answer = match wish {
        None => Ok(Answer::Done),
        Some(wish) => work.grant(wish),
    };
    work.finish(before, &start, answer, bytes_max)
}

struct Work<'a> {
    record: GroupRecord,
    events: Vec<Event>,
    known: &'a Known<'a>,
}

impl Work<'_> {
    fn state(&mut self) -> &mut State {
        &mut self.record.state
    }

    fn no_of(&self, id: u128) -> Option<SessionNo> {
        self.record.state.find_session(SessionId::new(id).ok()?)
    }

    fn apply(&mut self, command: Command, request: Option<RequestId>) -> Result<Answer, Refusal> {
        let mut silent: Vec<SessionNo> =
            self.known.silent.iter().filter_map(|id| self.no_of(*id)).collect();
        silent.sort_unstable();
        let entry = Entry { command, request, silent, wall_ms: self.known.wall_ms };
        let applied = self.record.state.apply(entry);
        self.events.extend(applied.events);
        applied.answer
    }

    /// Lets the group know for how long a session may count on being alive: its holder may have
    /// chosen a longer ttl elsewhere, and whoever ends its tenure promises when it is over.
    fn lengthen(&mut self, id: u128, hold_ms: u64) {
        if let Some(no) = self.no_of(id)
            && self.record.state.ttl_ms(no).is_some_and(|known_ms| known_ms < hold_ms)
            && let Ok(session) = SessionId::new(id)
        {
            // A policy that refuses it ends the tenure anyway; the wait is as long as it must be.
            let _ = self.apply(Command::ChangeTtl { session, ttl_ms: hold_ms }, None);
        }
    }

    fn grant(&mut self, wish: LeaseRequest) -> Result<Answer, Refusal> {
        if let Some(asker) = wish.asker {
            self.introduce(asker, &wish.command);
        }
        self.apply(wish.command, wish.request)
    }

    /// Makes sure that the group knows the session that asks, as it is.
    fn introduce(&mut self, asker: Asker, command: &Command) {
        let Asker { session, node, ttl_ms } = asker;
        match self.record.state.find_session(session) {
            Some(no) if self.record.state.ttl_ms(no) == Some(ttl_ms) => {}
            Some(_) => {
                // A policy that refuses the ttl also refuses what is asked with it.
                let _ = self.apply(Command::ChangeTtl { session, ttl_ms }, None);
            }
            // A campaign introduces its session itself, or leaves nothing behind.
            None if matches!(command, Command::Campaign { .. }) => {}
            None => {
                let _ = self.apply(Command::Open { session, node, ttl_ms }, None);
            }
        }
    }

    fn finish(
        mut self,
        before: &GroupRecord,
        start: &State,
        answer: Result<Answer, Refusal>,
        bytes_max: usize,
    ) -> Result<Turned, Full> {
        let mut start = start.clone();
        start.leap(self.record.state.revision());
        // Forgetting is no change.
        let mut end = self.record.state.clone();
        for state in [&mut start, &mut end] {
            state.trim(usize::MAX, usize::MAX);
        }
        let is_refused = answer.is_err() && self.events.is_empty();
        if is_refused || start == end {
            let record = before.clone();
            return Ok(Turned { answer, record, write: None, over: Vec::new() });
        }
        let over = before
            .state
            .session_summaries()
            .filter(|summary| {
                summary.is_passing && self.record.state.session_summary(summary.id).is_none()
            })
            .map(|summary| summary.id.get())
            .collect();
        for summary in self.record.state.session_summaries() {
            let was = before.state.session_summary(summary.id).filter(|was| was.no == summary.no);
            if summary.epoch > was.map_or(0, |was| was.epoch) {
                self.record.untold.push(summary.id.get());
            }
        }
        let events = std::mem::take(&mut self.events);
        self.record.tell(&events);
        let group = self.known.group;
        let mut record = self.record.sealed(self.known.nonce);
        let mut write = record.record(group);
        if write.value.len() > bytes_max {
            record.news.clear();
            record.news_from = record.state.revision();
            write = record.record(group);
        }
        if write.value.len() > bytes_max {
            return Err(Full);
        }
        Ok(Turned { answer, record, write: Some(write), over })
    }
}
