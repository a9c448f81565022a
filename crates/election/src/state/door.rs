//! The steps of a group's move to another store, and from one.
//!
//! Promise kept here: an office is granted in at most one store at a time. `fill` and `campaign` grant
//! nothing behind a closed door, and no single entry opens the door of a group that has moved.

use super::group::{GroupState, Office};
use super::{Rest, State, Turn, Verdict, done};
use crate::door::{Door, Step};
use crate::name::{Group, Home, Node, SessionNo};
use crate::outcome::{Answer, Cause, Refusal};
use crate::term::{Revision, Term};

impl State {
    /// Carries out one step of a move. The group is created if it is not known: its door can be closed
    /// before anybody came.
    pub(super) fn move_group(&mut self, turn: &mut Turn, group: &Group, step: Step) -> Verdict {
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
        }
    }

    fn expect_group(&mut self, turn: &Turn, group: &Group, from: Home) -> Verdict {
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
            Door::Open if is_led => return Err(self.still_led(group)),
            Door::Open | Door::Moved { .. } => {}
        }
        self.set_door(group, Door::Expected { from, since: turn.revision });
        self.reindex(group);
        done()
    }

    fn depart(&mut self, turn: &mut Turn, group: &Group, to: Home) -> Verdict {
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
            Door::Open | Door::Expected { .. } => {}
        }
        self.set_door(group, Door::Moved { to });
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
    ) -> Verdict {
        match self.door(group) {
            Door::Expected { since: known, .. } if *known == since => {}
            Door::Moved { to } => {
                return Err(Refusal::Moved { group: group.clone(), to: to.clone() });
            }
            Door::Open | Door::Expected { .. } => {
                return Err(Refusal::NotExpected { group: group.clone(), since });
            }
        }
        // It can still be held from before it moved away and came back.
        let is_vacant = self.groups.get(group).is_some_and(|it| it.office == Office::Vacant);
        if !is_vacant {
            return Err(self.still_led(group));
        }
        let heir = heir.and_then(|heir| self.standby_called(group, heir));
        self.set_door(group, Door::Open);
        if let Some(state) = self.groups.get_mut(group) {
            state.term = state.term.max(above);
            if let Some(fences) = &mut state.fences {
                fences.raise(above);
            }
            state.heir = heir;
        }
        self.fill(turn, group, Cause::Moved, None);
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

    fn set_door(&mut self, group: &Group, door: Door) {
        let floor = self.term_floor;
        let state = self.groups.get_or_insert(group, || GroupState::new(floor));
        state.door = (!door.is_open()).then(|| Box::new(door));
    }

    fn still_led(&self, group: &Group) -> Refusal {
        let term = self.groups.get(group).map(|state| state.term).unwrap_or_default();
        Refusal::StillLed { group: group.clone(), term }
    }
}
