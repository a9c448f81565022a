//! PostgreSQL: a guard in the database, inside the caller's own transaction.
//!
//! ```text
//!   regent fence install postgres://… --table public.orders              one mark for the table
//!   regent fence install postgres://… --table public.jobs --key id       one mark for each row
//! ```
//!
//! installs the schema `regent` and a trigger. From then on a transaction that writes must say under which
//! term, and nothing else has to change; any driver will do, also behind a transaction pooler:
//!
//! ```sql
//! BEGIN;
//! SELECT regent.under(101);           -- this transaction's term, gone with it
//! UPDATE orders SET paid = true WHERE id = 7;
//! COMMIT;
//! -- ERROR:  STALE_TERM: term 100 < current 101     (SQLSTATE RG001)
//! -- ERROR:  NO_TERM: this transaction has no term  (SQLSTATE RG002)
//! -- ERROR:  NO_KEY: public.jobs has no column id any more  (SQLSTATE RG003: install the fence again)
//! ```
//!
//! Without a trigger, `SELECT regent.guard('anything', 101)` in the same transaction as the write is the
//! same check for whatever `anything` stands for (`GRANT EXECUTE ON FUNCTION regent.guard TO …` first).
//!
//! **Why it holds.** The guard locks the row of the mark until the transaction ends. A transaction of a
//! higher term that raises it waits for all of the lower ones that were admitted, and whoever comes with a
//! lower one after it waits for its commit and is refused. Transactions of one term share the lock.
//!
//! **Names of marks.** A row's mark is named by the values of its key, so a value must have one name: the
//! session's settings do not count, numbers are trimmed, and columns are refused as keys if they are generated
//! or if equal values of their type can be spelled differently. Rows with a null there share a mark. A fence
//! that is put on by other keys begins at the highest mark the table had.
//!
//! **Isolation.** Under REPEATABLE READ and SERIALIZABLE a transaction that began before the mark was
//! raised fails with a serialization failure (40001), which is no refusal: try again, and be refused then.
//! Under READ COMMITTED a statement that waited for a predecessor's commit still *looks* at rows as they
//! were before it; call `regent.guard` first, in a statement of its own, to see what was left behind.
//!
//! **What passes it.** Whoever may disable or drop triggers (the owner of the table, superusers); `TRUNCATE`
//! of one partition by its own name; children of plain inheritance; a restored dump of an older mark; a
//! failover to an asynchronous standby, which forgets marks together with the writes that raised them; with
//! key columns, whoever changes the type of one and does not install the fence again, or renames a label of its
//! enum; whoever renames the table while no fence is on it.
//!
//! With the feature `fence-postgres`, `write` runs a transaction of `tokio-postgres` under a permit:
//!
//! ```no_run
//! # #[cfg(feature = "fence-postgres")]
//! # async fn example(client: &mut tokio_postgres::Client, leadership: &regent::Leadership)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let permit = leadership.check()?;
//! regent::fencing::postgres::write(client, &permit, async |transaction| {
//!     transaction.execute("UPDATE orders SET paid = true WHERE id = $1", &[&7_i64]).await
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "fence-postgres")]
mod driver;
pub mod sql;

use regent_election::FenceError;

#[cfg(feature = "fence-postgres")]
pub use driver::{begin, judge, shape_of, under, write};

/// Why a fence cannot be put on a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// A name that no table or column can have.
    #[error(
        "{0:?} names no table or column; write it like schema.table, and a part with a dot or a quote in double quotes, at most 63 bytes each"
    )]
    Name(String),
    /// The marks themselves: whoever raises one would ask for leave to raise it.
    #[error("{0} is part of the fence itself")]
    OfTheFence(String),
    /// More columns than a key has.
    #[error("{0} key columns; at most 32")]
    TooManyKeys(usize),
    /// No such table.
    #[error("there is no table {0}")]
    NoTable(String),
    /// A view or the like, which takes no such trigger.
    #[error("{0} is no table, so it takes no fence; put one on what lies below it")]
    NotATable(String),
    /// No such column.
    #[error("{table} has no column {column}")]
    NoColumn { table: String, column: String },
    /// A column whose value makes no name for a mark.
    #[error("{column} of {table} {why}, so it cannot name a mark; take another column as key")]
    Key {
        table: String,
        column: String,
        /// What it is.
        why: &'static str,
    },
}

/// The refusal that an error of the database is, by its SQLSTATE and its message, for any driver.
#[must_use]
pub fn refusal(state: &str, message: &str) -> Option<FenceError> {
    if state == sql::STALE_STATE { super::stale_in(message) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_state_is_a_refusal() {
        let message = "STALE_TERM: term 100 < current 101";
        let told = refusal("RG001", message).unwrap();
        assert_eq!(told.to_string(), "term 100 < current 101");
        assert_eq!(refusal("40001", message), None, "a serialization failure is none");
        assert_eq!(refusal("P0001", message), None, "nor is what somebody else raises");
        assert_eq!(refusal("RG002", "NO_TERM: this transaction has no term"), None);
    }
}
