//! The driver's side of [`crate::tuning`]: what is measured beside the core, judged now and then,
//! and kept for whoever asks.
//!
//! Judging takes about a millisecond of arithmetic, so it is done on another thread; the core's
//! thread only looks at its outcome.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regent_election::Moment;

use crate::core::Status;
use crate::limits::JUDGE_EVERY;
use crate::member::ReplicaId;
use crate::peers::Peers;
use crate::recent::{PAUSE_MIN, Recent};
use crate::timing::Timing;
use crate::tuning::{Advice, Measurements, Tune, Tuner, advise};

/// How the timers suit the network, for whoever asks.
#[derive(Debug)]
pub(crate) struct Tuned {
    /// The patience that holds, in per cent of what is configured.
    percent: AtomicU64,
    advice: Mutex<Option<Advice>>,
    /// Whether it is being judged at the moment.
    is_judging: AtomicBool,
}

impl Tuned {
    pub(crate) const fn new() -> Self {
        let (percent, is_judging) = (AtomicU64::new(100), AtomicBool::new(false));
        Self { percent, advice: Mutex::new(None), is_judging }
    }

    /// The timers that hold, where these are configured.
    pub(crate) fn timing(&self, configured: Timing) -> Timing {
        configured.stretched(self.percent.load(Ordering::Relaxed)).unwrap_or(configured)
    }

    /// The last judgement.
    pub(crate) fn advice(&self) -> Option<Advice> {
        self.advice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn judged(&self, advice: Option<Advice>) {
        *self.advice.lock().unwrap_or_else(PoisonError::into_inner) = advice;
        self.is_judging.store(false, Ordering::Relaxed);
    }
}

/// Measures, has it judged, and says which patience to take.
#[derive(Debug)]
pub(crate) struct Fitting {
    tune: Tune,
    /// As configured.
    timing: Timing,
    tuned: Arc<Tuned>,
    tuner: Tuner,
    /// By how much the core's thread was late, the last minutes.
    pauses: Recent,
    judged_at: Moment,
}

impl Fitting {
    pub(crate) fn new(tune: Tune, timing: Timing, tuned: Arc<Tuned>, now: Moment) -> Self {
        let (tuner, pauses) = (Tuner::default(), Recent::pauses(now));
        Self { tune, timing, tuned, tuner, pauses, judged_at: now }
    }

    /// The timers that hold.
    pub(crate) fn timing(&self) -> Timing {
        self.tuned.timing(self.timing)
    }

    /// The core's thread woke. Later than it wanted is a pause, whoever is to blame: from outside
    /// it looks like one.
    pub(crate) fn woke(&mut self, now: Moment, wanted_at: Moment) {
        let late = now.since(wanted_at);
        if late >= PAUSE_MIN {
            self.pauses.note(now, late);
        }
    }

    /// Has measurements judged when it is time, and gives another patience to take, with what it
    /// follows from, if there is one and that is allowed. Needs a tokio runtime.
    pub(crate) fn turn(
        &mut self,
        now: Moment,
        status: &Status,
        peers: &Peers,
    ) -> Option<(u64, Advice)> {
        if self.tune == Tune::Off || now.since(self.judged_at) < JUDGE_EVERY {
            return None;
        }
        self.judged_at = now;
        let taken = if self.tune == Tune::Apply { self.follow(now) } else { None };
        if !self.tuned.is_judging.swap(true, Ordering::Relaxed) {
            self.judge(now, status, peers);
        }
        taken
    }

    fn follow(&mut self, now: Moment) -> Option<(u64, Advice)> {
        // Advice on another patience than the present one is older than the last change.
        let advice = self.tuned.advice().filter(|it| it.percent == self.tuner.percent())?;
        let percent = self.tuner.on(now, advice.better.map(|(percent, _)| percent))?;
        self.tuned.percent.store(percent, Ordering::Relaxed);
        Some((percent, advice))
    }

    fn judge(&mut self, now: Moment, status: &Status, peers: &Peers) {
        self.pauses.forget(now);
        let others = status.voters.iter().copied().filter(|id| *id != status.id);
        let others: Vec<ReplicaId> = others.collect();
        let measured = Measurements {
            ways: peers.recent_trips(&others),
            pauses: self.pauses.counts(),
            watched: self.pauses.watched(now),
        };
        let (timing, percent) = (self.timing, self.tuner.percent());
        let tuned = Arc::clone(&self.tuned);
        tokio::task::spawn_blocking(move || {
            tuned.judged(advise(timing, percent, &measured));
        });
    }
}
