//! `regent fence install`: the guard function and the trigger, in the database that is written to.
//!
//! Nothing is kept here: what is installed is plain SQL, shown by `--dry-run`, and may be run by hand as well.

use clap::Args;
use regent::fencing::postgres::InstallError;
use regent::fencing::postgres::sql::{self, Shape, Table};
#[cfg(feature = "postgres")]
use regent_election::error_text::with_causes;
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::Screen;

/// Flags of `regent fence install`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
After it, every transaction that writes to the table begins with SELECT regent.under(TERM), and
one with a lower term than was seen before is refused: STALE_TERM: term 100 < current 101.
It may be run again at any time; by other keys than before, every row begins at the table's
highest mark. --remove takes the trigger away; the marks stay.

Examples:
  regent fence install postgres://admin@db/shop --table public.orders
  regent fence install postgres://admin@db/shop --table jobs --key region --key id
  regent fence install postgres://admin@db/shop --table public.orders --dry-run
  regent fence install postgres://admin@db/shop --table public.orders --remove")]
pub(crate) struct InstallArgs {
    /// The database, as somebody who may create a schema in it and triggers on the table
    #[arg(value_name = "URL")]
    url: String,
    /// The table; without a schema, one of public
    #[arg(long, value_name = "SCHEMA.TABLE")]
    table: String,
    /// A column of the key: every row has a mark of its own then, instead of the table
    #[arg(long = "key", value_name = "COLUMN")]
    keys: Vec<String>,
    /// Take the fence of the table away
    #[arg(long, conflicts_with = "keys")]
    remove: bool,
    /// Show the SQL and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct InstallReport {
    table: String,
    /// installed, removed, or shown.
    done: &'static str,
    /// What has a mark of its own: the table, or each row.
    mark_per: &'static str,
    keys: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<String>,
}

/// Runs the verb.
pub(crate) async fn run(args: InstallArgs) -> CommandResult {
    if !["postgres://", "postgresql://"].iter().any(|scheme| args.url.starts_with(scheme)) {
        return Err(Failure::usage(
            "a fence is installed in a PostgreSQL, by a URL like postgres://admin@host/database; other storages need \
             no installation (docs/fencing.md)",
        ));
    }
    let table = Table::parse(&args.table).map_err(|error| unfit(&error))?;
    let text = if args.remove {
        if args.dry_run {
            sql::remove(&table)
        } else {
            change(&args, &table, Change::Remove).await?
        }
    } else {
        let change = if args.dry_run { Change::Show } else { Change::Install };
        self::change(&args, &table, change).await?
    };
    let (done, told) = match (args.dry_run, args.remove) {
        (true, _) => ("shown", String::new()),
        (false, true) => ("removed", format!("no fence is on {} any more", table.resource())),
        (false, false) => ("installed", told(&table, &args.keys)),
    };
    let answer = InstallReport {
        table: table.resource(),
        done,
        mark_per: if args.keys.is_empty() { "table" } else { "row" },
        keys: args.keys.clone(),
        sql: args.dry_run.then(|| text.clone()),
    };
    let screen = Screen::chosen();
    screen.answer(&answer, || if args.dry_run { text } else { told })?;
    Ok(Exit::Done)
}

fn told(table: &Table, keys: &[String]) -> String {
    let mark = match keys {
        [] => "one mark for the table".to_owned(),
        keys => format!("a mark for each row by {}", keys.join(", ")),
    };
    format!(
        "{} is behind a fence: {mark}\nbegin every transaction that writes to it with: SELECT regent.under(TERM)",
        table.resource()
    )
}

/// What is asked of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Look, and say what would be run.
    Show,
    Install,
    Remove,
}

#[cfg(feature = "postgres")]
async fn change(args: &InstallArgs, table: &Table, change: Change) -> Result<String, Failure> {
    use regent::fencing::postgres::shape_of;
    use regent_stores::postgres::connect;

    let client = connect(&args.url).await.map_err(|error| unreached(&error))?;
    let text = match change {
        Change::Remove => sql::remove(table),
        Change::Show | Change::Install => {
            let shape = shape_of(&client, table, &args.keys).await;
            let shape: Result<Shape, InstallError> = shape.map_err(|error| unreached(&error))?;
            let shape = shape.map_err(|error| unfit(&error))?;
            sql::install(table, &args.keys, shape).map_err(|error| unfit(&error))?
        }
    };
    match change {
        Change::Show => {}
        Change::Install | Change::Remove => {
            client.batch_execute(&text).await.map_err(|error| unmade(&error))?;
        }
    }
    Ok(text)
}

/// Without a driver the SQL can be shown, for a table that is not partitioned and whose key columns nobody has
/// looked at.
#[cfg(not(feature = "postgres"))]
async fn change(args: &InstallArgs, table: &Table, change: Change) -> Result<String, Failure> {
    match change {
        Change::Show => {
            sql::install(table, &args.keys, Shape::Plain).map_err(|error| unfit(&error))
        }
        Change::Install | Change::Remove => Err(Failure::new(
            Exit::Config,
            regent_fencekit::TargetError::NotBuiltIn("postgres").to_string(),
        )),
    }
}

/// The URL is never shown: it may hold a password.
#[cfg(feature = "postgres")]
fn unreached(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(Exit::Unavailable, format!("PostgreSQL: {}", with_causes(error)))
}

/// One step, all of it or nothing; but whether it was made is not known if the connection broke.
#[cfg(feature = "postgres")]
fn unmade(error: &(dyn std::error::Error + 'static)) -> Failure {
    let said = error.source().is_some_and(|cause| cause.to_string().starts_with("ERROR"));
    let exit = if said { Exit::Refused } else { Exit::Uncertain };
    Failure::new(exit, format!("PostgreSQL: {}", with_causes(error)))
}

fn unfit(error: &InstallError) -> Failure {
    let exit = match error {
        InstallError::Name(_) | InstallError::TooManyKeys(_) | InstallError::OfTheFence(_) => {
            Exit::Usage
        }
        InstallError::NoTable(_)
        | InstallError::NotATable(_)
        | InstallError::NoColumn { .. }
        | InstallError::Key { .. } => Exit::Refused,
    };
    Failure::new(exit, error.to_string())
}
