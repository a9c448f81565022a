//! What the participant tells about itself: the terms its work runs under, and how close it came to losing them.
//!
//! A term is claimed for as long as *work* runs under it, not for as long as it is held: work that did not stop in
//! time is what others must hear of. A heartbeat tells at most [`CLAIMS_PER_HEARTBEAT_MAX`] terms; a participant with
//! more tells them in turn, so that a heartbeat for 100,000 groups stays a small message.

use std::ops::Bound;
use std::time::Duration;

use super::Participant;
use super::heartbeat::Lease;
use crate::belief::{Beliefs, Claim};
use crate::limits::{CLAIMS_PER_HEARTBEAT_MAX, REFUSALS_PER_HEARTBEAT_MAX};
use crate::name::{Digest, Group};
use crate::term::Term;

/// What there is to tell, and where the telling stopped.
#[derive(Clone, Debug, Default)]
pub(super) struct Telling {
    /// The last group told, if there are more than one heartbeat tells.
    after: Option<Group>,
    /// Whether the last heartbeat told any: the next one must tell if there are none any more.
    claimed: bool,
    margin: Option<Duration>,
    refused: Vec<(Group, Term)>,
}

impl Participant {
    /// What the next heartbeat tells; none if there is nothing to tell.
    pub(super) fn beliefs(&mut self) -> Option<Box<Beliefs>> {
        let claims = self.claims();
        let telling = &mut self.telling;
        let was_claiming = std::mem::replace(&mut telling.claimed, !claims.is_empty());
        let margin = telling.margin.take();
        // Told again until a heartbeat was acknowledged.
        let refused = telling.refused.clone();
        if claims.is_empty() && !was_claiming && margin.is_none() && refused.is_empty() {
            return None;
        }
        let (node, ttl_ms) = (self.node.clone(), self.budget.ttl_ms());
        Some(Box::new(Beliefs { node, ttl_ms, margin_ms: margin.map(millis), claims, refused }))
    }

    fn claims(&mut self) -> Vec<Claim> {
        let mut claims = Vec::new();
        // `leading` is part of `working`; what is not in it was told to stop, and is what others must hear of.
        if self.working.len() > self.leading.len() {
            let overdue = self.working.difference(&self.leading);
            let overdue = overdue.filter_map(|group| self.claim_of(group));
            claims.extend(overdue.take(CLAIMS_PER_HEARTBEAT_MAX));
        }
        let room = CLAIMS_PER_HEARTBEAT_MAX - claims.len();
        let after = self.telling.after.take();
        let start = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.leading.range::<Group, _>((start, Bound::Unbounded));
        let earlier = after.iter().flat_map(|after| self.leading.range::<Group, _>(..=after));
        let groups: Vec<&Group> = later.chain(earlier).take(room).collect();
        if self.leading.len() > room {
            self.telling.after = groups.last().copied().cloned();
        }
        claims.extend(groups.into_iter().filter_map(|group| self.claim_of(group)));
        claims
    }

    fn claim_of(&self, group: &Group) -> Option<Claim> {
        let candidacy = self.groups.get(group)?;
        let work = candidacy.work?;
        let held = self.valid_until(group).filter(|(term, _)| *term == work.term);
        // A term that was lost may leave its work some time to stop in.
        let until = held.map(|(_, until)| until).max(work.stop_by);
        let left = until.map_or(Duration::ZERO, |until| self.now.until(until));
        let digest = candidacy.digest.as_ref().filter(|(term, _)| *term == work.term);
        Some(Claim {
            group: group.clone(),
            term: work.term,
            left_ms: millis(left),
            digest: digest.map(|(_, digest)| digest.clone()),
        })
    }

    /// A renewal came: how long before a leader here would have had to stop? Who stands by tells it too: whether it would
    /// do better than the leader is worth knowing before the leader fails.
    pub(super) fn note_margin(&mut self, had: Option<Lease>) {
        if let Some(had) = had {
            let left = self.now.until(had.stops_at(&self.budget));
            let margin = &mut self.telling.margin;
            *margin = Some(margin.map_or(left, |smallest| smallest.min(left)));
        }
    }

    /// A heartbeat that told these was acknowledged.
    pub(super) fn refusals_told(&mut self, told: &[(Group, Term)]) {
        self.telling.refused.retain(|refused| !told.contains(refused));
    }

    /// A fence refused a term, whether or not it was known to be over.
    pub(super) fn note_refusal(&mut self, group: &Group, term: Term) {
        let (refused, told) = (&mut self.telling.refused, (group.clone(), term));
        if refused.len() < REFUSALS_PER_HEARTBEAT_MAX && !refused.contains(&told) {
            refused.push(told);
        }
    }

    /// The application tells what its state looks like.
    pub(super) fn set_digest(&mut self, group: &Group, term: Term, digest: Digest) {
        if let Some(candidacy) = self.groups.get_mut(group)
            && candidacy.work.is_some_and(|work| work.term == term)
        {
            candidacy.digest = Some((term, digest));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
