//! Words of `regent lab tune`: ranges of round trips, shares, rates.

use std::ops::RangeInclusive;
use std::time::Duration;

use regent_election::limits::LOSS_PPM_MAX;
use regent_election::tuning::Rate;

/// The longest round trip: beyond it nothing could be called a conversation.
const TRIP_MAX: Duration = Duration::from_secs(60);

/// `2ms..20ms`, or one for all: in microseconds.
///
/// # Errors
/// If it is no such range.
pub fn trips(text: &str) -> Result<RangeInclusive<u64>, String> {
    let refused =
        || format!("{text:?} is no range of round trips; write it like 2ms..20ms or 500us");
    let one = |part: &str| -> Result<u64, String> {
        let time = humantime::parse_duration(part.trim()).map_err(|_| refused())?;
        if time > TRIP_MAX {
            return Err("a round trip takes at most 60s".into());
        }
        u64::try_from(time.as_micros()).map_err(|_| refused())
    };
    let (low, high) = match text.split_once("..") {
        Some((low, high)) => (one(low)?, one(high)?),
        None => (one(text)?, one(text)?),
    };
    if low > high { Err(refused()) } else { Ok(low..=high) }
}

/// `1%`, `0.25%`: in parts per million.
///
/// # Errors
/// If it is no such share.
pub fn loss(text: &str) -> Result<u32, String> {
    let refused = || format!("{text:?} is no share; write it like 1% or 0.25%");
    let number = text.trim().strip_suffix('%').ok_or_else(refused)?.trim();
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) || part.len() > 4 {
        return Err(refused());
    }
    let whole: u32 = whole.parse().map_err(|_| refused())?;
    let part: u32 = format!("{part:0<4}").parse().map_err(|_| refused())?;
    let ppm = whole.checked_mul(10_000).and_then(|ppm| ppm.checked_add(part));
    ppm.filter(|ppm| *ppm <= LOSS_PPM_MAX)
        .ok_or_else(|| format!("{text} is too much: at most {}%", LOSS_PPM_MAX / 10_000))
}

/// `1/week`, `2/day`, `12/year`.
///
/// # Errors
/// If it is no such rate.
pub fn rate(text: &str) -> Result<Rate, String> {
    const HOUR_MS: u64 = 60 * 60 * 1000;
    let refused = || format!("{text:?} is no rate; write it like 1/week, 2/day or 12/year");
    let (count, unit) = text.split_once('/').ok_or_else(refused)?;
    let count: u32 = count.trim().parse().map_err(|_| refused())?;
    let per_ms = match unit.trim() {
        "hour" => HOUR_MS,
        "day" => 24 * HOUR_MS,
        "week" => 7 * 24 * HOUR_MS,
        "month" => 30 * 24 * HOUR_MS,
        "year" => 365 * 24 * HOUR_MS,
        _ => return Err(refused()),
    };
    if count == 0 {
        return Err("never is more than a time-out can promise; ask for 1/year".into());
    }
    Ok(Rate { count, per_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_others_refused_with_examples() {
        assert_eq!(trips("2ms..20ms"), Ok(2_000..=20_000));
        assert_eq!(trips("500us"), Ok(500..=500));
        for text in ["", "20ms..2ms", "2..20", "ms", "2ms..", "2h"] {
            assert!(trips(text).is_err(), "{text}");
        }
        assert_eq!(loss("1%"), Ok(10_000));
        assert_eq!(loss("0.25%"), Ok(2_500));
        for text in ["", "1", "%", "-1%", "0.00001%", "91%", "99999999999%"] {
            assert!(loss(text).is_err(), "{text}");
        }
        assert_eq!(rate("1/week"), Ok(Rate::WEEKLY));
        for text in ["", "1", "0/day", "1/fortnight", "x/day"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
