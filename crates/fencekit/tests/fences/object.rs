//! Buckets: one that keeps conditions, and one that ignores them.

use std::sync::Arc;
use std::time::Duration;

use regent_fencekit::object::ObjectTarget;
use regent_fencekit::{TrialOptions, run};

use crate::unique;
use regent_servers::object::{bad, s3};
use regent_servers::{or_skip, report, starting};

fn target(url: &str) -> Arc<ObjectTarget> {
    let (store, root) = regent_stores::object::bucket(url, Duration::from_secs(60)).unwrap();
    Arc::new(ObjectTarget::new(store, root.join(unique("trials"))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_keeps_stale_leaders_out() {
    let Some(server) = or_skip("fence s3", s3()) else { return };
    crate::keeps_stale_leaders_out("s3", &server.version, target(&server.url)).await;
}

/// The trials find out a server that the adapter cannot be used on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_ignores_conditions_is_found_out_by_the_trials() {
    let Some(server) = or_skip("fence s3 (bad)", starting(bad)) else { return };
    // Few: it also fails at random, and whoever waits for a successor that failed waits long.
    let found =
        run(target(&server.url), TrialOptions::new(60, 1, unique("bad")), &mut |_| {}).await;
    assert!(found.tally.stale > 0, "{found:?}");
    let note = format!("60 trials: found out, {} stale writes", found.tally.stale);
    report("fence s3 (bad)", &server.version, 1, 0, &note);
}
