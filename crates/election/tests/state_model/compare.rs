//! What the state machine says and shows, against what the model expects.

use std::collections::BTreeSet;
use std::fmt::Debug;

use regent_election::store::OfficeState;
use regent_election::{
    Applied, Effect, Group, Incarnation, Node, OfficeChange, Refusal, Revision, SessionNo, State,
    Term, WaitKind,
};

use super::entry::Expected;
use super::model::{Candidacy, Model, Told};
use super::verbs::VerbResult;

fn same<T: PartialEq + Debug>(what: &str, real: T, expected: T) -> Result<(), String> {
    if real == expected {
        return Ok(());
    }
    Err(format!("{what}:\n     is {real:?}\nmodel {expected:?}"))
}

/// Fails with the first thing in which machine and model differ.
pub(crate) fn compare(
    before: &State,
    state: &State,
    applied: &Applied,
    known: &Model,
    model: &Model,
    expected: &Expected,
) -> Result<(), String> {
    same("revision", applied.revision, model.revision)?;
    same("revision of the state", state.revision(), model.revision)?;
    same("answer", plain(&applied.answer), plain(&expected.answer))?;
    events(applied, expected)?;
    effects(state, applied, known, model)?;
    epochs(before, state, expected)?;
    let access = state.access();
    let bindings = (access.bindings().version(), access.bindings().list());
    same("bindings", bindings, (model.bindings.0, model.bindings.1.as_slice()))?;
    let mut tokens = model.tokens.clone();
    tokens.sort_unstable();
    let kept: Vec<_> = access.tokens().map(|(id, record)| (id, record.revoked)).collect();
    same("tokens", kept, tokens)?;
    same("settings", state.settings(), &model.settings)?;
    for name in model.names() {
        group(state, model, &name)?;
    }
    let page = state.groups_page("", None, 100, Incarnation(1));
    let names: Vec<Group> = page.groups.into_iter().map(|view| view.group).collect();
    same("names of groups", names, model.names())?;
    sessions(state, model)?;
    floor(state, model)?;
    counts(state, model)
}

/// What is full is worded by the machine; the model only knows how much fits.
fn plain(answer: &VerbResult) -> VerbResult {
    match answer {
        Err(Refusal::Full { max, .. }) => Err(Refusal::Full { what: "", max: *max }),
        other => other.clone(),
    }
}

fn events(applied: &Applied, expected: &Expected) -> Result<(), String> {
    let told: Vec<Told> = applied
        .events
        .iter()
        .map(|event| Told {
            group: event.group.clone(),
            term: event.term,
            leader: event.leader.clone(),
            metadata: event.metadata.clone(),
            cause: event.cause,
        })
        .collect();
    same("events", &told, &expected.told)?;
    for (event, ordinal) in applied.events.iter().zip(0..) {
        same("place of an event", (event.revision, event.ordinal), (applied.revision, ordinal))?;
    }
    Ok(())
}

type Wait = (Group, WaitKind, Revision, u64);

fn effects(state: &State, applied: &Applied, known: &Model, model: &Model) -> Result<(), String> {
    let waits = |model: &Model| -> BTreeSet<Wait> {
        let of = |name: Group| {
            model.wait(&name).map(|(kind, since, for_ms)| (name, kind, since, for_ms))
        };
        model.names().into_iter().filter_map(of).collect()
    };
    let shown: BTreeSet<Wait> =
        state.waits().map(|wait| (wait.group, wait.kind, wait.since, wait.for_ms)).collect();
    same("waits", &shown, &waits(model))?;

    let (mut begun, mut opened, mut changed, mut ended) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for effect in applied.effects.iter().cloned() {
        let is_first = match effect {
            Effect::Wait { group, kind, since, for_ms } => {
                begun.insert((group, kind, since, for_ms))
            }
            Effect::SessionOpened { session, ttl_ms } => opened.insert((session, ttl_ms)),
            Effect::TtlChanged { session, ttl_ms } => changed.insert((session, ttl_ms)),
            Effect::SessionEnded { session } => ended.insert(session),
            // Nothing is proposed in these worlds.
            Effect::WaitDropped { .. } => false,
            // One office may change more than once in an entry.
            Effect::Office { .. } => continue,
        };
        if !is_first {
            return Err(format!("an effect came twice: {:?}", applied.effects));
        }
    }
    offices(applied, known, model)?;
    let fresh = waits(model).into_iter().filter(|wait| wait.2 == model.revision).collect();
    same("waits that begin", begun, fresh)?;
    let was = |no: SessionNo| known.sessions.iter().find(|session| session.no == no);
    let is = |no: SessionNo| model.sessions.iter().any(|session| session.no == no);
    let expected_opened = model.sessions.iter().filter(|session| was(session.no).is_none());
    let expected_opened = expected_opened.map(|session| (session.no, session.ttl_ms)).collect();
    same("sessions that open", opened, expected_opened)?;
    let expected_changed = model
        .sessions
        .iter()
        .filter(|session| was(session.no).is_some_and(|old| old.ttl_ms != session.ttl_ms))
        .map(|session| (session.no, session.ttl_ms))
        .collect();
    same("ttls that change", changed, expected_changed)?;
    let expected_ended = known.sessions.iter().map(|session| session.no).filter(|no| !is(*no));
    same("sessions that end", ended, expected_ended.collect())
}

