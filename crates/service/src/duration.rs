//! Durations as people write them: `10s`, `1500ms`, `2m`, `1h 30m`.

use std::time::Duration;

use regent_election::limits::TERM_MAX;

/// A duration from text, or a clause that says what is wrong with it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refused = || {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is no duration; write a number and a unit, like 500ms, 10s, 2m or 1h")
    };
    let duration = humantime::parse_duration(text.trim()).map_err(|_| refused())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err(format!("{text:?} is finer than a millisecond; the smallest unit is ms"));
    }
    if duration.as_millis() > u128::from(TERM_MAX) {
        return Err(refused());
    }
    Ok(duration)
}

/// A duration from text, in milliseconds as they travel.
pub fn parse_ms(text: &str) -> Result<u64, String> {
    parse(text).map(millis)
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as people read it; [`parse`] reads it back.
pub fn show(duration: Duration) -> String {
    humantime::format_duration(Duration::from_millis(millis(duration))).to_string()
}

/// The same, from milliseconds.
pub fn show_ms(ms: u64) -> String {
    show(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_back() {
        for text in ["0s", "500ms", "10s", "2m", "1h 30m", "1s 500ms"] {
            assert_eq!(show(parse(text).unwrap()), text);
        }
        assert_eq!(parse_ms("1500ms"), Ok(1500));
    }

    #[test]
    fn other_texts_are_refused_with_examples() {
        for text in ["", "10", "s", "-1s", "1.5x", "ten seconds", "99999999999999999999s", "∞"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("500ms, 10s, 2m or 1h"), "{text}: {error}");
        }
        assert!(parse("10us").unwrap_err().contains("smallest unit is ms"));
        assert!(parse("290000y").is_err());
    }
}
