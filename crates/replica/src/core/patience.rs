//! More patience than was configured, while the core runs; [`crate::tuning`] says when and why it
//! is harmless.
//!
//! The library counts ticks, and how many of them make a time-out is fixed when it starts. So its
//! ticks become longer, while turns and heartbeats stay as frequent as they were.

use std::time::Duration;

use super::Core;
use crate::limits::TICK_MS;
use crate::timing::Timing;

impl Core {
    /// Stretches election time-outs, the window of the quorum check and whatever waits for either
    /// to so many per cent of what is configured. Returns the timers that hold: unchanged if such
    /// ones would not go together.
    pub fn set_patience(&mut self, percent: u64) -> Timing {
        if let Some(timing) = self.config.timing.stretched(percent.max(100)) {
            (self.timing, self.patience_percent) = (timing, percent.max(100));
            (self.untold, self.unshown_ms) = (0, 0);
            self.timer.set_timing(timing);
            self.rounds.set_patience(Duration::from_millis(timing.election_ms_max()));
        }
        self.timing
    }

    /// A tick of ours is over: perhaps one of the library's is, and perhaps it is time to be seen.
    pub(super) fn count_tick(&mut self) {
        self.untold += TICK_MS * 100;
        let length = TICK_MS * self.patience_percent;
        if self.untold >= length {
            self.untold -= length;
            self.node.tick();
        }
        if self.patience_percent > 100 {
            // The library's own heartbeats come late by as much as its ticks are long.
            self.unshown_ms += TICK_MS;
            if self.unshown_ms >= self.timing.heartbeat_ms() {
                self.unshown_ms = 0;
                self.node.ping();
            }
        }
    }
}
