//! Reading: what the state says to owners, operators, drivers and watchers.

use std::ops::Bound;

use super::four_eyes::approval_wait;
use super::group::{Office, PreemptionWindow, Tenure};
use super::{GroupState, State};
use crate::command::WaitKind;
use crate::limits::GROUPS_PAGE_MAX;
use crate::name::{Group, Metadata, Node, SessionId, SessionNo};
use crate::outcome::{Change, Refusal};
use crate::policy::{Policy, Settings};
use crate::store::{
    Census, GroupView, GroupsPage, LeaderView, OfferView, OfficeNote, OfficeState, OfficesView,
    SessionView, StandbyView, TenureView,
};
use crate::term::{Cursor, Incarnation, Revision, Term};

/// Who holds an office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub session: SessionNo,
    pub term: Term,
    /// `Elected`, `Leading` or `Ending`.
    pub state: OfficeState,
}

/// Something a driver must time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub group: Group,
    pub kind: WaitKind,
    /// The revision at which it began.
    pub since: Revision,
    pub for_ms: u64,
}

impl State {
    /// How many entries were applied.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// What holds for the whole store.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The open session of this secret.
    #[must_use]
    pub fn find_session(&self, id: SessionId) -> Option<SessionNo> {
        self.by_secret.get(&id).copied()
    }

    /// Open sessions and how long a driver that starts to count must give each of them at first.
    ///
    /// That is the longest ttl the session ever had, not [`State::ttl_ms`]: a holder that lowered
    /// its ttl may not know yet that this was applied, and counts on the larger one (semantics 7).
    pub fn sessions(&self) -> impl Iterator<Item = (SessionNo, u64)> {
        self.sessions.iter().map(|(no, session)| (*no, session.ttl_ms_longest))
    }

    /// The label of an open session.
    #[must_use]
    pub fn node(&self, session: SessionNo) -> Option<&Node> {
        self.sessions.get(&session).map(|session| &session.node)
    }

