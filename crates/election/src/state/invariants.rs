//! What must be true of every state, checked from scratch. For tests and the simulator.

use std::collections::BTreeSet;

use super::{Index, State};
use crate::limits::HISTORY_PER_GROUP;
use crate::name::{Group, SessionNo};

impl State {
    /// Checks every relation between the parts of the state; the error names the first one broken.
    pub fn check_invariants(&self) -> Result<(), String> {
        let holds = |truth: bool, what: String| if truth { Ok(()) } else { Err(what) };
        let mut leads = BTreeSet::<(SessionNo, Group)>::new();
        let mut stands = BTreeSet::<(SessionNo, Group)>::new();
        for (name, group) in &self.groups {
            if let Some(tenure) = group.office.tenure() {
                leads.insert((tenure.session, name.clone()));
                holds(group.term.get() > 0, format!("{name} is led without a term"))?;
                if let Some(offer) = tenure.offer {
                    let standing = group.place_of(offer.to).is_some();
                    holds(standing, format!("{name} is offered to one who does not stand"))?;
                }
            }
            if let Some(heir) = group.heir {
                let standing = group.place_of(heir).is_some();
                holds(standing, format!("{name} has an heir who does not stand"))?;
            }
            for standby in &group.line {
                let is_first = stands.insert((standby.session, name.clone()));
                holds(is_first, format!("{} stands twice in {name}", standby.session))?;
            }
            let in_order = group
                .line
                .is_sorted_by_key(|standby| (std::cmp::Reverse(standby.priority), standby.arrived));
            holds(in_order, format!("the line of {name} is out of order"))?;
            holds(
                group.history.len() <= HISTORY_PER_GROUP
                    && group.history.is_sorted_by_key(|change| (change.revision, change.term)),
                format!("the history of {name} is out of order"),
            )?;
            let last = group.history.last();
            let remembered = last.is_none_or(|change| {
                change.term == group.term
                    && change.leader.as_ref()
                        == group.office.tenure().and_then(|tenure| self.node(tenure.session))
            });
            holds(remembered, format!("the history of {name} does not end with its office"))?;
            holds(
                !group.doomed || group.line.is_empty(),
                format!("{name} is being deleted and has a line"),
            )?;
        }
        for (no, session) in &self.sessions {
            holds(
                self.by_secret.get(&session.id) == Some(no),
                format!("{no} cannot be found by its secret"),
            )?;
            holds(!session.gone, format!("{no} is gone and still here"))?;
            for group in &session.leads {
                let known = leads.remove(&(*no, group.clone()));
                holds(known, format!("{no} believes to lead {group}"))?;
            }
            for group in &session.stands {
                let known = stands.remove(&(*no, group.clone()));
                holds(known, format!("{no} believes to stand in {group}"))?;
            }
            let lingers = session.passing && session.leads.is_empty() && session.stands.is_empty();
            holds(!lingers, format!("{no} was passing and lingers"))?;
        }
        holds(leads.is_empty(), format!("offices without their session: {leads:?}"))?;
        holds(stands.is_empty(), format!("standbys without their session: {stands:?}"))?;
        holds(self.by_secret.len() == self.sessions.len(), "secrets without session".into())?;
        holds(self.index == Index::recomputed(self), "the index has drifted".into())
    }
}
