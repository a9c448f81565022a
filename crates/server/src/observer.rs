//! Watches the whole store for the log and the metrics. The one task that is nobody's request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use regent_election::Event;
use regent_election::limits::GROUPS_PAGE_MAX;
use regent_election::store::{Scope, StoreResult, Watch, WatchItem};
use tokio::time::timeout;

use crate::app::{App, Phase};

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
    let mut lines = Lines::begin(Instant::now());
    loop {
        match begin(app).await {
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
                        WatchItem::Changed(event) => note(app, &mut lines, &event),
                        WatchItem::Gap { .. } => {
                            app.metrics.missed_events();
                            app.claim_monitor.blind();
                        }
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the store cannot be watched for metrics"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches from now on.
///
/// A replica that starts applies again what happened since its last snapshot, and then what it missed. That is over when
/// it has answered a linearizable read, and none of it is a change that anybody should be alarmed by now.
async fn begin(app: &App) -> StoreResult<Box<dyn Watch>> {
    let mut watch = app.store.watch(Scope::Prefix(String::new()), None).await?;
    let page = app.store.groups("", None, GROUPS_PAGE_MAX).await?;
    app.metrics.by_group.found(page.groups.iter().map(|office| &office.group));
    app.metrics.by_group.blind();
    // Without any group nothing has happened that could be told again.
    if !page.groups.is_empty() {
        while let Ok(Some(_)) = timeout(Duration::ZERO, watch.next()).await {
            tokio::task::consume_budget().await;
        }
    }
    Ok(watch)
}

fn note(app: &App, lines: &mut Lines, event: &Event) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_changes_is_told_as_a_number() {
        let start = Instant::now();
        let mut lines = Lines::begin(start);
        let told = (0..LINES_PER_SECOND + 7).filter(|_| lines.may_tell(start)).count() as u64;
        assert_eq!((told, lines.untold), (LINES_PER_SECOND, 7));
        assert!(lines.may_tell(start + Duration::from_secs(1)), "another second");
        assert_eq!(lines.untold, 0);
    }
}
