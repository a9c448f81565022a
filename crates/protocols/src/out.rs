//! What a step of a node wants done.

use regent_election::Moment;

use super::{NodeId, Protocol};

/// Collects what a step says. Sends leave in order, when everything kept before is durable.
#[derive(Debug)]
pub struct Out<P: Protocol> {
    /// What is to be sent, in order.
    pub sends: Vec<(NodeId, P::Message)>,
    /// What is to be durable before any of it is sent.
    pub kept: Option<P::Kept>,
    /// Timers that are set, or stopped, in order.
    pub timers: Vec<(P::Timer, Option<Moment>)>,
    /// Why, for whoever reads the history. Nodes are named by letter.
    pub remarks: Vec<String>,
}

impl<P: Protocol> Out<P> {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { sends: Vec::new(), kept: None, timers: Vec::new(), remarks: Vec::new() }
    }

    /// Sends a message. One to oneself comes back at once and is not counted.
    pub fn send(&mut self, to: NodeId, message: P::Message) {
        self.sends.push((to, message));
    }

    /// Sends the same to many.
    pub fn send_all(&mut self, to: impl IntoIterator<Item = NodeId>, message: &P::Message) {
        for node in to {
            self.send(node, message.clone());
        }
    }

    /// Makes this durable, in place of what was kept before.
    pub fn keep(&mut self, kept: P::Kept) {
        self.kept = Some(kept);
    }

    /// Sets a timer for a moment of the node's own clock, in place of what it was set for.
    pub fn set(&mut self, timer: P::Timer, at: Moment) {
        self.timers.push((timer, Some(at)));
    }

    /// Stops a timer.
    pub fn stop(&mut self, timer: P::Timer) {
        self.timers.push((timer, None));
    }

    /// Tells whoever reads the history why something is done.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    /// What was sent so far, for tests that play the network by hand.
    #[must_use]
    pub fn sent(&self) -> &[(NodeId, P::Message)] {
        &self.sends
    }
}

impl<P: Protocol> Default for Out<P> {
    fn default() -> Self {
        Self::new()
    }
}
