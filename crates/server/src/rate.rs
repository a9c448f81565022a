//! How often one caller may ask.
//!
//! Whoever asks has two budgets a second: one for what keeps and frees offices (heartbeats, renewals, resignations), and
//! one for everything else. Neither can use the other's, so a caller that floods the server with reads still renews, and
//! one that renews without end still reads. A caller is a principal; where callers are not authenticated, an address.
//!
//! Each budget is a bucket that holds the requests of [`BURST`] and fills evenly. Only one moment is remembered of it:
//! when it will be full again. So a bucket that is full is one that need not be remembered.
//!
//! This is per server and per caller. What all callers together may have under way is in `admission`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regent_api::{Code, Problem};
use regent_election::Moment;
use regent_election::access::Principal;

use crate::admission::Class;
use crate::limits::{BURST, CALLERS_MAX, FAILURES_PART, FORGET_EVERY, RETRY_SPREAD_MS};
use crate::socket::UNIX;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AskedBy {
    Principal(Principal),
    /// Nobody says who it is: all of an address.
    Address(IpAddr),
    /// Those for whom there is no bucket of their own any more.
    Crowd,
}

impl AskedBy {
    fn text(&self) -> String {
        match self {
            Self::Principal(who) => who.to_string(),
            Self::Address(UNIX) => "the Unix socket".to_owned(),
            Self::Address(address) => address.to_string(),
            Self::Crowd => "this caller, with many others,".to_owned(),
        }
    }
}

/// When each bucket of one caller is full again.
#[derive(Clone, Copy, Debug, Default)]
struct FullAt {
    reserved: Moment,
    other: Moment,
}

/// The buckets of all callers.
#[derive(Debug)]
pub(crate) struct RateLimits {
    /// Requests a second; none is no limit.
    reserved_per_s: Option<u32>,
    other_per_s: Option<u32>,
    callers: Mutex<Callers>,
}

#[derive(Debug, Default)]
struct Callers {
    full_at: HashMap<AskedBy, FullAt>,
    forgotten_at: Moment,
}

impl RateLimits {
    /// Limits of so many requests a second, and so many of those that keep and free offices; zero is no limit.
    pub(crate) fn new(requests_per_s: u32, renewals_per_s: u32) -> Self {
        let limit = |per_s: u32| Some(per_s).filter(|per_s| *per_s > 0);
        Self {
            reserved_per_s: limit(renewals_per_s),
            other_per_s: limit(requests_per_s),
            callers: Mutex::default(),
        }
    }

    /// Counts a request; refused, it counts for nothing.
    pub(crate) fn take(
        &self,
        now: Moment,
        caller: impl FnOnce() -> AskedBy,
        class: Class,
        dice: impl FnOnce() -> u64,
    ) -> Result<(), Problem> {
        let is_reserved = class.is_reserved();
        let limit = if is_reserved { self.reserved_per_s } else { self.other_per_s };
        let Some(per_s) = limit else { return Ok(()) };
        let caller = caller();
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = callers.admit(now, caller);
        let taken = |buckets: &mut FullAt| {
            let bucket = if is_reserved { &mut buckets.reserved } else { &mut buckets.other };
            fill(*bucket, now, per_s).map(|full_at| *bucket = full_at)
        };
        let taken = match callers.full_at.get_mut(&caller) {
            Some(buckets) => taken(buckets),
            None => taken(callers.full_at.entry(caller.clone()).or_default()),
        };
        drop(callers);
        taken.map_err(|wait| refuse(&caller, class, per_s, wait, dice()))
    }
}

/// How often an address may fail to say who it is. What is shown must be judged to be found wrong, and for a signature
/// that is dear: an address beyond its budget is judged no more, unless what it shows was found good lately.
///
/// Only failures count, so callers behind one address keep no good credential from being served.
#[derive(Debug)]
pub(crate) struct FailureLimits(RateLimits);

