//! Counts what is dropped, and says why: once for each sender and reason, and at the end how often.
//!
//! A process with another list sends ten datagrams a second; a person needs one line, and to know that
//! there were more.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::limits::TOLD_MAX;
use crate::wire::Dropped;

/// What was dropped so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops {
    counts: [u64; Dropped::REASONS.len()],
    told: BTreeSet<(SocketAddr, usize)>,
}

impl Drops {
    /// Counts one, and gives what is to be said about it, if anything.
    pub(crate) fn count(&mut self, from: SocketAddr, dropped: Dropped) -> Option<String> {
        let reason = dropped.reason();
        self.counts[reason] += 1;
        let is_worth_a_line = match dropped {
            // Its sender is told and begins again: nothing for people to do.
            Dropped::Stale => false,
            Dropped::TooLong
            | Dropped::Unreadable
            | Dropped::OtherVersion(_)
            | Dropped::OtherAlgorithm(_)
            | Dropped::OtherList
            | Dropped::Stranger
            | Dropped::Busy => true,
        };
        if !is_worth_a_line || self.told.len() >= TOLD_MAX || !self.told.insert((from, reason)) {
            return None;
        }
        let more =
            if self.told.len() == TOLD_MAX { "; of further senders only the number" } else { "" };
        Some(format!("what {from} sends is dropped: {dropped}{more}"))
    }

    /// How many of each, for people; none if there were none.
    pub(crate) fn summary(&self) -> Option<String> {
        let parts: Vec<String> = Dropped::REASONS
            .iter()
            .zip(self.counts)
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        (!parts.is_empty()).then(|| format!("datagrams dropped: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_sender_is_told_of_once_for_each_reason() {
        let mut drops = Drops::default();
        assert_eq!(drops.summary(), None);
        let line = drops.count(at(1), Dropped::OtherList).unwrap();
        assert!(line.contains("127.0.0.1:1") && line.contains("--peers"), "{line}");
        assert_eq!(drops.count(at(1), Dropped::OtherList), None);
        let line = drops.count(at(1), Dropped::OtherAlgorithm(Algorithm::Ring)).unwrap();
        assert!(line.contains("its sender runs ring"), "{line}");
        assert!(drops.count(at(2), Dropped::OtherList).is_some());
        assert_eq!(drops.count(at(3), Dropped::Stale), None);
        assert_eq!(
            drops.summary().unwrap(),
            "datagrams dropped: 1 of another algorithm, 3 of another list, 1 of an earlier life"
        );
    }

    #[test]
    fn a_flood_of_senders_is_not_a_flood_of_lines() {
        let mut drops = Drops::default();
        let lines: Vec<String> =
            (1..1000).filter_map(|port| drops.count(at(port), Dropped::Unreadable)).collect();
        assert_eq!(lines.len(), TOLD_MAX);
        assert!(lines[TOLD_MAX - 1].contains("of further senders only the number"));
        assert_eq!(drops.summary().unwrap(), "datagrams dropped: 999 unreadable");
    }
}
