//! The driver: the one thread that measures, and proposes what time has brought about.
//!
//! It sleeps on a condition variable, whose clock stands still in suspend, so it never trusts its
//! sleep: every look reads the lease clock, and there is a look at least every quarter of a second.
//! A thread and not a task: a runtime whose workers are all busy must not keep leases from ending.

use std::time::Duration;

use regent_election::deadlines::Turn;
use regent_election::{Command, Moment};

use super::core::{Core, Phase};
use super::shared::Shared;

/// Longest time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Most checks and waits of one look, so that callers get the lock in between.
const CHECKS_MAX: usize = 4096;
/// See [`CHECKS_MAX`].
const WAITS_MAX: usize = 256;

/// Runs until the store stops.
pub(super) fn drive(shared: &Shared) {
    let mut core = shared.lock();
    while !matches!(core.phase, Phase::Stopped { .. }) {
        let now = regent_clock::now();
        look(&mut core, now);
        shared.settle(&mut core);
        let next_at = core.deadlines.next_at();
        let pause = next_at.map_or(LOOK_EVERY, |at| now.until(at).min(LOOK_EVERY));
        core.driver_wakes_at = now + pause;
        if pause.is_zero() {
            // More is due; callers that wait for the lock go first.
            drop(core);
            std::thread::yield_now();
            core = shared.lock();
            continue;
        }
        core = shared.rest_driver(core, pause);
    }
}

/// Proposes everything that is due.
fn look(core: &mut Core, now: Moment) {
    match core.deadlines.turn(now) {
        Turn::Steady => {}
        Turn::Restarted { away } => {
            tracing::warn!(?away, "the store was away; every session gets a full ttl");
        }
    }
    let due = core.deadlines.due(now, CHECKS_MAX);
    if !due.is_empty() {
        tracing::info!(sessions = due.len(), "sessions expired");
        core.run(Command::Expire { sessions: due }, None);
    }
    for (group, kind, since) in core.deadlines.elapsed(now, WAITS_MAX) {
        core.run(Command::Elapsed { group, kind, since }, None);
    }
    for session in core.deadlines.audible() {
        let may_fill = core.state.has_stranded()
            && core.state.stood_by(session).any(|group| core.state.holder(group).is_none());
        if may_fill {
            core.run(Command::Refill { session }, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use regent_election::state::State;
    use regent_election::{
        Entry, Group, IfLost, Incarnation, Metadata, Node, Opening, SessionId, SessionNo, Settings,
    };

    use super::super::log::Log;
    use super::*;

    fn campaign(state: &mut State, node: &str, session: SessionId) -> SessionNo {
        let opening = Opening { node: Node::new(node).unwrap(), ttl_ms: None, passing: false };
        let command = Command::Campaign {
            group: Group::new("billing").unwrap(),
            session,
            opening: Some(opening),
            if_lost: IfLost::Stand,
            priority: 0,
            metadata: Metadata::NONE,
        };
        state.apply(Entry::bare(command)).answer.unwrap();
        state.find_session(session).unwrap()
    }

    /// L1. The leader expired while its only standby was silent, and the store ended before that
    /// standby was heard again.
    #[test]
    fn a_standby_that_was_silent_before_a_restart_leads_as_soon_as_it_is_heard() {
        let mut state = State::new(Settings::default());
        let (alice, bob) = (SessionId::new(1).unwrap(), SessionId::new(2).unwrap());
        let expired = campaign(&mut state, "alice", alice);
        let silent = campaign(&mut state, "bob", bob);
        let expire = Command::Expire { sessions: vec![expired] };
        state.apply(Entry { silent: vec![silent], ..Entry::bare(expire) });
        let group = Group::new("billing").unwrap();
        assert!(state.has_stranded());

        let now = regent_clock::now();
        let log = Log::new(state.revision(), None);
        let mut core = Core::new(state, Incarnation(1), log, now);
        look(&mut core, now);
        assert_eq!(core.state.holder(&group), None, "nobody knows whether it lives");
        core.hear(silent, None).unwrap();
        look(&mut core, now);
        assert_eq!(core.state.holder(&group).map(|holder| holder.session), Some(silent));
    }
}
