//! S7: what is answered is what the engine held at some instant between question and answer.
//!
//! The witness is the sequence of values that each entry had. A view of a group must be that of one of the
//! values it had meanwhile; a win must be in the register, under the winner's session; a heartbeat that is
//! acknowledged must have left its mark there (or in the engine's own count, where it times sessions)
//! after it was sent and before it was answered, and carry an epoch that the entry had meanwhile; and
//! nobody is told that a session is over while it is open all the time.

use regent_election::state::View;
use regent_election::store::LeaderView;
use regent_election::{Answer, Group, SessionId, Term};
use regent_stores::lease::reading;

use crate::checkers::{Call, Case, CheckResult, End, Violation, s7};
use crate::history::{Op, Out};

pub(in crate::checkers) fn check(case: &Case<'_>) -> CheckResult {
    for (number, call) in &case.calls {
        let End::Ok { at, out, .. } = call.end else { continue };
        let broken =
            |how: String| Violation::new("S7", at, format!("call {number} ({}): {how}", call.op));
        answer(case, call, at, out).map_err(broken)?;
    }
    // Where the engine times sessions, an entry may be open while its session is over.
    if case.history.setup.register.is_some_and(|plan| plan.times_sessions) {
        return Ok(());
    }
    s7::refusals(case)
}

fn answer(case: &Case<'_>, call: &Call<'_>, at: u64, out: &Out) -> Result<(), String> {
    match out {
        Out::Seen(view) => seen(case, call.sent, at, view),
        Out::Applied { answer, view } => {
            if let Some(Ok(view)) = view {
                seen(case, call.sent, at, view)?;
            }
            let Op::Submit { command, .. } = call.op else { return Ok(()) };
            match (answer, command.session(), command.group().cloned()) {
                (Ok(Answer::Elected { term, .. }), Some(session), Some(group)) => {
                    won(case, call.sent, at, session, &group, *term)
                }
                (_, _, _) => Ok(()),
            }
        }
        Out::Heartbeat { ttl_ms, epoch } => match call.op {
            Op::Heartbeat { session, .. } => heard(case, call.sent, at, *session, *ttl_ms, *epoch),
            Op::Submit { .. } | Op::Read { .. } | Op::Members(_) | Op::RaftTransfer { .. } => {
                Ok(())
            }
        },
        Out::Done => Ok(()),
    }
}

/// A view is that of a value which the entry had meanwhile.
fn seen(case: &Case<'_>, from: u64, to: u64, view: &View) -> Result<(), String> {
    match view {
        View::Leader(office) => office_was(case, from, to, office),
        View::Group(group) => office_was(case, from, to, &group.office),
        View::Groups(page) => {
            page.groups.iter().try_for_each(|office| office_was(case, from, to, office))
        }
        View::Leaders(offices) => {
            offices.iter().try_for_each(|office| office_was(case, from, to, office))
        }
        View::Candidacy(candidacy) => office_was(case, from, to, &candidacy.office),
        View::Session(_)
        | View::Heartbeat(_)
        | View::History(_)
        | View::Fences(_)
        | View::Replay(_)
        | View::Census(_)
        | View::Offices(_)
        | View::Shares(_)
        | View::Access(_) => Ok(()),
    }
}

fn office_was(case: &Case<'_>, from: u64, to: u64, office: &LeaderView) -> Result<(), String> {
    let group = &office.group;
    let is_it = |state: &regent_election::State| {
        let was = state.leader_view(group, office.cursor.incarnation);
        let of = |view: &LeaderView| {
            (view.leader.clone(), view.term, view.state, view.metadata.clone(), view.revision)
        };
        of(&was) == of(office)
    };
    let mut between = case.chronicle.ledger.between(group, from, to);
    let was = between.any(|write| match write {
        Some(write) => is_it(&write.entry.state),
        None => office.leader.is_none() && office.revision.0 == 0,
    });
    if was {
        return Ok(());
    }
    Err(format!(
        "{group} was shown at revision {} with term {}, which its entry never was meanwhile",
        office.revision, office.term
    ))
}

/// Whoever is told to have won has.
fn won(
    case: &Case<'_>,
    from: u64,
    to: u64,
    session: SessionId,
    group: &Group,
    term: Term,
) -> Result<(), String> {
    let tenure = case.chronicle.tenure(group, term).ok_or("nobody ever had this term")?;
    if case.chronicle.session_of(tenure) != Some(session) {
        return Err(format!("term {term} was another's"));
    }
    if tenure.accepted.is_none_or(|(at, _)| at > to) {
        return Err(format!("term {term} was not in force yet"));
    }
    if tenure.ended.as_ref().is_some_and(|end| end.at < from) {
        return Err(format!("term {term} was over"));
    }
    Ok(())
}

/// An acknowledged heartbeat has left its mark.
fn heard(
    case: &Case<'_>,
    from: u64,
    to: u64,
    session: SessionId,
    ttl_ms: u64,
    epoch: u64,
) -> Result<(), String> {
    let ledger = &case.chronicle.ledger;
    let digest = reading::digest(session);
    let writes = ledger.sessions.get(&digest).map(Vec::as_slice).unwrap_or_default();
    let first = writes.partition_point(|write| write.at < from);
    let last = writes.partition_point(|write| write.at <= to);
    let was = |write: &crate::ledger::SessionWrite| {
        let open = write.entry.open.as_ref();
        open.is_some_and(|open| open.ttl_ms == ttl_ms && open.epoch == epoch)
    };
    let meanwhile = &writes[first.saturating_sub(1)..last];
    if !meanwhile.iter().any(was) {
        return Err(format!("its entry never had ttl {ttl_ms} ms and epoch {epoch} meanwhile"));
    }
    let is_marked = if case.history.setup.register.is_some_and(|plan| plan.times_sessions) {
        let heartbeats = ledger.heartbeats.get(&digest).map(Vec::as_slice).unwrap_or_default();
        heartbeats.iter().any(|at| (from..=to).contains(at))
    } else {
        let before = first.checked_sub(1).map(|at| writes[at].entry.heartbeat);
        writes[first..last].iter().any(|write| Some(write.entry.heartbeat) != before)
    };
    if is_marked { Ok(()) } else { Err("it left no mark in the register".into()) }
}
