//! Whose the sessions are that this server has known to be open, and claims that wait until that is known.
//!
//! A heartbeat is answered before anybody looks whose its session is: the claim waits here, and the store is asked beside
//! it. Of a session one claim waits, the last one, so that none is judged after a later one.

use std::collections::HashMap;

use regent_election::access::Generations;
use regent_election::belief::Beliefs;
use regent_election::{Node, SessionId};

/// What is known of the owners of sessions.
#[derive(Debug)]
pub(crate) struct SessionOwners {
    known: Generations<SessionId, Node>,
    waiting: HashMap<SessionId, Box<Beliefs>>,
    waiting_max: usize,
}

impl SessionOwners {
    /// Knows the owners of `known_max` sessions at most, and lets `waiting_max` claims wait.
    pub(crate) fn new(known_max: usize, waiting_max: usize) -> Self {
        Self { known: Generations::new(known_max), waiting: HashMap::new(), waiting_max }
    }

    /// Whose a session is, if that is known.
    pub(crate) fn of(&mut self, session: SessionId) -> Option<&Node> {
        self.known.get(session)
    }

    /// A session is open and belongs to this node.
    pub(crate) fn insert(&mut self, session: SessionId, owner: Node) {
        self.known.insert(session, owner);
    }

    /// A claim waits for its owner to be known; true if the store is to be asked, because none of its session waited.
    /// If too many wait, it is lost.
    pub(crate) fn wait(&mut self, session: SessionId, beliefs: Box<Beliefs>) -> bool {
        let is_full = self.waiting.len() >= self.waiting_max;
        match self.waiting.get_mut(&session) {
            Some(waiting) => *waiting = beliefs,
            None if is_full => {}
            None => {
                self.waiting.insert(session, beliefs);
                return true;
            }
        }
        false
    }

    /// The claim that waits; nothing if its session was closed meanwhile.
    pub(crate) fn waited(&mut self, session: SessionId) -> Option<Box<Beliefs>> {
        self.waiting.remove(&session)
    }

    /// Forgets a session that its owner closed.
    pub(crate) fn closed(&mut self, session: SessionId) {
        self.known.remove(&session);
        self.waiting.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u128) -> SessionId {
        SessionId::new(number).unwrap()
    }

    fn node(name: &str) -> Node {
        Node::new(name).unwrap()
    }

    fn claim(ttl_ms: u64) -> Box<Beliefs> {
        let (claims, refused) = (Vec::new(), Vec::new());
        Box::new(Beliefs { node: node("a"), ttl_ms, margin_ms: None, claims, refused })
    }

    #[test]
    fn of_a_session_the_last_claim_waits_and_the_store_is_asked_once() {
        let mut owners = SessionOwners::new(100, 2);
        assert!(owners.wait(session(1), claim(1)));
        assert!(!owners.wait(session(1), claim(2)));
        assert!(owners.wait(session(2), claim(3)));
        assert!(!owners.wait(session(3), claim(4)), "two may wait");
        assert_eq!(owners.waited(session(3)), None);
        assert_eq!(owners.waited(session(1)), Some(claim(2)));
        owners.closed(session(2));
        assert_eq!(owners.waited(session(2)), None);
        assert!(owners.wait(session(3), claim(5)), "there is room again");
    }
}
