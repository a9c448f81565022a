//! Adapters on real servers: hundreds of randomized trials each (S3), the same without the fence, and what is
//! particular to each storage.
//!
//! The daily run is bounded; `regent fence test URL --trials 10000` is the long one (docs/fencing.md).
#![allow(clippy::unwrap_used, reason = "a test may")]

mod dynamodb;
mod file;
mod http;
mod object;
mod postgres;
mod redis;
mod rows;

use std::sync::Arc;

use regent_election::Term;
use regent_fencekit::{Pretender, Target, TrialOptions, TrialReport, run};

/// Trials a day on each server.
const TRIALS: u64 = 300;

fn leader(term: u64) -> Pretender {
    Pretender::new(Term::new(term).unwrap())
}

/// A name that nobody has used.
fn unique(name: &str) -> String {
    format!("{name}-{:016x}", regent::fresh::number().unwrap())
}

/// S3, on one storage: no stale write behind the fence, and stale writes without it.
async fn keeps_stale_leaders_out(name: &str, server: &str, target: Arc<dyn Target>) -> TrialReport {
    keeps_stale_leaders_out_by(name, server, target, false).await
}

/// The same on a storage that may have one mark for all of its resources.
async fn keeps_stale_leaders_out_by(
    name: &str,
    server: &str,
    target: Arc<dyn Target>,
    has_one_mark: bool,
) -> TrialReport {
    let seed = regent::fresh::number().unwrap();
    let fenced = TrialOptions { has_one_mark, ..TrialOptions::new(TRIALS, seed, unique("fenced")) };
    let report = run(Arc::clone(&target), fenced.clone(), &mut |_| {}).await;
    assert_eq!(report.faults, [], "{name}, seed {seed}: {report:?}");
    assert!(!report.is_void(), "{name}, seed {seed}: {report:?}");
    let unfenced = TrialOptions { is_fenced: false, room: unique("unfenced"), ..fenced };
    let lost = run(target, unfenced, &mut |_| {}).await;
    assert!(lost.tally.stale > 0, "{name}, seed {seed}: the trials cannot fail: {lost:?}");
    let note = format!(
        "{TRIALS} trials: {} stale attempts refused, none made; without the fence {} made",
        report.tally.refused, lost.tally.stale
    );
    regent_servers::report(&format!("fence {name}"), server, 1, 0, &note);
    report
}
