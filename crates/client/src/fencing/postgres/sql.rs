//! The schema in the database, as text: what `regent fence install` runs, and what it takes back.
//!
//! Written so that it may be run again at any time, by any client. Identifiers are always quoted, so no name
//! of a table or column can be anything but a name.

use std::fmt::Write as _;

use super::InstallError;

/// The SQLSTATE of a refusal for a higher term.
pub const STALE_STATE: &str = "RG001";
/// The SQLSTATE of a write without a term, or with one that is none.
pub const NO_TERM_STATE: &str = "RG002";

/// The SQLSTATE of a write to a table that was changed below its fence: no mark can be found, so nobody is
/// admitted until the fence is put on again.
pub const UNFIT_STATE: &str = "RG003";

/// The longest identifier of the database, which cuts longer ones silently.
const IDENTIFIER_BYTES_MAX: usize = 63;
/// Key columns of one table: as many as an index of the database may have.
const KEYS_MAX: usize = 32;

/// A table, by schema and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: String,
    name: String,
}

impl Table {
    /// `schema.name`, or `name` in `public`; a part that holds a dot or a quote is written in double
    /// quotes, as in SQL. Case is kept: unlike SQL, nothing is folded.
    pub fn parse(text: &str) -> Result<Self, InstallError> {
        let bad = || InstallError::Name(text.to_owned());
        let mut parts = vec![String::new()];
        let mut is_quoted = false;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if is_quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    parts.last_mut().ok_or_else(bad)?.push('"');
                }
                '"' => is_quoted = !is_quoted,
                '.' if !is_quoted => parts.push(String::new()),
                letter => parts.last_mut().ok_or_else(bad)?.push(letter),
            }
        }
        let (schema, name) = match parts.as_slice() {
            [name] => ("public".to_owned(), name.clone()),
            [schema, name] => (schema.clone(), name.clone()),
            _ => return Err(bad()),
        };
        if is_quoted {
            return Err(bad());
        }
        for part in [&schema, &name] {
            identifier(part)?;
        }
        if schema == "regent" {
            return Err(InstallError::OfTheFence(text.to_owned()));
        }
        Ok(Self { schema, name })
    }

    /// Schema and name, as the catalogue has them.
    #[cfg(feature = "fence-postgres")]
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.schema, &self.name)
    }

    /// As it stands in SQL.
    fn quoted(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }

    /// The resource whose mark guards the whole table.
    #[must_use]
    pub fn resource(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// An identifier that the database takes whole, quoted.
fn identifier(text: &str) -> Result<String, InstallError> {
    let is_good = !text.is_empty() && text.len() <= IDENTIFIER_BYTES_MAX && !text.contains('\0');
    if is_good { Ok(quote(text)) } else { Err(InstallError::Name(text.to_owned())) }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A string as SQL, whatever it holds and whatever the session thinks of backslashes.
fn literal(text: &str) -> String {
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// The marks and the functions. One step: all of it or nothing.
pub const SCHEMA: &str = r#"
-- Two that install at once would collide in the catalogue.
SELECT pg_advisory_xact_lock(hashtext('regent.fence'));
CREATE SCHEMA IF NOT EXISTS regent;
CREATE TABLE IF NOT EXISTS regent.fence (
    resource text   COLLATE "C" PRIMARY KEY,
    term     bigint NOT NULL CHECK (term > 0)
);
COMMENT ON TABLE regent.fence IS
    'Regent: the highest term admitted per resource. Rows are never deleted and never lowered.';
CREATE TABLE IF NOT EXISTS regent.fenced (
    resource text   COLLATE "C" PRIMARY KEY,
    keys     text[] NOT NULL
);
COMMENT ON TABLE regent.fenced IS
    'Regent: the key columns, and their types, by which a table was fenced last.';

-- Admits a term that is not below the mark of a resource, and raises the mark; to be called in the
-- transaction that writes. The row is locked until that ends: shared by transactions of one term, so that
-- a leader does not wait for itself, and exclusively by the first of a higher one. A transaction that is
-- rolled back leaves no mark, and no write.
CREATE OR REPLACE FUNCTION regent.guard(of_resource text, with_term bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $guard$
DECLARE
    mark bigint;
BEGIN
    IF of_resource IS NULL OR with_term IS NULL OR with_term < 1 THEN
        RAISE EXCEPTION 'NO_TERM: % was never granted', coalesce(with_term::text, 'no term')
            USING ERRCODE = 'RG002', HINT = 'Send the term you were elected with.';
    END IF;
    LOOP
        -- A look without a lock says which lock to take. To take the weak one first and the strong one
        -- then would let two successors wait for each other.
        SELECT f.term INTO mark FROM regent.fence f WHERE f.resource = of_resource;
        IF NOT FOUND THEN
            INSERT INTO regent.fence (resource, term) VALUES (of_resource, with_term)
                ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN;
            END IF;
        ELSIF mark < with_term THEN
            UPDATE regent.fence f SET term = with_term
                WHERE f.resource = of_resource AND f.term < with_term;
            IF FOUND THEN
                RETURN;
            END IF;
        ELSE
            -- Waits for whoever raises it now.
            SELECT f.term INTO mark FROM regent.fence f WHERE f.resource = of_resource FOR SHARE;
            IF mark = with_term THEN
                RETURN;
            ELSIF mark > with_term THEN
                RAISE EXCEPTION 'STALE_TERM: term % < current %', with_term, mark
                    USING ERRCODE = 'RG001', DETAIL = 'resource ' || of_resource;
            END IF;
        END IF;
    END LOOP;
END
$guard$;

-- The term of this transaction, for triggers. It is bound to the transaction by its number: a setting that
-- a session was left with, by whoever used it before, is worth nothing in the next one.
CREATE OR REPLACE FUNCTION regent.under(the_term bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $under$
BEGIN
    IF the_term IS NULL OR the_term < 1 THEN
        RAISE EXCEPTION 'NO_TERM: % was never granted', coalesce(the_term::text, 'no term')
            USING ERRCODE = 'RG002', HINT = 'Send the term you were elected with.';
    END IF;
    PERFORM set_config('regent.term', the_term || '@' || txid_current(), true);
END
$under$;

-- The term that regent.under set in this transaction.
CREATE OR REPLACE FUNCTION regent.current_term() RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $current$
DECLARE
    said text := coalesce(current_setting('regent.term', true), '');
    parts text[] := regexp_match(said, '^([1-9][0-9]{0,15})@([0-9]{1,19})$');
BEGIN
    IF parts IS NULL OR parts[2] <> txid_current()::text THEN
        RAISE EXCEPTION 'NO_TERM: this transaction has no term'
            USING ERRCODE = 'RG002',
                HINT = 'Begin it with SELECT regent.under(TERM), with the term you were elected with.';
    END IF;
    RETURN parts[1]::bigint;
END
$current$;

-- For each statement: the first argument is the resource.
CREATE OR REPLACE FUNCTION regent.guard_table() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $table$
BEGIN
    PERFORM regent.guard(TG_ARGV[0], regent.current_term());
    IF TG_LEVEL = 'STATEMENT' THEN
        RETURN NULL;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$table$;

-- What the mark of a row is called: the table and its key, like public.jobs:["eu", 7]. A null is a value
-- like any other: the rows that have nothing there share a mark. A column that is gone is none, because
-- then all rows would share another mark than theirs.
CREATE OR REPLACE FUNCTION regent.row_resource(of_table text, of_row jsonb, keys text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $name$
DECLARE
    lost text;
    key jsonb;
BEGIN
    SELECT k INTO lost FROM unnest(keys) AS u(k) WHERE NOT of_row ? k LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'NO_KEY: % has no column % any more', of_table, lost
            USING ERRCODE = 'RG003', HINT = 'Install the fence again, by the columns of the key.';
    END IF;
    -- 1.0 and 1.00 are one number.
    SELECT jsonb_agg(CASE jsonb_typeof(of_row -> k)
            WHEN 'number' THEN to_jsonb(trim_scale((of_row ->> k)::numeric)) ELSE of_row -> k END ORDER BY n)
        INTO key FROM unnest(keys) WITH ORDINALITY AS u(k, n);
    RETURN of_table || ':' || key::text;
END
$name$;

-- Refuses a term below the mark of the table, which is the floor under the marks of its rows. An
-- installation raises it, when nobody writes to the table, so that a look is enough; where a transaction
-- looks at what was when it began, a lock finds out whether that is so no more.
CREATE OR REPLACE FUNCTION regent.above_floor(of_table text, with_term bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $floor$
DECLARE
    mark bigint;
    looks_back boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
BEGIN
    IF looks_back THEN
        SELECT f.term INTO mark FROM regent.fence f WHERE f.resource = of_table FOR SHARE;
    ELSE
        SELECT f.term INTO mark FROM regent.fence f WHERE f.resource = of_table;
    END IF;
    IF mark > with_term THEN
        RAISE EXCEPTION 'STALE_TERM: term % < current %', with_term, mark
            USING ERRCODE = 'RG001', DETAIL = 'all of ' || of_table;
    ELSIF mark IS NULL AND looks_back THEN
        RAISE EXCEPTION 'the fence of % is younger than this transaction', of_table
            USING ERRCODE = '40001';
    ELSIF mark IS NULL THEN
        RAISE EXCEPTION 'NO_KEY: the floor of % is gone', of_table
            USING ERRCODE = 'RG003', HINT = 'Install the fence again.';
    END IF;
END
$floor$;

-- For each row: the first argument is the table, the others are the columns of the key. Who moves a row to
-- another key needs the right to both. It runs before the row is written, so that a refusal comes before
-- everything else, and after it, because a trigger of somebody else's may have changed the key in between;
-- no name of a trigger sorts behind all others. A row has one name in every session: hence the settings.
CREATE OR REPLACE FUNCTION regent.guard_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO' SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex' SET extra_float_digits = 1 AS $row$
DECLARE
    the_term bigint := regent.current_term();
    keys text[] := TG_ARGV[1:];
    old_name text;
    new_name text;
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        PERFORM regent.above_floor(TG_ARGV[0], the_term);
    END IF;
    IF TG_OP <> 'INSERT' THEN
        old_name := regent.row_resource(TG_ARGV[0], to_jsonb(OLD), keys);
        IF TG_WHEN = 'BEFORE' THEN
            PERFORM regent.guard(old_name, the_term);
        END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        new_name := regent.row_resource(TG_ARGV[0], to_jsonb(NEW), keys);
        IF new_name IS DISTINCT FROM old_name THEN
            PERFORM regent.guard(new_name, the_term);
        END IF;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$row$;

-- For an installation that holds the lock of the table. By other keys than before, or of other types, every
-- mark has another name, and so it has in a table with another name: then the table's mark, the floor, is
-- raised to the highest of the old ones. By the same keys it stays where it is, because rows may belong to
-- the leaders of several groups, whose terms have nothing to do with each other.
CREATE OR REPLACE FUNCTION regent.settle(of_table regclass, of_resource text, by_keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $settle$
DECLARE
    former text;
    typed text[];
BEGIN
    -- Another type spells the same value in another way.
    SELECT coalesce(array_agg(k || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY n), '{}') INTO typed
        FROM unnest(by_keys) WITH ORDINALITY AS u(k, n)
        JOIN pg_attribute a ON a.attrelid = of_table AND a.attname = k;
    -- The first argument of the trigger that is there; arguments end with a zero.
    SELECT convert_from(substring(t.tgargs FROM 1 FOR position(decode('00', 'hex') IN t.tgargs) - 1),
            getdatabaseencoding())
        INTO former FROM pg_trigger t WHERE t.tgrelid = of_table AND t.tgname = 'regent_fence';
    former := coalesce(former, of_resource);
    IF former = of_resource
        AND EXISTS (SELECT FROM regent.fenced d WHERE d.resource = of_resource AND d.keys = typed)
        AND EXISTS (SELECT FROM regent.fence f WHERE f.resource = of_resource)
    THEN
        RETURN;
    END IF;
    -- The lowest term is a floor for nobody, but there must be one to find.
    INSERT INTO regent.fence AS f (resource, term)
        SELECT of_resource, coalesce(max(m.term), 1)
            FROM regent.fence m, unnest(ARRAY[former, of_resource]) AS u(name)
            WHERE m.resource = u.name OR starts_with(m.resource, u.name || ':')
        ON CONFLICT (resource) DO UPDATE SET term = excluded.term WHERE f.term < excluded.term;
    INSERT INTO regent.fenced (resource, keys) VALUES (of_resource, typed)
        ON CONFLICT (resource) DO UPDATE SET keys = excluded.keys;
END
$settle$;

-- TRUNCATE of a table with a fence per row would pass every one of them.
CREATE OR REPLACE FUNCTION regent.no_truncate() RETURNS trigger
LANGUAGE plpgsql AS $none$
BEGIN
    RAISE EXCEPTION 'a table with a fence per row cannot be truncated'
        USING ERRCODE = 'RG002', HINT = 'Delete its rows.';
END
$none$;

-- Whoever could call these could raise any mark: by itself, or by a trigger on a table of its own. That a
-- trigger runs needs no such right.
REVOKE ALL ON FUNCTION regent.guard(text, bigint), regent.guard_table(), regent.guard_row(),
    regent.above_floor(text, bigint), regent.settle(regclass, text, text[]) FROM PUBLIC;
GRANT USAGE ON SCHEMA regent TO PUBLIC;
GRANT SELECT ON regent.fence TO PUBLIC;
"#;

/// Takes the triggers of a table away.
fn drop_triggers(table: &Table, told: &mut String) {
    for trigger in ["regent_fence", "regent_fence_after", "regent_fence_truncate"] {
        let _ = writeln!(told, "DROP TRIGGER IF EXISTS {trigger} ON {};", table.quoted());
    }
}

/// What a table is, as far as its triggers are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One table.
    Plain,
    /// A partitioned one, whose partitions can be written to by their own names. A trigger per row is
    /// taken over by every partition, also by later ones; one per statement is not.
    Partitioned,
}

/// The SQL that puts a fence on a table: one for all of it, or, with key columns, one for each row.
pub fn install(table: &Table, keys: &[String], shape: Shape) -> Result<String, InstallError> {
    if keys.len() > KEYS_MAX {
        return Err(InstallError::TooManyKeys(keys.len()));
    }
    let (name, resource) = (table.quoted(), literal(&table.resource()));
    let mut told = format!("BEGIN ISOLATION LEVEL READ COMMITTED;{SCHEMA}");
    let columns: Vec<String> = keys.iter().map(|key| literal(key)).collect();
    let _ = write!(
        told,
        "-- Nobody writes from here on, and every mark of those who did is there to be seen.
LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE;
SELECT regent.settle({}::pg_catalog.regclass, {resource}, ARRAY[{}]::pg_catalog.text[]);
",
        literal(&name),
        columns.join(", ")
    );
    drop_triggers(table, &mut told);
    let (function, level, arguments) = match (keys, shape) {
        ([], Shape::Plain) => ("regent.guard_table", "STATEMENT", resource.clone()),
        ([], Shape::Partitioned) => ("regent.guard_table", "ROW", resource.clone()),
        (keys, _) => {
            let mut arguments = resource.clone();
            for key in keys {
                identifier(key)?;
                let _ = write!(arguments, ", {}", literal(key));
            }
            ("regent.guard_row", "ROW", arguments)
        }
    };
    let (truncate, after) = match keys {
        [] => (format!("regent.guard_table({resource})"), String::new()),
        _ => (
            "regent.no_truncate()".to_owned(),
            format!(
                "CREATE TRIGGER regent_fence_after AFTER INSERT OR UPDATE ON {name}
    FOR EACH ROW EXECUTE FUNCTION {function}({arguments});
ALTER TABLE {name} ENABLE ALWAYS TRIGGER regent_fence_after;
"
            ),
        ),
    };
    let _ = write!(
        told,
        "CREATE TRIGGER regent_fence BEFORE INSERT OR UPDATE OR DELETE ON {name}
    FOR EACH {level} EXECUTE FUNCTION {function}({arguments});
CREATE TRIGGER regent_fence_truncate BEFORE TRUNCATE ON {name}
    FOR EACH STATEMENT EXECUTE FUNCTION {truncate};
-- Also while session_replication_role is replica.
ALTER TABLE {name} ENABLE ALWAYS TRIGGER regent_fence;
ALTER TABLE {name} ENABLE ALWAYS TRIGGER regent_fence_truncate;
{after}COMMIT;
"
    );
    Ok(told)
}

/// The SQL that takes the fence of a table away. Marks stay: a fence that is put there again goes on from
/// where it was.
#[must_use]
pub fn remove(table: &Table) -> String {
    let mut told = "BEGIN;\n".to_owned();
    drop_triggers(table, &mut told);
    told.push_str("COMMIT;\n");
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_as_in_sql_and_cannot_be_more_than_a_name() {
        let parsed = |text: &str| Table::parse(text).unwrap().quoted();
        assert_eq!(parsed("orders"), r#""public"."orders""#);
        assert_eq!(parsed("billing.orders"), r#""billing"."orders""#);
        assert_eq!(parsed(r#"billing."a.b""#), r#""billing"."a.b""#);
        assert_eq!(parsed(r#""a""b".c"#), r#""a""b"."c""#);
        let evil = parsed("x; DROP TABLE y--");
        assert_eq!(evil, r#""public"."x; DROP TABLE y--""#);
        for bad in
            ["", ".", "a.", ".b", "a.b.c", r#""open"#, "a\0b", "regent.fence", &"x".repeat(64)]
        {
            assert!(Table::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_and_resources_cannot_leave_their_quotes() {
        let table = Table::parse(r#""o'brien"."t\""#).unwrap();
        let sql = install(&table, &["k'); DROP TABLE x; --".into()], Shape::Plain).unwrap();
        assert!(sql.contains(r"E'o''brien.t\\', 'k''); DROP TABLE x; --'"), "{sql}");
        assert!(sql.contains(r#"ON "o'brien"."t\""#), "{sql}");
        assert!(install(&table, &[String::new()], Shape::Plain).is_err());
        assert!(install(&table, &vec!["k".to_owned(); 33], Shape::Plain).is_err());
    }

    #[test]
    fn a_partitioned_table_is_guarded_per_row_so_that_its_partitions_are() {
        let table = Table::parse("orders").unwrap();
        let plain = install(&table, &[], Shape::Plain).unwrap();
        assert!(
            plain.contains(
                "FOR EACH STATEMENT EXECUTE FUNCTION regent.guard_table('public.orders')"
            )
        );
        let partitioned = install(&table, &[], Shape::Partitioned).unwrap();
        assert!(
            partitioned
                .contains("FOR EACH ROW EXECUTE FUNCTION regent.guard_table('public.orders')")
        );
        let rows = install(&table, &["id".into()], Shape::Plain).unwrap();
        assert!(
            rows.contains("FOR EACH ROW EXECUTE FUNCTION regent.guard_row('public.orders', 'id')")
        );
        assert!(rows.contains("no_truncate()"));
        assert!(
            rows.contains("regent_fence_after AFTER INSERT OR UPDATE"),
            "what others' triggers made of it is guarded, too"
        );
        let (lock, settle) = (rows.find("LOCK TABLE"), rows.find("SELECT regent.settle("));
        assert!(lock.is_some() && lock < settle, "a mark that is raised meanwhile would be missed");
        assert!(rows.starts_with("BEGIN ISOLATION LEVEL READ COMMITTED;"), "or not be seen");
        assert!(!remove(&table).contains("regent.fence"), "marks stay");
    }
}
