//! `regent lab mutants`: deliberate mistakes, and the proof that each of them is found.
//!
//! They are built in only on request: a binary that serves anybody must not hold a single one.

use clap::Args;

use super::sweep::thread_count;
use crate::failure::CommandResult;

/// Flags of `regent lab mutants`.
#[derive(Clone, Debug, Args)]
#[cfg_attr(not(feature = "mutants"), allow(dead_code, reason = "none is built in"))]
#[command(after_help = "\
Examples:
  regent lab mutants
  regent lab mutants --only no-pre-vote,fence-off --seeds 100

Exit code 1 says that a mistake was not found. Needs a binary with the mistakes built in:
  cargo run --release --features mutants -- lab mutants")]
pub(crate) struct MutantsArgs {
    /// Only these, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Seeds after which a mistake counts as not found
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seeds: u64,
    /// How many are hunted beside each other [default: one for each core]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
}

/// Says how to get a binary that can.
#[cfg(not(feature = "mutants"))]
pub(crate) async fn run(_args: MutantsArgs) -> CommandResult {
    use crate::exit::Exit;
    use crate::failure::Failure;

    Err(Failure::new(
        Exit::Refused,
        "this binary has no mistakes built in, as it should be; run `cargo run --release --features mutants -- lab mutants` in the source tree",
    ))
}

/// Hunts them.
#[cfg(feature = "mutants")]
pub(crate) async fn run(args: MutantsArgs) -> CommandResult {
    hunting::run(args).await
}

#[cfg(feature = "mutants")]
mod hunting {
    use std::ops::ControlFlow;

    use regent_lab::mutants::{Found, Planted, hunt};
    use serde_json::json;

    use super::super::bar::Bar;
    use super::super::each;
    use super::MutantsArgs;
    use crate::exit::Exit;
    use crate::failure::{CommandResult, Failure};
    use crate::output::{Output, Screen, Side, table};

    pub(super) async fn run(args: MutantsArgs) -> CommandResult {
        let wanted = wanted(&args.only)?;
        let (count, seeds) = (wanted.len(), args.seeds);
        let job = move |number| {
            let planted = *wanted.get(usize::try_from(number).ok()?)?;
            Some((planted, hunt(planted, seeds)))
        };
        let (mut bar, mut results) = (Bar::new(), Vec::new());
        let is_whole = each(args.threads, job, |result| {
            results.push(result);
            let done = results.len() as u64 * 1_000_000 / count as u64;
            bar.show(done, &format!("{} of {count} hunted", results.len()));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        bar.clear();
        if !is_whole {
            return Ok(Exit::Interrupted);
        }
        results.sort_by_key(|(planted, _)| *planted);
        tell(&results, Screen::chosen(), args.seeds)?;
        let are_found = results.len() == count && results.iter().all(|(_, found)| found.is_some());
        Ok(if are_found { Exit::Done } else { Exit::No })
    }

    fn wanted(only: &[String]) -> Result<Vec<Planted>, Failure> {
        if only.is_empty() {
            return Ok(Planted::all());
        }
        only.iter().map(|word| word.parse().map_err(|why: String| Failure::usage(why))).collect()
    }

    fn tell(
        results: &[(Planted, Option<Found>)],
        screen: Screen,
        seeds: u64,
    ) -> Result<(), Failure> {
        if screen.output == Output::Json {
            for (planted, found) in results {
                let told = json!({
                    "mutant": planted.to_string(),
                    "found": found.is_some(),
                    "by": found.as_ref().map(|found| &found.by),
                    "seeds": found.as_ref().map_or(seeds, |found| found.seeds),
                    "promise": found.as_ref().map(|found| found.violation.promise),
                    "how": found.as_ref().map(|found| &found.violation.how),
                });
                screen.line(&told.to_string())?;
            }
            return Ok(());
        }
        let rows = results.iter().map(|(planted, found)| match found {
            Some(Found { by, violation, .. }) => {
                vec![planted.to_string(), by.clone(), violation.promise.to_owned()]
            }
            None => vec![planted.to_string(), format!("NOT FOUND in {seeds} seeds"), "-".into()],
        });
        let head = [("mutant", Side::Left), ("found by", Side::Left), ("breaks", Side::Left)];
        screen.line(&table(&head, rows.collect()))
    }
}