/// An epoch rises with every change that its session did not ask for, and never falls.
fn epochs(before: &State, state: &State, expected: &Expected) -> Result<(), String> {
    for (session, _) in state.sessions() {
        let (Some(was), Some(is)) = (before.epoch(session), state.epoch(session)) else { continue };
        let must = expected.must_rise.contains(&session);
        let may = must || expected.may_rise.contains(&session);
        let fits = is >= was && (!must || is > was) && (may || is == was);
        if !fits {
            return Err(format!(
                "the epoch of {session} went from {was} to {is}; must rise: {must}, may: {may}"
            ));
        }
    }
    Ok(())
}

/// Whoever follows the changes of an office knows whether it is led and wanted.
fn offices(applied: &Applied, known: &Model, model: &Model) -> Result<(), String> {
    let is = |model: &Model, group: &Group| {
        let mut of = model.candidacies.iter().filter(|candidacy| candidacy.group == *group);
        let is_wanted = of.clone().next().is_some();
        let has_accepted = |candidacy: &Candidacy| {
            candidacy.holds.as_ref().is_some_and(|holding| holding.accepted)
        };
        (of.any(has_accepted), is_wanted)
    };
    let mut groups = [known.names(), model.names()].concat();
    groups.sort();
    groups.dedup();
    for group in groups {
        let mut office = is(known, &group);
        for effect in &applied.effects {
            let Effect::Office { group: of, change } = effect else { continue };
            if *of != group {
                continue;
            }
            office = match (*change, office) {
                (OfficeChange::Vacated { is_wanted, .. }, (true, _)) => (false, is_wanted),
                (OfficeChange::NotAccepted, (false, true)) => office,
                (OfficeChange::Wanted, (false, false)) => (false, true),
                (OfficeChange::Unwanted, (false, true)) => (false, false),
                (OfficeChange::Filled { was_wanted }, (false, is_wanted))
                    if was_wanted == is_wanted =>
                {
                    (true, true)
                }
                (OfficeChange::Gone, _) => (false, false),
                (change, office) => return Err(format!("{group} was {office:?}: {change:?}")),
            };
        }
        same("whether an office is led and wanted", office, is(model, &group))?;
    }
    Ok(())
}

fn group(state: &State, model: &Model, name: &Group) -> Result<(), String> {
    let what = |of: &str| format!("{of} of {name}");
    let known = model.group(name).expect("a known group");
    let holder = model.holder(name);
    let node_of = |no: SessionNo| model.session(no).node.clone();
    let view = state
        .group_view(name, Incarnation(1), |_| false)
        .map_err(|refusal| format!("{name} is unknown: {refusal}"))?;

    let office = match holder.and_then(|one| one.holds.as_ref()) {
        None if known.delayed.is_some() => OfficeState::Delayed,
        None => OfficeState::Vacant,
        Some(holding) if holding.ending.is_some() => OfficeState::Ending,
        Some(holding) if holding.accepted => OfficeState::Leading,
        Some(_) => OfficeState::Elected,
    };
    same(&what("state"), view.office.state, office)?;
    same(&what("term"), view.office.term, known.term)?;
    let leader = holder.map(|one| node_of(one.session));
    same(&what("leader"), view.office.leader, leader)?;
    let metadata = holder.map(|one| one.metadata.clone()).unwrap_or_default();
    same(&what("metadata"), view.office.metadata, metadata)?;
    let real = state.holder(name).map(|holder| (holder.session, holder.term, holder.state));
    same(&what("holder"), real, holder.map(|one| (one.session, known.term, office)))?;
    let ending = model.holding(name).and_then(|holding| holding.ending.as_ref());
    same(&what("ending"), view.ending, ending.map(|ending| ending.cause))?;
    same(&what("policy"), &view.policy, model.policy(name))?;
    same(&what("door"), &view.door, &known.door)?;
    let page = state.fences_page(name, "", None, 100);
    let marks: Vec<_> = page.fences.into_iter().map(|one| (one.resource, one.mark)).collect();
    same(&what("fences"), marks, model.marks(name))?;
    same(&what("own policy"), view.own_policy, known.policy.is_some())?;

    let line = model.line(name);
    let sessions: Vec<SessionNo> = line.iter().map(|one| one.session).collect();
    same(&what("line"), state.standbys(name).collect(), sessions)?;
    let shown: Vec<(Node, i16)> =
        view.standbys.into_iter().map(|standby| (standby.node, standby.priority)).collect();
    let expected: Vec<(Node, i16)> =
        line.iter().map(|one| (node_of(one.session), model.priority(one))).collect();
    same(&what("shown line"), shown, expected)?;
    same(&what("history"), state.history(name), known.history.as_slice())
}

