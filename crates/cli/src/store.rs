//! `regent store`: the engines that can keep elections, and what each of them claims.

use clap::{Args, Subcommand};
use regent_election::store::Level;
use regent_stores::scheme::{SCHEMES, Scheme};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Screen, Side, table, yes};

/// Verbs of `regent store`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "\
Examples:
  regent store list
  regent doctor --store file:///var/lib/elections")]
pub(crate) enum StoreVerb {
    /// List the engines that can keep elections, and what each claims
    List(ListArgs),
}

/// Flags of `regent store list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
strict      linearizable, durable before acknowledged, terms rise for ever
lease-only  exclusive under the clock bound; terms rise only while what is stored lives
best-effort asynchronous or worse: never to be taken as exclusive

Examples:
  regent store list
  regent store list --output json")]
pub(crate) struct ListArgs {}

/// One engine.
#[derive(Serialize)]
struct Row {
    store: &'static str,
    level: String,
    built_in: bool,
    feature: Option<&'static str>,
    url: &'static str,
    why: &'static str,
}

/// Runs the verb.
pub(crate) fn run(verb: &StoreVerb) -> CommandResult {
    let StoreVerb::List(ListArgs {}) = verb;
    // Our own is no engine of others, and the one to choose if nothing speaks against it.
    let own = Row {
        store: "replica",
        level: Level::Strict.to_string(),
        built_in: true,
        feature: None,
        url: "replica:/var/lib/regent",
        why: "our own replicated store, the default of `regent serve`",
    };
    let rows: Vec<Row> = std::iter::once(own).chain(SCHEMES.iter().map(row)).collect();
    Screen::chosen().answer(&rows, || show(&rows))?;
    Ok(Exit::Done)
}

fn row(scheme: &Scheme) -> Row {
    Row {
        store: scheme.name,
        level: scheme.level.to_string(),
        built_in: scheme.is_built_in(),
        feature: scheme.feature,
        url: scheme.example,
        why: scheme.why,
    }
}

fn show(rows: &[Row]) -> String {
    let head = [
        ("store", Side::Left),
        ("claims", Side::Left),
        ("built in", Side::Left),
        ("url", Side::Left),
        ("because", Side::Left),
    ];
    let cells = |row: &Row| {
        let url = row.url.to_owned();
        vec![row.store.into(), row.level.clone(), yes(row.built_in), url, row.why.into()]
    };
    table(&head, rows.iter().map(cells).collect())
}
