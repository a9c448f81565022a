//! Words of the rules as the enums of the messages, and back.

use regent_election::Cause;
use regent_election::store::OfficeState;

use super::generated as pb;
use crate::{Consistency, MemberKind, ReplicaRole, TuneMode};

impl From<Cause> for pb::Cause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Elected => Self::Elected,
            Cause::Resigned => Self::Resigned,
            Cause::Transferred => Self::Transferred,
            Cause::Expired => Self::Expired,
            Cause::SteppedDown => Self::SteppedDown,
            Cause::Forced => Self::Forced,
            Cause::Withdrawn => Self::Withdrawn,
            Cause::Policy => Self::Policy,
            Cause::Deleted => Self::Deleted,
            Cause::PassedOver => Self::PassedOver,
            Cause::Moved => Self::Moved,
            Cause::SplitBrain => Self::SplitBrain,
            Cause::StaleAttempt => Self::StaleAttempt,
            Cause::NearMiss => Self::NearMiss,
            Cause::Failing => Self::Failing,
        }
    }
}

/// The cause under this number; none for no cause, and for one of a later version.
pub(super) fn cause(number: i32) -> Option<Cause> {
    Cause::ALL.into_iter().find(|cause| pb::Cause::from(*cause) as i32 == number)
}

/// The number of a cause, or of none.
pub(super) fn cause_number(cause: Option<Cause>) -> i32 {
    cause.map_or(pb::Cause::Unspecified, pb::Cause::from) as i32
}

impl From<OfficeState> for pb::OfficeState {
    fn from(state: OfficeState) -> Self {
        match state {
            OfficeState::Vacant => Self::Vacant,
            OfficeState::Delayed => Self::Delayed,
            OfficeState::Elected => Self::Elected,
            OfficeState::Leading => Self::Leading,
            OfficeState::Ending => Self::Ending,
        }
    }
}

/// The state under this number; none for one of a later version.
pub(super) fn state(number: i32) -> Option<OfficeState> {
    crate::wire::state::ALL.into_iter().find(|state| pb::OfficeState::from(*state) as i32 == number)
}

impl From<Consistency> for pb::Consistency {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Self::Linearizable,
            Consistency::Stale => Self::Stale,
        }
    }
}

impl From<pb::Consistency> for Consistency {
    fn from(consistency: pb::Consistency) -> Self {
        match consistency {
            pb::Consistency::Linearizable => Self::Linearizable,
            pb::Consistency::Stale => Self::Stale,
        }
    }
}

impl From<TuneMode> for pb::TuneMode {
    fn from(mode: TuneMode) -> Self {
        match mode {
            TuneMode::Report => Self::Report,
            TuneMode::Apply => Self::Apply,
        }
    }
}

impl From<ReplicaRole> for pb::ReplicaRole {
    fn from(role: ReplicaRole) -> Self {
        match role {
            ReplicaRole::Leader => Self::Leader,
            ReplicaRole::Follower => Self::Follower,
            ReplicaRole::Candidate => Self::Candidate,
        }
    }
}

impl From<MemberKind> for pb::MemberKind {
    fn from(kind: MemberKind) -> Self {
        match kind {
            MemberKind::Voter => Self::Voter,
            MemberKind::Witness => Self::Witness,
            MemberKind::Learner => Self::Learner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_number_of_its_own_and_none_is_the_unset_one() {
        for word in Cause::ALL {
            let number = pb::Cause::from(word);
            assert_eq!(cause(number as i32), Some(word));
            assert_eq!(number.as_str_name(), format!("CAUSE_{}", word.word().to_uppercase()));
        }
        for word in crate::wire::state::ALL {
            let number = pb::OfficeState::from(word);
            assert_eq!(state(number as i32), Some(word));
            let name = format!("OFFICE_STATE_{}", word.word().to_uppercase());
            assert_eq!(number.as_str_name(), name);
        }
        assert_eq!(cause(0), None);
        assert_eq!(cause(99), None);
        assert_eq!(state(0), None);
    }
}
