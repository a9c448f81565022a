//! The steps of a group's move to another store, and from one, and of its recovery.
//!
//! Promise kept here: an office is granted in at most one store at a time. `fill` and `campaign` grant
//! nothing behind a closed door, and no single entry opens the door of a group that has moved. A group that
//! is stopped for recovery is granted to no one until it is resumed, whatever becomes of its policy.

use super::group::{GroupState, Office};
use super::{Rest, State, Turn, VerbResult, done};
use crate::door::{Door, Step};
use crate::limits::TERM_GIVEN_MAX;
use crate::name::{Group, Home, Node, Reason, SessionNo};
use crate::outcome::{Answer, Cause, Refusal};
use crate::term::{Revision, Term};

/// What the history of a stopped group says.
const STOPPED: &str = "stopped for recovery";

impl State {
    /// Carries out one step of a move. The group is created if it is not known: its door can be closed
    /// before anybody came.
    pub(super) fn move_group(&mut self, turn: &mut Turn, group: &Group, step: Step) -> VerbResult {
        match self.groups.get(group) {
            Some(state) if state.doomed => {
                return Err(Refusal::GroupEnding { group: group.clone() });
            }
            Some(_) => {}
            None => self.check_groups()?,
        }
        match step {
            Step::Expect { from } => self.expect_group(turn, group, from),
            Step::Depart { to } => self.depart(turn, group, to),
            Step::Arrive { since, above, heir } => {
                self.arrive(turn, group, since, above, heir.as_ref())
            }
            Step::Stop => self.stop(turn, group),
            Step::Resume { since } => self.resume(turn, group, since),
        }
    }

    fn expect_group(&mut self, turn: &mut Turn, group: &Group, from: Home) -> VerbResult {
        let is_led = self.groups.get(group).is_some_and(|state| state.office != Office::Vacant);
        match self.door(group) {
            // The same again keeps its revision, so that a repeat does not shut out its first try.
            Door::Expected { from: known, .. } if *known == from => return done(),
            // Another move is under way: whoever opened the door for this one would open it for that.
            Door::Expected { from: known, .. } => {
                return Err(Refusal::OnItsWay { group: group.clone(), from: known.clone() });
            }
            // It comes back from where it went, or it is another group of the same name.
            Door::Moved { to } if *to != from => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Door::Stopped { since } => return Err(stopped(group, *since)),
            Door::Open if is_led => return Err(self.still_led(group)),
            Door::Open | Door::Moved { .. } => {}
        }
        self.set_door(turn, group, Door::Expected { from, since: turn.revision });
        self.reindex(turn, group);
        done()
    }

