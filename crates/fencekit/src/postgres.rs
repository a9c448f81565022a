//! Trials on a PostgreSQL: one table with a fence per row, and one without any.
//!
//! Each write is a transaction of its own on a connection of a small pool, as a leader's would be.

use std::error::Error;

use async_trait::async_trait;
use regent::fencing::WriteResult;
use regent::fencing::postgres::sql::{Shape, Table, install};
use regent::fencing::postgres::{begin, judge};
use regent_stores::postgres::connect;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::{Target, Write, failed, uncertain};

/// Connections. More than resources at a time, so that leaders of one resource do not wait for each other
/// before they have reached the database.
const CONNECTIONS: usize = 24;

/// A schema of its own in a database, with a fenced table and one without a fence.
#[derive(Debug)]
pub struct PostgresTarget {
    clients: Vec<Mutex<Client>>,
    place: String,
}

impl PostgresTarget {
    /// Makes the tables in a schema of this name in the database of a URL; [`PostgresTarget::clear`] drops it.
    pub async fn prepare(url: &str, schema: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(Mutex::new(connect(url).await?));
        }
        let target = Self { clients, place: format!("\"{}\"", schema.replace('"', "\"\"")) };
        let place = &target.place;
        let fenced = Table::parse(&format!("{place}.fenced"))?;
        let make = format!(
            "CREATE SCHEMA {place};
             CREATE TABLE {place}.fenced (resource text PRIMARY KEY, value text NOT NULL);
             CREATE TABLE {place}.unfenced (resource text PRIMARY KEY, value text NOT NULL);"
        );
        let client = target.client("").await;
        client.batch_execute(&make).await?;
        client.batch_execute(&install(&fenced, &["resource".into()], Shape::Plain)?).await?;
        drop(client);
        Ok(target)
    }

    /// Drops the schema of the trials. The marks of the trials stay in `regent.fence`, as marks do.
    pub async fn clear(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let drop = format!("DROP SCHEMA {} CASCADE", self.place);
        Ok(self.client("").await.batch_execute(&drop).await?)
    }

    /// A connection that is free, or else the one that this falls on.
    async fn client(&self, hint: &str) -> MutexGuard<'_, Client> {
        for client in &self.clients {
            if let Ok(client) = client.try_lock() {
                return client;
            }
        }
        let place = hint.bytes().fold(0, |sum, byte| sum + usize::from(byte));
        self.clients[place % self.clients.len()].lock().await
    }
}

#[async_trait]
impl Target for PostgresTarget {
    async fn write(&self, write: &Write) -> WriteResult<()> {
        let mut client = self.client(&write.value).await;
        let table = if write.is_fenced { "fenced" } else { "unfenced" };
        let put = format!(
            "INSERT INTO {}.{table} (resource, value) VALUES ($1, $2)
             ON CONFLICT (resource) DO UPDATE SET value = EXCLUDED.value",
            self.place
        );
        let values = [(&write.resource as _, Type::TEXT), (&write.value as _, Type::TEXT)];
        if !write.is_fenced {
            write.pause.over().await;
            return client.query_typed(&put, &values).await.map(drop).map_err(failed);
        }
        // The pause is inside the transaction: it has said its term, and touched nothing yet.
        let transaction = begin(&mut client, &write.leader).await;
        let transaction = transaction.map_err(|error| judge(&write.leader, error))?;
        write.pause.over().await;
        let done = transaction.query_typed(&put, &values).await;
        done.map_err(|error| judge(&write.leader, error))?;
        transaction.commit().await.map_err(uncertain)
    }

    async fn read(&self, resource: &str) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let client = self.client(resource).await;
        // Trials are either fenced or not, so one of the two is empty.
        let look = format!(
            "SELECT value FROM {0}.fenced WHERE resource = $1
             UNION ALL SELECT value FROM {0}.unfenced WHERE resource = $1",
            self.place
        );
        let rows = client.query_typed(&look, &[(&resource as _, Type::TEXT)]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }
}