impl FailureLimits {
    /// Failures are one in [`FAILURES_PART`] of the requests that one caller may send; zero is no limit.
    pub(crate) fn new(requests_per_s: u32) -> Self {
        let failures_per_s = requests_per_s.div_ceil(FAILURES_PART);
        Self(RateLimits::new(failures_per_s, 0))
    }

    /// Counts a failure: beyond the budget it is answered by this.
    pub(crate) fn count(
        &self,
        now: Moment,
        address: IpAddr,
        dice: impl FnOnce() -> u64,
    ) -> Result<(), Problem> {
        let taken = self.0.take(now, || AskedBy::Address(address), Class::Read, dice);
        taken.map_err(|Problem { retry_after_ms, .. }| {
            let retry_after_ms = retry_after_ms.unwrap_or(RETRY_SPREAD_MS);
            let detail = format!(
                "{} shows more than {} wrong credentials a second; nothing happened, look for the program that has none, then try again in {retry_after_ms} ms",
                AskedBy::Address(address).text(),
                self.0.other_per_s.unwrap_or_default(),
            );
            Problem::new(Code::RateLimited, detail).retry_after(retry_after_ms)
        })
    }

    /// Whether one more failure of this address would be beyond its budget.
    pub(crate) fn is_used_up(&self, now: Moment, address: IpAddr) -> bool {
        let Some(per_s) = self.0.other_per_s else { return false };
        let callers = self.0.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = callers.full_at.get(&AskedBy::Address(address));
        known.is_some_and(|buckets| fill(buckets.other, now, per_s).is_err())
    }
}

impl Callers {
    /// The caller under whose name is counted. Strangers without end take no memory without end: beyond the most that are
    /// remembered they share one bucket.
    fn admit(&mut self, now: Moment, caller: AskedBy) -> AskedBy {
        if self.full_at.len() < CALLERS_MAX || self.full_at.contains_key(&caller) {
            return caller;
        }
        if now.since(self.forgotten_at) >= FORGET_EVERY {
            self.forgotten_at = now;
            self.full_at.retain(|_, full| full.reserved > now || full.other > now);
        }
        if self.full_at.len() < CALLERS_MAX { caller } else { AskedBy::Crowd }
    }
}

/// Takes one request out of a bucket: when it is full again then, or how long until there is one in it.
fn fill(full_at: Moment, now: Moment, per_s: u32) -> Result<Moment, Duration> {
    let then = full_at.max(now) + Duration::from_secs(1) / per_s;
    let latest = now + BURST;
    if then > latest { Err(latest.until(then)) } else { Ok(then) }
}

