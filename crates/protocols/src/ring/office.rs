//! Who leads a ring, as one node sees it: what both ring algorithms do once an election is over.
//!
//! The papers end with the announcement. A leader shows itself afterwards, so that it can be missed; and
//! when two rings that a partition had made become one again, the lower of two leaders gives way.

use regent_election::Moment;

use super::courier::{RingTimer, Ringing};
use crate::dice::Dice;
use crate::{NodeId, Out, Protocol, Setup};

/// The office and its timers.
#[derive(Clone, Debug)]
pub(super) struct RingOffice {
    setup: Setup,
    dice: Dice,
    pub(super) leader: Option<NodeId>,
}

impl RingOffice {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { setup: setup.clone(), dice: Dice::new(setup.seed), leader: None }
    }

    /// Waits for a sign of a leader, or of an election, for as long as it has patience.
    pub(super) fn wait<T, P>(&mut self, now: Moment, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        let patience = self.setup.pace.draw_patience(&mut self.dice);
        out.set(RingTimer::Missed, now + patience);
    }

    /// An election has begun: the office is vacant.
    pub(super) fn vacate<T, P>(&mut self, now: Moment, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        self.leader = None;
        out.stop(RingTimer::Show);
        self.wait(now, out);
    }

    /// Somebody was elected.
    pub(super) fn fill<T, P>(&mut self, now: Moment, leader: NodeId, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        if self.leader == Some(leader) && leader == self.setup.me {
            return;
        }
        self.leader = Some(leader);
        if leader == self.setup.me {
            out.stop(RingTimer::Missed);
            self.show(now, out);
        } else {
            out.stop(RingTimer::Show);
            self.wait(now, out);
        }
    }

    /// The leader shows itself.
    pub(super) fn show<T, P>(&mut self, now: Moment, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        for other in self.setup.others() {
            out.send(other, Ringing::Heartbeat);
        }
        out.set(RingTimer::Show, now + self.setup.pace.heartbeat_every);
    }

    /// A leader has shown itself.
    pub(super) fn hear<T, P>(&mut self, now: Moment, from: NodeId, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        if self.leader.is_none_or(|leader| from >= leader) {
            self.fill(now, from, out);
        }
    }
}
