//! `GET /v1/groups/{group}/token`, `POST …/token/validate`, `GET` and `DELETE …/fences`: the token service.
//!
//! Most validations repeat what a fence knows already: the same leader writes again, or an old one tries to.
//! Both are answered by a linearizable read; only a term that raises its fence costs a commit.

use std::time::Duration;

use regent_api::token::SESSION_HEADER;
use regent_api::{
    Code, DeleteFenceQuery, Done, FencesQuery, FencesResponse, Operation, Problem, TokenResponse,
    ValidateTokenRequest, ValidateTokenResponse,
};
use regent_election::limits::{FENCES_PER_GROUP_MAX, RESOURCE_BYTES_MAX};
use regent_election::store::{Consistency, FencesPage, OfficeState, TenureView};
use regent_election::{FenceError, Group, Refusal, Resource, SessionId, Term};

use crate::app::{Ask, Call};
use crate::quiet::{self, Quiet};
use crate::reply::{self, Reply};
use crate::signing::TermStatement;

static STALE: Quiet = quiet::lines();

/// Fences of a page if it is not said how many.
const FENCES_PAGE_DEFAULT: usize = 100;

pub(crate) async fn show(call: Call) -> Reply {
    let group = call.group()?;
    let session = session_of(&call)?;
    reply::json(&act_show(&call, &group, session).await?)
}

/// The session that the caller proves, if it does. Its text is never repeated in a message.
fn session_of(call: &Call) -> Result<Option<SessionId>, Problem> {
    let Some(given) = call.headers.get(SESSION_HEADER) else { return Ok(None) };
    let session = given.to_str().ok().and_then(|given| given.parse().ok());
    let why = || Problem::new(Code::BadRequest, "the header regent-session is no session id");
    session.map(Some).ok_or_else(why)
}

pub(crate) async fn act_show(
    ask: &Ask,
    group: &Group,
    session: Option<SessionId>,
) -> Result<TokenResponse, Problem> {
    let view = ask.read(ask.store().leader(group, Consistency::Linearizable)).await?;
    if let Some(to) = view.moved_to {
        return Err(Refusal::Moved { group: group.clone(), to }.into());
    }
    let mut response = TokenResponse::new(view);
    if let Some(session) = session {
        response.token = signed(ask, &response, session).await?;
    }
    Ok(response)
}

/// The term, signed for the session that holds it: whoever else asks gets none, so that a term is worth no more in
/// the hands of a stranger than its number.
async fn signed(
    ask: &Ask,
    shown: &TokenResponse,
    session: SessionId,
) -> Result<Option<String>, Problem> {
    let view = ask.read(ask.store().session(session)).await?;
    let is_held = |tenure: &TenureView| {
        let may_act = match tenure.state {
            OfficeState::Leading => true,
            // One that has not accepted may not act yet, one that is told to stop not any more.
            OfficeState::Elected
            | OfficeState::Ending
            | OfficeState::Vacant
            | OfficeState::Delayed => false,
        };
        may_act && (&tenure.group, tenure.term) == (&shown.group, shown.term)
    };
    let (true, Some(signing)) = (view.tenures.iter().any(is_held), &ask.app.signing) else {
        return Ok(None);
    };
    let held = TermStatement {
        cluster: &ask.app.config.cluster,
        group: &shown.group,
        term: shown.term,
        node: &view.node,
        session,
    };
    Ok(signing.sign(held, Duration::from_millis(view.ttl_ms)))
}

pub(crate) async fn validate(call: Call) -> Reply {
    let (group, request) = (call.group()?, call.body()?);
    reply::json(&act_validate(&call, group, request).await?)
}

pub(crate) async fn act_validate(
    ask: &Ask,
    group: Group,
    request: ValidateTokenRequest,
) -> Result<ValidateTokenResponse, Problem> {
    let ValidateTokenRequest { term, resource } = request;
    ask.check(Operation::ValidateToken, &group).await?;
    let judged = match &resource {
        None => is_current(ask, &group, term).await,
        Some(resource) => admit(ask, &group, resource, term).await,
    };
    if let Err(problem) = &judged
        && problem.code == Code::StaleTerm
    {
        if let Some(untold) = STALE.admit() {
            tracing::warn!(%group, %problem, untold, "a stale term was refused");
        }
        if resource.is_some() {
            ask.app.stale_attempt(&group, term, None);
        }
    }
    judged?;
    Ok(ValidateTokenResponse { group, term, resource, valid: true })
}

/// Whether somebody holds this very term now.
async fn is_current(ask: &Ask, group: &Group, given: Term) -> Result<(), Problem> {
    let view = ask.read(ask.store().leader(group, Consistency::Linearizable)).await?;
    let (group, current) = (group.clone(), view.term);
    if let Some(to) = view.moved_to {
        return Err(Refusal::Moved { group, to }.into());
    }
    if given < current {
        return Err(Refusal::StaleTerm { group, resource: None, given, current }.into());
    }
    if given > current || given == Term::NONE {
        return Err(Refusal::NeverGranted { group, given, current }.into());
    }
    match view.state {
        OfficeState::Elected | OfficeState::Leading | OfficeState::Ending => Ok(()),
        OfficeState::Vacant | OfficeState::Delayed => {
            Err(Refusal::TermOver { group, given }.into())
        }
    }
}

