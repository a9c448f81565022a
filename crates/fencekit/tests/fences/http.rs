//! `FenceLayer` before the handlers of an example that anybody may copy.

#![allow(unreachable_pub, dead_code, reason = "the example is a program of its own, too")]

#[path = "../../../../examples/fenced_service.rs"]
mod fenced_service;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use regent::fencing::WriteResult;
use regent_fencekit::http::HttpTarget;
use regent_fencekit::{Target, Write};

/// The same service twice: with the layer, and without.
struct Both {
    fenced: HttpTarget,
    unfenced: HttpTarget,
}

#[async_trait]
impl Target for Both {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        let at = if write.is_fenced { &self.fenced } else { &self.unfenced };
        at.write(write).await
    }

    async fn read(
        &self,
        resource: &str,
    ) -> Result<Option<String>, Box<dyn std::error::Error + Send + Sync>> {
        match self.fenced.read(resource).await? {
            Some(value) => Ok(Some(value)),
            None => self.unfenced.read(resource).await,
        }
    }
}

async fn served(place: &Path, is_fenced: bool) -> HttpTarget {
    let service = fenced_service::service(place, is_fenced).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await });
    HttpTarget::at(&format!("http://{address}/notes")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_behind_the_layer_are_kept_from_stale_leaders() {
    let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fenced = served(with.path(), true).await;
    let unfenced = served(without.path(), false).await;
    let target = Arc::new(Both { fenced, unfenced });
    crate::keeps_stale_leaders_out_by("http", "axum, FenceLayer", target, true).await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_admits_nobody() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("mark"), "forty-one").unwrap();
    assert!(fenced_service::service(place.path(), true).is_err());
}
