//! Watches the whole store for the log and the metrics. The one task that is nobody's request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regent_election::store::{Scope, WatchItem};
use regent_election::{Cause, Event, Group};
use tokio::time::timeout;

use crate::app::{App, Phase};

/// Most vacancies measured at once; more are seen but not timed.
const VACANCIES_MAX: usize = 100_000;
/// How long to wait before asking again a store that could not be watched.
const PAUSE: Duration = Duration::from_secs(1);

/// Most changes told one by one in a second; of more only the number is told. A leader of 100,000
/// groups that crashes must not make its successor wait for the log.
const LINES_PER_SECOND: u64 = 1000;

/// Runs until the server closes.
pub(crate) async fn observe(app: Arc<App>) {
    tokio::select! {
        () = app.reached(Phase::Closing) => {}
        () = follow(&app) => {}
    }
}

async fn follow(app: &App) {
    let mut vacancies = Vacancies::default();
    let mut lines = Lines::begin(Instant::now());
    loop {
        match app.store.watch(Scope::Prefix(String::new()), None).await {
            Ok(mut watch) => {
                // What changed before this watch began was not seen.
                app.claim_monitor.blind();
                loop {
                    // What was not told one by one is told at the latest when it is quiet.
                    let item = match lines.untold {
                        0 => watch.next().await,
                        _ => match timeout(PAUSE, watch.next()).await {
                            Ok(item) => item,
                            Err(_) => {
                                lines.sum_up(Instant::now());
                                continue;
                            }
                        },
                    };
                    let Some(item) = item else { break };
                    // One entry may change 100,000 groups: others get their turn between them.
                    tokio::task::consume_budget().await;
                    match item {
                        WatchItem::Changed(event) => note(app, &mut vacancies, &mut lines, &event),
                        WatchItem::Gap { .. } => {
                            app.metrics.missed_events();
                            app.claim_monitor.blind();
                            vacancies = Vacancies::default();
                        }
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the store cannot be watched for metrics"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn note(app: &App, vacancies: &mut Vacancies, lines: &mut Lines, event: &Event) {
    app.claim_monitor.watched(event);
    let now = Instant::now();
    let node = event.leader.as_ref().map_or("-", |node| node.as_str());
    let (group, term, cause) = (&event.group, event.term.get(), event.cause.word());
    if event.cause.is_finding() {
        // The server that found it has told what and why; the others say where to look.
        tracing::warn!(%group, node, term, finding = cause, "see the history of this group");
        return;
    }
    if lines.may_tell(now) {
        tracing::info!(%group, node, term, cause, "leader changed");
    } else {
        tracing::debug!(%group, node, term, cause, "leader changed");
    }
    app.metrics.leader_changed(event);
    if let Some(vacant_for) = vacancies.note(event, now) {
        app.metrics.elected_after(vacant_for);
    }
}

/// How many changes were told one by one in this second, and how many were not.
#[derive(Debug)]
struct Lines {
    since: Instant,
    told: u64,
    untold: u64,
}

impl Lines {
    const fn begin(since: Instant) -> Self {
        Self { since, told: 0, untold: 0 }
    }

    /// Whether one more change is told by itself.
    fn may_tell(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            self.sum_up(now);
        }
        let may = self.told < LINES_PER_SECOND;
        if may {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        may
    }

    /// Tells how many were not, and begins anew.
    fn sum_up(&mut self, now: Instant) {
        if self.untold > 0 {
            tracing::info!(
                changes = self.untold,
                "more leaders changed, too many to be told one by one"
            );
        }
        *self = Self::begin(now);
    }
}

/// Since when groups have had no leader.
#[derive(Debug, Default)]
struct Vacancies(HashMap<Group, Instant>);

impl Vacancies {
    /// How long the office was vacant before this event filled it, if it did and that is known.
    fn note(&mut self, event: &Event, now: Instant) -> Option<Duration> {
        if event.leader.is_none() {
            if event.cause == Cause::Deleted {
                self.0.remove(&event.group);
            } else if self.0.len() < VACANCIES_MAX {
                self.0.entry(event.group.clone()).or_insert(now);
            }
            return None;
        }
        match self.0.remove(&event.group) {
            Some(since) => Some(now.saturating_duration_since(since)),
            // Nobody led before the first election, so there was no vacancy to fill.
            None if event.cause == Cause::Elected => None,
            // One commit ended a tenure and began the next.
            None => Some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use regent_election::{Metadata, Node, Revision, Term};

    use super::*;

    fn event(leader: Option<&str>, cause: Cause) -> Event {
        Event {
            group: Group::new("g").unwrap(),
            revision: Revision(1),
            ordinal: 0,
            term: Term::new(1).unwrap(),
            leader: leader.map(|leader| Node::new(leader).unwrap()),
            metadata: Metadata::NONE,
            cause,
        }
    }

    #[test]
    fn a_vacancy_lasts_from_the_loss_to_the_next_leader() {
        let mut vacancies = Vacancies::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(3);
        assert_eq!(vacancies.note(&event(Some("a"), Cause::Elected), start), None);
        assert_eq!(vacancies.note(&event(None, Cause::Expired), start), None);
        let filled = vacancies.note(&event(Some("b"), Cause::Elected), later);
        assert_eq!(filled, Some(Duration::from_secs(3)));
        let handed_over = vacancies.note(&event(Some("c"), Cause::Transferred), later);
        assert_eq!(handed_over, Some(Duration::ZERO));
    }

    #[test]
    fn a_flood_of_changes_is_told_as_a_number() {
        let start = Instant::now();
        let mut lines = Lines::begin(start);
        let told = (0..LINES_PER_SECOND + 7).filter(|_| lines.may_tell(start)).count() as u64;
        assert_eq!((told, lines.untold), (LINES_PER_SECOND, 7));
        assert!(lines.may_tell(start + Duration::from_secs(1)), "another second");
        assert_eq!(lines.untold, 0);
    }

    #[test]
    fn a_deleted_group_is_forgotten() {
        let mut vacancies = Vacancies::default();
        let now = Instant::now();
        vacancies.note(&event(None, Cause::Resigned), now);
        vacancies.note(&event(None, Cause::Deleted), now);
        assert!(vacancies.0.is_empty());
    }
}
