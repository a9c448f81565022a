//! Promises checked on the state machine alone, without the model: were both wrong in the same way,
//! these would still notice.

use std::collections::BTreeMap;

use regent_election::state::Holder;
use regent_election::store::OfficeState;
use regent_election::{
    Answer, Applied, Cause, Command, Entry, Group, Node, Refusal, RequestId, Resource, SessionId,
    SessionNo, State, Term, WaitKind,
};

use super::world::{group, resource};

/// What has been seen so far.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Every term ever granted, and to whom.
    granted: BTreeMap<(Group, Term), SessionNo>,
    /// Who leads, as a watcher that saw every event believes.
    believed: BTreeMap<Group, (Term, Option<Node>)>,
    /// The highest term ever admitted at a resource, whatever became of its fence or its group.
    admitted: BTreeMap<(Group, Resource), Term>,
    /// Requests that took effect, by where their ids are kept.
    ran: BTreeMap<(Option<SessionId>, RequestId), Command>,
}

fn ensure(truth: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if truth { Ok(()) } else { Err(broken()) }
}

/// The groups of a sequence, known or not.
fn groups() -> impl Iterator<Item = Group> {
    (0..super::steps::GROUPS).map(group)
}

impl Promises {
    /// Judges one entry by what was before and after it.
    pub(crate) fn hold(
        &mut self,
        before: &State,
        state: &State,
        entry: &Entry,
        applied: &Applied,
    ) -> Result<(), String> {
        self.a_term_is_granted_once_and_never_falls(before, state)?;
        at_most_one_tenure_per_group(state)?;
        nobody_is_granted_while_a_tenure_is_ending(before, state, entry)?;
        nobody_leads_without_its_own_word(before, state, entry)?;
        the_silent_and_the_ended_are_never_promoted(before, state, entry, applied)?;
        self.no_resource_admits_a_lower_term(entry, applied)?;
        self.every_event_is_accounted_for(state, applied)?;
        self.a_repeated_request_takes_effect_once(before, state, entry, applied)
    }

    /// S2: another life of the store begins 2^32 above every term granted in this one.
    pub(crate) fn outlive(&self, reborn: &State) -> Result<(), String> {
        for (group, granted) in self.granted.keys() {
            let last = match reborn.may_renew(group, SessionNo(0), Term::NONE) {
                Err(Refusal::NotLeader { term, .. }) => term,
                other => return Err(format!("{group} is led in another life: {other:?}")),
            };
            ensure(last.get() >= granted.get() + (1 << 32), || {
                format!("S2: {group} begins again after {last}, and {granted} was granted")
            })?;
            // S3: and no resource admits any of them.
            let (group, term) = (group.clone(), *granted);
            let admit = Command::Admit { group, resource: resource(0), term };
            let answer = reborn.clone().apply(Entry::bare(admit)).answer;
            ensure(answer.is_err(), || format!("S3: {granted} is admitted in another life"))?;
        }
        Ok(())
    }

    /// S3: no resource accepts a lower term after a higher one: not after its fence was forgotten, its group
    /// deleted or moved away and back.
    fn no_resource_admits_a_lower_term(
        &mut self,
        entry: &Entry,
        applied: &Applied,
    ) -> Result<(), String> {
        let Command::Admit { group, resource, term } = &entry.command else { return Ok(()) };
        if applied.answer.is_err() {
            return Ok(());
        }
        let highest = self.admitted.entry((group.clone(), resource.clone())).or_default();
        ensure(*term >= *highest, || {
            format!("S3: {resource} of {group} admitted {term} after {highest}")
        })?;
        *highest = *term;
        Ok(())
    }

