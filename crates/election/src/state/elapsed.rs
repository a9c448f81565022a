//! A wait is over, says the driver that measured it.
//!
//! Every wait is named by its kind and the revision that began it; if the office has moved on, the
//! name no longer fits and nothing happens. So a late or repeated `Elapsed` is harmless.

use super::group::{Office, PreemptionWindow};
use super::office::End;
use super::{Rest, State, Turn, VerbResult, done};
use crate::command::WaitKind;
use crate::name::Group;
use crate::outcome::{Answer, Cause};
use crate::term::Revision;

impl State {
    pub(super) fn elapsed(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        kind: WaitKind,
        since: Revision,
    ) -> VerbResult {
        let overtaken = Ok((Answer::Overtaken, Rest::Nothing));
        if kind == WaitKind::Approval {
            return if self.drop_proposal(group, since) { done() } else { overtaken };
        }
        let Some(state) = self.groups.get_mut(group) else { return overtaken };
        match (kind, &mut state.office) {
            (WaitKind::LockDelay, Office::Delayed { since: began }) if *began == since => {
                state.office = Office::Vacant;
                self.fill(turn, group, Cause::Elected, None);
            }
            (WaitKind::Ending, Office::Ending { since: began, cause, reason, .. })
                if *began == since =>
            {
                let end = End { reason: reason.clone(), ..End::by_others(*cause, false) };
                self.vacate(turn, group, end);
            }
            (WaitKind::Acceptance, Office::Held { tenure })
                if !tenure.accepted && tenure.since == since =>
            {
                self.vacate(turn, group, End::by_others(Cause::PassedOver, true));
            }
            (WaitKind::MinimumTenure, Office::Held { tenure })
                if tenure.preemption_window == (PreemptionWindow::Waiting { since }) =>
            {
                tenure.preemption_window = PreemptionWindow::Open;
                self.reindex(turn, group);
                self.prefer(turn, group);
            }
            (
                WaitKind::LockDelay
                | WaitKind::Ending
                | WaitKind::Acceptance
                | WaitKind::MinimumTenure
                | WaitKind::Approval,
                Office::Vacant
                | Office::Delayed { .. }
                | Office::Held { .. }
                | Office::Ending { .. },
            ) => return overtaken,
        }
        done()
    }
}
