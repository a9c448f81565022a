//! Who is served when not all can be: the important ones first.
//!
//! All requests that ask the store share one count, but each class sees its own limit below the
//! whole. As load rises the least important class is refused first, and only renewals may use the
//! last of it: a server too busy to list groups must not cost anybody an office (L7).
//!
//! A refusal comes at once. A queue would only make the same refusal later, when the answer is no
//! longer of use, and hold memory meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use regent_api::{Code, Problem};
use regent_election::access::Principal;

use crate::count::{Count, Entered};
use crate::limits::OPEN_STREAMS_PART;

/// How much a request matters when not all can be served, most first.
///
/// A watch is the first to go. Nobody loses anything by it but time: a participant learns of a promotion by its next
/// heartbeat, and watches that are open stay. Yet a watch costs most: its answer has no end. Next are those who only want
/// to know, and what an operator does, which is seldom and can wait. Then comes who wants an office.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Keeps somebody in office, or lets a promoted one act.
    Renew,
    /// Frees an office, or hands it on.
    Release,
    /// Asks on behalf of storage whether a term is the newest: a write waits for it, and a leader that is refused must
    /// hear so.
    Validate,
    /// Wants an office.
    Campaign,
    /// An administrator's.
    Admin,
    /// Asks once.
    Read,
    /// Tells who leads.
    Watch,
}

impl Class {
    pub(crate) const ALL: [Self; 7] = [
        Self::Renew,
        Self::Release,
        Self::Validate,
        Self::Campaign,
        Self::Admin,
        Self::Read,
        Self::Watch,
    ];

    /// The part of all places that this class may fill, in hundredths.
    const fn share(self) -> usize {
        match self {
            Self::Renew => 100,
            Self::Release => 90,
            Self::Validate => 85,
            Self::Campaign => 80,
            Self::Admin => 70,
            Self::Read => 60,
            Self::Watch => 50,
        }
    }

    /// Whether it counts against the budget of a caller that is kept for what keeps and frees offices.
    pub(crate) const fn is_reserved(self) -> bool {
        match self {
            Self::Renew | Self::Release => true,
            Self::Validate | Self::Campaign | Self::Admin | Self::Read | Self::Watch => false,
        }
    }

    /// The word for metrics and messages.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Validate => "validate",
            Self::Watch => "watch",
            Self::Campaign => "campaign",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// How many principals are remembered beside those that wait, until those that do not are forgotten.
const FORGET_FROM: usize = 64;

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Admission {
    asking: Arc<Count>,
    waiting: Arc<Count>,
    /// Those of each principal; none that has none need be here.
    waiting_of: Mutex<HashMap<Principal, Arc<Count>>>,
    open: Arc<Count>,
    asking_max: usize,
    waiting_max: usize,
}

impl Admission {
    pub(crate) fn new(asking_max: usize, waiting_max: usize) -> Self {
        let (asking, waiting, open) = (Arc::default(), Arc::default(), Arc::default());
        Self { asking, waiting, waiting_of: Mutex::default(), open, asking_max, waiting_max }
    }

    /// Requests that ask the store and do not wait for anything else.
    pub(crate) fn asking(&self) -> &Count {
        &self.asking
    }

    /// Requests that wait: watches and campaigns with `wait_ms`.
    pub(crate) fn waiting(&self) -> &Count {
        &self.waiting
    }

    /// A place for a request of this class, if there is one.
    pub(crate) fn admit(&self, class: Class) -> Option<Entered> {
        self.asking.enter((self.asking_max * class.share() / 100).max(1))
    }

    /// A place among those that wait, if there is one. Waiting costs memory, not work, so it has a
    /// count of its own and cannot crowd out renewals.
    ///
    /// A principal takes at most as many as are free after it, so half of them if it alone waits: one that watches without
    /// end leaves places to the others. Without authentication connections of an address are bounded instead.
    pub(crate) fn wait(&self, who: Option<&Principal>) -> Option<Entered> {
        let Some(who) = who else {
            return self.waiting.enter(self.waiting_max);
        };
        let mut waiting_of = self.waiting_of.lock().unwrap_or_else(PoisonError::into_inner);
        let own = match waiting_of.get(who) {
            Some(own) => own,
            None => {
                // As many principals wait as there are places that are taken, at most.
                if waiting_of.len() > self.waiting.now() + FORGET_FROM {
                    waiting_of.retain(|_, own| own.now() > 0);
                }
                waiting_of.entry(who.clone()).or_default()
            }
        };
        let own = own.enter(self.waiting_max.saturating_sub(self.waiting.now()))?;
        Some(self.waiting.enter(self.waiting_max)?.and(own))
    }

