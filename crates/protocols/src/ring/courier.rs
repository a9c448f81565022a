//! Hands tokens to the next node of the ring that takes them.
//!
//! The papers have reliable links and nodes that do not die. Here a token is acknowledged, and one that is
//! not acknowledged in time goes to the node after the silent one. A lost acknowledgement doubles the
//! token; every algorithm on a ring stands that, because a token that has gone round is recognised.

use std::collections::BTreeMap;
use std::fmt::Debug;

use regent_election::Moment;

use crate::{Message, NodeId, Out, Protocol, Setup};

/// What goes round.
pub trait Token: Clone + Debug {
    /// Its name in the literature.
    fn kind(&self) -> &'static str;
    /// What it carries, for people.
    fn carries(&self) -> String;
    /// Its payload on a wire.
    fn bytes(&self) -> usize;
}

/// What nodes of a ring say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ringing<T> {
    /// Something that goes round, with the number by which it is acknowledged.
    Pass {
        /// The sender's number for it.
        number: u64,
        token: T,
    },
    /// It has come.
    Ack { number: u64 },
    /// I still lead. To everybody at once: it is not part of the election.
    Heartbeat,
}

/// Timers of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingTimer {
    /// The leader shows itself.
    Show,
    /// The leader has been silent for too long, or an election came to nothing.
    Missed,
    /// A token was not acknowledged.
    Unacknowledged(u64),
}

/// Tokens that were passed on and not acknowledged yet.
#[derive(Clone, Debug)]
pub(super) struct Courier<T> {
    setup: Setup,
    numbers: u64,
    /// By number: how many places after this one it was sent, and what.
    away: BTreeMap<u64, (u16, T)>,
}

impl<T: Token> Courier<T> {
    pub(super) fn new(setup: &Setup) -> Self {
        Self { setup: setup.clone(), numbers: 0, away: BTreeMap::new() }
    }

    /// Passes a token to the next node.
    pub(super) fn pass<P>(&mut self, now: Moment, token: T, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        self.send(now, 1, token, out);
    }

    /// It has arrived.
    pub(super) fn acknowledged<P>(&mut self, number: u64, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        if self.away.remove(&number).is_some() {
            out.stop(RingTimer::Unacknowledged(number));
        }
    }

    /// The next node is silent: passes the token over it.
    pub(super) fn skip<P>(&mut self, now: Moment, number: u64, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        if let Some((places, token)) = self.away.remove(&number) {
            self.send(now, places + 1, token, out);
        }
    }

    /// Sends a token this many places on. If that is all round, it comes back to this very node.
    fn send<P>(&mut self, now: Moment, places: u16, token: T, out: &mut Out<P>)
    where
        P: Protocol<Message = Ringing<T>, Timer = RingTimer>,
    {
        self.numbers += 1;
        let number = self.numbers;
        let to = NodeId((self.setup.me.0 + places) % self.setup.nodes);
        out.send(to, Ringing::Pass { number, token: token.clone() });
        if to != self.setup.me {
            self.away.insert(number, (places, token));
            out.set(RingTimer::Unacknowledged(number), now + self.setup.pace.answer_within);
        }
    }
}

impl<T: Token> Message for Ringing<T> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Pass { token, .. } => token.kind(),
            Self::Ack { .. } => "ACK",
            Self::Heartbeat => "HEARTBEAT",
        }
    }

    fn carries(&self) -> String {
        match self {
            Self::Pass { token, .. } => token.carries(),
            Self::Ack { .. } | Self::Heartbeat => String::new(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Pass { token, .. } => 9 + token.bytes(),
            Self::Ack { .. } => 9,
            Self::Heartbeat => 1,
        }
    }

    fn is_upkeep(&self) -> bool {
        matches!(self, Self::Heartbeat)
    }
}

/// Names as a list: `[B,C,D]`.
pub(super) fn list(names: &[NodeId]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    format!("[{}]", names.join(","))
}
