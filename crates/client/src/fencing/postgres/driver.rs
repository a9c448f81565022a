//! The same from `tokio-postgres`.

use std::collections::HashMap;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Transaction};

use super::InstallError;
use super::sql::{NO_TERM_STATE, Shape, Table};
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
/// the office, and has been told. If `work` keeps an error to itself, the transaction has failed all the same,
/// and so has this.
pub async fn write<T>(
    client: &mut Client,
    proof: &impl Proof,
    work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, Error>,
) -> WriteResult<T> {
    let transaction = begin(client, proof).await.map_err(|error| judge(proof, error))?;
    // Dropped without a commit it is rolled back, and nothing was written.
    let done = work(&transaction).await.map_err(|error| judge(proof, error))?;
    // A transaction that has failed commits without an error and is rolled back. So it is asked for its term
    // first: one that has failed cannot answer, and one that was ended in there has none.
    if let Err(error) = transaction.batch_execute("SELECT regent.current_term()").await {
        let is_ended = error.code().is_some_and(|code| code.code() == NO_TERM_STATE);
        let uncertain = |error: Error| WriteError::Uncertain(error.into());
        return Err(if is_ended { uncertain(error) } else { judge(proof, error) });
    }
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
    let rows = client.query_typed(COLUMNS, &both).await?;
    let mut columns: HashMap<String, Option<&'static str>> = HashMap::new();
    for row in &rows {
        let (is_generated, has_one_name): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        let why = match (is_generated, has_one_name) {
            (true, _) => Some("is generated"),
            (false, false) => Some("has a type or collation that spells equal values differently"),
            (false, true) => None,
        };
        columns.insert(row.try_get(0)?, why);
    }
    for key in keys {
        let (table, column) = (table.resource(), key.clone());
        match columns.get(key) {
            None => return Ok(Err(InstallError::NoColumn { table, column })),
            Some(Some(why)) => return Ok(Err(InstallError::Key { table, column, why })),
            Some(None) => {}
        }
    }
    Ok(Ok(shape))
}

/// The columns of a table: name, whether it is generated (then it has no value yet when a trigger asks), and
/// whether equal values have one name as JSON, as they have in these types. A domain is what lies below it.
const COLUMNS: &str = "
WITH RECURSIVE found (name, is_generated, is_exact, type, modifier) AS (
    SELECT a.attname::text, a.attgenerated <> '', coalesce(l.collisdeterministic, true), a.atttypid, a.atttypmod
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
    WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT f.name, f.is_generated, f.is_exact, t.typbasetype, t.typtypmod
    FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type WHERE t.typtype = 'd'
)
SELECT f.name, f.is_generated, f.is_exact AND (
    t.typtype = 'e'
    OR t.typnamespace = 'pg_catalog'::regnamespace AND (
        t.typname IN (
            'bool', 'int2', 'int4', 'int8', 'oid', 'numeric', 'float4', 'float8', 'text', 'varchar', 'name',
            'char', 'uuid', 'bytea', 'bit', 'varbit', 'date', 'time', 'timestamp', 'timestamptz', 'inet',
            'cidr', 'macaddr', 'macaddr8')
        -- Without a length it is not padded, and spaces at its end do not count.
        OR t.typname = 'bpchar' AND f.modifier > 0))
FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type WHERE t.typtype <> 'd'";
