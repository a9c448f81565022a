//! Whose the sessions are that this server has known to be open, and claims that wait until that is known.
//!
//! A heartbeat is answered before anybody looks whose its session is: the claim waits here, and the store is asked beside
//! it. Of a session one claim waits, the last one, so that none is judged after a later one.
//!
//! **Two generations.** Who was heard since the last turn is young, the others are old; when the young are half of all
//! there may be, the old are forgotten and the young become the old. So a session that is heard stays known, whatever
//! else comes. The road not taken: to forget all of them when there are too many. Then every heartbeat of the next
//! seconds asks the store.

use std::collections::HashMap;

use regent_election::belief::Beliefs;
use regent_election::{Node, SessionId};

/// What is known of the owners of sessions.
#[derive(Debug)]
pub(crate) struct SessionOwners {
    young: HashMap<SessionId, Node>,
    old: HashMap<SessionId, Node>,
    generation_max: usize,
    waiting: HashMap<SessionId, Box<Beliefs>>,
    waiting_max: usize,
}

impl SessionOwners {
    /// Knows the owners of `known_max` sessions at most, and lets `waiting_max` claims wait.
    pub(crate) fn new(known_max: usize, waiting_max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            generation_max: (known_max / 2).max(1),
            waiting: HashMap::new(),
            waiting_max,
        }
    }

    /// Whose a session is, if that is known.
    pub(crate) fn of(&mut self, session: SessionId) -> Option<&Node> {
        if let Some(owner) = self.old.remove(&session) {
            self.insert(session, owner);
        }
        self.young.get(&session)
    }

    /// A session is open and belongs to this node.
    pub(crate) fn insert(&mut self, session: SessionId, owner: Node) {
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&session);
        self.young.insert(session, owner);
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
        self.young.remove(&session);
        self.old.remove(&session);
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
    fn a_session_that_is_heard_stays_known_whatever_else_comes() {
        let mut owners = SessionOwners::new(100, 10);
        owners.insert(session(1), node("a"));
        owners.insert(session(2), node("b"));
        for number in 3..1000 {
            owners.insert(session(number), node("flood"));
            assert_eq!(owners.of(session(1)), Some(&node("a")), "after {number}");
            assert!(owners.young.len() + owners.old.len() <= 100);
        }
        assert_eq!(owners.of(session(2)), None, "it was not heard for long");
        owners.closed(session(1));
        assert_eq!(owners.of(session(1)), None);
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
