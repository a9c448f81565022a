//! The budget over its whole accepted range, checked by arithmetic that shares nothing with it:
//! two clocks are simulated as exact fractions of true time, and the holder must be done first.

use std::time::Duration;

use proptest::prelude::*;
use regent_election::limits::{DRIFT_PPM_MAX, RENEW_MS_MIN, TTL_MS_CEILING, TTL_MS_FLOOR};
use regent_election::timing::{Budget, BudgetError, Drift, Wishes};

/// Parts of a second so fine that every true instant below is a whole number of them: a clock with
/// rate `(10^6 ± ppm)/10^6` shows `ms` after `ms × 10^6 / rate` true milliseconds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct TrueTime {
    numerator: u128,
    denominator: u128,
}

impl TrueTime {
    fn until_clock_shows(ms: u64, rate_ppm: u32) -> Self {
        Self { numerator: u128::from(ms) * 1_000_000, denominator: u128::from(rate_ppm) }
    }

    fn is_at_most(self, other: Self) -> bool {
        self.numerator * other.denominator <= other.numerator * self.denominator
    }
}

fn ttl_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        TTL_MS_FLOOR..=TTL_MS_CEILING,
        TTL_MS_FLOOR..=5_000,
        Just(TTL_MS_FLOOR),
        Just(TTL_MS_CEILING)
    ]
}

fn ppm() -> impl Strategy<Value = u32> {
    prop_oneof![0..=DRIFT_PPM_MAX, 0..=20_000_u32, Just(0), Just(DRIFT_PPM_MAX)]
}

fn wish(max_ms: u64) -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (0..=max_ms).prop_map(Some), (0..=max_ms / 4).prop_map(Some)]
}

