//! PostgreSQL: the guard, the triggers, and every way around them that is known.

use std::sync::Arc;

use regent::fencing::WriteError;
use regent::fencing::postgres::sql::{self, Table};
use regent::fencing::postgres::{InstallError, shape_of, write};
use regent_fencekit::postgres::PostgresTarget;
use tokio_postgres::{Client, NoTls};

use crate::{leader, unique};
use regent_servers::postgres::postgres as server;
use regent_servers::{Server, or_skip};

pub(crate) async fn connect(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A table of this definition with a fence on it; its quoted name.
pub(crate) async fn fenced(client: &Client, definition: &str, keys: &[&str]) -> String {
    let name = unique("t");
    let quoted = format!("public.\"{name}\"");
    client.batch_execute(&format!("CREATE TABLE {quoted} {definition}")).await.unwrap();
    let table = Table::parse(&format!("public.{name}")).unwrap();
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let shape = shape_of(client, &table, &keys).await.unwrap().unwrap();
    let install = sql::install(&table, &keys, shape).unwrap();
    client.batch_execute(&install).await.unwrap();
    client.batch_execute(&install).await.unwrap_or_else(|error| panic!("again: {error}"));
    quoted
}

/// Statements in a transaction under a term: the SQLSTATE and the message, if it fails.
pub(crate) async fn under(
    client: &Client,
    term: u64,
    statements: &str,
) -> Result<(), (String, String)> {
    let all = format!("BEGIN; SELECT regent.under({term}); {statements}; COMMIT");
    plain(client, &all).await
}

pub(crate) async fn plain(client: &Client, statements: &str) -> Result<(), (String, String)> {
    let Err(error) = client.batch_execute(statements).await else { return Ok(()) };
    let _ = client.batch_execute("ROLLBACK").await;
    let told = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    Err((told.code().code().to_owned(), told.message().to_owned()))
}

pub(crate) fn stale(given: u64, current: u64) -> Result<(), (String, String)> {
    Err(("RG001".into(), format!("STALE_TERM: term {given} < current {current}")))
}

pub(crate) fn state(result: Result<(), (String, String)>) -> String {
    result.expect_err("it was let through").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_stale_leaders_out() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let target = Arc::new(PostgresTarget::prepare(&server.url, &unique("trials")).await.unwrap());
    crate::keeps_stale_leaders_out("postgres", &server.version, Arc::clone(&target) as _).await;
    target.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_that_writes_needs_a_term_that_is_not_lower() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int PRIMARY KEY, v text)", &[]).await;
    under(&client, 100, &format!("INSERT INTO {t} VALUES (1, 'a')")).await.unwrap();
    under(&client, 101, &format!("UPDATE {t} SET v = 'b'")).await.unwrap();
    under(&client, 101, &format!("DELETE FROM {t} WHERE id = 9")).await.unwrap();
    let statements = [
        format!("INSERT INTO {t} VALUES (2, 'x')"),
        format!("INSERT INTO {t} VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET v = 'x'"),
        format!("INSERT INTO {t} VALUES (1, 'x') ON CONFLICT DO NOTHING"),
        format!("UPDATE {t} SET v = 'x'"),
        format!("UPDATE {t} SET v = 'x' WHERE false"),
        format!("DELETE FROM {t}"),
        format!("TRUNCATE {t}"),
        format!("WITH w AS (UPDATE {t} SET v = 'x' RETURNING 1) SELECT * FROM w"),
        format!("COPY {t} FROM PROGRAM 'echo 7'"),
        format!(
            "MERGE INTO {t} USING (SELECT 1 AS i) s ON id = i WHEN MATCHED THEN UPDATE SET v = 'x'"
        ),
        format!("SAVEPOINT s; UPDATE {t} SET v = 'x'"),
        format!("SET LOCAL session_replication_role = replica; UPDATE {t} SET v = 'x'"),
    ];
    for statement in statements {
        assert_eq!(under(&client, 100, &statement).await, stale(100, 101), "{statement}");
        let without = format!("BEGIN; {statement}; COMMIT");
        assert_eq!(state(plain(&client, &without).await), "RG002", "{statement}");
    }
    let rows = client.query(&format!("SELECT v FROM {t}"), &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["b"]);
    // A refusal inside a savepoint that is rolled back lets nothing through.
    let around =
        format!("DO $$ BEGIN UPDATE {t} SET v = 'x'; EXCEPTION WHEN OTHERS THEN NULL; END $$");
    under(&client, 100, &around).await.unwrap();
    let row = client.query_one(&format!("SELECT v FROM {t}"), &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_does_not_outlive_its_transaction() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(v int)", &[]).await;
    let insert = format!("INSERT INTO {t} VALUES (1)");
    under(&client, 7, &insert).await.unwrap();
    assert_eq!(state(plain(&client, &insert).await), "RG002", "the next one on the session");
    let rolled = format!("BEGIN; SELECT regent.under(8); {insert}; ROLLBACK");
    plain(&client, &rolled).await.unwrap();
    assert_eq!(state(plain(&client, &insert).await), "RG002", "after a rollback");
    under(&client, 7, &insert).await.expect("what was rolled back has left no mark");

    // A session that was left with a setting, whatever it says.
    let kept = "SELECT set_config('regent.term', current_setting('regent.term'), false)";
    under(&client, 9, kept).await.unwrap();
    assert_eq!(state(plain(&client, &insert).await), "RG002", "kept for the session");
    for said in ["9", "9@", "9@1", "x", "-9@1", "99999999999999999999@1", "9'; DROP TABLE x"] {
        let set = format!("SET regent.term = '{}'", said.replace('\'', "''"));
        plain(&client, &set).await.unwrap();
        assert_eq!(state(plain(&client, &insert).await), "RG002", "{said}");
    }
    for term in ["0", "-1", "NULL"] {
        let asked = format!("SELECT regent.under({term})");
        assert_eq!(state(plain(&client, &asked).await), "RG002", "{term}");
    }
    let unset = "SAVEPOINT s; SELECT regent.under(9); ROLLBACK TO s";
    assert_eq!(
        state(plain(&client, &format!("BEGIN; {unset}; {insert}; COMMIT")).await),
        "RG002",
        "a term that was rolled back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_per_row_has_a_mark_for_each_key() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(region text, id int, v text)", &["region", "id"]).await;
    under(&client, 5, &format!("INSERT INTO {t} VALUES ('eu', 1, 'a'), ('eu', 2, 'a')"))
        .await
        .unwrap();
    under(&client, 9, &format!("UPDATE {t} SET v = 'b' WHERE id = 2")).await.unwrap();
    under(&client, 5, &format!("UPDATE {t} SET v = 'c' WHERE id = 1")).await.unwrap();
    assert_eq!(under(&client, 5, &format!("UPDATE {t} SET v = 'c'")).await, stale(5, 9));
    let moved = format!("UPDATE {t} SET id = 2 WHERE id = 1");
    assert_eq!(under(&client, 5, &moved).await, stale(5, 9), "to a key that is not ours");
    under(&client, 9, &format!("DELETE FROM {t} WHERE id = 2")).await.unwrap();
    let again = format!("INSERT INTO {t} VALUES ('eu', 2, 'back')");
    assert_eq!(under(&client, 5, &again).await, stale(5, 9), "the mark outlives the row");
    assert_eq!(state(under(&client, 99, &format!("TRUNCATE {t}")).await), "RG002");
    // Keys cannot be confused with each other.
    under(&client, 3, &format!("INSERT INTO {t} VALUES ('eu, 2', NULL, 'x')")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_behind_the_fence_of_their_table() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(id int, v text) PARTITION BY RANGE (id)", &[]).await;
    let part = |number: u32| format!("{}_{number}\"", t.trim_end_matches('"'));
    for number in 1..=2_u32 {
        let (from, to) = (number * 10, number * 10 + 10);
        let make = format!(
            "CREATE TABLE {} PARTITION OF {t} FOR VALUES FROM ({from}) TO ({to})",
            part(number)
        );
        client.batch_execute(&make).await.unwrap();
    }
    under(&client, 8, &format!("INSERT INTO {t} VALUES (11, 'a')")).await.unwrap();
    for statement in [
        format!("INSERT INTO {t} VALUES (12, 'x')"),
        format!("INSERT INTO {} VALUES (12, 'x')", part(1)),
        format!("UPDATE {} SET v = 'x'", part(1)),
        format!("INSERT INTO {} VALUES (21, 'x')", part(2)),
        format!("TRUNCATE {t}"),
    ] {
        assert_eq!(under(&client, 7, &statement).await, stale(7, 8), "{statement}");
        assert_eq!(state(plain(&client, &statement).await), "RG002", "{statement}");
    }
}

/// Whoever was admitted commits before the mark is raised, and whoever comes meanwhile waits and is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_waits_for_what_was_admitted_and_the_deposed_for_the_successor() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let [old, second, new] =
        [connect(&server).await, connect(&server).await, connect(&server).await];
    let t = fenced(&old, "(id int PRIMARY KEY, v text)", &[]).await;
    old.batch_execute(&format!("BEGIN; SELECT regent.under(1); INSERT INTO {t} VALUES (1, 'old')"))
        .await
        .unwrap();
    let wait = |pid: i32| {
        format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'")
    };
    let pid: i32 = new.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let insert = format!("INSERT INTO {t} VALUES (2, 'new')");
    let succeeding = tokio::spawn(async move { (under(&new, 2, &insert).await, new) });
    while second.query_opt(&wait(pid), &[]).await.unwrap().is_none() {
        assert!(!succeeding.is_finished(), "the successor did not wait");
        tokio::task::yield_now().await;
    }
    old.batch_execute("COMMIT").await.unwrap();
    let (done, new) = succeeding.await.unwrap();
    done.unwrap();

    // The other way round: the mark is being raised, and the deposed waits for it.
    new.batch_execute(&format!("BEGIN; SELECT regent.under(3); UPDATE {t} SET v = 'three'"))
        .await
        .unwrap();
    let pid: i32 = old.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let update = format!("UPDATE {t} SET v = 'two'");
    let deposed = tokio::spawn(async move { under(&old, 2, &update).await });
    while second.query_opt(&wait(pid), &[]).await.unwrap().is_none() {
        assert!(!deposed.is_finished(), "the deposed did not wait");
        tokio::task::yield_now().await;
    }
    new.batch_execute("COMMIT").await.unwrap();
    assert_eq!(deposed.await.unwrap(), stale(2, 3));
}

/// The first use of a resource by many at once: all of one term pass, and exactly the highest stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_use_of_a_resource_by_many_at_once_is_safe() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let admin = connect(&server).await;
    let t = fenced(&admin, "(v bigint)", &[]).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Arc::new(connect(&server).await));
    }
    for round in 0..20_u64 {
        let resource = unique("first");
        let mut tasks = tokio::task::JoinSet::new();
        for (number, client) in clients.iter().enumerate() {
            let (client, term) = (Arc::clone(client), 1 + (number as u64 + round) % 4);
            let guard = format!("BEGIN; SELECT regent.guard('{resource}', {term}); COMMIT");
            tasks.spawn(async move { (term, plain(&client, &guard).await) });
        }
        let mut highest_passed = 0;
        while let Some(done) = tasks.join_next().await {
            match done.unwrap() {
                (term, Ok(())) => highest_passed = highest_passed.max(term),
                (term, Err((code, why))) => {
                    assert!(code == "RG001" && term < 4, "term {term}: {code} {why}");
                }
            }
        }
        let look = "SELECT term FROM regent.fence WHERE resource = $1";
        let mark: i64 = admin.query_one(look, &[&resource]).await.unwrap().get(0);
        assert_eq!((mark, highest_passed), (4, 4));
    }
    drop(t);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_serialization_failure_is_no_refusal() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let (mut old, new) = (connect(&server).await, connect(&server).await);
    let t = fenced(&new, "(v text)", &[]).await;
    under(&new, 1, &format!("INSERT INTO {t} VALUES ('a')")).await.unwrap();
    for (level, terms) in [("repeatable read", (1, 2)), ("serializable", (2, 3))] {
        let (term, next) = terms;
        let set = format!("SET default_transaction_isolation = '{level}'");
        old.batch_execute(&set).await.unwrap();
        let permit = leader(term);
        let (insert, update) =
            (format!("UPDATE {t} SET v = 'new'"), format!("UPDATE {t} SET v = 'old'"));
        let error = write(&mut old, &permit, async |transaction| {
            transaction.query(&format!("SELECT * FROM {t}"), &[]).await?;
            under(&new, next, &insert).await.unwrap();
            transaction.batch_execute(&update).await
        });
        let error = error.await.unwrap_err();
        let WriteError::Failed(why) = error else { panic!("{level}: {error}") };
        let code = why.downcast_ref::<tokio_postgres::Error>().and_then(|it| it.code().cloned());
        assert_eq!(code.unwrap().code(), "40001", "{level}");
        assert!(!permit.is_refused(), "{level}: it is not known yet");
        let again = write(&mut old, &permit, async |it| it.batch_execute(&update).await).await;
        let told = again.unwrap_err().to_string();
        assert_eq!(told, format!("STALE_TERM: term {term} < current {next}"), "{level}");
        assert!(permit.is_refused());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_without_rights_to_the_marks_is_fenced_all_the_same() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let (admin, app) = (connect(&server).await, connect(&server).await);
    let t = fenced(&admin, "(v int)", &[]).await;
    let role = unique("app").replace('-', "_");
    admin
        .batch_execute(&format!("CREATE ROLE {role}; GRANT INSERT, SELECT ON {t} TO {role}"))
        .await
        .unwrap();
    app.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
    let insert = format!("INSERT INTO {t} VALUES (1)");
    under(&app, 5, &insert).await.unwrap();
    under(&admin, 6, &insert).await.unwrap();
    assert_eq!(under(&app, 5, &insert).await, stale(5, 6));
    for around in [
        "UPDATE regent.fence SET term = 1".to_owned(),
        "DELETE FROM regent.fence".to_owned(),
        "SELECT regent.guard('x', 1)".to_owned(),
        format!("ALTER TABLE {t} DISABLE TRIGGER ALL"),
        // A trigger on a table of its own that raises somebody else's mark.
        format!(
            "CREATE TEMP TABLE mine (v int); CREATE TRIGGER up BEFORE INSERT ON mine \
             EXECUTE FUNCTION regent.guard_table('{}')",
            t.replace('"', "")
        ),
        "SET session_replication_role = replica".to_owned(),
    ] {
        assert_eq!(state(plain(&app, &around).await), "42501", "{around}");
    }
    admin.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_is_taken_away_and_put_back_remembers() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let client = connect(&server).await;
    let t = fenced(&client, "(v int)", &[]).await;
    let insert = format!("INSERT INTO {t} VALUES (1)");
    under(&client, 5, &insert).await.unwrap();
    let table = Table::parse(&t).unwrap();
    client.batch_execute(&sql::remove(&table)).await.unwrap();
    plain(&client, &insert).await.expect("no fence, no term");
    let install = sql::install(&table, &[], sql::Shape::Plain).unwrap();
    client.batch_execute(&install).await.unwrap();
    assert_eq!(under(&client, 4, &insert).await, stale(4, 5));

    let view = format!("{}_view\"", t.trim_end_matches('"'));
    client.batch_execute(&format!("CREATE VIEW {view} AS SELECT 1")).await.unwrap();
    let shape = async |name: &str, keys: &[String]| {
        shape_of(&client, &Table::parse(name).unwrap(), keys).await.unwrap()
    };
    assert!(matches!(shape("nowhere.at_all", &[]).await, Err(InstallError::NoTable(_))));
    assert!(matches!(shape(&view, &[]).await, Err(InstallError::NotATable(_))));
    let missing = shape(&t, &["w".into()]).await;
    assert!(matches!(missing, Err(InstallError::NoColumn { .. })), "{missing:?}");
}

