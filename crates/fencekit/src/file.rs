//! Trials on files of this host.

use std::error::Error;
use std::path::PathBuf;

use async_trait::async_trait;
use regent::fencing::WriteResult;
use regent::fencing::file::FencedFile;

use crate::{Target, Write, failed, uncertain};

/// A directory in which every resource is a file.
#[derive(Debug)]
pub struct FileTarget {
    directory: PathBuf,
}

impl FileTarget {
    /// The directory; it must be there.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }
}

#[async_trait]
impl Target for FileTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        write.pause.over().await;
        let path = self.directory.join(&write.resource);
        if !write.is_fenced {
            return std::fs::write(path, &write.value).map_err(failed);
        }
        // Locks are waited for, so not on the runtime's threads.
        let leader = crate::Pretender::new(regent::fencing::Proof::term(&write.leader));
        let value = write.value.clone();
        let done = tokio::task::spawn_blocking(move || {
            FencedFile::at(path).replace(&leader, value.as_bytes())
        });
        done.await.map_err(uncertain)?
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let path = self.directory.join(resource);
        let read = tokio::task::spawn_blocking(move || FencedFile::at(path).read()).await??;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