/// Admits a term at a resource: by a read if its fence needs no raising.
async fn admit(ask: &Ask, group: &Group, resource: &Resource, given: Term) -> Result<(), Problem> {
    let page = ask.read(ask.store().fences(group, resource.as_str(), None, 1)).await?;
    match judged(&page, resource, given) {
        Some(Ok(())) => Ok(()),
        Some(Err(FenceError::Stale { given, current })) => {
            let (group, resource) = (group.clone(), Some(resource.clone()));
            Err(Refusal::StaleTerm { group, resource, given, current }.into())
        }
        Some(Err(FenceError::NeverGranted)) => {
            Err(Refusal::NeverGranted { group: group.clone(), given, current: page.term }.into())
        }
        None => ask.change(ask.store().admit(group, resource, given)).await,
    }
}

/// What a read can say of a term: nothing if its fence would have to be raised, or if the group lives elsewhere, or
/// is on its way here: then what stands here is the past.
fn judged(page: &FencesPage, resource: &Resource, given: Term) -> Option<Result<(), FenceError>> {
    if !page.is_home {
        return None;
    }
    if given == Term::NONE || given > page.term {
        return Some(Err(FenceError::NeverGranted));
    }
    let known = page.fences.first().filter(|fence| fence.resource == *resource);
    // The first fence of a group begins at its current term.
    let floor = if page.floor == Term::NONE { page.term } else { page.floor };
    let mark = known.map_or(floor, |fence| fence.mark);
    if given < mark {
        return Some(Err(FenceError::Stale { given, current: mark }));
    }
    known.filter(|fence| fence.mark == given).map(|_| Ok(()))
}

pub(crate) async fn list(call: Call) -> Reply {
    let (group, query) = (call.group()?, call.query()?);
    reply::json(&act_list(&call, group, query).await?)
}

pub(crate) async fn act_list(
    ask: &Ask,
    group: Group,
    query: FencesQuery,
) -> Result<FencesResponse, Problem> {
    let FencesQuery { prefix, after, count } = query;
    let count = count.map_or(FENCES_PAGE_DEFAULT, |count| count as usize);
    let wrong = |field: &str, why: String| Problem::new(Code::BadRequest, why).at(field);
    if !(1..=FENCES_PER_GROUP_MAX).contains(&count) {
        let why = format!("a page has 1 to {FENCES_PER_GROUP_MAX} fences, not {count}");
        return Err(wrong("count", why));
    }
    if prefix.len() > RESOURCE_BYTES_MAX {
        return Err(wrong("prefix", format!("a prefix has at most {RESOURCE_BYTES_MAX} bytes")));
    }
    let page = ask.read(ask.store().fences(&group, &prefix, after.as_ref(), count)).await?;
    Ok(FencesResponse::new(group, page))
}

pub(crate) async fn delete(call: Call) -> Reply {
    let group = call.group()?;
    let DeleteFenceQuery { resource } = call.query()?;
    reply::json(&act_delete(&call, &group, &resource).await?)
}

pub(crate) async fn act_delete(
    ask: &Ask,
    group: &Group,
    resource: &Resource,
) -> Result<Done, Problem> {
    ask.change(ask.store().forget_fence(group, resource)).await?;
    Ok(Done::YES)
}

#[cfg(test)]
mod tests {
    use regent_election::Revision;
    use regent_election::store::FenceView;

    use super::*;

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    fn page(mark: Option<u64>, floor: u64, current: u64) -> FencesPage {
        let resource = Resource::new("rows").unwrap();
        FencesPage {
            fences: mark.map(|mark| FenceView { resource, mark: term(mark) }).into_iter().collect(),
            floor: term(floor),
            next: None,
            term: term(current),
            moved_to: None,
            is_home: true,
            revision: Revision(1),
        }
    }

    #[test]
    fn a_read_judges_only_what_needs_no_raising() {
        let rows = Resource::new("rows").unwrap();
        let judge = |page: &FencesPage, given: u64| judged(page, &rows, term(given));
        let stale = |given: u64, current: u64| {
            let (given, current) = (term(given), term(current));
            Some(Err(FenceError::Stale { given, current }))
        };
        let never = Some(Err(FenceError::NeverGranted));
        let known = page(Some(5), 2, 7);
        assert_eq!(judge(&known, 5), Some(Ok(())));
        assert_eq!(judge(&known, 4), stale(4, 5));
        assert_eq!(judge(&known, 6), None, "the fence would have to be raised");
        assert_eq!((judge(&known, 8), judge(&known, 0)), (never, never));
        let unknown = page(None, 2, 7);
        assert_eq!((judge(&unknown, 1), judge(&unknown, 2)), (stale(1, 2), None));
        let first = page(None, 0, 7);
        assert_eq!((judge(&first, 6), judge(&first, 7)), (stale(6, 7), None));
        // Behind a closed door stands what was, not what is.
        let past = FencesPage { is_home: false, ..known };
        assert_eq!((judge(&past, 5), judge(&past, 4)), (None, None));
    }
}