/// A commit of a transaction that has failed is answered with a rollback, and no driver calls that an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_the_caller_swallows_is_no_success() {
    let Some(server) = or_skip("fence postgres", server()) else { return };
    let mut client = connect(&server).await;
    let t = fenced(&client, "(v int)", &[]).await;
    let insert = format!("INSERT INTO {t} VALUES (1)");
    under(&client, 9, &insert).await.unwrap();
    let (deposed, permit) = (leader(8), leader(9));
    let swallowed = write(&mut client, &deposed, async |transaction| {
        let _ = transaction.batch_execute(&insert).await;
        Ok(())
    });
    let error = swallowed.await.expect_err("nothing was written");
    assert!(matches!(error, WriteError::Failed(_)), "{error}");
    // One that the caller has ended by itself: what became of it is not known here.
    let ended = write(&mut client, &permit, async |transaction| {
        transaction.batch_execute(&format!("{insert}; ROLLBACK")).await
    });
    let error = ended.await.expect_err("it was rolled back");
    assert!(matches!(error, WriteError::Uncertain(_)), "{error}");
    let count = format!("SELECT count(*) FROM {t}");
    assert_eq!(client.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 1);
    write(&mut client, &permit, async |it| it.batch_execute(&insert).await).await.unwrap();
    assert_eq!(client.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 2);
}
