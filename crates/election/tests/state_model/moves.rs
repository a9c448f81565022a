//! The model's moves: where a group lives, and who may not be granted meanwhile.

use regent_election::{Answer, Cause, Door, Group, Reason, Refusal, Step};

use super::model::Model;
use super::verbs::VerbResult;

impl Model {
    pub(crate) fn is_open(&self, name: &Group) -> bool {
        self.group(name).is_none_or(|group| group.door == Door::Open)
    }

    pub(crate) fn take_step(&mut self, name: &Group, step: &Step) -> VerbResult {
        match self.group(name) {
            Some(group) if group.doomed => {
                return Err(Refusal::GroupEnding { group: name.clone() });
            }
            Some(_) => {}
            None => self.room_for_a_group()?,
        }
        let door = self.group(name).map_or(Door::Open, |group| group.door.clone());
        let is_vacant = self.holder(name).is_none()
            && self.group(name).is_none_or(|group| group.delayed.is_none());
        let term = self.group(name).map(|group| group.term).unwrap_or_default();
        let still_led = Refusal::StillLed { group: name.clone(), term };
        match (step, door) {
            (Step::Expect { from }, Door::Expected { from: known, .. }) if *from == known => {
                Ok(Answer::Done)
            }
            (Step::Stop, Door::Stopped { .. }) => Ok(self.ending_answer(name)),
            (Step::Stop, Door::Open) => {
                let since = self.revision;
                self.set_door(name, Door::Stopped { since });
                let reason = Some(Reason::new("stopped for recovery").unwrap());
                if self.holder(name).is_some() {
                    return Ok(self.tell_to_stop(name, Cause::SteppedDown, reason));
                }
                Ok(Answer::Done)
            }
            (Step::Resume { .. }, Door::Open) => Ok(Answer::Done),
            (Step::Resume { since }, Door::Stopped { since: known }) if *since == known => {
                self.set_door(name, Door::Open);
                self.fill(name, Cause::Elected, None);
                Ok(Answer::Done)
            }
            // Whatever else a stopped group is asked for would let it be led without a resumption.
            (_, Door::Stopped { since }) => Err(Refusal::Stopped { group: name.clone(), since }),
            (
                Step::Expect { .. } | Step::Stop | Step::Resume { .. },
                Door::Expected { from, .. },
            ) => Err(Refusal::OnItsWay { group: name.clone(), from }),
            (Step::Expect { from }, Door::Moved { to }) if *from != to => {
                Err(Refusal::Moved { group: name.clone(), to })
            }
            (Step::Expect { .. }, Door::Open) if !is_vacant => Err(still_led),
            (Step::Expect { from }, _) => {
                let since = self.revision;
                self.set_door(name, Door::Expected { from: from.clone(), since });
                Ok(Answer::Done)
            }
            (Step::Depart { to }, Door::Moved { to: known }) if *to == known => {
                Ok(self.ending_answer(name))
            }
            (
                Step::Depart { .. } | Step::Arrive { .. } | Step::Stop | Step::Resume { .. },
                Door::Moved { to },
            ) => Err(Refusal::Moved { group: name.clone(), to }),
            (Step::Depart { to }, Door::Expected { from, .. }) if *to != from => {
                Err(Refusal::OnItsWay { group: name.clone(), from })
            }
            (Step::Depart { to }, _) => {
                self.set_door(name, Door::Moved { to: to.clone() });
                self.candidacies.retain(|one| one.group != *name || one.holds.is_some());
                if self.holder(name).is_some() {
                    return Ok(self.tell_to_stop(name, Cause::Moved, None));
                }
                self.announce(name, Cause::Moved, None);
                Ok(Answer::Done)
            }
            (Step::Arrive { since, above, heir }, Door::Expected { since: known, .. })
                if *since == known =>
            {
                if !is_vacant {
                    return Err(still_led);
                }
                let mut called = self.line(name);
                called.retain(|one| Some(&self.session(one.session).node) == heir.as_ref());
                let heir = if let [one] = called.as_slice() { Some(one.session) } else { None };
                self.set_door(name, Door::Open);
                let group = self.group_mut(name);
                group.term = group.term.max(*above);
                group.heir = heir;
                self.raise_fences(name, *above);
                if !self.fill(name, Cause::Moved, None) {
                    self.announce(name, Cause::Moved, None);
                }
                Ok(Answer::Done)
            }
            (Step::Arrive { since, .. }, Door::Open | Door::Expected { .. }) => {
                Err(Refusal::NotExpected { group: name.clone(), since: *since })
            }
        }
    }

    fn set_door(&mut self, name: &Group, door: Door) {
        if self.group(name).is_none() {
            self.add_group(name, None);
        }
        self.group_mut(name).door = door;
    }
}
