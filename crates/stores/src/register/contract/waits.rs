//! Cases about waiting for a change. A wait may end for no reason, so only that it ends is asked.

use std::time::Duration;

use super::bench::{Bench, PATIENCE, done};
use super::{Fault, ensure};
use crate::register::{Key, Version};

/// Waits again and again, as a caller does, until the entry is no longer what was seen.
async fn sees_change(bench: &Bench, key: &Key, seen: Option<&Version>) -> Result<(), Fault> {
    let look = || async {
        bench.register().wait(key, seen, PATIENCE).await?;
        let found = bench.register().load(key).await?;
        Ok(found.as_ref().map(|found| &found.version) != seen)
    };
    bench.in_time("the change", bench.until("the change", look)).await?
}

pub(super) async fn a_wait_ends_after_a_change(bench: Bench) -> Result<(), Fault> {
    let (key, mut version) = bench.entry().await?;
    for _ in 0..3 {
        let change = async {
            // Most likely the wait has begun by then; if not, it must end all the same.
            bench.sleep(Duration::from_millis(50)).await;
            done("swapping", bench.other().swap(&key, Some(&version), bench.record()).await)
        };
        let (seen, swapped) = tokio::join!(sees_change(&bench, &key, Some(&version)), change);
        seen?;
        version = swapped?;
    }
    Ok(())
}

pub(super) async fn a_wait_for_an_entry_that_is_not_there_ends_after_its_creation(
    bench: Bench,
) -> Result<(), Fault> {
    let key = bench.key()?;
    let change = async {
        bench.sleep(Duration::from_millis(50)).await;
        done("creating", bench.other().swap(&key, None, bench.record()).await)
    };
    let (seen, created) = tokio::join!(sees_change(&bench, &key, None), change);
    seen?;
    created?;
    Ok(())
}

pub(super) async fn a_wait_ends_when_its_patience_does(bench: Bench) -> Result<(), Fault> {
    let (key, version) = bench.entry().await?;
    let patience = Duration::from_millis(100);
    let wait = async { bench.register().wait(&key, Some(&version), patience).await };
    bench.in_time("the end of a wait", wait).await??;
    let found = bench.load(&key).await?;
    ensure!(found.version == version, "waiting changed {version:?} to {found:?}");
    Ok(())
}

pub(super) async fn a_wait_for_what_has_changed_already_ends(bench: Bench) -> Result<(), Fault> {
    let (key, first) = bench.entry().await?;
    done("swapping", bench.other().swap(&key, Some(&first), bench.record()).await)?;
    for seen in [Some(&first), None] {
        sees_change(&bench, &key, seen).await?;
    }
    Ok(())
}
