//! `regent lab scenarios` and `scenario`: the stories that are told by name.

use clap::Args;
use regent_lab::scenarios::{ALL, Scenario, find};
use serde_json::json;

use super::alone;
use super::replay::{ToldArgs, tell};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, Side, table};

/// Flags of `regent lab scenarios`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab scenarios
  regent lab scenarios --json")]
pub(crate) struct ScenariosArgs {}

/// Flags of `regent lab scenario`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab scenario 1
  regent lab scenario 'isolated leader' --seed 7
  regent lab scenario 1 --story

A story is named by its number in `regent lab scenarios`, or by a part of its name that no other
has. Exit code 1 says that a promise was broken, or an expectation of the story itself.")]
pub(crate) struct ScenarioArgs {
    /// Its number, or a part of its name
    name: String,
    /// The seed of its world
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    told: ToldArgs,
}

/// Lists them.
pub(crate) fn list(ScenariosArgs {}: &ScenariosArgs) -> CommandResult {
    let screen = Screen::chosen();
    let numbered = ALL.iter().zip(1_u64..);
    match screen.output {
        Output::Json => {
            for (scenario, number) in numbered {
                let Scenario { name, replicas, .. } = scenario;
                let told = json!({"number": number, "name": name, "replicas": replicas});
                screen.line(&told.to_string())?;
            }
        }
        Output::Text => {
            let row = |(scenario, number): (&Scenario, u64)| {
                vec![number.to_string(), scenario.replicas.to_string(), scenario.name.to_owned()]
            };
            let head = [("number", Side::Right), ("replicas", Side::Right), ("name", Side::Left)];
            screen.line(&table(&head, numbered.map(row).collect()))?;
        }
    }
    Ok(Exit::Done)
}

/// Tells one.
pub(crate) fn run(args: &ScenarioArgs) -> CommandResult {
    let (scenario, seed) = (*find(&args.name).map_err(Failure::usage)?, args.seed);
    let trial = alone(move || scenario.run(seed, None))?;
    let about = format!("{}: {} replicas, seed {seed}", scenario.name, scenario.replicas);
    tell(&trial, &about, args.told)
}