fn wishes() -> impl Strategy<Value = (u64, Wishes)> {
    ttl_ms().prop_flat_map(|ttl_ms| {
        (wish(ttl_ms), wish(ttl_ms), wish(ttl_ms)).prop_map(move |(stop, renew, timeout)| {
            (
                ttl_ms,
                Wishes { stop_grace_ms: stop, renew_every_ms: renew, request_timeout_ms: timeout },
            )
        })
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a budget is below a day")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// S1 under A1: whatever two rates within the bound, the holder's last valid instant is not
    /// after the store's first free one, even if the heartbeat took no time to arrive.
    #[test]
    fn an_accepted_budget_never_overlaps(
        (ttl_ms, wishes) in wishes(),
        ppm in ppm(),
        (holder_at, store_at) in (0..=2_000_u32, 0..=2_000_u32),
    ) {
        let drift = Drift::from_ppm(ppm).unwrap();
        let Ok(budget) = Budget::with(ttl_ms, drift, wishes) else { return Ok(()) };
        let rate = |thousandths: u32| {
            // 0 is the slowest clock allowed, 1000 the true one, 2000 the fastest.
            let offset = i64::from(ppm) * (i64::from(thousandths) - 1000) / 1000;
            u32::try_from(1_000_000 + offset).unwrap()
        };
        for (holder, store) in [(rate(holder_at), rate(store_at)), (rate(0), rate(2_000))] {
            let holder_done = TrueTime::until_clock_shows(millis(budget.valid_for()), holder);
            let store_frees = TrueTime::until_clock_shows(ttl_ms, store);
            prop_assert!(holder_done.is_at_most(store_frees), "{budget}");
        }
    }

    /// The margin is a share of the ttl that is never below `ε = 2ρ/(1+ρ)`, and wastes less than
    /// one millisecond beyond it.
    #[test]
    fn the_margin_is_epsilon_and_no_more(ttl_ms in ttl_ms(), ppm in ppm()) {
        let budget = Budget::new(ttl_ms, Drift::from_ppm(ppm).unwrap()).unwrap();
        let margin_ms = u128::from(ttl_ms - millis(budget.valid_for()));
        let (rho, one) = (u128::from(ppm), 1_000_000_u128);
        prop_assert!(margin_ms * (one + rho) >= 2 * rho * u128::from(ttl_ms));
        prop_assert!(margin_ms == 0 || (margin_ms - 1) * (one + rho) < 2 * rho * u128::from(ttl_ms));
    }

    /// Two renewals, the time-out of the second, and the stop all end before the lease does; the
    /// warning comes before the stop.
    #[test]
    fn two_renewals_and_the_stop_fit((ttl_ms, wishes) in wishes(), ppm in ppm()) {
        let Ok(budget) = Budget::with(ttl_ms, Drift::from_ppm(ppm).unwrap(), wishes) else {
            return Ok(());
        };
        let second_answered = budget.renew_every() * 2 + budget.request_timeout();
        prop_assert!(second_answered <= budget.act_for());
        prop_assert_eq!(budget.act_for() + budget.stop_grace(), budget.valid_for());
        prop_assert!(budget.jeopardy_after() < budget.act_for());
        prop_assert!(budget.request_timeout() <= budget.renew_every());
        prop_assert!(millis(budget.retry_pause()) >= RENEW_MS_MIN);
        for (wished, got) in [
            (wishes.stop_grace_ms, budget.stop_grace()),
            (wishes.renew_every_ms, budget.renew_every()),
            (wishes.request_timeout_ms, budget.request_timeout()),
        ] {
            prop_assert!(wished.is_none_or(|ms| ms == millis(got)), "a wish is kept or refused");
        }
    }

    /// Every ttl within bounds can be used at every drift within bounds, with nothing else set.
    #[test]
    fn derived_timers_always_fit(ttl_ms in ttl_ms(), ppm in ppm()) {
        let budget = Budget::new(ttl_ms, Drift::from_ppm(ppm).unwrap()).unwrap();
        if ppm <= Drift::DEFAULT.ppm() {
            prop_assert_eq!(millis(budget.renew_every()), ttl_ms / 3);
        }
    }

    /// A refusal shows every number it was computed from, and is right.
    #[test]
    fn refusals_name_their_numbers((ttl_ms, wishes) in wishes(), ppm in ppm()) {
        let Err(error) = Budget::with(ttl_ms, Drift::from_ppm(ppm).unwrap(), wishes) else {
            return Ok(());
        };
        let message = error.to_string();
        prop_assert!(message.bytes().any(|byte| byte.is_ascii_digit()), "{message}");
        match error {
            BudgetError::NoRoom {
                renew_every_ms, request_timeout_ms, stop_grace_ms, valid_for_ms, ..
            } => {
                prop_assert!(
                    2 * renew_every_ms + request_timeout_ms + stop_grace_ms > valid_for_ms
                );
                prop_assert!(message.contains("raise ttl"), "{message}");
            }
            BudgetError::TooShort { given_ms, .. } => prop_assert!(given_ms < RENEW_MS_MIN),
            BudgetError::StopGrace => prop_assert_eq!(wishes.stop_grace_ms, Some(0)),
            BudgetError::TimeoutAboveRenewal { request_timeout_ms, renew_every_ms } => {
                prop_assert!(request_timeout_ms > renew_every_ms);
            }
            BudgetError::Ttl { .. } | BudgetError::Drift { .. } => {
                prop_assert!(false, "within bounds, yet {message}");
            }
        }
    }
}

const TEN_SECONDS: u64 = 10_000;

#[test]
fn the_default_is_ten_seconds_renewed_every_third() {
    let budget = Budget::default();
    assert_eq!(budget.valid_for(), Duration::from_millis(9801)); // 10 s × 0.99 / 1.01
    assert_eq!(budget.renew_every(), Duration::from_millis(3333));
    assert_eq!(budget.request_timeout(), Duration::from_secs(2));
    assert_eq!(budget.stop_grace(), Duration::from_secs(1));
    assert_eq!(budget.act_for(), Duration::from_millis(8801));
    assert_eq!(budget.jeopardy_after(), Duration::from_millis(5333));
}

/// The mutant of semantics 2. At 10 % drift and a 10 s ttl, `ttl × (1 − ρ)` is 9 s, which a slow
/// holder stretches to 10 s of true time, while a fast store frees the lease after 9.09 s.
#[test]
fn subtracting_the_drift_once_would_overlap() {
    let drift = Drift::COARSE;
    let once_ms = TEN_SECONDS - TEN_SECONDS / 10;
    assert!(!drift.separates(once_ms, TEN_SECONDS));
    assert!(drift.separates(drift.valid_for_ms(TEN_SECONDS), TEN_SECONDS));
    assert!(!drift.separates(drift.valid_for_ms(TEN_SECONDS) + 1, TEN_SECONDS));
    let true_ms = |on_a_clock_ms: u64, rate_percent: u64| on_a_clock_ms * 100 / rate_percent;
    assert!(true_ms(once_ms, 90) > true_ms(TEN_SECONDS, 110));
}

#[test]
fn without_drift_nothing_is_lost() {
    assert_eq!(Drift::from_ppm(0).unwrap().valid_for_ms(TEN_SECONDS), TEN_SECONDS);
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic() {
    let wishes = Wishes {
        renew_every_ms: Some(3000),
        stop_grace_ms: Some(1000),
        request_timeout_ms: Some(500),
    };
    let error = Budget::with(5000, Drift::DEFAULT, wishes).unwrap_err().to_string();
    assert_eq!(
        error,
        "ttl 5s leaves no room for two renewals 3s apart, 500ms for an answer and 1s to stop: \
         2 × 3s + 500ms + 1s = 7.5s > 4.9s, what is safe of it at 1% drift; raise ttl, renew \
         more often or stop faster"
    );
}

#[test]
fn absurd_wishes_are_refused_and_never_overflow() {
    let with = |wishes| Budget::with(TEN_SECONDS, Drift::DEFAULT, wishes);
    let none = Wishes::default();
    for wishes in [
        Wishes { renew_every_ms: Some(u64::MAX), ..none },
        Wishes { request_timeout_ms: Some(u64::MAX), ..none },
        Wishes { stop_grace_ms: Some(u64::MAX), ..none },
        Wishes { stop_grace_ms: Some(9_801), ..none },
        Wishes { stop_grace_ms: Some(0), ..none },
        Wishes { renew_every_ms: Some(0), ..none },
        Wishes { request_timeout_ms: Some(9), ..none },
        Wishes { renew_every_ms: Some(100), request_timeout_ms: Some(101), ..none },
    ] {
        assert!(with(wishes).is_err(), "{wishes:?}");
    }
    for ttl_ms in [0, TTL_MS_FLOOR - 1, TTL_MS_CEILING + 1, u64::MAX] {
        assert!(Budget::new(ttl_ms, Drift::DEFAULT).is_err(), "{ttl_ms}");
    }
    assert!(Drift::from_ppm(DRIFT_PPM_MAX + 1).is_err());
}

#[test]
fn a_shorter_acknowledged_ttl_counts_and_a_longer_one_does_not() {
    let budget = Budget::default();
    assert_eq!(budget.valid_for_acknowledged(1010), Duration::from_millis(990));
    assert_eq!(budget.valid_for_acknowledged(u64::MAX), budget.valid_for());
}

#[test]
fn drift_and_budget_read_like_sentences() {
    assert_eq!(Drift::DEFAULT.to_string(), "1%");
    assert_eq!(Drift::from_ppm(500).unwrap().to_string(), "0.05%");
    assert!(Budget::default().to_string().starts_with("ttl 10s: renewed every 3.333s"));
}
