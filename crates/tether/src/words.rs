//! What wrapper and guard say to each other: one line each, so that a person can read along.
//!
//! Moments are nanoseconds of the lease clock. Both ends are processes of one machine and one boot,
//! so they read the same clock; no such moment ever leaves the machine.

use std::fmt;

use regent_election::Moment;

/// What the wrapper says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lease is valid until then. The first one starts the program.
    Lease(Moment),
    /// Tell the program to stop, and kill what is left of the tree at this moment.
    Stop(Moment),
    /// Kill the tree at once.
    Kill,
    /// Pass this signal to the program's process group.
    Signal(i32),
    /// Say whether anything of the tree is alive.
    Ask,
}

/// What the guard says, and what the wrapper concludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardReport {
    /// The program runs, under this id in its own pid namespace.
    Started(u32),
    /// The program could not be started: the system's error number, and its words.
    Failed(i32, String),
    /// The guard counts on this lease.
    Heard(Moment),
    /// The guard began to stop the program by itself: the lease was not renewed in time.
    Overdue,
    /// Asked, and something of the tree may be alive.
    Alive,
    /// The program has ended. Others of its tree may live.
    Exited(Status),
    /// Nothing of the tree is alive, and the guard is gone. Always the last report.
    Over,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Status {
    /// The exit code that shells use for it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.wrapping_add(signal),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was ended by signal {signal}"),
        }
    }
}

impl Order {
    pub(crate) fn line(self) -> String {
        match self {
            Self::Lease(until) => format!("lease {}\n", until.as_nanos()),
            Self::Stop(kill_at) => format!("stop {}\n", kill_at.as_nanos()),
            Self::Kill => "kill\n".to_owned(),
            Self::Signal(number) => format!("signal {number}\n"),
            Self::Ask => "ask\n".to_owned(),
        }
    }

    /// What a line says; none if it says nothing we know.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        Some(match word {
            "lease" => Self::Lease(Moment::from_nanos(rest.parse().ok()?)),
            "stop" => Self::Stop(Moment::from_nanos(rest.parse().ok()?)),
            "kill" if rest.is_empty() => Self::Kill,
            "signal" => Self::Signal(rest.parse().ok()?),
            "ask" if rest.is_empty() => Self::Ask,
            _ => return None,
        })
    }
}

impl GuardReport {
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Started(pid) => format!("started {pid}\n"),
            Self::Failed(number, text) => format!("failed {number} {}\n", text.replace('\n', " ")),
            Self::Heard(until) => format!("heard {}\n", until.as_nanos()),
            Self::Overdue => "overdue\n".to_owned(),
            Self::Alive => "alive\n".to_owned(),
            Self::Exited(Status::Code(code)) => format!("code {code}\n"),
            Self::Exited(Status::Signal(signal)) => format!("killed {signal}\n"),
            Self::Over => "over\n".to_owned(),
        }
    }

    /// What a line says; none if it says nothing we know.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        Some(match word {
            "started" => Self::Started(rest.parse().ok()?),
            "failed" => {
                let (number, text) = rest.split_once(' ')?;
                Self::Failed(number.parse().ok()?, text.to_owned())
            }
            "heard" => Self::Heard(Moment::from_nanos(rest.parse().ok()?)),
            "overdue" if rest.is_empty() => Self::Overdue,
            "alive" if rest.is_empty() => Self::Alive,
            "code" => Self::Exited(Status::Code(rest.parse().ok()?)),
            "killed" => Self::Exited(Status::Signal(rest.parse().ok()?)),
            "over" if rest.is_empty() => Self::Over,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_back_as_it_was_meant() {
        let at = Moment::from_nanos(1_234_567_890_123);
        let signal = Order::Signal(15);
        for order in [Order::Lease(at), Order::Stop(at), Order::Kill, signal, Order::Ask] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        let reports = [
            GuardReport::Started(7),
            GuardReport::Failed(2, "no such file or directory".into()),
            GuardReport::Heard(at),
            GuardReport::Overdue,
            GuardReport::Alive,
            GuardReport::Exited(Status::Code(3)),
            GuardReport::Exited(Status::Signal(9)),
            GuardReport::Over,
        ];
        for report in reports {
            assert_eq!(GuardReport::parse(&report.line()), Some(report));
        }
    }

    #[test]
    fn a_line_that_is_cut_or_foreign_says_nothing() {
        for line in ["", "lease", "lease x", "lease -1", "stop", "kill now", "signal", "go"] {
            assert_eq!(Order::parse(line), None, "{line}");
        }
        for line in ["", "started", "failed 2", "heard", "code 256", "killed x", "over it"] {
            assert_eq!(GuardReport::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_signal_becomes_the_exit_code_that_shells_use() {
        assert_eq!(Status::Code(3).exit_code(), 3);
        assert_eq!(Status::Signal(9).exit_code(), 137);
    }
}
