//! The line that a write leaves, and whom it must wake: for engines that wake candidates one by one.
//!
//! Pure. Whoever leads or stands watches the one before it, as it last saw the order, and itself. A departure wakes
//! the one behind; everything else that concerns somebody must call it: being told of something, another that
//! came in before it, and a wait that nobody else may be there to measure.

use std::collections::BTreeSet;

use regent_election::{Group, Node, SessionId, WaitKind};

use super::record::GroupRecord;
use crate::register::{QueuePosition, WakeOrder};

/// Those who want an office: the holder, and behind it those who stand, in their order.
fn candidates(group: &Group, record: &GroupRecord) -> Vec<(u128, Node)> {
    let state = &record.state;
    let holder = state.holder(group).map(|holder| holder.session);
    let sessions = holder.into_iter().chain(state.standbys(group));
    let known = |session| Some((state.id_of(session)?.get(), state.node(session)?.clone()));
    sessions.filter_map(known).collect()
}

/// Whom each candidate comes behind.
fn predecessors(wake_order: &[(u128, Node)]) -> impl Iterator<Item = (u128, Option<u128>)> {
    let before = std::iter::once(None).chain(wake_order.iter().map(|(session, _)| Some(*session)));
    wake_order.iter().map(|(session, _)| *session).zip(before)
}

/// Whether a wait is under way that must be measured even if whoever began it is gone. Of the other two, whoever was
/// promoted and whoever leads see the end.
fn must_be_measured(record: &GroupRecord) -> bool {
    record.state.waits().any(|wait| match wait.kind {
        WaitKind::LockDelay | WaitKind::Ending => true,
        WaitKind::Acceptance | WaitKind::MinimumTenure | WaitKind::Approval => false,
    })
}

/// The line that a write of `after` over `before` leaves.
pub(super) fn after(group: &Group, before: &GroupRecord, after: &GroupRecord) -> WakeOrder {
    let (old, wake_order) = (candidates(group, before), candidates(group, after));
    let stands = |session: u128| wake_order.iter().any(|(one, _)| *one == session);
    let mut called: BTreeSet<u128> =
        after.untold.iter().copied().filter(|session| stands(*session)).collect();
    for (session, is_behind) in predecessors(&wake_order) {
        let was_behind = predecessors(&old).find(|(one, _)| *one == session);
        let Some((_, was_behind)) = was_behind else { continue };
        // One who left is taken out, and that wakes whoever was behind.
        let is_woken = was_behind.is_some_and(|session| !stands(session));
        if is_behind != was_behind && !is_woken {
            called.insert(session);
        }
    }
    if must_be_measured(after) && !must_be_measured(before) {
        let first = after.state.standbys(group).next();
        called.extend(first.and_then(|first| after.state.id_of(first)).map(SessionId::get));
    }
    WakeOrder { candidates: wake_order, called: called.into_iter().collect() }
}

/// Where a process stands to which these sessions belong and which watches that one; none if none of them leads or
/// stands.
pub(super) fn place(
    group: &Group,
    record: &GroupRecord,
    locals: &[u128],
    watched: Option<u128>,
) -> Option<QueuePosition> {
    let own: Vec<_> = candidates(group, record)
        .into_iter()
        .filter(|(session, _)| locals.contains(session))
        .collect();
    let before = watched.filter(|watched| own.iter().all(|(session, _)| session != watched));
    (!own.is_empty()).then_some(QueuePosition { own, before })
}
