//! What a world is made from: what goes wrong and when, how bad the network is, how wrong the clocks.

use regent_election::{Budget, Moment};

pub(crate) const MS: u64 = 1_000_000;

/// What goes wrong, and when in true time.
#[derive(Clone, Debug)]
pub(crate) enum Chaos {
    /// Nothing reaches or leaves this participant.
    Cut {
        who: usize,
        for_ms: u64,
    },
    /// The process stands still; everything for it waits.
    Pause {
        who: usize,
        for_ms: u64,
    },
    /// The machine's clock leaps ahead.
    Leap {
        who: usize,
        by_ms: u64,
    },
    /// Nobody reaches the store.
    Outage {
        for_ms: u64,
    },
    /// An administrator ends the tenure in a group.
    StepDown {
        group: usize,
    },
    Resign {
        who: usize,
        group: usize,
    },
    Transfer {
        who: usize,
        group: usize,
        to: usize,
    },
    Health {
        who: usize,
        healthy: bool,
    },
    Withdraw {
        who: usize,
        group: usize,
    },
    Stand {
        who: usize,
        group: usize,
    },
    /// A resource says that it has seen a higher term.
    Fence {
        who: usize,
        group: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) delay_ms_max: u64,
    pub(crate) loss_percent: u64,
    pub(crate) double_percent: u64,
    pub(crate) hints: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) participants: usize,
    pub(crate) groups: usize,
    pub(crate) budget: Budget,
    /// How wrong each clock is, the store's first, in thousandths of the bound.
    pub(crate) drifts: Vec<i64>,
    pub(crate) network: Network,
    pub(crate) chaos: Vec<(u64, Chaos)>,
}

/// A machine's clock: it runs at its own rate and started at its own time.
pub(crate) struct Clock {
    rate_ppm: u128,
    pub(crate) offset_ns: u64,
}

impl Clock {
    pub(crate) fn new(budget: &Budget, thousandths: i64, offset_ns: u64) -> Self {
        let wrong = i64::from(budget.drift().ppm()) * thousandths / 1000;
        Self { rate_ppm: u128::try_from(1_000_000 + wrong).expect("below 100 %"), offset_ns }
    }

    pub(crate) fn read(&self, true_ns: u64) -> Moment {
        let ns = u128::from(true_ns) * self.rate_ppm / 1_000_000;
        Moment::from_nanos(self.offset_ns + u64::try_from(ns).expect("a short run"))
    }

    /// The first true instant at which the clock shows `moment`.
    pub(crate) fn when(&self, moment: Moment) -> u64 {
        let ns = u128::from(moment.as_nanos().saturating_sub(self.offset_ns)) * 1_000_000;
        u64::try_from(ns.div_ceil(self.rate_ppm)).expect("a short run")
    }
}
