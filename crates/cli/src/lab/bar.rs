//! A progress bar on standard error, for people who watch.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use regent_election::Moment;

use crate::duration::show_ms;

/// Characters between the brackets.
const WIDTH: u64 = 30;
/// How often it is drawn at most.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// A bar that is drawn over itself; nothing at all where nobody watches.
#[derive(Debug)]
pub(crate) struct Bar {
    began_at: Moment,
    drawn_at: Option<Moment>,
    is_shown: bool,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { began_at: regent_clock::now(), drawn_at: None, is_shown }
    }

    /// How long it has been there.
    pub(crate) fn elapsed(&self) -> Duration {
        regent_clock::now().since(self.began_at)
    }

    /// Shows so many parts in a million, and a few words.
    pub(crate) fn show(&mut self, done_ppm: u64, words: &str) {
        let now = regent_clock::now();
        let is_early = self.drawn_at.is_some_and(|at| now.since(at) < DRAW_EVERY);
        if !self.is_shown || is_early {
            return;
        }
        self.drawn_at = Some(now);
        let line = line(done_ppm, self.elapsed(), words);
        let _ = write!(io::stderr().lock(), "\r{line}\x1b[K");
    }

    /// Removes it.
    pub(crate) fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(done_ppm: u64, elapsed: Duration, words: &str) -> String {
    let done = done_ppm.min(1_000_000);
    let filled = done * WIDTH / 1_000_000;
    let bar: String = (0..WIDTH).map(|at| if at < filled { '#' } else { '.' }).collect();
    let left = match done {
        0 => String::new(),
        done => {
            let left_ms = elapsed.as_millis() * u128::from(1_000_000 - done) / u128::from(done);
            let left_s = u64::try_from(left_ms / 1000).unwrap_or(u64::MAX / 1000);
            format!(", {} left", show_ms(left_s * 1000))
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
