//! Tells the service which terms this resource has acted under, and which it refused.
//!
//! The service keeps them as a fence of its own, so `regent token fences` shows what each resource has admitted, and a
//! refusal stands in the group's history (`docs/split-brain.md`). Nothing here depends on it: the mark that decides is
//! this gateway's, no request waits, and what cannot be told in time is dropped.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use regent::remote::Remote;
use regent_api::ValidateTokenRequest;
use regent_election::{Group, Resource, Term};
use tokio::sync::mpsc;

/// Terms that wait to be told.
const QUEUE: usize = 64;
/// Refused terms that are remembered, so that each is told once.
const REFUSED_MAX: usize = 1024;
/// How often a service that does not answer is asked again, and the pause before.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// Whom to tell, and under which name.
#[derive(Debug)]
pub struct ReportTarget {
    pub remote: Remote,
    /// What this gateway is called there.
    pub resource: Resource,
}

/// The requests' end of it.
#[derive(Debug)]
pub(crate) struct Reporter {
    terms: mpsc::Sender<Term>,
    highest: AtomicU64,
    refused: Mutex<BTreeSet<Term>>,
}

/// The service's end of it.
#[derive(Debug)]
pub(crate) struct Telling {
    report: ReportTarget,
    group: Group,
    terms: mpsc::Receiver<Term>,
}

pub(crate) fn open(report: ReportTarget, group: Group) -> (Reporter, Telling) {
    let (sender, terms) = mpsc::channel(QUEUE);
    let (highest, refused) = (AtomicU64::new(0), Mutex::default());
    (Reporter { terms: sender, highest, refused }, Telling { report, group, terms })
}

impl Reporter {
    /// A request of this term passed.
    pub(crate) fn admitted(&self, term: Term) {
        let is_news = self.highest.fetch_max(term.get(), Ordering::Relaxed) < term.get();
        if is_news && self.terms.try_send(term).is_err() {
            // The next request of this term tells it.
            self.highest.fetch_min(term.get().saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// A request of this term was refused, because a higher one had passed: the service knows of that one, and
    /// refuses this one too. What strict mode refuses is the service's own word, and not told back to it.
    pub(crate) fn refused(&self, term: Term) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        if refused.insert(term) {
            let _ = self.terms.try_send(term);
        }
    }
}

impl Telling {
    /// Tells until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        while let Some(term) = self.terms.recv().await {
            let resource = Some(self.report.resource.clone());
            let request = ValidateTokenRequest { term, resource };
            for _ in 0..TRIES {
                match self.report.remote.validate_token(&self.group, &request).await {
                    Ok(_) => break,
                    // It was heard: that it is refused there too is the point.
                    Err(error) if error.problem().is_some_and(|it| it.code.nothing_happened()) => {
                        if error.problem().is_some_and(|it| it.retry_after_ms.is_none()) {
                            break;
                        }
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "the service was not told which term passed");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_told_once_for_passing_and_once_for_being_refused() {
        let report = ReportTarget {
            remote: Remote::new("http://127.0.0.1:1").unwrap(),
            resource: Resource::new("bucket").unwrap(),
        };
        let (reporter, mut telling) = open(report, Group::new("g").unwrap());
        let term = |number| Term::new(number).unwrap();
        for _ in 0..3 {
            reporter.admitted(term(5));
            reporter.admitted(term(6));
            reporter.admitted(term(5));
            reporter.refused(term(4));
        }
        let mut told = Vec::new();
        while let Ok(term) = telling.terms.try_recv() {
            told.push(term.get());
        }
        assert_eq!(told, [5, 6, 4]);
    }
}