fn refuse(caller: &AskedBy, class: Class, per_s: u32, wait: Duration, dice: u64) -> Problem {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
    let retry_after_ms = wait_ms.saturating_add(dice % RETRY_SPREAD_MS);
    let (what, setting) = if class.is_reserved() {
        ("renewals and releases", "renewals_per_principal")
    } else {
        ("requests other than renewals and releases", "requests_per_principal")
    };
    let detail = format!(
        "{} sends more than {per_s} {what} a second; nothing happened, try again in {retry_after_ms} ms, or raise {setting}",
        caller.text()
    );
    Problem::new(Code::RateLimited, detail).retry_after(retry_after_ms)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> AskedBy {
        AskedBy::Address(IpAddr::V4(Ipv4Addr::from(number)))
    }

    /// How many of these pass at a moment.
    fn passed(limits: &RateLimits, at_ms: u64, caller: u32, class: Class, count: u32) -> u32 {
        let now = Moment::from_millis(at_ms);
        let passes = |_: &u32| limits.take(now, || address(caller), class, || 0).is_ok();
        u32::try_from((0..count).filter(passes).count()).unwrap()
    }

    #[test]
    fn a_caller_has_a_burst_and_then_its_rate() {
        let limits = RateLimits::new(100, 0);
        let burst = 100 * u32::try_from(BURST.as_secs()).unwrap();
        assert_eq!(passed(&limits, 10_000, 1, Class::Read, 1000), burst);
        assert_eq!(passed(&limits, 10_000, 1, Class::Campaign, 10), 0, "they share one budget");
        assert_eq!(passed(&limits, 10_500, 1, Class::Watch, 1000), 50);
        assert_eq!(passed(&limits, 90_000, 1, Class::Read, 1000), burst, "no more is saved up");
    }

    #[test]
    fn what_keeps_and_frees_offices_has_a_budget_that_nothing_else_uses() {
        let limits = RateLimits::new(10, 10);
        assert!(passed(&limits, 1, 1, Class::Read, 1000) < 1000);
        for class in [Class::Renew, Class::Release] {
            assert!(passed(&limits, 1, 1, class, 5) == 5, "{class:?}");
        }
        assert!(passed(&limits, 1, 2, Class::Renew, 1000) < 1000, "it is bounded itself");
        assert_eq!(passed(&limits, 1, 2, Class::Read, 5), 5);
    }

    #[test]
    fn one_caller_takes_nothing_of_another() {
        let limits = RateLimits::new(10, 10);
        passed(&limits, 1, 1, Class::Read, 1000);
        assert_eq!(passed(&limits, 1, 2, Class::Read, 10), 10);
    }

    #[test]
    fn a_refusal_says_who_how_much_and_when() {
        let limits = RateLimits::new(10, 0);
        passed(&limits, 1, 1, Class::Read, 1000);
        let now = Moment::from_millis(1);
        let problem = limits.take(now, || address(1), Class::Read, || 0).unwrap_err();
        assert!(problem.detail.contains("0.0.0.1 sends more than 10 requests"), "{problem:?}");
        assert_eq!((problem.status, problem.retry_after_ms), (429, Some(101)));
    }

    #[test]
    fn an_address_that_fails_too_often_is_judged_no_more_and_another_is() {
        let limits = FailureLimits::new(100);
        let (now, one) = (Moment::from_millis(1000), IpAddr::from([10, 0, 0, 1]));
        let failures = (0..1000).filter(|_| limits.count(now, one, || 0).is_ok()).count();
        assert_eq!(failures as u64, 10 * BURST.as_secs());
        assert!(limits.is_used_up(now, one));
        assert!(!limits.is_used_up(now, IpAddr::from([10, 0, 0, 2])));
        let problem = limits.count(now, one, || 0).unwrap_err();
        assert!(problem.detail.contains("10.0.0.1 shows more than 10 wrong"), "{problem:?}");
        let later = now + Duration::from_millis(100);
        assert!(!limits.is_used_up(later, one) && limits.count(later, one, || 0).is_ok());
        assert!(FailureLimits::new(0).count(now, one, || 0).is_ok(), "no limit");
    }

    /// A bucket that is full need not be remembered, and those for whom there is no room share one.
    #[test]
    fn callers_without_end_take_no_memory_without_end() {
        let limits = RateLimits::new(1, 1);
        let most = u32::try_from(CALLERS_MAX).unwrap();
        for caller in 0..most {
            assert_eq!(passed(&limits, 1000, caller, Class::Read, 1), 1);
        }
        let burst = u32::try_from(BURST.as_secs()).unwrap();
        let strangers =
            (most..most + 10).map(|caller| passed(&limits, 1000, caller, Class::Read, 1));
        assert_eq!(strangers.sum::<u32>(), burst, "they share one");
        assert_eq!(passed(&limits, 1000, 0, Class::Read, 10), burst - 1, "its own");
        let later = 1000 + u64::try_from((BURST + FORGET_EVERY).as_millis()).unwrap();
        assert_eq!(passed(&limits, later, most, Class::Read, 1), 1, "one of its own again");
        assert!(limits.callers.lock().unwrap().full_at.len() <= 2);
    }
}
