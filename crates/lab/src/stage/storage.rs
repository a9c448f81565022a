//! What leaders write to: once without and once with a fence, at the same time, so that one run shows both.
//!
//! A write is *wrong* if somebody who came later has written before: a deposed leader overwrites its
//! successor's work. Who came later is told by the term where there is one, by the order in which they
//! began to act where there is none. A term that two nodes act under is wrong for the second of them.

use regent_election::Term;
use regent_election::fence::Fence;

use super::record::FenceSays;
use crate::protocols::NodeId;

/// A write on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) node: NodeId,
    pub(super) tenure: u64,
    pub(super) term: Option<u64>,
}

/// The highest so far, and whose it was.
#[derive(Clone, Copy, Debug, Default)]
struct Highest(Option<(u64, NodeId)>);

impl Highest {
    /// Whether a write that was let in is wrong.
    fn admit(&mut self, write: Write) -> bool {
        let rank = write.term.unwrap_or(write.tenure);
        match self.0 {
            Some((highest, node)) if rank < highest || rank == highest && node != write.node => {
                true
            }
            Some(_) | None => {
                self.0 = Some((rank, write.node));
                false
            }
        }
    }
}

/// Both storages.
#[derive(Debug, Default)]
pub(super) struct Storage {
    plain: Highest,
    fenced: Highest,
    fence: Fence,
}

impl Storage {
    /// A write lands: whether it is wrong where nobody checks, and what the fence says of it.
    pub(super) fn land(&mut self, write: Write) -> (bool, FenceSays) {
        let is_wrong = self.plain.admit(write);
        let Some(term) = write.term.and_then(Term::new) else {
            self.fenced.admit(write);
            return (is_wrong, FenceSays::NoTerm);
        };
        let says = match self.fence.admit(term) {
            Ok(()) if self.fenced.admit(write) => FenceSays::AdmittedWrongly,
            Ok(()) => FenceSays::Admitted,
            Err(_) => FenceSays::Refused,
        };
        (is_wrong, says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(node: u16, tenure: u64, term: Option<u64>) -> Write {
        Write { node: NodeId(node), tenure, term }
    }

    #[test]
    fn a_late_write_is_wrong_and_a_fence_refuses_it() {
        let mut storage = Storage::default();
        assert_eq!(storage.land(write(0, 1, Some(1))), (false, FenceSays::Admitted));
        assert_eq!(storage.land(write(1, 2, Some(2))), (false, FenceSays::Admitted));
        assert_eq!(storage.land(write(0, 1, Some(1))), (true, FenceSays::Refused));
    }

    #[test]
    fn without_a_term_there_is_nothing_to_refuse_by() {
        let mut storage = Storage::default();
        storage.land(write(0, 1, None));
        storage.land(write(1, 2, None));
        assert_eq!(storage.land(write(0, 1, None)), (true, FenceSays::NoTerm));
    }

    #[test]
    fn no_fence_helps_if_two_act_under_one_term() {
        let mut storage = Storage::default();
        storage.land(write(0, 1, Some(5)));
        assert_eq!(storage.land(write(1, 2, Some(5))), (true, FenceSays::AdmittedWrongly));
    }
}
