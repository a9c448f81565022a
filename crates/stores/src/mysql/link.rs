//! One connection to MySQL or MariaDB, asked by one at a time and made again when it is lost.
//!
//! The crate's pool was not taken: a connection whose answer nobody waited for would be kept and drained
//! there, and a server that stopped answering would use them all up.

use std::fmt;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, Params, Row};
use tokio::sync::Mutex;

use super::schema;
use crate::engine::tls::told_below;
use crate::engine::{Effect, Sent, in_time};
use crate::register::{RegisterError, RegisterResult};

/// What a statement came to.
#[derive(Debug)]
pub(super) struct StatementResult {
    pub(super) rows: Vec<Row>,
    pub(super) changed: u64,
}

/// A way to the server.
pub(super) struct ServerLink {
    opts: Opts,
    place: String,
    request_for: Duration,
    connection: Mutex<Option<Conn>>,
}

impl fmt::Debug for ServerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerLink({})", self.place)
    }
}

impl ServerLink {
    pub(super) fn new(opts: Opts, place: String, request_for: Duration) -> Self {
        Self { opts, place, request_for, connection: Mutex::new(None) }
    }

    /// Runs one statement, which is one transaction. None: a row with this key was there.
    pub(super) async fn run(
        &self,
        effect: Effect,
        statement: &str,
        parameters: Params,
    ) -> RegisterResult<Option<StatementResult>> {
        let server = format!("the database at {}", self.place);
        let request = async |sent: &Sent| {
            let mut held = self.connection.lock().await;
            // Taken out while it is used: whoever gives up in the middle leaves no half-read answer to
            // the next.
            let mut connection = match held.take() {
                Some(connection) => connection,
                None => self.connect(&server).await?,
            };
            sent.leaves_now();
            match connection.exec(statement, parameters).await {
                Ok(rows) => {
                    let changed = connection.affected_rows();
                    *held = Some(connection);
                    Ok(Some(StatementResult { rows, changed }))
                }
                Err(Error::Server(refusal)) if refusal.code == schema::DUPLICATE_KEY => {
                    *held = Some(connection);
                    Ok(None)
                }
                Err(error) => Err(meaning(effect, &server, &error)),
            }
        };
        in_time(self.request_for, effect, &server, request).await
    }

    async fn connect(&self, server: &str) -> RegisterResult<Conn> {
        let refused = |error: Error| {
            let why = told_below(&error).unwrap_or_else(|| error.to_string());
            RegisterError::unavailable(format_args!("{server}: {why}{}", self.hint(&error)))
        };
        let mut connection = Conn::new(self.opts.clone()).await.map_err(refused)?;
        let patience_s = self.request_for.as_secs().max(1);
        for setting in schema::settings(patience_s) {
            connection.query_drop(setting).await.map_err(refused)?;
        }
        let are_there: Option<i64> =
            connection.query_first(schema::TABLES_THERE).await.map_err(refused)?;
        if are_there.and_then(|count| usize::try_from(count).ok()) != Some(schema::TABLES_COUNT) {
            for table in schema::TABLES {
                connection.query_drop(table).await.map_err(refused)?;
            }
        }
        Ok(connection)
    }

    /// What else may be wrong where the server only says that access is denied: a user may be one who needs TLS, or a
    /// certificate.
    fn hint(&self, error: &Error) -> &'static str {
        let is_denied =
            matches!(error, Error::Server(refusal) if refusal.code == schema::ACCESS_DENIED);
        match self.opts.ssl_opts() {
            _ if !is_denied => "",
            None => " (if this user needs TLS, write ?ssl-mode=VERIFY_IDENTITY)",
            Some(ssl) if ssl.client_identity().is_none() => {
                " (if this user needs a client certificate, name one with ssl-cert and ssl-key)"
            }
            Some(_) => "",
        }
    }

    /// Drops whatever connection there is.
    pub(super) async fn hang_up(&self) {
        *self.connection.lock().await = None;
    }
}

/// What an error says about the statement.
fn meaning(effect: Effect, server: &str, error: &Error) -> RegisterError {
    let why = format!("{server}: {error}");
    match error {
        Error::Server(refusal) if is_final(refusal.code) => match refusal.code {
            schema::UNKNOWN_COLUMN => RegisterError::corrupt(why),
            _ => RegisterError::unavailable(why),
        },
        _ => effect.unanswered(why),
    }
}

/// Whether a statement with this error certainly did nothing: it was rolled back, unless the server was
/// stopped or could not finish the commit.
fn is_final(code: u16) -> bool {
    // Error during commit, unknown error, server shutdown, session killed, connection killed, interrupted,
    // time-out, communication errors.
    !matches!(code, 1180 | 1105 | 1053 | 1927 | 3169 | 1317 | 3024 | 1969 | 1158..=1161)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_rolled_back_is_a_no() {
        // Deadlock, lock wait, read-only, no such table, full disk.
        for code in [1213, 1205, 1290, 1792, 1146, 1114] {
            assert!(is_final(code), "{code}");
        }
        for code in [1053, 1180, 1317, 1927, 1159] {
            assert!(!is_final(code), "{code}");
        }
    }
}
