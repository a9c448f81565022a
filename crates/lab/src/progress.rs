//! How far a long run is, in one line.

use std::time::Duration;

/// Characters between the brackets.
const WIDTH: u64 = 30;

/// How much is done, in parts of a million, how long the rest will take, and a few words.
#[must_use]
pub fn line(done_ppm: u64, elapsed: Duration, words: &str) -> String {
    let done = done_ppm.min(1_000_000);
    let filled = done * WIDTH / 1_000_000;
    let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    let left = match done {
        0 => String::new(),
        done => {
            let left_ms = elapsed.as_millis() * u128::from(1_000_000 - done) / u128::from(done);
            let left_s = u64::try_from(left_ms / 1000).unwrap_or(u64::MAX / 1000);
            format!(", {} left", humantime::format_duration(Duration::from_secs(left_s)))
        }
    };
    format!("[{bar}] {:>3} %{left}: {words}", done / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_says_how_long_it_will_take() {
        let at = |ppm| line(ppm, Duration::from_secs(30), "x");
        assert_eq!(at(0), format!("[{}]   0 %: x", ".".repeat(30)));
        let half = format!("[{}{}]  50 %, 30s left: x", "#".repeat(15), ".".repeat(15));
        assert_eq!(at(500_000), half);
        assert_eq!(at(2_000_000), format!("[{}] 100 %, 0s left: x", "#".repeat(30)));
    }
}
