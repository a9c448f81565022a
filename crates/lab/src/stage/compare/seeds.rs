//! Which seeds are played, as people write it.

use std::ops::RangeInclusive;

/// `1..1000` with both ends, or how many from 1 on.
///
/// # Errors
/// If it is neither, or no seed is in it.
pub fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |part: &str| part.trim().parse::<u64>().ok();
    let range = match text.split_once("..").or_else(|| text.split_once('-')) {
        Some((first, last)) => number(first).zip(number(last.trim_start_matches('='))),
        None => number(text).map(|count| (1, count)),
    };
    let range = range.map(|(first, last)| first..=last).filter(|range| !range.is_empty());
    range.ok_or_else(|| "1..1000 means seeds 1 to 1000, and 20 means 1 to 20".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_with_both_ends_or_how_many() {
        assert_eq!(seeds("1..1000"), Ok(1..=1000));
        assert_eq!(seeds("1..=1000"), Ok(1..=1000));
        assert_eq!(seeds("1-1000"), Ok(1..=1000));
        assert_eq!(seeds("20"), Ok(1..=20));
        for wrong in ["", "0", "5..4", "x", "1..", "-5"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}
