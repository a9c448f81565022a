//! One connection to PostgreSQL, made again when it is lost.
//!
//! A pool was not taken: statements are short, and a handful of lines, each asked in turn, is all it
//! takes. A statement is sent in one round trip without a name, which poolers bear, too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use regent_election::error_text::with_causes;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, Row};

use super::schema;
use super::tls::PostgresTls;
use crate::engine::Effect;
use crate::engine::held::Held;
use crate::register::{RegisterError, RegisterResult};

/// A parameter and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A way to the server.
pub(super) struct ServerLink {
    config: Config,
    tls: PostgresTls,
    place: String,
    durability: Durability,
    held: Held<Arc<Client>>,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The disk, and the standbys that are configured.
    Full,
    /// Nothing: for hints.
    None,
}

impl fmt::Debug for ServerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerLink({})", self.place)
    }
}

impl ServerLink {
    pub(super) fn new(
        (config, tls, place): (Config, PostgresTls, String),
        request_for: Duration,
        durability: Durability,
    ) -> Self {
        let held = Held::new(request_for, |client: &Arc<Client>| !client.is_closed());
        Self { config, tls, place, durability, held }
    }

    /// Runs one statement, which is one transaction.
    pub(super) async fn run(
        &self,
        effect: Effect,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> RegisterResult<Vec<Row>> {
        let server = format!("PostgreSQL at {}", self.place);
        let asking = async |client: Arc<Client>| {
            let rows = client.query_typed(statement, parameters).await;
            rows.map_err(|error| meaning(effect, &server, &error))
        };
        self.held.ask(effect, &server, async || self.connect().await.map(Arc::new), asking).await
    }

    async fn connect(&self) -> RegisterResult<Client> {
        let refused = |error: Error| {
            RegisterError::unavailable(format_args!(
                "no PostgreSQL to write to at {}: {}",
                self.place,
                with_causes(&error)
            ))
        };
        let (client, connection) = self.config.connect(self.tls.clone()).await.map_err(refused)?;
        // It ends with its client, or with the server, which the client then tells.
        tokio::spawn(connection);
        let limit_ms = self.held.request_for().as_millis();
        let commit = match self.durability {
            Durability::Full => {
                "SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') IN ('off', 'local');"
            }
            Durability::None => "SET synchronous_commit = off;",
        };
        let settings = format!(
            "SET statement_timeout = {limit_ms}; SET default_transaction_isolation = 'read committed'; \
             {commit}"
        );
        client.batch_execute(&settings).await.map_err(refused)?;
        schema::ensure(&client).await.map_err(refused)?;
        Ok(client)
    }

    /// Drops whatever connection there is. Statements under way keep theirs until they are answered.
    pub(super) async fn hang_up(&self) {
        self.held.hang_up().await;
    }
}

/// What an error says about the statement.
fn meaning(effect: Effect, server: &str, error: &Error) -> RegisterError {
    let why = format!("{server}: {}", with_causes(error));
    match error.as_db_error() {
        // A statement that failed was rolled back. Not so one that was interrupted: the commit may have
        // been waiting for a standby when the server was told to stop.
        Some(refusal) if is_final(refusal.code()) => match refusal.code() {
            &SqlState::UNDEFINED_COLUMN | &SqlState::DATATYPE_MISMATCH => {
                RegisterError::corrupt(why)
            }
            _ => RegisterError::unavailable(why),
        },
        Some(_) | None => effect.unanswered(why),
    }
}

/// Whether a statement with this error certainly did nothing.
fn is_final(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    // Connection exceptions, operator's intervention, internal errors, a completion unknown.
    !matches!(class, "08" | "57" | "58" | "XX") && code.code() != "40003"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_rolled_back_is_a_no() {
        for code in ["40001", "40P01", "23505", "42501", "25006", "53100"] {
            assert!(is_final(&SqlState::from_code(code)), "{code}");
        }
        for code in ["57P01", "57014", "08006", "40003", "XX000", "58030"] {
            assert!(!is_final(&SqlState::from_code(code)), "{code}");
        }
    }
}