    /// A place for a stream that anybody may open, known or not: of health and of reflection. They have a count of
    /// their own, so that strangers take no place of sessions and watches.
    pub(crate) fn wait_in_the_open(&self) -> Option<Entered> {
        self.open.enter((self.waiting_max / OPEN_STREAMS_PART).max(1))
    }
}

/// Shortest and longest time a refused client is told to stay away.
const RETRY_MS: std::ops::Range<u64> = 200..1200;

/// The refusal for want of a place. `dice` spreads the retries of all that were refused together.
pub(crate) fn refuse(class: Class, dice: u64) -> Problem {
    let retry_after_ms = RETRY_MS.start + dice % (RETRY_MS.end - RETRY_MS.start);
    let detail = format!(
        "the server has more {} requests than it can serve; nothing happened, try again in {retry_after_ms} ms",
        class.word()
    );
    Problem::new(Code::RateLimited, detail).retry_after(retry_after_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L7: under load the least important class is refused first and renewals last.
    #[test]
    fn renewals_are_admitted_when_every_other_class_is_refused() {
        let admission = Admission::new(100, 1);
        let mut places = Vec::new();
        let mut refused_at = Vec::new();
        for class in Class::ALL.into_iter().rev() {
            while let Some(place) = admission.admit(class) {
                places.push(place);
            }
            refused_at.push(places.len());
            for lower in Class::ALL.into_iter().filter(|lower| *lower >= class) {
                assert!(admission.admit(lower).is_none(), "{lower:?} after {class:?}");
            }
        }
        assert_eq!(refused_at, [50, 60, 70, 80, 85, 90, 100]);
    }

    /// The order that operators are promised: watches, reads, campaigns, and renewals last.
    #[test]
    fn watches_are_refused_before_reads_and_reads_before_campaigns() {
        let order = [Class::Watch, Class::Read, Class::Campaign, Class::Release, Class::Renew];
        assert!(order.windows(2).all(|two| two[0].share() < two[1].share()));
    }

    #[test]
    fn those_that_wait_take_no_place_of_those_that_ask() {
        let admission = Admission::new(1, 1);
        let _waiting = admission.wait(None).unwrap();
        assert!(admission.wait(None).is_none());
        assert!(admission.admit(Class::Watch).is_some());
    }

    #[test]
    fn a_principal_that_waits_without_end_leaves_half_of_the_places_to_the_others() {
        let admission = Admission::new(1, 800);
        let taken = |name: &str| -> Vec<_> {
            let who: Principal = name.parse().unwrap();
            std::iter::from_fn(|| admission.wait(Some(&who))).collect()
        };
        let (greedy, modest) = (taken("user:greedy"), taken("user:modest"));
        assert_eq!((greedy.len(), modest.len()), (400, 200));
        assert!(taken("user:greedy").is_empty());
        assert!(admission.wait(None).is_some(), "who is not known has what is left");
        drop((greedy, modest));
        assert_eq!(admission.waiting().now(), 0);
        for number in 0..1000 {
            let who: Principal = format!("user:{number}").parse().unwrap();
            assert!(admission.wait(Some(&who)).is_some());
        }
        let remembered = admission.waiting_of.lock().unwrap().len();
        assert!(remembered <= FORGET_FROM + 2, "who waits no more is forgotten: {remembered}");
    }

    #[test]
    fn strangers_take_no_place_of_those_that_wait() {
        let admission = Admission::new(1, 8);
        let open: Vec<_> = std::iter::from_fn(|| admission.wait_in_the_open()).collect();
        assert_eq!(open.len(), 2);
        let waiting: Vec<_> = std::iter::from_fn(|| admission.wait(None)).collect();
        assert_eq!(waiting.len(), 8);
    }

    #[test]
    fn a_refusal_says_when_to_come_back_within_bounds() {
        for dice in [0, 1, 999, 1000, u64::MAX] {
            let problem = refuse(Class::Read, dice);
            assert!(RETRY_MS.contains(&problem.retry_after_ms.unwrap()));
            assert_eq!(problem.status, 429);
        }
    }
}
