//! The alerts in `deploy/prometheus`, by Prometheus's own tests of rules.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;
use std::process::Command;

#[test]
fn every_alert_fires_at_its_threshold_and_not_below() {
    let promtool = match regent_servers::need("promtool") {
        Ok(promtool) => promtool,
        Err(why) => {
            let must = std::env::var("REGENT_TEST_STORES").as_deref() == Ok("all");
            assert!(!must, "the alerts cannot be tested: {why}");
            regent_servers::report("prometheus", "-", 0, 1, &format!("SKIPPED: {why}"));
            return;
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus");
    let tested = Command::new(&promtool)
        .args(["test", "rules", "regent.rules.test.yml"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    regent_servers::report("prometheus", "promtool", 1, 0, "");
}
