//! Words that are read.

use super::*;

#[test]
fn words_are_read_and_others_refused_with_examples() {
    assert_eq!(parse::trips("2ms..20ms"), Ok(2_000..=20_000));
    assert_eq!(parse::trips("500us"), Ok(500..=500));
    for text in ["", "20ms..2ms", "2..20", "ms", "2ms..", "2h"] {
        assert!(parse::trips(text).is_err(), "{text}");
    }
    assert_eq!(parse::loss("1%"), Ok(10_000));
    assert_eq!(parse::loss("0.25%"), Ok(2_500));
    for text in ["", "1", "%", "-1%", "0.00001%", "91%", "99999999999%"] {
        assert!(parse::loss(text).is_err(), "{text}");
    }
    assert_eq!(parse::rate("1/week"), Ok(Rate::WEEKLY));
    for text in ["", "1", "0/day", "1/fortnight", "x/day"] {
        assert!(parse::rate(text).is_err(), "{text}");
    }
}
