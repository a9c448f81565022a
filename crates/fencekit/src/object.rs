//! Trials on a bucket.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::ObjectStore;
use object_store::path::Path;
use regent::fencing::object::FencedObject;
use regent::fencing::{Proof as _, WriteResult};

use crate::{Target, Write, uncertain};

/// A folder of a bucket in which every resource is an object.
#[derive(Debug)]
pub struct ObjectTarget {
    store: Arc<dyn ObjectStore>,
    folder: Path,
}

impl ObjectTarget {
    /// Below this folder.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, folder: Path) -> Self {
        Self { store, folder }
    }

    fn object(&self, resource: &str) -> FencedObject {
        FencedObject::new(Arc::clone(&self.store), self.folder.clone().join(resource))
    }
}

#[async_trait]
impl Target for ObjectTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        let object = self.object(&write.resource);
        if !write.is_fenced {
            write.pause.over().await;
            let put = object.put_unfenced(write.leader.term(), write.value.as_bytes());
            return put.await.map_err(uncertain);
        }
        // The pause is where it hurts: after the look, before the put.
        object.put_after(&write.leader, write.value.as_bytes(), write.pause.over()).await
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let found = self.object(resource).get().await?.and_then(|content| content.bytes);
        Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
