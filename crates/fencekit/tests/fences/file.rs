//! Files of this host.

use std::sync::Arc;

use regent_fencekit::file::FileTarget;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_keep_stale_leaders_out() {
    let place = tempfile::tempdir().unwrap();
    let target = Arc::new(FileTarget::at(place.path()));
    crate::keeps_stale_leaders_out("file", "this host", target).await;
}
