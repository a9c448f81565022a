//! How three clocks make one, whatever happens between their reads.
//!
//! One attempt reads `RAW`, then `MONOTONIC`, then `BOOTTIME`, and adds up
//! `RAW + (BOOTTIME - MONOTONIC)`. In this order the sum lies between the truth at the first read
//! and the truth at the third, wherever the process is descheduled or the machine suspended:
//! running time spent between the last two reads is counted by their difference, suspended time by
//! `BOOTTIME` alone, and neither more than once. In any other order a pause makes the sum too large
//! or lets a suspend go uncounted.
//!
//! A second `MONOTONIC` read closes the bracket. It only measures: a wide bracket means that running
//! time was counted on a slewed clock, so the attempt is repeated, a few times at most.

/// The clocks read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Not slewed; stands still in suspend.
    Raw,
    /// Slewed; stands still in suspend.
    Monotonic,
    /// Slewed like `Monotonic`; counts suspend.
    Boottime,
}

/// Attempts before the narrowest bracket so far is good enough: one pause is common, four are a
/// machine too busy for a better answer.
const ATTEMPTS_MAX: u32 = 4;
/// A bracket up to this wide is narrow: 8 % of it is 4 µs, far below any margin.
const BRACKET_NANOS_MAX: u64 = 50_000;

/// The lease clock's reading, by whatever reads the three clocks in nanoseconds.
///
/// True at some instant between the call and the return.
pub(crate) fn lease_clock_nanos(mut read: impl FnMut(Clock) -> u64) -> u64 {
    let (mut narrowest, mut sum) = attempt(&mut read);
    for _ in 1..ATTEMPTS_MAX {
        if narrowest <= BRACKET_NANOS_MAX {
            break;
        }
        let (bracket, other_sum) = attempt(&mut read);
        if bracket < narrowest {
            (narrowest, sum) = (bracket, other_sum);
        }
    }
    sum
}

/// One attempt: the width of its bracket, and the sum.
fn attempt(read: &mut impl FnMut(Clock) -> u64) -> (u64, u64) {
    let raw = read(Clock::Raw);
    let before = read(Clock::Monotonic);
    let boottime = read(Clock::Boottime);
    let after = read(Clock::Monotonic);
    // Signed, because a time namespace may set BOOTTIME below MONOTONIC; RAW is shifted with
    // MONOTONIC there, so the sum is positive again.
    let sum = i128::from(raw) + i128::from(boottime) - i128::from(before);
    (after.saturating_sub(before), u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose time passes only between reads, as a script says.
    struct Machine {
        running: u64,
        suspended: u64,
        /// Before the n-th read: nanoseconds run, nanoseconds suspended.
        between: Vec<(u64, u64)>,
        reads: usize,
    }

    impl Machine {
        const STARTED: u64 = 1_000_000_000;

        fn new(between: &[(u64, u64)]) -> Self {
            Self { running: Self::STARTED, suspended: 0, between: between.to_vec(), reads: 0 }
        }

        fn truth(&self) -> u64 {
            self.running + self.suspended
        }

        fn read(&mut self, clock: Clock) -> u64 {
            let (ran, slept) = self.between.get(self.reads).copied().unwrap_or((30, 0));
            self.reads += 1;
            self.running += ran;
            self.suspended += slept;
            // A daemon has slewed the other two far away from RAW by now.
            let slewed = self.running + 123_456_789;
            match clock {
                Clock::Raw => self.running,
                Clock::Monotonic => slewed,
                Clock::Boottime => slewed + self.suspended,
            }
        }
    }

    #[test]
    fn a_reading_is_true_at_some_instant_between_call_and_return_wherever_time_passes() {
        let (pause, suspend) = (3_000_000_000, 7_000_000_000);
        for at in 0..6 {
            for step in [(30, 0), (pause, 0), (0, suspend), (pause, suspend)] {
                let mut between = [(30, 0); 6];
                between[at] = step;
                let mut machine = Machine::new(&between);
                let called = machine.truth();
                let read = lease_clock_nanos(|clock| machine.read(clock));
                let returned = machine.truth();
                assert!(called <= read && read <= returned, "{at} {step:?}: {read}");
            }
        }
    }

    #[test]
    fn a_suspend_between_any_two_readings_is_counted_in_full() {
        let mut machine = Machine::new(&[]);
        let before = lease_clock_nanos(|clock| machine.read(clock));
        machine.suspended += 3_600_000_000_000;
        let after = lease_clock_nanos(|clock| machine.read(clock));
        assert!(after - before >= 3_600_000_000_000);
    }

    #[test]
    fn a_wide_bracket_is_read_again_and_a_busy_machine_still_gets_an_answer() {
        let mut once = Machine::new(&[(30, 0), (30, 0), (900_000, 0)]);
        let read = lease_clock_nanos(|clock| once.read(clock));
        assert_eq!(once.reads, 8);
        assert!(read > Machine::STARTED + 900_000, "the narrow attempt is the one that counts");

        let mut always = Machine::new(&[(900_000, 0); 64]);
        let _ = lease_clock_nanos(|clock| always.read(clock));
        assert_eq!(always.reads, 4 * ATTEMPTS_MAX as usize);
    }

    #[test]
    fn a_time_namespace_with_a_small_boottime_does_not_wrap() {
        let read = lease_clock_nanos(|clock| match clock {
            Clock::Raw | Clock::Monotonic => 5_000_000_000,
            Clock::Boottime => 1_000_000_000,
        });
        assert_eq!(read, 1_000_000_000);
    }
}
