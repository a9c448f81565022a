//! The tables, and the statements on them: one for each function.
//!
//! Times are the database's own, by `clock_timestamp()`: `now()` is when a transaction began, which may
//! be long ago. Names are ordered by their bytes.

use tokio_postgres::{Client, Error};

/// Makes the tables if they are not there. Two that do it at once would collide in the catalogue, so they
/// take a lock; where the tables are there no right to create any is needed.
pub(super) async fn ensure(client: &Client) -> Result<(), Error> {
    let are_there = client
        .query_typed_one(
            "SELECT to_regclass('regent_entries') IS NOT NULL \
             AND to_regclass('regent_sessions') IS NOT NULL",
            &[],
        )
        .await?;
    if are_there.try_get::<_, bool>(0)? { Ok(()) } else { client.batch_execute(TABLES).await }
}

const TABLES: &str = r#"
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('regent_entries'));
CREATE TABLE IF NOT EXISTS regent_entries (
    kind       text        NOT NULL COLLATE "C",
    name       text        NOT NULL COLLATE "C",
    leader     text,
    term       bigint,
    ttl_ms     bigint,
    version    bigint      NOT NULL,
    nonce      text        NOT NULL,
    value      bytea       NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);
COMMENT ON TABLE regent_entries IS 'Regent: who leads what. Rows are never deleted; leader, term and ttl_ms are for people, value decides.';
CREATE TABLE IF NOT EXISTS regent_sessions (
    session    text        PRIMARY KEY,
    ttl_ms     bigint      NOT NULL,
    expires_at timestamptz NOT NULL,
    is_over    boolean     NOT NULL
);
COMMENT ON TABLE regent_sessions IS 'Regent: who is alive. A session that is over stays over; rows are forgotten after a week.';
COMMIT;
"#;

/// Where changes are told.
pub(super) const CHANNEL: &str = "regent_changes";

/// Kind, name.
pub(super) const LOAD: &str =
    "SELECT value, version, nonce FROM regent_entries WHERE kind = $1 AND name = $2";

/// Kind, name, leader, term, ttl, nonce, value. No row: it was there.
pub(super) const CREATE: &str = "\
INSERT INTO regent_entries (kind, name, leader, term, ttl_ms, version, nonce, value, changed_at)
VALUES ($1, $2, $3, $4, $5, 1, $6, $7, clock_timestamp())
ON CONFLICT DO NOTHING RETURNING version";

/// The same, then the version and the nonce expected. No row: it has another, or is not there.
pub(super) const REPLACE: &str = "\
UPDATE regent_entries SET leader = $3, term = $4, ttl_ms = $5, version = version + 1, nonce = $6,
    value = $7, changed_at = clock_timestamp()
WHERE kind = $1 AND name = $2 AND version = $8 AND nonce = $9 RETURNING version";

/// Kind, least name, whether it counts itself, prefix, count.
pub(super) const LIST: &str = "\
SELECT name, value, version, nonce FROM regent_entries
WHERE kind = $1 AND (name > $2 OR ($3 AND name = $2)) AND starts_with(name, $4)
ORDER BY name LIMIT $5";

/// Session, ttl in ms, whether one that never was is over at once.
///
/// Begins, hears or closes, and answers whether the session is alive. Its end is never moved nearer. What
/// is found to be over is marked so: a clock that is set back must not revive what others saw end. An end
/// that is moved although the session is over moves nothing, because the mark rules.
pub(super) const HEAR: &str = "\
INSERT INTO regent_sessions AS s (session, ttl_ms, expires_at, is_over)
VALUES ($1, $2, clock_timestamp() + $2 * interval '1 ms', $3)
ON CONFLICT (session) DO UPDATE SET
    is_over = s.is_over OR s.expires_at <= clock_timestamp(),
    ttl_ms = greatest(s.ttl_ms, $2),
    expires_at = greatest(s.expires_at, clock_timestamp() + $2 * interval '1 ms')
RETURNING NOT is_over";

/// Session. How many ms it has left; no row if it may be over.
pub(super) const LEFT: &str = "\
SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
FROM regent_sessions WHERE session = $1 AND NOT is_over AND expires_at > clock_timestamp()";

/// Session.
pub(super) const END: &str = "\
INSERT INTO regent_sessions (session, ttl_ms, expires_at, is_over)
VALUES ($1, 0, clock_timestamp(), true)
ON CONFLICT (session) DO UPDATE SET is_over = true";

/// What to ring. A transaction of its own: one that notifies holds a lock of the whole database while it
/// commits, and no commit that waits for a disk may wait under it.
pub(super) const RING: &str = "SELECT pg_notify('regent_changes', $1)";

/// Seconds. Forgets sessions that ended longer ago.
pub(super) const FORGET: &str =
    "DELETE FROM regent_sessions WHERE expires_at < clock_timestamp() - $1 * interval '1 s'";

/// What the deployment is like: name and value of settings, and how many standbys lag.
pub(super) const SETTINGS: &str = "\
SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('transaction_read_only'),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state NOT IN ('sync', 'quorum'))";
