//! A progress bar on standard error, for people who watch.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use regent_election::Moment;
use regent_lab::progress::line;

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
