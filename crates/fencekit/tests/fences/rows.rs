//! PostgreSQL, a mark per row: one row has one mark, whoever writes it, and none falls when a fence is put on
//! by other keys.

use regent::fencing::postgres::sql::{self, Table};
use regent::fencing::postgres::{InstallError, shape_of};
use tokio_postgres::Client;

use crate::postgres::{connect, fenced, stale, state, under};
use crate::unique;
use regent_servers::or_skip;
use regent_servers::postgres::postgres as server;

/// Puts the fence on again, by these keys.
async fn install(client: &Client, t: &str, keys: &[&str]) {
    let table = Table::parse(t).unwrap();
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let shape = shape_of(client, &table, &keys).await.unwrap().unwrap();
    client.batch_execute(&sql::install(&table, &keys, shape).unwrap()).await.unwrap();
}

/// The row is written under 101 in one session, and the same row under 100 in one that is set otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_has_one_mark_however_the_session_is_set() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    for (kind, value, set) in [
        ("timestamptz", "'2026-11-16 12:00:00+00'", "SET TimeZone = 'Asia/Tokyo'"),
        ("bytea", "'\\x00ff'", "SET bytea_output = 'escape'"),
        ("float8", "0.1::float8 + 0.2::float8", "SET extra_float_digits = 0"),
        ("float4", "'1.1'::float4 / 3", "SET extra_float_digits = -6"),
        ("date", "'2026-11-16'", "SET DateStyle = 'German'"),
        ("uuid", "'0E37DF36-F698-11E6-8DD4-CB9CED3DF976'", "SET DateStyle = 'SQL, DMY'"),
    ] {
        let t = fenced(&client, &format!("(k {kind}, v text)"), &["k"]).await;
        let insert = format!("INSERT INTO {t} VALUES ({value}, 'a')");
        under(&client, 101, &insert).await.unwrap();
        let (old, update) = (connect(&server).await, format!("UPDATE {t} SET v = 'stale'"));
        old.batch_execute(set).await.unwrap();
        assert_eq!(under(&old, 100, &update).await, stale(100, 101), "{kind}: {set}");
        under(&old, 101, &update).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_keys_have_one_mark_however_they_are_spelled() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    for (kind, one, other) in [
        ("numeric", "1.00", "1.0"),
        ("numeric", "100", "1e2"),
        ("float8", "0", "'-0'::float8"),
        ("char(4)", "'a'", "'a  '"),
        ("inet", "'10.0.0.1'", "'10.0.0.1/32'"),
    ] {
        let t = fenced(&client, &format!("(k {kind})"), &["k"]).await;
        let all = format!("INSERT INTO {t} VALUES ({one}); DELETE FROM {t}");
        under(&client, 101, &all).await.unwrap();
        let again = format!("INSERT INTO {t} VALUES ({other})");
        assert_eq!(under(&client, 100, &again).await, stale(100, 101), "{kind}: {one}, {other}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_whose_value_is_no_name_cannot_be_a_key() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let name = unique("t");
    let make = format!(
        "CREATE COLLATION IF NOT EXISTS public.regent_loose
             (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE DOMAIN public.\"d-{name}\" AS numeric; CREATE DOMAIN public.\"e-{name}\" AS interval;
         CREATE TYPE public.\"f-{name}\" AS ENUM ('a');
         CREATE TABLE public.\"{name}\" (id int, twice int GENERATED ALWAYS AS (id * 2) STORED,
             span interval, list int[], doc jsonb, price money, pad bpchar, at timetz,
             loose text COLLATE public.regent_loose, dom public.\"d-{name}\",
             bad public.\"e-{name}\", label public.\"f-{name}\", code varchar(9), serial bigint
             GENERATED ALWAYS AS IDENTITY)"
    );
    client.batch_execute(&make).await.unwrap();
    let table = Table::parse(&name).unwrap();
    let shape =
        async |key: &str| shape_of(&client, &table, &["id".into(), key.into()]).await.unwrap();
    for bad in ["twice", "span", "list", "doc", "price", "pad", "at", "loose", "bad"] {
        let told = shape(bad).await;
        assert!(matches!(&told, Err(InstallError::Key { .. })), "{bad}: {told:?}");
    }
    for good in ["dom", "label", "code", "serial"] {
        shape(good).await.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Triggers of others that come after the fence's, by name: what is written is guarded, not what was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_trigger_rewrites_is_guarded_as_it_is_written() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int, v text)", &["id"]).await;
    under(&client, 9, &format!("INSERT INTO {t} VALUES (1, 'a')")).await.unwrap();
    under(&client, 5, &format!("INSERT INTO {t} VALUES (2, 'a')")).await.unwrap();
    let function = unique("rewrite").replace('-', "_");
    let rewrite = format!(
        "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN NEW.id := 1; RETURN NEW; END';
         CREATE TRIGGER \"~last\" BEFORE INSERT OR UPDATE ON {t}
             FOR EACH ROW EXECUTE FUNCTION {function}()"
    );
    client.batch_execute(&rewrite).await.unwrap();
    for statement in [
        format!("INSERT INTO {t} VALUES (2, 'stale')"),
        format!("UPDATE {t} SET v = 'stale' WHERE id = 2"),
        format!(
            "SET LOCAL session_replication_role = replica; ALTER TABLE {t} \
                 ENABLE ALWAYS TRIGGER \"~last\"; INSERT INTO {t} VALUES (2, 'stale')"
        ),
    ] {
        assert_eq!(under(&client, 5, &statement).await, stale(5, 9), "{statement}");
    }
    under(&client, 9, &format!("INSERT INTO {t} VALUES (2, 'c')")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_column_that_is_renamed_admits_nobody_until_the_fence_is_put_on_again() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int, v text)", &["id"]).await;
    under(&client, 9, &format!("INSERT INTO {t} VALUES (1, 'a')")).await.unwrap();
    client.batch_execute(&format!("ALTER TABLE {t} RENAME COLUMN id TO number")).await.unwrap();
    for (term, statement) in [
        (8, format!("UPDATE {t} SET v = 'stale'")),
        (99, format!("INSERT INTO {t} VALUES (1, 'x')")),
        (99, format!("DELETE FROM {t}")),
    ] {
        assert_eq!(state(under(&client, term, &statement).await), "RG003", "{statement}");
    }
    install(&client, &t, &["number"]).await;
    assert_eq!(under(&client, 8, &format!("DELETE FROM {t}")).await, stale(8, 9));
    under(&client, 9, &format!("DELETE FROM {t}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mark_falls_when_a_fence_is_put_on_by_other_keys() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(region text, id int, v text)", &[]).await;
    let update = format!("UPDATE {t} SET v = 'stale'");
    under(&client, 101, &format!("INSERT INTO {t} VALUES ('eu', 7, 'a')")).await.unwrap();
    for keys in [&["id"] as &[_], &["region", "id"], &[], &["region"], &["id"]] {
        install(&client, &t, keys).await;
        assert_eq!(under(&client, 100, &update).await, stale(100, 101), "{keys:?}");
        let other = format!("INSERT INTO {t} VALUES ('us', 8, 'b')");
        assert_eq!(under(&client, 100, &other).await, stale(100, 101), "{keys:?}");
    }
    // The same column, spelled otherwise.
    let retype = format!("ALTER TABLE {t} ALTER COLUMN id TYPE text");
    client.batch_execute(&retype).await.unwrap();
    install(&client, &t, &["id"]).await;
    assert_eq!(under(&client, 100, &update).await, stale(100, 101), "by another type");
    // A row's own mark becomes the table's, and an old name's the new one's.
    under(&client, 105, &update).await.unwrap();
    let renamed = format!("{}_b\"", t.trim_end_matches('"'));
    let (_, bare) = renamed.split_once('.').unwrap();
    client.batch_execute(&format!("ALTER TABLE {t} RENAME TO {bare}")).await.unwrap();
    install(&client, &renamed, &[]).await;
    let update = format!("UPDATE {renamed} SET v = 'stale'");
    assert_eq!(under(&client, 104, &update).await, stale(104, 105));
    // Taken away and put back by another key.
    client.batch_execute(&sql::remove(&Table::parse(&renamed).unwrap())).await.unwrap();
    install(&client, &renamed, &["id"]).await;
    assert_eq!(under(&client, 104, &update).await, stale(104, 105));
}

/// Rows may belong to leaders of several groups, whose terms have nothing to do with each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_fence_put_on_again_refuses_nobody_else() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int, v text)", &["id"]).await;
    under(&client, 500, &format!("INSERT INTO {t} VALUES (1, 'a')")).await.unwrap();
    under(&client, 3, &format!("INSERT INTO {t} VALUES (2, 'a')")).await.unwrap();
    install(&client, &t, &["id"]).await;
    client.batch_execute(&sql::remove(&Table::parse(&t).unwrap())).await.unwrap();
    install(&client, &t, &["id"]).await;
    under(&client, 3, &format!("UPDATE {t} SET v = 'b' WHERE id = 2")).await.unwrap();
    let other = format!("UPDATE {t} SET v = 'b' WHERE id = 1");
    assert_eq!(under(&client, 499, &other).await, stale(499, 500));
    assert_eq!(under(&client, 2, &format!("DELETE FROM {t} WHERE id = 2")).await, stale(2, 3));
}

/// A transaction that looked before the fence was put on does not see how high its marks are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_look_does_not_pass_a_fence_that_was_put_on_since() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let (client, old) = (connect(&server).await, connect(&server).await);
    for keys in [&["id"] as &[_], &[]] {
        let t = fenced(&client, "(region text, id int, v text)", &["region"]).await;
        under(&client, 101, &format!("INSERT INTO {t} VALUES ('eu', 1, 'a')")).await.unwrap();
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT regent.under(100)";
        old.batch_execute(begin).await.unwrap();
        install(&client, &t, keys).await;
        let insert = format!("INSERT INTO {t} VALUES ('eu', 2, 'stale')");
        assert_eq!(state(crate::postgres::plain(&old, &insert).await), "40001", "{keys:?}");
        assert_eq!(under(&old, 100, &insert).await, stale(100, 101), "{keys:?}");
    }
}

/// Rows that move to another partition, and partitions that are named themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_partitions_have_marks_of_their_own() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int, v text) PARTITION BY LIST (id)", &["id"]).await;
    let part = |number: u32| format!("{}_{number}\"", t.trim_end_matches('"'));
    for number in 1..=2 {
        let make =
            format!("CREATE TABLE {} PARTITION OF {t} FOR VALUES IN ({number})", part(number));
        client.batch_execute(&make).await.unwrap();
    }
    install(&client, &t, &["id"]).await;
    under(&client, 5, &format!("INSERT INTO {t} VALUES (1, 'a')")).await.unwrap();
    under(&client, 9, &format!("INSERT INTO {t} VALUES (2, 'a')")).await.unwrap();
    for (term, statement, mark) in [
        (8, format!("UPDATE {t} SET id = 2 WHERE id = 1"), 9),
        (8, format!("UPDATE {t} SET id = 1 WHERE id = 2"), 9),
        (8, format!("INSERT INTO {} VALUES (2, 'x')", part(2)), 9),
        (4, format!("DELETE FROM {}", part(1)), 5),
    ] {
        assert_eq!(under(&client, term, &statement).await, stale(term, mark), "{statement}");
    }
    under(&client, 9, &format!("UPDATE {t} SET id = 2 WHERE id = 1")).await.unwrap();
    install(&client, &t, &[]).await;
    let insert = format!("INSERT INTO {} VALUES (1, 'x')", part(1));
    assert_eq!(under(&client, 8, &insert).await, stale(8, 9), "the table's mark is the highest");
}

/// An installation waits for those who write, and counts the marks that they leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_is_raised_while_a_fence_is_put_on_is_counted() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let [client, writer, watcher] =
        [connect(&server).await, connect(&server).await, connect(&server).await];
    let t = fenced(&client, "(region text, id int)", &["region"]).await;
    let write = format!("BEGIN; SELECT regent.under(101); INSERT INTO {t} VALUES ('eu', 1)");
    writer.batch_execute(&write).await.unwrap();
    // Where every transaction looks at what was when it began.
    client.batch_execute("SET default_transaction_isolation = 'serializable'").await.unwrap();
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let table = t.clone();
    let installing = tokio::spawn(async move { install(&client, &table, &["id"]).await });
    let wait =
        format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'");
    while watcher.query_opt(&wait, &[]).await.unwrap().is_none() {
        assert!(!installing.is_finished(), "it did not wait");
        tokio::task::yield_now().await;
    }
    writer.batch_execute("COMMIT").await.unwrap();
    installing.await.unwrap();
    let insert = format!("INSERT INTO {t} VALUES ('eu', 2)");
    assert_eq!(under(&writer, 100, &insert).await, stale(100, 101));
}