    fn depart(&mut self, turn: &mut Turn, group: &Group, to: Home) -> VerbResult {
        match self.door(group) {
            Door::Moved { to: known } if *known == to => {
                return Ok((self.ending_answer(group), Rest::Nothing));
            }
            Door::Moved { to: known } => {
                return Err(Refusal::Moved { group: group.clone(), to: known.clone() });
            }
            // What has not arrived can only be turned round.
            Door::Expected { from, .. } if *from != to => {
                return Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() });
            }
            Door::Stopped { since } => return Err(stopped(group, *since)),
            Door::Open | Door::Expected { .. } => {}
        }
        self.set_door(turn, group, Door::Moved { to });
        self.dismiss(turn, group, |_| false);
        let Some(state) = self.groups.get(group) else { return done() };
        let answer = match state.office {
            Office::Held { .. } => self.begin_ending(turn, group, Cause::Moved, None),
            Office::Ending { .. } => self.ending_answer(group),
            // Whoever watches learns that there is nothing more to wait for here.
            Office::Vacant | Office::Delayed { .. } => {
                self.announce(turn, group, Cause::Moved, None);
                Answer::Done
            }
        };
        Ok((answer, Rest::Nothing))
    }

    fn arrive(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        since: Revision,
        above: Term,
        heir: Option<&Node>,
    ) -> VerbResult {
        // One arrival must not use up the terms of a group, nor those of all groups once it is deleted.
        if above.get() > TERM_GIVEN_MAX {
            let (group, max) = (group.clone(), TERM_GIVEN_MAX);
            return Err(Refusal::TermTooHigh { group, given: above, max });
        }
        let from = match self.door(group) {
            Door::Expected { since: known, from } if *known == since => from.clone(),
            Door::Moved { to } => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Door::Stopped { since } => return Err(stopped(group, *since)),
            Door::Open | Door::Expected { .. } => {
                return Err(Refusal::NotExpected { group: group.clone(), since });
            }
        };
        // It can still be held from before it moved away and came back.
        let is_vacant = self.groups.get(group).is_some_and(|it| it.office == Office::Vacant);
        if !is_vacant {
            return Err(self.still_led(group));
        }
        let heir = heir.and_then(|heir| self.standby_called(group, heir));
        self.set_door(turn, group, Door::Open);
        if let Some(state) = self.groups.get_mut(group) {
            state.term = state.term.max(above);
            state.came_from = Some(Box::new(from));
            if let Some(fences) = &mut state.fences {
                fences.raise(above);
            }
            state.heir = heir;
        }
        self.fill(turn, group, Cause::Moved, None);
        done()
    }

    /// Closes the door for recovery. A leader has its ttl to stop; the line stays, for what comes after.
    fn stop(&mut self, turn: &mut Turn, group: &Group) -> VerbResult {
        match self.door(group) {
            // The same again keeps its revision, so that a repeat does not shut out its first try.
            Door::Stopped { .. } => return Ok((self.ending_answer(group), Rest::Nothing)),
            Door::Moved { to } => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Door::Expected { from, .. } => {
                return Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() });
            }
            Door::Open => {}
        }
        self.set_door(turn, group, Door::Stopped { since: turn.revision });
        self.reindex(turn, group);
        let reason = Reason::new(STOPPED).ok().map(Box::new);
        let Some(state) = self.groups.get(group) else { return done() };
        let answer = match state.office {
            Office::Held { .. } => self.begin_ending(turn, group, Cause::SteppedDown, reason),
            Office::Ending { .. } => self.ending_answer(group),
            // Nobody led before, and nobody leads: no change to announce.
            Office::Vacant | Office::Delayed { .. } => Answer::Done,
        };
        Ok((answer, Rest::Nothing))
    }

    /// Opens the door that this very stop closed, and fills the office if it is vacant. A tenure that is still
    /// ending goes on ending: it is the only one.
    fn resume(&mut self, turn: &mut Turn, group: &Group, since: Revision) -> VerbResult {
        match self.door(group) {
            Door::Stopped { since: known } if *known == since => {}
            Door::Stopped { since } => return Err(stopped(group, *since)),
            Door::Moved { to } => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Door::Expected { from, .. } => {
                return Err(Refusal::OnItsWay { group: group.clone(), from: from.clone() });
            }
            // It was resumed before.
            Door::Open => return done(),
        }
        self.set_door(turn, group, Door::Open);
        self.reindex(turn, group);
        self.fill(turn, group, Cause::Elected, None);
        done()
    }

    /// The one standby of this name; none if there are several.
    fn standby_called(&self, group: &Group, node: &Node) -> Option<SessionNo> {
        let state = self.groups.get(group)?;
        let mut called = state
            .line
            .iter()
            .map(|standby| standby.session)
            .filter(|session| self.node(*session) == Some(node));
        called.next().filter(|_| called.next().is_none())
    }

    /// Whether a group lives here.
    #[must_use]
    pub fn door(&self, group: &Group) -> &Door {
        self.groups.get(group).and_then(|state| state.door.as_deref()).unwrap_or(&Door::Open)
    }

    fn set_door(&mut self, turn: &Turn, group: &Group, door: Door) {
        let floor = self.term_floor;
        let state = self.groups.get_or_insert(group, || GroupState::new(floor, turn.who.clone()));
        state.door = (!door.is_open()).then(|| Box::new(door));
    }

    fn still_led(&self, group: &Group) -> Refusal {
        let term = self.groups.get(group).map(|state| state.term).unwrap_or_default();
        Refusal::StillLed { group: group.clone(), term }
    }
}

/// Recovery comes first.
pub(super) fn stopped(group: &Group, since: Revision) -> Refusal {
    Refusal::Stopped { group: group.clone(), since }
}
