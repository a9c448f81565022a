//! What time-outs have to live with: round trips, loss, and processes that stand still.

use crate::limits::{LOSS_PPM_MAX, PAUSES_MAX, TRIP_STEPS_MAX, WAYS_MAX};

/// Cells into which a range of round trips is divided, each way.
const CELLS: usize = 64;

/// How long round trips on one way take, as a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Trips {
    /// Up to how many microseconds, and which share of all is not longer. Rises to one.
    steps: Vec<(u64, f64)>,
}

impl Trips {
    /// Round trips as they were counted: how many took at most so many microseconds and longer than
    /// the bound before. None if there are none.
    #[must_use]
    pub fn counted(counts: &[(u64, u64)]) -> Option<Self> {
        let mut counts: Vec<(u64, u64)> =
            counts.iter().copied().filter(|(_, count)| *count > 0).take(TRIP_STEPS_MAX).collect();
        counts.sort_unstable();
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let mut sum = 0;
        let mut steps = Vec::with_capacity(counts.len());
        for (up_to_us, count) in counts {
            sum += count;
            steps.push((up_to_us, sum as f64 / all as f64));
        }
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// All of them alike.
    #[must_use]
    pub fn of(us: u64) -> Self {
        Self { steps: vec![(us, 1.0)] }
    }

    /// Round trips between these two, where each way takes a little over half of the shortest far
    /// more often than half of the longest. It is how the simulator draws them: a number below
    /// another one by lot.
    #[must_use]
    pub fn between(shortest_us: u64, longest_us: u64) -> Self {
        let width = longest_us.saturating_sub(shortest_us);
        if width == 0 {
            return Self::of(shortest_us);
        }
        let cells = CELLS as f64;
        let one_way: Vec<f64> = (0..CELLS)
            .map(|at| (at..CELLS).map(|first| 1.0 / (cells * (first + 1) as f64)).sum())
            .collect();
        let mut there_and_back = [0.0; 2 * CELLS - 1];
        for (there, chance) in one_way.iter().enumerate() {
            for (back, other) in one_way.iter().enumerate() {
                there_and_back[there + back] += chance * other;
            }
        }
        let last = there_and_back.len() as u64;
        let mut sum = 0.0;
        let steps = there_and_back.iter().zip(1..).map(|(chance, at): (_, u64)| {
            sum += chance;
            let share = if at == last { 1.0 } else { sum };
            (shortest_us + (u128::from(width) * u128::from(at) / u128::from(last)) as u64, share)
        });
        Self { steps: steps.collect() }
    }

    /// Which share of round trips is not longer than this.
    #[must_use]
    pub fn within(&self, us: u64) -> f64 {
        let at = self.steps.partition_point(|(up_to_us, _)| *up_to_us <= us);
        at.checked_sub(1).and_then(|at| self.steps.get(at)).map_or(0.0, |(_, share)| *share)
    }

    /// What this share in a thousand of all round trips is not longer than, in microseconds.
    #[must_use]
    pub fn at_permille(&self, permille: u32) -> u64 {
        let share = f64::from(permille) / 1000.0;
        let at = self.steps.partition_point(|(_, of)| *of < share);
        self.steps.get(at).or(self.steps.last()).map_or(0, |(up_to_us, _)| *up_to_us)
    }

    /// The longest one, in microseconds.
    #[must_use]
    pub fn longest_us(&self) -> u64 {
        self.steps.last().map_or(0, |(up_to_us, _)| *up_to_us)
    }
}

/// A process stands still: a garbage collection, a busy machine, a machine that is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// For how long.
    pub length_ms: u64,
    /// How much time lies between two of them in one process, on average.
    pub every_ms: u64,
}

impl Pause {
    pub(super) fn per_day(self) -> f64 {
        super::curve::DAY_MS as f64 / self.every_ms.max(1) as f64
    }
}

/// Everything that time-outs have to live with.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    ways: Vec<Trips>,
    loss_ppm: u32,
    pauses: Vec<Pause>,
}

impl Surroundings {
    /// These surroundings, the first of each if there are too many: round trips on the way to each
    /// peer, the chances in a million that one message is lost, and pauses that happen beside each
    /// other.
    #[must_use]
    pub fn new(mut ways: Vec<Trips>, loss_ppm: u32, mut pauses: Vec<Pause>) -> Self {
        ways.truncate(WAYS_MAX);
        pauses.truncate(PAUSES_MAX);
        pauses.retain(|pause| pause.length_ms > 0);
        Self { ways, loss_ppm: loss_ppm.min(LOSS_PPM_MAX), pauses }
    }

    /// The way to each peer.
    #[must_use]
    pub fn ways(&self) -> &[Trips] {
        &self.ways
    }

    /// Chances in a million that one message is lost.
    #[must_use]
    pub const fn loss_ppm(&self) -> u32 {
        self.loss_ppm
    }

    /// The pauses.
    #[must_use]
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// The way whose slow round trips are slowest; one that takes no time if there is none.
    #[must_use]
    pub fn slowest(&self) -> Trips {
        let slowest = self.ways.iter().max_by_key(|way| (way.at_permille(990), way.longest_us()));
        slowest.cloned().unwrap_or_else(|| Trips::of(0))
    }

    /// The chance that one message arrives.
    pub(super) fn arrives(&self) -> f64 {
        1.0 - f64::from(self.loss_ppm) / 1e6
    }

    /// The chance that a question arrives and its answer too.
    pub(super) fn answered(&self) -> f64 {
        self.arrives() * self.arrives()
    }
}