    /// The ttl of an open session.
    #[must_use]
    pub fn ttl_ms(&self, session: SessionNo) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.ttl_ms)
    }

    /// The epoch of an open session.
    #[must_use]
    pub fn epoch(&self, session: SessionNo) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.epoch)
    }

    /// The policy that holds in a group, known or not.
    #[must_use]
    pub fn policy(&self, group: &Group) -> &Policy {
        self.groups
            .get(group)
            .and_then(|state| state.policy.as_deref())
            .unwrap_or(&self.settings.default_policy)
    }

    /// Who holds the office of a group.
    #[must_use]
    pub fn holder(&self, group: &Group) -> Option<Holder> {
        let state = self.groups.get(group)?;
        let tenure = state.office.tenure()?;
        Some(Holder { session: tenure.session, term: state.term, state: office_state(state) })
    }

    /// Whether this session may renew this term: it leads and nobody has told it to stop.
    pub fn may_renew(&self, group: &Group, session: SessionNo, term: Term) -> Result<(), Refusal> {
        self.check_leader(group, session, term)
    }

    /// Whether this session stands in the line of a group.
    #[must_use]
    pub fn stands(&self, group: &Group, session: SessionNo) -> bool {
        self.sessions.get(&session).is_some_and(|record| record.stands.contains(group))
    }

    /// Who stands in the line of a group, the next one first.
    pub fn standbys(&self, group: &Group) -> impl Iterator<Item = SessionNo> {
        self.groups
            .get(group)
            .into_iter()
            .flat_map(|state| state.line.iter().map(|standby| standby.session))
    }

    /// The groups in which a session leads.
    pub fn led_by(&self, session: SessionNo) -> impl Iterator<Item = &Group> {
        self.sessions.get(&session).into_iter().flat_map(|record| &record.leads)
    }

    /// The groups in whose line a session stands.
    pub fn stood_by(&self, session: SessionNo) -> impl Iterator<Item = &Group> {
        self.sessions.get(&session).into_iter().flat_map(|record| &record.stands)
    }

    /// Whether some office is vacant although somebody stands for it: all who stand were silent,
    /// and a `Refill` is due when one is heard again.
    #[must_use]
    pub fn has_stranded(&self) -> bool {
        !self.index.stranded.is_empty()
    }

    /// The offices that are vacant although somebody stands for them.
    pub fn stranded(&self) -> impl Iterator<Item = &Group> {
        self.index.stranded.iter()
    }

    /// Those of them after a group, by name.
    pub fn stranded_after(&self, after: Option<&Group>) -> impl Iterator<Item = &Group> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.index.stranded.range::<Group, _>((from, Bound::Unbounded))
    }

    /// Everything that is being waited for, in full: for a driver that starts to count.
    pub fn waits(&self) -> impl Iterator<Item = Wait> {
        let offices = self.index.waiting.iter().filter_map(|group| self.wait_of(group));
        offices.chain(self.proposals.keys().map(approval_wait))
    }

    fn wait_of(&self, group: &Group) -> Option<Wait> {
        let state = self.groups.get(group)?;
        let session_of = |tenure: &Tenure| self.sessions.get(&tenure.session);
        let (kind, since, for_ms) = match &state.office {
            Office::Vacant => return None,
            Office::Delayed { since } => {
                (WaitKind::LockDelay, *since, self.policy(group).lock_delay_ms)
            }
            Office::Ending { tenure, since, .. } => {
                (WaitKind::Ending, *since, session_of(tenure)?.ttl_ms_longest)
            }
            Office::Held { tenure } if !tenure.accepted => {
                (WaitKind::Acceptance, tenure.since, session_of(tenure)?.ttl_ms / 3)
            }
            Office::Held { tenure } => match tenure.preemption_window {
                PreemptionWindow::Waiting { since } => {
                    (WaitKind::MinimumTenure, since, self.policy(group).minimum_tenure_ms)
                }
                PreemptionWindow::Never | PreemptionWindow::Open => return None,
            },
        };
        Some(Wait { group: group.clone(), kind, since, for_ms })
    }

    /// Who leads, as everybody may know it. `valid_for` is the driver's to add.
    #[must_use]
    pub fn leader_view(&self, group: &Group, incarnation: Incarnation) -> LeaderView {
        let cursor = Cursor::after(incarnation, self.revision);
        let Some(state) = self.groups.get(group) else {
            return LeaderView {
                group: group.clone(),
                leader: None,
                term: Term::NONE,
                state: OfficeState::Vacant,
                metadata: Metadata::NONE,
                valid_for: None,
                moved_to: None,
                revision: self.revision,
                cursor,
            };
        };
        let tenure = state.office.tenure();
        LeaderView {
            group: group.clone(),
            leader: tenure.and_then(|tenure| self.node(tenure.session)).cloned(),
            term: state.term,
            state: office_state(state),
            metadata: tenure.map(|tenure| tenure.metadata.clone()).unwrap_or_default(),
            valid_for: None,
            moved_to: self.door(group).moved_to().cloned(),
            revision: self.revision,
            cursor,
        }
    }

    /// A session as its owner sees it.
    pub fn session_view(&self, id: SessionId) -> Result<SessionView, Refusal> {
        let no = self.session_of(id)?;
        let Some(session) = self.sessions.get(&no) else { return Err(Refusal::SessionUnknown) };
        let tenures = session.leads.iter().filter_map(|group| {
            let state = self.groups.get(group)?;
            let offer = state.office.tenure()?.offer;
            Some(TenureView {
                group: group.clone(),
                term: state.term,
                state: office_state(state),
                offered_to: offer.and_then(|offer| self.node(offer.to)).cloned(),
                is_warm: offer.is_some_and(|offer| offer.warm),
                moves_to: self.door(group).moved_to().cloned(),
            })
        });
        let offers = session.stands.iter().filter_map(|group| self.offer_to(group, no));
        Ok(SessionView {
            node: session.node.clone(),
            ttl_ms: session.ttl_ms,
            epoch: session.epoch,
            tenures: tenures.collect(),
            standing: session.stands.iter().cloned().collect(),
            offers: offers.collect(),
            revision: self.revision,
        })
    }

    /// The office of a group, if its leader has offered it to this standby. A leader that is ending
    /// offers nothing any more.
    fn offer_to(&self, group: &Group, standby: SessionNo) -> Option<OfferView> {
        let state = self.groups.get(group)?;
        let Office::Held { tenure } = &state.office else { return None };
        let offer = tenure.offer.filter(|offer| offer.to == standby)?;
        Some(OfferView {
            group: group.clone(),
            term: state.term,
            by: self.node(tenure.session)?.clone(),
            is_warm: offer.warm,
        })
    }

    /// A group as an operator sees it. `is_silent` is the driver's knowledge.
    pub fn group_view(
        &self,
        group: &Group,
        incarnation: Incarnation,
        is_silent: impl Fn(SessionNo) -> bool,
    ) -> Result<GroupView, Refusal> {
        let state =
            self.groups.get(group).ok_or_else(|| Refusal::GroupUnknown { group: group.clone() })?;
        let standbys = state.line.iter().take(GROUPS_PAGE_MAX).filter_map(|standby| {
            Some(StandbyView {
                node: self.node(standby.session)?.clone(),
                priority: standby.priority,
                silent: is_silent(standby.session),
            })
        });
        Ok(GroupView {
            office: self.leader_view(group, incarnation),
            policy: self.policy(group).clone(),
            own_policy: state.policy.is_some(),
            door: self.door(group).clone(),
            came_from: state.came_from.as_deref().cloned(),
            ending: self.cause_of_ending(group).map(|(cause, _)| cause),
            standbys: standbys.collect(),
            standbys_count: state.line.len(),
        })
    }

    /// A page of groups in the order of their names.
    #[must_use]
    pub fn groups_page(
        &self,
        prefix: &str,
        after: Option<&Group>,
        count: usize,
        incarnation: Incarnation,
    ) -> GroupsPage {
        use std::ops::Bound;
        let count = count.clamp(1, GROUPS_PAGE_MAX);
        let start: Bound<&str> = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            Some(_) | None => Bound::Included(prefix),
        };
        let mut names =
            self.groups.names_from(start).take_while(|group| group.as_str().starts_with(prefix));
        let groups: Vec<LeaderView> =
            names.by_ref().take(count).map(|group| self.leader_view(group, incarnation)).collect();
        let next = names.next().and(groups.last()).map(|last| last.group.clone());
        GroupsPage { groups, next, revision: self.revision }
    }

    /// The last changes of a group, oldest first; none for one that is not known.
    #[must_use]
    pub fn history(&self, group: &Group) -> &[Change] {
        self.groups.get(group).map(|state| state.history.as_slice()).unwrap_or_default()
    }

    /// Whether a session leads a group that knows it: it has accepted.
    #[must_use]
    pub fn leads(&self, group: &Group) -> bool {
        self.groups.get(group).is_some_and(|state| state.marks.led)
    }

    /// How these groups and all together are led. How long elections took is the driver's to add.
    #[must_use]
    pub fn offices_view(&self, groups: &[Group]) -> OfficesView {
        let note = |group: &Group| {
            let state = self.groups.get(group)?;
            let changed = state.history.iter().rev().find(|change| !change.cause.is_finding());
            Some(OfficeNote {
                is_led: state.marks.led,
                is_wanted: state.marks.contended,
                changed_wall_ms: changed.map(|change| change.wall_ms),
            })
        };
        OfficesView {
            offices: groups.iter().map(note).collect(),
            led: self.index.led,
            wanted: self.index.contended,
            times: None,
        }
    }

    /// Counts for metrics; watchers and the budget are the driver's to add.
    #[must_use]
    pub fn census(&self) -> Census {
        Census {
            sessions: self.sessions.len() as u64,
            groups: self.groups.len() as u64,
            led: self.index.led,
            contended: self.index.contended,
            watchers: 0,
            state_bytes: self.bytes(),
            state_bytes_max: 0,
            revision: self.revision,
        }
    }
}

const fn office_state(state: &GroupState) -> OfficeState {
    match &state.office {
        Office::Vacant => OfficeState::Vacant,
        Office::Delayed { .. } => OfficeState::Delayed,
        Office::Held { tenure } if tenure.accepted => OfficeState::Leading,
        Office::Held { .. } => OfficeState::Elected,
        Office::Ending { .. } => OfficeState::Ending,
    }
}