fn sessions(state: &State, model: &Model) -> Result<(), String> {
    for session in &model.sessions {
        let what = |of: &str| format!("{of} of {}", session.no);
        let view = state.session_view(session.id).map_err(|refusal| refusal.to_string())?;
        same(&what("number"), state.find_session(session.id), Some(session.no))?;
        same(&what("node"), &view.node, &session.node)?;
        same(&what("ttl"), view.ttl_ms, session.ttl_ms)?;
        same(&what("standing"), view.standing, model.places(session.no, false))?;
        let shown: Vec<(Group, Term, Option<Node>, bool)> = view
            .tenures
            .into_iter()
            .map(|tenure| (tenure.group, tenure.term, tenure.offered_to, tenure.is_warm))
            .collect();
        let places = model.places(session.no, true).into_iter();
        let expected: Vec<(Group, Term, Option<Node>, bool)> = places
            .map(|name| {
                let holding = model.holding(&name).expect("it holds");
                let offered = holding.offered.map(|to| model.session(to).node.clone());
                (name, holding.term, offered, holding.offered.is_some() && holding.warm)
            })
            .collect();
        same(&what("tenures"), shown, expected)?;
        let shown: Vec<(Group, Term, Node, bool)> = view
            .offers
            .into_iter()
            .map(|offer| (offer.group, offer.term, offer.by, offer.is_warm))
            .collect();
        let places = model.places(session.no, false).into_iter();
        let expected: Vec<(Group, Term, Node, bool)> = places
            .filter_map(|name| {
                let holder = model.holder(&name)?;
                let holding = holder.holds.as_ref().filter(|holding| {
                    holding.offered == Some(session.no) && holding.ending.is_none()
                })?;
                let by = model.session(holder.session).node.clone();
                Some((name, holding.term, by, holding.warm))
            })
            .collect();
        same(&what("offers"), shown, expected)?;
    }
    let counted: BTreeSet<(SessionNo, u64)> = state.sessions().collect();
    let expected =
        model.sessions.iter().map(|session| (session.no, session.ttl_ms_longest)).collect();
    same("what a driver counts from its start", counted, expected)
}

/// The floor shows in the refusal of a tenure in a group that nobody knows.
fn floor(state: &State, model: &Model) -> Result<(), String> {
    let nowhere = Group::new("nowhere").unwrap();
    let shown = match state.may_renew(&nowhere, SessionNo(0), Term::NONE) {
        Err(Refusal::NotLeader { term, .. }) => Some(term),
        Ok(()) | Err(_) => None,
    };
    same("term floor", shown, Some(model.floor))
}

fn counts(state: &State, model: &Model) -> Result<(), String> {
    let census = state.census();
    let accepted = |name: &Group| model.holding(name).is_some_and(|holding| holding.accepted);
    let led = model.names().iter().filter(|name| accepted(name)).count() as u64;
    let contended = |name: &Group| model.candidacies.iter().any(|one| one.group == *name);
    let contended = model.names().iter().filter(|name| contended(name)).count() as u64;
    same("groups led", census.led, led)?;
    same("groups with candidates", census.contended, contended)?;
    same("sessions", census.sessions, model.sessions.len() as u64)?;
    same("groups", census.groups, model.groups.len() as u64)?;
    let stranded = model.names().iter().any(|name| {
        let is_free = model.group(name).is_some_and(|group| group.delayed.is_none());
        is_free
            && model.is_open(name)
            && model.holder(name).is_none()
            && !model.line(name).is_empty()
    });
    same("somebody is stranded", state.has_stranded(), stranded)
}
