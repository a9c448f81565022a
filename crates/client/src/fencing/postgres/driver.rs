//! The same from `tokio-postgres`.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Transaction};

use super::InstallError;
use super::sql::{Shape, Table};
use crate::fencing::{Proof, WriteError, WriteResult, refuse};

/// Begins a transaction under this proof's term. What fails in it is to be shown to [`judge`], which finds
/// the refusals; [`write()`] does both.
pub async fn begin<'a>(
    client: &'a mut Client,
    proof: &impl Proof,
) -> Result<Transaction<'a>, Error> {
    let transaction = client.transaction().await?;
    under(&transaction, proof).await?;
    Ok(transaction)
}

/// Says the term in a transaction that was begun in another way: with an isolation level of its own, say.
pub async fn under(transaction: &Transaction<'_>, proof: &impl Proof) -> Result<(), Error> {
    let term = i64::try_from(proof.term().get()).unwrap_or(i64::MAX);
    // No statement is prepared: a transaction pooler may not know it the next time.
    transaction.query_typed("SELECT regent.under($1)", &[(&term, Type::INT8)]).await.map(drop)
}

/// Runs a transaction under this proof's term and commits it. A refusal for a higher term is the loss of
/// the office, and has been told.
pub async fn write<T>(
    client: &mut Client,
    proof: &impl Proof,
    work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, Error>,
) -> WriteResult<T> {
    let transaction = begin(client, proof).await.map_err(|error| judge(proof, error))?;
    // Dropped without a commit it is rolled back, and nothing was written.
    let done = work(&transaction).await.map_err(|error| judge(proof, error))?;
    match transaction.commit().await {
        Ok(()) => Ok(done),
        Err(error) if is_in_doubt(&error) => Err(WriteError::Uncertain(error.into())),
        Err(error) => Err(judge(proof, error)),
    }
}

/// What an error of a transaction that was not committed means.
pub fn judge(proof: &impl Proof, error: Error) -> WriteError {
    let refusal = error.as_db_error().and_then(|it| super::refusal(it.code().code(), it.message()));
    match refusal {
        Some(why) => refuse(proof, why),
        None => WriteError::Failed(error.into()),
    }
}

/// Whether a commit that failed may have been made: the connection broke, or the server went down.
fn is_in_doubt(error: &Error) -> bool {
    let Some(told) = error.as_db_error() else { return true };
    let code = told.code();
    *code == SqlState::TRANSACTION_RESOLUTION_UNKNOWN
        || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        || code.code().starts_with("57P")
        || code.code().starts_with("08")
}

/// Looks at a table before a fence is put on it.
pub async fn shape_of(
    client: &Client,
    table: &Table,
    keys: &[String],
) -> Result<Result<Shape, InstallError>, Error> {
    let (schema, name) = table.parts();
    let both = [(&schema as _, Type::TEXT), (&name as _, Type::TEXT)];
    let of_kind = "SELECT c.relkind::text FROM pg_catalog.pg_class c \
                   JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                   WHERE n.nspname = $1 AND c.relname = $2";
    let kinds = client.query_typed(of_kind, &both).await?;
    let kind: String = match kinds.first() {
        Some(row) => row.try_get(0)?,
        None => return Ok(Err(InstallError::NoTable(table.resource()))),
    };
    let shape = match kind.as_str() {
        "r" => Shape::Plain,
        "p" => Shape::Partitioned,
        _ => return Ok(Err(InstallError::NotATable(table.resource()))),
    };
    let of_columns = "SELECT a.attname::text FROM pg_catalog.pg_attribute a \
                      JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
                      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                      WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped";
    let rows = client.query_typed(of_columns, &both).await?;
    let columns: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    match keys.iter().find(|key| !columns.contains(key)) {
        Some(column) => {
            let (table, column) = (table.resource(), column.clone());
            Ok(Err(InstallError::NoColumn { table, column }))
        }
        None => Ok(Ok(shape)),
    }
}

/// Connects to the database of a URL. TLS is not spoken here.
pub async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
