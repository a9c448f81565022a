//! The current term, asked from the service: strict mode.
//!
//! Every request is judged by a linearizable read that began after it arrived; requests that arrive while
//! one is under way share the next one. Nothing is cached. A cache kept fresh by a watch is the road not
//! taken: a watch says what has happened and never that nothing has, so between a change and its news it
//! would call an old term current, for as long as the network likes.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use regent::remote::Remote;
use regent_api::{Code, Consistency, Office, Problem};
use regent_election::store::OfficeState;
use regent_election::{Group, Refusal, Term};
use tokio::sync::oneshot;

/// When to try again if the service did not answer.
const RETRY_MS: u64 = 1000;

/// Asks which term is the current one.
#[derive(Debug)]
pub(crate) struct Current {
    remote: Remote,
    group: Group,
    state: Mutex<State>,
}

type Answered = Result<Office, Box<Problem>>;

#[derive(Debug, Default)]
struct State {
    is_asking: bool,
    /// Whoever came since the last question left.
    next: Vec<oneshot::Sender<Answered>>,
}

impl Current {
    pub(crate) fn new(remote: Remote, group: Group) -> Arc<Self> {
        Arc::new(Self { remote, group, state: Mutex::default() })
    }

    /// Whether a term was the current one at some instant after this was called.
    pub(crate) async fn check(self: &Arc<Self>, term: Term) -> Result<(), Problem> {
        let (tell, told) = oneshot::channel();
        let asks = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.next.push(tell);
            !mem::replace(&mut state.is_asking, true)
        };
        if asks {
            tokio::spawn(ask_on(Arc::clone(self)));
        }
        let office = match told.await {
            Ok(Ok(office)) => office,
            Ok(Err(problem)) => return Err(*problem),
            Err(_) => return Err(unknown("the question was dropped")),
        };
        judge(term, &office)
    }
}

/// Asks for everybody who waits, until nobody does.
async fn ask_on(current: Arc<Current>) {
    loop {
        let waiting = {
            let mut state = current.state.lock().unwrap_or_else(PoisonError::into_inner);
            let waiting = mem::take(&mut state.next);
            if waiting.is_empty() {
                state.is_asking = false;
                return;
            }
            waiting
        };
        let answer = current.remote.leader(&current.group, Consistency::Linearizable).await;
        let answer = match answer {
            Ok(answer) => Ok(answer.office),
            Err(error) => Err(Box::new(unknown(&error.to_string()))),
        };
        for tell in waiting {
            let _ = tell.send(answer.clone());
        }
    }
}

fn unknown(why: &str) -> Problem {
    let detail = format!("the service does not say which term is the current one: {why}");
    Problem::new(Code::FenceClosed, detail).retry_after(RETRY_MS)
}

/// Whether a term is the one in office, as the token service judges it.
fn judge(given: Term, office: &Office) -> Result<(), Problem> {
    if let Some(home) = &office.moved_to {
        let detail = format!("{} has moved to {home}; the gateway must ask there", office.group);
        return Err(Problem::new(Code::FenceClosed, detail).retry_after(RETRY_MS));
    }
    let (group, current) = (office.group.clone(), office.term);
    if given < current {
        return Err(Refusal::StaleTerm { group, resource: None, given, current }.into());
    }
    if given > current {
        return Err(Refusal::NeverGranted { group, given, current }.into());
    }
    match office.state {
        OfficeState::Elected | OfficeState::Leading | OfficeState::Ending => Ok(()),
        OfficeState::Vacant | OfficeState::Delayed => {
            Err(Refusal::TermOver { group, given }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regent_election::{Cursor, Incarnation, Metadata, Node, Revision};

    fn office(term: u64, state: OfficeState) -> Office {
        Office {
            group: Group::new("billing").unwrap(),
            leader: Some(Node::new("web-1").unwrap()),
            term: Term::new(term).unwrap(),
            state,
            metadata: Metadata::default(),
            valid_for_ms: None,
            moved_to: None,
            revision: Revision(1),
            cursor: Cursor::after(Incarnation(1), Revision(1)),
        }
    }

    #[test]
    fn only_the_term_in_office_passes() {
        let judged = |given: u64, state| {
            judge(Term::new(given).unwrap(), &office(7, state)).map_err(|problem| problem.code)
        };
        assert_eq!(judged(7, OfficeState::Leading), Ok(()));
        assert_eq!(judged(7, OfficeState::Ending), Ok(()), "it holds the office until it resigns");
        assert_eq!(judged(6, OfficeState::Leading), Err(Code::StaleTerm));
        assert_eq!(judged(8, OfficeState::Leading), Err(Code::NeverGranted));
        for state in [OfficeState::Vacant, OfficeState::Delayed] {
            assert_eq!(judged(7, state), Err(Code::TermOver), "{state:?}");
        }
    }

    #[test]
    fn a_group_that_has_moved_is_asked_for_elsewhere() {
        let mut moved = office(7, OfficeState::Leading);
        moved.moved_to = Some("http://elsewhere:7400".parse().unwrap());
        assert_eq!(judge(moved.term, &moved).unwrap_err().code, Code::FenceClosed);
    }
}
