//! The tables, and the statements on them, in the words that MySQL and MariaDB share.
//!
//! Times are the database's own, by `SYSDATE(6)`, which is when it is evaluated, in the world's time zone,
//! which has no summer. Names are ordered by their bytes.

/// The error of a row whose key is there.
pub(super) const DUPLICATE_KEY: u16 = 1062;
/// The error of a login that is refused.
pub(super) const ACCESS_DENIED: u16 = 1045;
/// The error of a table that is none of ours.
pub(super) const UNKNOWN_COLUMN: u16 = 1054;

/// What every connection begins with.
pub(super) fn settings(patience_s: u64) -> [String; 3] {
    [
        "SET time_zone = '+00:00', autocommit = 1, sql_mode = 'STRICT_ALL_TABLES'".into(),
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".into(),
        format!("SET innodb_lock_wait_timeout = {patience_s}"),
    ]
}

/// How many of our tables are there: where all are, no right to create any is needed.
pub(super) const TABLES_THERE: &str = "SELECT COUNT(*) FROM information_schema.tables \
WHERE table_schema = DATABASE() AND table_name IN ('regent_entries', 'regent_sessions', 'regent_flushes')";

/// How many there are.
pub(super) const TABLES_COUNT: usize = 3;

/// Makes them.
pub(super) const TABLES: [&str; TABLES_COUNT] = [
    "CREATE TABLE IF NOT EXISTS regent_entries (
        kind       VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        name       VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        leader     VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin,
        term       BIGINT UNSIGNED,
        ttl_ms     BIGINT UNSIGNED,
        version    BIGINT UNSIGNED NOT NULL,
        nonce      CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        value      MEDIUMBLOB NOT NULL,
        changed_at DATETIME(6) NOT NULL,
        PRIMARY KEY (kind, name)
    ) ENGINE = InnoDB
    COMMENT = 'Regent: who leads what. Rows are never deleted; leader, term, ttl_ms are for people.'",
    "CREATE TABLE IF NOT EXISTS regent_sessions (
        session    CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
        ttl_ms     BIGINT UNSIGNED NOT NULL,
        expires_at DATETIME(6) NOT NULL,
        is_over    BOOLEAN NOT NULL
    ) ENGINE = InnoDB
    COMMENT = 'Regent: who is alive. A session that is over stays over; forgotten after a week.'",
    "CREATE TABLE IF NOT EXISTS regent_flushes (
        number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
        count  BIGINT UNSIGNED NOT NULL
    ) ENGINE = InnoDB
    COMMENT = 'Regent: written to after a read, so that what was read is on the disk.'",
];

/// Rows that readers spread their flushes over.
pub(super) const FLUSHES: u64 = 64;

/// Number of the row. `InnoDB` shows a commit to others before it is on the disk, and a crash in between
/// takes back what they saw. The log is written in order: once this commit is on the disk, so is whatever
/// was seen before it.
pub(super) const FLUSH: &str = "INSERT INTO regent_flushes (number, count) VALUES (?, 1)
    ON DUPLICATE KEY UPDATE count = count + 1";

/// Kind, name.
pub(super) const LOAD: &str =
    "SELECT value, version, nonce FROM regent_entries WHERE kind = ? AND name = ?";

/// Leader, term, ttl, nonce, value, kind, name.
pub(super) const CREATE: &str = "INSERT INTO regent_entries
    (leader, term, ttl_ms, nonce, value, kind, name, version, changed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, 1, SYSDATE(6))";

/// The same, then the version and the nonce expected. The nonce is another each time, so that a row that
/// was found is a row that was changed.
pub(super) const REPLACE: &str = "UPDATE regent_entries
    SET leader = ?, term = ?, ttl_ms = ?, nonce = ?, value = ?, version = version + 1,
        changed_at = SYSDATE(6)
    WHERE kind = ? AND name = ? AND version = ? AND nonce = ?";

/// Kind, least name, whether it counts itself, least name again, length of the prefix, prefix, count.
pub(super) const LIST: &str = "SELECT name, value, version, nonce FROM regent_entries
    WHERE kind = ? AND name >= ? AND (? OR name <> ?) AND LEFT(name, ?) = ?
    ORDER BY name LIMIT ?";

/// Session, ttl in ms, ttl in microseconds, whether one that never was is over at once.
///
/// Begins, hears or closes. Its end is never moved nearer. What is found to be over is marked so: a clock
/// that is set back must not revive what others saw end. Assignments are made in their order, and the mark
/// looks at the end before it is moved.
pub(super) const HEAR: &str = "INSERT INTO regent_sessions (session, ttl_ms, expires_at, is_over)
    VALUES (?, ?, SYSDATE(6) + INTERVAL ? MICROSECOND, ?)
    ON DUPLICATE KEY UPDATE
        is_over = is_over OR expires_at <= SYSDATE(6),
        ttl_ms = VALUES(ttl_ms),
        expires_at = GREATEST(expires_at, SYSDATE(6) + INTERVAL ? MICROSECOND)";

/// Session. Whether it is over: asked after [`HEAR`], which is true for ever once it is. And how many
/// microseconds it has left.
pub(super) const ALIVE: &str = "SELECT is_over, TIMESTAMPDIFF(MICROSECOND, SYSDATE(6), expires_at)
    FROM regent_sessions WHERE session = ?";

/// Session.
pub(super) const END: &str = "INSERT INTO regent_sessions (session, ttl_ms, expires_at, is_over)
    VALUES (?, 0, SYSDATE(6), TRUE) ON DUPLICATE KEY UPDATE is_over = TRUE";

/// Seconds. Forgets sessions that ended longer ago.
pub(super) const FORGET: &str =
    "DELETE FROM regent_sessions WHERE expires_at < SYSDATE(6) - INTERVAL ? SECOND LIMIT 1000";

/// Names and values of settings.
pub(super) const SETTINGS: &str = "SHOW VARIABLES WHERE Variable_name IN
    ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'read_only', 'super_read_only', 'wsrep_on',
     'wsrep_sync_wait', 'innodb_doublewrite')";

/// How many replicas read along, as far as we may know.
pub(super) const REPLICAS: &str =
    "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
