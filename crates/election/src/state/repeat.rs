//! A repeated request takes effect once, and its answer is evaluated again (semantics 19).
//!
//! The answer is not stored: a campaign that won ten minutes ago must not answer `elected` after its
//! tenure has ended. Only what took effect is remembered; a refused request may simply run again.
//!
//! An id opens with the revision its sender had seen. Ids leave the window oldest first; once an id
//! applied at revision X has left, every id made at or before X may have been it, so all of them are
//! refused instead of being run again.

use std::collections::{BTreeMap, VecDeque};

use super::group::Office;
use super::{Rest, State, Turn, VerbResult, weight};
use crate::codec::{CodecError, Wire, malformed, wire_struct};
use crate::command::{Command, Repeats};
use crate::limits::{REQUESTS_PER_SESSION, REQUESTS_WITHOUT_SESSION};
use crate::mutant::{self, Mutant};
use crate::name::{RequestId, SessionNo};
use crate::outcome::{Answer, Refusal};
use crate::term::{Revision, Term};

/// A window of remembered requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    capacity: usize,
    order: VecDeque<u64>,
    known: BTreeMap<u64, Remembered>,
    forgotten: Option<Revision>,
}

/// What is kept of a request that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    id: u64,
    command: u64,
    applied: Revision,
    /// The term a campaign won.
    granted: Option<Term>,
}

wire_struct!(Remembered { id, command, applied, granted });

impl Requests {
    pub(super) const fn of_session() -> Self {
        Self::with_capacity(REQUESTS_PER_SESSION)
    }

    pub(super) const fn without_session() -> Self {
        Self::with_capacity(REQUESTS_WITHOUT_SESSION)
    }

    const fn with_capacity(capacity: usize) -> Self {
        Self { capacity, order: VecDeque::new(), known: BTreeMap::new(), forgotten: None }
    }

