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

-- For each row: the first argument is the table, the others are the columns of the key. The resource is
-- both, like public.jobs:["eu", 7]. Who moves a row to another key needs the right to both.
CREATE OR REPLACE FUNCTION regent.guard_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $row$
DECLARE
    the_term bigint := regent.current_term();
    keys text[] := TG_ARGV[1:];
    old_key jsonb;
    new_key jsonb;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        SELECT jsonb_agg(to_jsonb(OLD) -> k ORDER BY n) INTO old_key
            FROM unnest(keys) WITH ORDINALITY AS u(k, n);
        PERFORM regent.guard(TG_ARGV[0] || ':' || old_key::text, the_term);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        SELECT jsonb_agg(to_jsonb(NEW) -> k ORDER BY n) INTO new_key
            FROM unnest(keys) WITH ORDINALITY AS u(k, n);
        IF new_key IS DISTINCT FROM old_key THEN
            PERFORM regent.guard(TG_ARGV[0] || ':' || new_key::text, the_term);
        END IF;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$row$;

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
REVOKE ALL ON FUNCTION regent.guard(text, bigint), regent.guard_table(), regent.guard_row() FROM PUBLIC;
GRANT USAGE ON SCHEMA regent TO PUBLIC;
GRANT SELECT ON regent.fence TO PUBLIC;
"#;

/// Takes the triggers of a table away.
fn drop_triggers(table: &Table, told: &mut String) {
    for trigger in ["regent_fence", "regent_fence_truncate"] {
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
    let mut told = format!("BEGIN;{SCHEMA}");
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
    let truncate = match keys {
        [] => format!("regent.guard_table({resource})"),
        _ => "regent.no_truncate()".to_owned(),
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
COMMIT;
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
        assert!(!remove(&table).contains("regent.fence"), "marks stay");
    }
}
