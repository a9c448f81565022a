//! The model's verbs of administrators and drivers: step-down, policies, deletion, settings, waits.

use regent_election::{
    Answer, Cause, Command, Door, Group, Policy, Refusal, SessionNo, Settings, WaitKind,
};

use super::model::{Model, PreemptionWindow};
use super::office::Farewell;
use super::verbs::VerbResult;

impl Model {
    pub(crate) fn step_down(&mut self, command: &Command) -> VerbResult {
        let Command::StepDown { group, reason, to, immediate } = command else {
            unreachable!("only step-downs come here")
        };
        if self.group(group).is_none() {
            return Err(Refusal::GroupUnknown { group: group.clone() });
        }
        let Some(holder) = self.holder(group).cloned() else {
            return Err(Refusal::NobodyLeads { group: group.clone() });
        };
        if let Some(to) = to {
            let heir = self.successor(group, to)?;
            self.group_mut(group).heir = Some(heir);
        }
        let reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
        if !immediate {
            return Ok(self.tell_to_stop(group, Cause::SteppedDown, reason));
        }
        let accepted = holder.holds.is_some_and(|holding| holding.accepted);
        let overlap_possible_ms = self.session(holder.session).ttl_ms_longest;
        self.vacate(group, Farewell { cause: Cause::Forced, reason, stopped: !accepted });
        Ok(if accepted { Answer::Forced { overlap_possible_ms } } else { Answer::Done })
    }

    pub(crate) fn put_policy(&mut self, name: &Group, policy: Option<&Policy>) -> VerbResult {
        let policy = match policy {
            None => None,
            Some(policy) => Some(policy.clone().check(self.settings.ttl_ms_ceiling)?),
        };
        match self.group(name) {
            Some(group) if group.doomed => {
                return Err(Refusal::GroupEnding { group: name.clone() });
            }
            Some(group) if group.policy == policy => {}
            Some(_) => {
                self.group_mut(name).policy = policy;
                self.enforce(name);
            }
            None => {
                self.room_for_a_group()?;
                self.add_group(name, policy);
            }
        }
        Ok(Answer::Done)
    }

    pub(crate) fn delete(&mut self, name: &Group) -> VerbResult {
        if self.group(name).is_none() {
            return Err(Refusal::GroupUnknown { group: name.clone() });
        }
        match self.group(name).map(|group| group.door.clone()) {
            Some(Door::Moved { to }) => {
                return Err(Refusal::Moved { group: name.clone(), to });
            }
            Some(Door::Expected { from, .. }) => {
                return Err(Refusal::OnItsWay { group: name.clone(), from });
            }
            Some(Door::Stopped { since }) => {
                return Err(Refusal::Stopped { group: name.clone(), since });
            }
            Some(Door::Open) | None => {}
        }
        self.group_mut(name).doomed = true;
        self.candidacies.retain(|one| one.group != *name || one.holds.is_some());
        if self.holder(name).is_none() {
            self.forget(name);
            return Ok(Answer::Done);
        }
        Ok(self.tell_to_stop(name, Cause::Deleted, None))
    }

    pub(crate) fn put_settings(&mut self, settings: &Settings) -> VerbResult {
        let settings = settings.clone().check()?;
        for name in self.names() {
            if let Some(policy) = &self.group(&name).expect("a known group").policy {
                policy.clone().check(settings.ttl_ms_ceiling)?;
            }
        }
        let changed = settings.default_policy != self.settings.default_policy;
        self.settings = settings;
        for name in self.names() {
            if changed && self.group(&name).is_some_and(|group| group.policy.is_none()) {
                self.enforce(&name);
            }
        }
        Ok(Answer::Done)
    }

    pub(crate) fn elapsed(&mut self, group: &Group, kind: WaitKind) {
        match kind {
            WaitKind::LockDelay => {
                self.group_mut(group).delayed = None;
                self.fill(group, Cause::Elected, None);
            }
            WaitKind::Ending => {
                let end = self.farewell(group, Cause::SteppedDown, false);
                self.vacate(group, end);
            }
            WaitKind::Acceptance => {
                let cause = Cause::PassedOver;
                self.vacate(group, Farewell { cause, reason: None, stopped: true });
            }
            WaitKind::MinimumTenure => {
                self.holding_mut(group).expect("a leader serves").preemption_window =
                    PreemptionWindow::Open;
            }
            // Only principals propose, and the model has none: `state/four_eyes.rs` has tests of its own.
            WaitKind::Approval => {}
        }
    }

    pub(crate) fn refill(&mut self, session: SessionNo) -> Answer {
        let mut is_overtaken = true;
        for group in self.places(session, false) {
            let known = self.group(&group).expect("it stands there");
            if known.delayed.is_none() && self.holder(&group).is_none() && self.is_open(&group) {
                is_overtaken = false;
                self.fill(&group, Cause::Elected, None);
            }
        }
        if is_overtaken { Answer::Overtaken } else { Answer::Done }
    }
}
