//! Adapters on real servers: hundreds of randomized trials each (S3), the same without the fence, and what is
//! particular to each storage.
//!
//! The daily run is bounded; `regent fence test URL --trials 10000` is the long one (docs/fencing.md).
#![allow(clippy::unwrap_used, reason = "a test may")]
// The servers of Kubernetes need more than this crate has.
#![cfg(not(feature = "kubernetes"))]

mod dynamodb;
mod file;
mod http;
mod object;
mod postgres;
mod redis;
mod rows;
#[path = "../../../stores/tests/servers/mod.rs"]
mod servers;

use std::sync::Arc;

use regent::election::Term;
use regent::fencing::trial::{Options, Pretender, Report, Target, run};

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
async fn keeps_stale_leaders_out(name: &str, server: &str, target: Arc<dyn Target>) -> Report {
    keeps_stale_leaders_out_by(name, server, target, false).await
}

/// The same on a storage that may have one mark for all of its resources.
async fn keeps_stale_leaders_out_by(
    name: &str,
    server: &str,
    target: Arc<dyn Target>,
    has_one_mark: bool,
) -> Report {
    let seed = regent::fresh::number().unwrap();
    let fenced = Options { has_one_mark, ..Options::new(TRIALS, seed, unique("fenced")) };
    let report = run(Arc::clone(&target), fenced.clone(), &mut |_| {}).await;
    assert_eq!(report.faults, [], "{name}, seed {seed}: {report:?}");
    assert!(!report.is_void(), "{name}, seed {seed}: {report:?}");
    let unfenced = Options { is_fenced: false, room: unique("unfenced"), ..fenced };
    let lost = run(target, unfenced, &mut |_| {}).await;
    assert!(lost.tally.stale > 0, "{name}, seed {seed}: the trials cannot fail: {lost:?}");
    let note = format!(
        "{TRIALS} trials: {} stale attempts refused, none made; without the fence {} made",
        report.tally.refused, lost.tally.stale
    );
    servers::report(&format!("fence {name}"), server, 1, 0, &note);
    report
}