    /// S2: terms strictly increase and are never reused, also through deletion.
    fn a_term_is_granted_once_and_never_falls(
        &mut self,
        before: &State,
        state: &State,
    ) -> Result<(), String> {
        for group in groups() {
            let Some(holder) = state.holder(&group) else { continue };
            let is_old = before.holder(&group).is_some_and(|old| old.term == holder.term);
            ensure(is_old || state.door(&group).is_open(), || {
                format!("{group} was granted behind a closed door")
            })?;
            let key = (group.clone(), holder.term);
            let first = *self.granted.entry(key).or_insert(holder.session);
            ensure(first == holder.session, || {
                format!("S2: term {} of {group} has a second holder", holder.term)
            })?;
            let is_fresh = before.holder(&group).map(|old| old.term) != Some(holder.term);
            let highest = self
                .granted
                .range((group.clone(), Term::NONE)..)
                .take_while(|(key, _)| key.0 == group);
            let highest = highest.map(|(key, _)| key.1).max().unwrap_or_default();
            ensure(highest == holder.term, || {
                format!("S2: {group} is led under {} after {highest}", holder.term)
            })?;
            let old = before.group_view(&group, regent_election::Incarnation(0), |_| false);
            if let (true, Ok(old)) = (is_fresh, old) {
                // One that arrives goes on above the terms of where it came from.
                let arrives = !old.door.is_open() && old.office.term < holder.term;
                ensure(arrives || old.office.term.next() == Some(holder.term), || {
                    format!("{group} went from term {} to {}", old.office.term, holder.term)
                })?;
            }
        }
        Ok(())
    }

    /// S5: who saw every event knows who leads; and the history ends with the office.
    fn every_event_is_accounted_for(
        &mut self,
        state: &State,
        applied: &Applied,
    ) -> Result<(), String> {
        for event in &applied.events {
            let last =
                self.believed.insert(event.group.clone(), (event.term, event.leader.clone()));
            let (last, leader) = last.unwrap_or_default();
            let is_news = event.leader != leader
                || event.term != last
                || matches!(event.cause, Cause::Deleted | Cause::Moved);
            // A finding tells of something else than who leads, and changes nothing about it.
            let is_told = if event.cause.is_finding() { event.leader == leader } else { is_news };
            ensure(event.term >= last && is_told, || format!("{event:?} tells nothing"))?;
        }
        for group in groups() {
            let view = state.leader_view(&group, regent_election::Incarnation(0));
            let (term, leader) = self.believed.get(&group).cloned().unwrap_or_default();
            ensure(leader == view.leader, || {
                format!("S5: {:?} leads {group}, a watcher believes {leader:?}", view.leader)
            })?;
            ensure(leader.is_none() || term == view.term, || {
                format!("S5: {group} is led under {}, a watcher believes {term}", view.term)
            })?;
            if let Some(last) = state.history(&group).last() {
                ensure(last.leader == view.leader && last.term == view.term, || {
                    format!("the history of {group} ends with {last:?}")
                })?;
            }
        }
        Ok(())
    }

    /// S9: the second time nothing changes, and `elected` is said of a tenure that stands.
    fn a_repeated_request_takes_effect_once(
        &mut self,
        before: &State,
        state: &State,
        entry: &Entry,
        applied: &Applied,
    ) -> Result<(), String> {
        let Some(id) = &entry.request else { return Ok(()) };
        if let (Ok(Answer::Elected { session, term, .. }), Command::Campaign { group, .. }) =
            (&applied.answer, &entry.command)
        {
            let holder = state.holder(group);
            let leads = Holder { session: *session, term: *term, state: OfficeState::Leading };
            ensure(holder == Some(leads), || format!("S9: elected, but {holder:?} holds {group}"))?;
        }
        // Ids live in the record of their session and go with it.
        let secret = entry.command.session();
        let is_kept = secret.is_none_or(|secret| before.find_session(secret).is_some());
        let key = (secret, id.clone());
        match self.ran.get(&key).filter(|_| is_kept) {
            Some(first) if *first == entry.command => {
                ensure(applied.events.is_empty(), || {
                    format!("S9: a repeat told {:?}", applied.events)
                })?;
                let (was, is) = (picture(before, secret), picture(state, secret));
                ensure(was == is, || format!("S9: a repeat changed\n{was:?} to\n{is:?}"))
            }
            Some(_) => ensure(applied.answer.is_err(), || "S9: an id ran for two commands".into()),
            None => {
                let took_effect = match &applied.answer {
                    Ok(Answer::Lost | Answer::Overtaken) | Err(_) => false,
                    Ok(_) => true,
                };
                if took_effect {
                    self.ran.insert(key, entry.command.clone());
                }
                Ok(())
            }
        }
    }
}

