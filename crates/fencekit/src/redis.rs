//! Trials on a Redis.

use std::error::Error;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use regent::fencing::WriteResult;
use regent::fencing::redis::{Command, RedisFence};

use crate::{Target, Write, failed, uncertain};

/// Keys like `{resource}` on one server.
#[derive(Clone, Debug)]
pub struct RedisTarget {
    /// Several, so that one leader's script does not stand in line behind another's.
    connections: Vec<MultiplexedConnection>,
}

impl RedisTarget {
    /// On these connections.
    #[must_use]
    pub fn over(connections: Vec<MultiplexedConnection>) -> Self {
        Self { connections }
    }

    /// On so many connections to the server of a URL.
    pub async fn connect(url: &str, count: usize) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut connections = Vec::new();
        for _ in 0..count.max(1) {
            connections.push(regent_stores::redis::connect(url).await?);
        }
        Ok(Self::over(connections))
    }

    fn connection(&self, hint: &str) -> MultiplexedConnection {
        let place = hint.bytes().fold(0, |sum, byte| sum + usize::from(byte));
        self.connections[place % self.connections.len()].clone()
    }
}

#[async_trait]
impl Target for RedisTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        write.pause.over().await;
        let (fence, key) = (RedisFence::of(&write.resource), format!("{{{}}}", write.resource));
        let fence = fence.map_err(failed)?;
        let mut connection = self.connection(&write.value);
        if write.is_fenced {
            let put = [Command::new("SET").key(&key).arg(&write.value)];
            return fence.write(&mut connection, &write.leader, &put).await.map(drop);
        }
        let mut put = redis::cmd("SET");
        put.arg(&key).arg(&write.value);
        put.query_async::<()>(&mut connection).await.map_err(uncertain)
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let mut connection = self.connection(resource);
        let mut get = redis::cmd("GET");
        Ok(get.arg(format!("{{{resource}}}")).query_async(&mut connection).await?)
    }
}