    fn find(&self, id: &RequestId, command: u64) -> Result<Option<Remembered>, Refusal> {
        if mutant::is(Mutant::RepeatsRunAgain) {
            return Ok(None);
        }
        if let Some(found) = self.known.get(&print_of_id(id)) {
            return if found.command == command {
                Ok(Some(*found))
            } else {
                Err(Refusal::RequestReused)
            };
        }
        match self.forgotten {
            Some(forgotten) if id.seen <= forgotten => {
                Err(Refusal::RequestTooOld { seen: id.seen, forgotten })
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Remembers a request; true if one more is remembered than before.
    fn remember(&mut self, request: Remembered) -> bool {
        self.order.push_back(request.id);
        self.known.insert(request.id, request);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front().and_then(|id| self.known.remove(&id))
        {
            self.forgotten = Some(oldest.applied);
            return false;
        }
        true
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether another one takes the place of the oldest.
    pub(super) fn is_full(&self) -> bool {
        self.order.len() >= self.capacity
    }

    /// Whether this one is remembered, whatever it asked for.
    pub(super) fn knows(&self, id: &RequestId) -> bool {
        self.known.contains_key(&print_of_id(id))
    }

    /// Forgets all but the last `max`.
    pub(super) fn trim(&mut self, max: usize) {
        while self.order.len() > max
            && let Some(oldest) = self.order.pop_front().and_then(|id| self.known.remove(&id))
        {
            self.forgotten = Some(oldest.applied);
        }
    }

    /// Refuses every id made at or before `revision`.
    pub(super) fn forget_up_to(&mut self, revision: Revision) {
        self.forgotten = Some(revision);
    }

    /// For snapshots: what is remembered, oldest first, and what is forgotten.
    pub(super) fn parts(&self) -> (Vec<Remembered>, Option<Revision>) {
        (self.order.iter().filter_map(|id| self.known.get(id).copied()).collect(), self.forgotten)
    }

    /// This empty window, filled from a snapshot.
    pub(super) fn restored(
        mut self,
        (remembered, forgotten): (Vec<Remembered>, Option<Revision>),
    ) -> Result<Self, CodecError> {
        let count = remembered.len();
        for request in remembered {
            self.remember(request);
        }
        if self.known.len() != count {
            return Err(malformed("request ids")("too many of them, or one is named twice"));
        }
        self.forgotten = forgotten;
        Ok(self)
    }
}

/// FNV-1a: stable for ever, which the standard library's hasher does not promise to be.
fn print(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn print_of_id(id: &RequestId) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    id.put(&mut bytes);
    print(&bytes)
}

fn print_of_command(command: &Command) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    command.put(&mut bytes);
    print(&bytes)
}

impl State {
    /// Runs a command unless this request ran before.
    pub(super) fn run_once(
        &mut self,
        turn: &mut Turn,
        id: &RequestId,
        command: Command,
    ) -> VerbResult {
        if id.seen >= turn.revision {
            return Err(Refusal::RequestAhead { seen: id.seen, revision: turn.revision });
        }
        let command_print = print_of_command(&command);
        let requests = match command.session().and_then(|secret| self.by_secret.get(&secret)) {
            Some(session) => self.sessions.get(session).map(|session| &session.requests),
            None if command.session().is_some() => None,
            None => Some(&self.requests),
        };
        if let Some(requests) = requests
            && let Some(found) = requests.find(id, command_print)?
        {
            return self.evaluate_again(turn, command, found);
        }
        let secret = command.session();
        let (answer, rest) = self.run_approved(turn, command)?;
        let took_effect = match answer {
            Answer::Lost | Answer::Overtaken => false,
            Answer::Session { .. }
            | Answer::Elected { .. }
            | Answer::Standing { .. }
            | Answer::Done
            | Answer::Ending { .. }
            | Answer::Forced { .. } => true,
        };
        let granted = answer.elected();
        if took_effect {
            let request = Remembered {
                id: print_of_id(id),
                command: command_print,
                applied: turn.revision,
                granted,
            };
            match secret {
                None => {
                    self.requests.remember(request);
                }
                Some(secret) => {
                    let session = self.by_secret.get(&secret).copied();
                    if let Some(session) = session.and_then(|no| self.sessions.get_mut(&no))
                        && session.requests.remember(request)
                    {
                        self.sessions_bytes += weight::REQUEST;
                        self.accounts.charge(&session.owner, weight::REQUEST);
                    }
                }
            }
        }
        Ok((answer, rest))
    }

    /// The answer that a repeated request deserves by the state as it is.
    fn evaluate_again(
        &mut self,
        turn: &mut Turn,
        command: Command,
        found: Remembered,
    ) -> VerbResult {
        match command.repeats() {
            Repeats::Done => super::done(),
            Repeats::RunAgain => self.run(turn, command),
            Repeats::Candidacy => {
                let secret = command.session();
                let session = secret.and_then(|secret| self.by_secret.get(&secret).copied());
                let (Some(session), Some(group)) = (session, command.group()) else {
                    return Err(Refusal::SessionUnknown);
                };
                Ok((self.campaign_again(turn, group, session, found), Rest::Nothing))
            }
            Repeats::Ending => {
                let answer =
                    command.group().map_or(Answer::Done, |group| self.ending_answer(group));
                Ok((answer, Rest::Nothing))
            }
            Repeats::Overtaken => Ok((Answer::Overtaken, Rest::Nothing)),
        }
    }

    /// `elected` only if the tenure that this very request won, or stood for, is in office. A
    /// candidacy that arrived after the request was applied is another one.
    fn campaign_again(
        &mut self,
        turn: &mut Turn,
        group: &crate::name::Group,
        session: SessionNo,
        found: Remembered,
    ) -> Answer {
        let Some(record) = self.sessions.get(&session) else { return Answer::Lost };
        let ttl_ms = record.ttl_ms;
        let Some(state) = self.groups.get(group) else { return Answer::Lost };
        let term = state.term;
        if let Office::Held { tenure } = &state.office
            && tenure.session == session
            && found.granted.map_or(tenure.arrived <= found.applied, |granted| granted == term)
        {
            self.take_office(turn, group);
            return Answer::Elected { session, ttl_ms, term };
        }
        match state.place_of(session) {
            Some(place)
                if found.granted.is_none() && state.line[place].arrived <= found.applied =>
            {
                Answer::Standing { session, ttl_ms, place: place as u32 }
            }
            Some(_) | None => Answer::Lost,
        }
    }
}