/// All offices, lines and policies; an acceptance of one's own promotion is no difference.
fn picture(state: &State, own: Option<SessionId>) -> Vec<String> {
    let own = own.and_then(|own| state.find_session(own));
    groups()
        .map(|group| {
            let mut holder = state.holder(&group);
            if let Some(holder) = &mut holder
                && Some(holder.session) == own
                && holder.state == OfficeState::Elected
            {
                holder.state = OfficeState::Leading;
            }
            let line: Vec<SessionNo> = state.standbys(&group).collect();
            format!("{group} {holder:?} {line:?} {:?}", state.policy(&group))
        })
        .chain([format!("{:?} {:?}", state.settings(), state.sessions().collect::<Vec<_>>())])
        .collect()
}

fn at_most_one_tenure_per_group(state: &State) -> Result<(), String> {
    let mut held = BTreeMap::new();
    for (session, _) in state.sessions() {
        for group in state.led_by(session) {
            let other = held.insert(group.clone(), session);
            ensure(other.is_none(), || format!("{group} is held by {session} and {other:?}"))?;
        }
    }
    for group in groups() {
        let holder = state.holder(&group).map(|holder| holder.session);
        ensure(holder == held.get(&group).copied(), || format!("{group} is held by {holder:?}"))?;
    }
    Ok(())
}

/// Semantics 11: the term stays taken until the holder confirms, its session ends, the wait is over,
/// or an administrator forces it.
fn nobody_is_granted_while_a_tenure_is_ending(
    before: &State,
    state: &State,
    entry: &Entry,
) -> Result<(), String> {
    for group in groups() {
        let Some(holder) = before.holder(&group).filter(|one| one.state == OfficeState::Ending)
        else {
            continue;
        };
        if state.holder(&group) == Some(holder) {
            continue;
        }
        let is_own = |id: &SessionId| before.find_session(*id) == Some(holder.session);
        let is_waited_for = |since| {
            let waits = |wait: regent_election::state::Wait| {
                wait.group == group && wait.kind == WaitKind::Ending && wait.since == since
            };
            before.waits().any(waits)
        };
        let is_over = match &entry.command {
            Command::Resign { session, group: at, .. }
            | Command::Withdraw { session, group: at } => *at == group && is_own(session),
            Command::Close { session } => is_own(session),
            Command::Expire { sessions } => sessions.contains(&holder.session),
            Command::Elapsed { group: at, kind, since } => {
                *at == group && *kind == WaitKind::Ending && is_waited_for(*since)
            }
            Command::StepDown { group: at, immediate, .. } => *at == group && *immediate,
            _ => false,
        };
        ensure(is_over, || format!("semantics 11: {group} left its ending tenure"))?;
    }
    Ok(())
}

/// Semantics 12: a promoted session acts only after its own acceptance.
fn nobody_leads_without_its_own_word(
    before: &State,
    state: &State,
    entry: &Entry,
) -> Result<(), String> {
    for group in groups() {
        let Some(holder) = state.holder(&group).filter(|one| one.state == OfficeState::Leading)
        else {
            continue;
        };
        if before.holder(&group) == Some(holder) {
            continue;
        }
        let spoke = match &entry.command {
            Command::Campaign { group: at, session, .. }
            | Command::Accept { group: at, session, .. } => {
                *at == group && state.find_session(*session) == Some(holder.session)
            }
            _ => false,
        };
        ensure(spoke, || format!("semantics 12: {holder:?} leads {group} without a word"))?;
    }
    Ok(())
}

/// Semantics 12: whoever is promoted can be heard, stood there, and lives through the entry.
fn the_silent_and_the_ended_are_never_promoted(
    before: &State,
    state: &State,
    entry: &Entry,
    applied: &Applied,
) -> Result<(), String> {
    for group in groups() {
        let Some(holder) = state.holder(&group) else { continue };
        let is_promotion = holder.state == OfficeState::Elected
            && before.holder(&group).map(|old| old.term) != Some(holder.term);
        if !is_promotion {
            continue;
        }
        let stood = before.stands(&group, holder.session);
        let is_heard = !entry.silent.contains(&holder.session);
        let has_ended = match &entry.command {
            Command::Expire { sessions } => sessions.contains(&holder.session),
            Command::Close { session } => before.find_session(*session) == Some(holder.session),
            _ => false,
        };
        let told = applied.events.iter().filter(|event| event.group == group).count();
        ensure(stood && is_heard && !has_ended && told == 1, || {
            format!("semantics 12: {holder:?} was promoted in {group}")
        })?;
    }
    Ok(())
}
