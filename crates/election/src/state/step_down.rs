//! Step-down: an administrator ends a tenure, gently or by force.

use super::office::End;
use super::{Rest, State, Turn, VerbResult, done};
use crate::name::{Group, Node, Reason};
use crate::outcome::{Answer, Cause, Refusal};

impl State {
    /// Gently, the holder is told and the term stays taken until it confirms or a full ttl is over.
    /// By force, the office changes at once: only fencing protects then, and the answer says for how
    /// long (semantics 11).
    pub(super) fn step_down(
        &mut self,
        turn: &mut Turn,
        group: &Group,
        reason: Reason,
        to: Option<&Node>,
        immediate: bool,
    ) -> VerbResult {
        let state =
            self.groups.get(group).ok_or_else(|| Refusal::GroupUnknown { group: group.clone() })?;
        let tenure =
            state.office.tenure().ok_or_else(|| Refusal::NobodyLeads { group: group.clone() })?;
        let holder = tenure.session;
        let has_acted = tenure.accepted;
        let heir = to.map(|to| self.successor(turn, group, to)).transpose()?;
        if let Some(state) = self.groups.get_mut(group)
            && heir.is_some()
        {
            state.heir = heir;
        }
        let reason = (!reason.is_empty()).then(|| Box::new(reason));
        if !immediate {
            let answer = self.begin_ending(turn, group, Cause::SteppedDown, reason);
            return Ok((answer, Rest::Nothing));
        }
        let overlap_possible_ms =
            self.sessions.get(&holder).map_or(0, |session| session.ttl_ms_longest);
        let end = End { reason, ..End::by_others(Cause::Forced, !has_acted) };
        self.vacate(turn, group, end);
        if has_acted { Ok((Answer::Forced { overlap_possible_ms }, Rest::Nothing)) } else { done() }
    }
}
