//! The time of one session: when it was heard, and what follows from that.

use std::time::Duration;

use super::checks::Tick;
use crate::limits::SPREAD_MS_MAX;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::name::SessionNo;

/// The store began to count anew: what it heard before, it does not know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promotion {
    pub(super) at: Moment,
    /// Rises by one each time, so that what was heard in the same moment is told apart.
    pub(super) number: u64,
}

/// One session's numbers. Its condition at any moment is computed from them.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    ttl_ms: u64,
    /// A larger ttl that still counts for what is heard before the moment beside it.
    former: Option<(u64, Moment)>,
    /// The last arrival, or the opening.
    heard_at: Moment,
    /// The number of the promotion after which that was; 0 before any.
    heard_in: u64,
    /// The latest of all "heard plus ttl".
    deadline: Moment,
    sequence: Option<u64>,
    /// The check that counts; any other one in the queue is stale.
    pub(super) queued: Option<Tick>,
    pub(super) is_silent: bool,
    /// Whether something arrived after it had fallen silent: matters only if it is spared.
    pub(super) heard_since_silent: bool,
    pub(super) is_expiring: bool,
}

impl Lease {
    pub(super) fn open(ttl_ms: u64, now: Moment, promotion: Option<Promotion>) -> Self {
        Self {
            ttl_ms,
            former: None,
            heard_at: now,
            heard_in: promotion.map_or(0, |last| last.number),
            deadline: now + Duration::from_millis(ttl_ms),
            sequence: None,
            queued: None,
            is_silent: false,
            heard_since_silent: false,
            is_expiring: false,
        }
    }

    pub(super) const fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// Whether its ttl ever changed, so that an arrival may bring its next check forward.
    pub(super) const fn has_changed(&self) -> bool {
        self.former.is_some()
    }

    /// The ttl that counts for something heard at `at`.
    fn ttl_at(&self, at: Moment) -> Duration {
        let larger_ms = match self.former {
            Some((former_ms, until)) if at < until => former_ms.max(self.ttl_ms),
            Some(_) | None => self.ttl_ms,
        };
        Duration::from_millis(larger_ms)
    }

    /// The larger of what it is and was: what a promotion restarts, so that a second promotion
    /// never takes back what the first one gave.
    fn ttl_longest(&self) -> Duration {
        let former_ms = self.former.map_or(0, |(former_ms, _)| former_ms);
        Duration::from_millis(former_ms.max(self.ttl_ms))
    }

    pub(super) fn change_ttl(
        &mut self,
        session: SessionNo,
        ttl_ms: u64,
        now: Moment,
        promotion: Option<Promotion>,
    ) {
        // What the last promotion gave was counted with the ttl before this change.
        self.deadline = self.deadline(session, promotion);
        // Changes in quick succession add up to the largest of them, for as long as any holds.
        let old = self.ttl_at(now);
        let until = now + old;
        let until = self.former.map_or(until, |(_, before)| until.max(before));
        let old_ms = u64::try_from(old.as_millis()).unwrap_or(u64::MAX);
        self.former = Some((old_ms, until));
        self.ttl_ms = ttl_ms;
        self.deadline = self.deadline.max(now + self.ttl_at(now));
    }

    /// Takes an arrival into account, or says the last number if this one is not above it.
    pub(super) fn heartbeat(
        &mut self,
        sequence: Option<u64>,
        now: Moment,
        promotion: Option<Promotion>,
    ) -> Result<(), u64> {
        if let (Some(given), Some(last)) = (sequence, self.sequence)
            && given <= last
        {
            return Err(last);
        }
        self.sequence = sequence.or(self.sequence);
        self.heard_at = self.heard_at.max(now);
        self.heard_in = promotion.map_or(0, |last| last.number);
        if !mutant::is(Mutant::ArrivalExtendsNothing) {
            self.deadline = self.deadline.max(now + self.ttl_at(now));
        }
        self.heard_since_silent = true;
        Ok(())
    }

    /// When it is due, given the store's last promotion.
    pub(super) fn deadline(&self, session: SessionNo, promotion: Option<Promotion>) -> Moment {
        let Some(promotion) = promotion else { return self.deadline };
        let ttl = self.ttl_longest();
        let restarted = promotion.at + ttl;
        if self.heard_in == promotion.number {
            return self.deadline.max(restarted);
        }
        self.deadline.max(restarted + spread(session, ttl))
    }

    /// When it counts as silent, unless it is heard before.
    pub(super) fn silent_at(&self, promotion: Option<Promotion>) -> Moment {
        match promotion {
            Some(promotion) if self.heard_in != promotion.number => {
                promotion.at + self.ttl_longest() / 2
            }
            Some(_) | None => self.heard_at + self.ttl_at(self.heard_at) / 2,
        }
    }

    /// When its condition may change next.
    pub(super) fn next_check_at(&self, session: SessionNo, promotion: Option<Promotion>) -> Moment {
        let deadline = self.deadline(session, promotion);
        if self.is_silent { deadline } else { self.silent_at(promotion).min(deadline) }
    }
}

/// A share of `min(ttl/10, 1 s)` that depends on nothing but the session's number.
fn spread(session: SessionNo, ttl: Duration) -> Duration {
    let most = (ttl / 10).min(Duration::from_millis(SPREAD_MS_MAX));
    let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    // The high half of a product is uniform over 0..=most for a uniform mix.
    let share = (u128::from(mix(session.0)) * (u128::from(most_ns) + 1)) >> 64;
    Duration::from_nanos(u64::try_from(share).unwrap_or(most_ns))
}

/// Spreads neighbouring numbers over all 64 bits (the finaliser of splitmix64).
const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_bounded_and_really_spreads() {
        for ttl_ms in [500, 10_000, 3_600_000] {
            let ttl = Duration::from_millis(ttl_ms);
            let most = (ttl / 10).min(Duration::from_secs(1));
            let shares: Vec<Duration> = (0..1000).map(|no| spread(SessionNo(no), ttl)).collect();
            assert!(shares.iter().all(|share| *share <= most));
            for decile in 0..10_u32 {
                let (low, high) = (most * decile / 10, most * (decile + 1) / 10);
                let inside = shares.iter().filter(|s| low <= **s && **s < high).count();
                assert!((50..=200).contains(&inside), "{inside} of 1000 in decile {decile}");
            }
        }
    }
}
