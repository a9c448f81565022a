//! `regent lab run`, `check` and `algorithms`: the algorithms of the literature under a scenario.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use regent_lab::stage::draw::{Window, mermaid, sequence_svg, timeline_svg, timeline_text};
use regent_lab::stage::{
    Algorithm, FindError, Run, entry_json, figures, figures_json, find, history, library, play,
    read,
};
use serde_json::json;

use super::{alone, laid_out};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, Side, table};

/// Flags of `regent lab run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab run bully crash
  regent lab run ring clean-partition --seed 7 --nodes 9
  regent lab run bully my.scenario --all
  regent lab run raft clean-partition --timeline
  regent lab run paxos split-vote --diagram svg --from 5s --to 6s > duel.svg

`regent lab algorithms` lists algorithms and scenarios. A scenario of your own is named by its
file; `regent lab check` says whether it can be read. One seed decides everything: the same words
give the same history.")]
pub(crate) struct RunArgs {
    /// The algorithm
    #[arg(value_parser = algorithm)]
    algorithm: Algorithm,
    /// The scenario: a name, or the path of a file
    scenario: String,
    /// The seed of links, disks, starts and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many candidates, in place of what the scenario says
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,
    /// Tell heartbeats and good writes, too
    #[arg(long)]
    all: bool,
    /// Draw who says what to whom, for Mermaid or as SVG, instead of telling it
    #[arg(long, value_name = "FORM", conflicts_with = "timeline")]
    diagram: Option<Diagram>,
    /// Draw who led when and where two led at once, instead of telling it
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "text")]
    timeline: Option<Timeline>,
    /// What a diagram begins with
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "diagram")]
    from: Option<Duration>,
    /// What a diagram ends with
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "diagram")]
    to: Option<Duration>,
}

/// How a sequence is drawn.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Diagram {
    /// Text that Mermaid draws.
    Mermaid,
    /// A picture.
    Svg,
}

/// How a timeline is drawn.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Timeline {
    /// Letters.
    Text,
    /// A picture.
    Svg,
}

/// Flags of `regent lab check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab check my.scenario

Exit code 78 says that it cannot be read, and where.")]
pub(crate) struct CheckArgs {
    /// The file
    file: PathBuf,
}

/// Flags of `regent lab algorithms`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab algorithms
  regent lab algorithms --json")]
pub(crate) struct AlgorithmsArgs {}

/// An algorithm by its name.
pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::find(name).ok_or_else(|| {
        let names: Vec<&str> = Algorithm::ALL.iter().map(|one| one.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Plays a scenario and tells what happened.
pub(crate) fn run(args: &RunArgs) -> CommandResult {
    let mut scenario = find(&args.scenario).map_err(unfound)?;
    scenario.nodes = args.nodes.unwrap_or(scenario.nodes);
    let (algorithm, seed, told) = (args.algorithm, args.seed, scenario.clone());
    let run = alone(move || play(algorithm, &told, seed))?;
    let run = run.map_err(|error| Failure::usage(error.to_string()))?;
    let screen = Screen::chosen();
    if let Some(drawing) = draw(&run, args) {
        screen.line(&drawing)?;
        return Ok(Exit::Done);
    }
    match screen.output {
        Output::Json => {
            for entry in &run.record.entries {
                screen.line(&entry_json(&run.record, entry).to_string())?;
            }
            let figures = figures(&run.record);
            screen
                .line(&json!({"ev": "figures", "figures": figures_json(&figures)}).to_string())?;
        }
        Output::Text => {
            let played = (args.algorithm, &scenario, args.seed);
            screen.line(&laid_out(history(&run, played, args.all)))?;
        }
    }
    Ok(Exit::Done)
}

/// The drawing that was asked for.
fn draw(run: &Run, args: &RunArgs) -> Option<String> {
    let record = &run.record;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let window = Window {
        from: args.from.map_or(0, nanos),
        until: args.to.map_or(record.ended_at, nanos),
        with_upkeep: args.all,
    };
    let timeline = args.timeline.map(|form| match form {
        Timeline::Text => timeline_text(record),
        Timeline::Svg => timeline_svg(record),
    });
    let diagram = args.diagram.map(|form| match form {
        Diagram::Mermaid => mermaid(record, window),
        Diagram::Svg => sequence_svg(record, window),
    });
    timeline.or(diagram)
}

/// Says whether a scenario can be read.
pub(crate) fn check(args: &CheckArgs) -> CommandResult {
    let scenario = read(&args.file).map_err(unfound)?;
    let screen = Screen::chosen();
    let (nodes, strikes) = (scenario.nodes, scenario.strikes.len());
    let lasts_ms = scenario.lasts.as_millis() as u64;
    let told = json!({
        "name": scenario.name, "about": scenario.about, "nodes": nodes, "lasts_ms": lasts_ms,
        "happenings": strikes,
    });
    screen.answer(&told, || {
        let lasts = scenario.lasts;
        format!("{}: {nodes} nodes, {lasts:?}, strikes: {strikes}", scenario.about)
    })?;
    Ok(Exit::Done)
}

/// Lists algorithms and scenarios.
pub(crate) fn list(AlgorithmsArgs {}: &AlgorithmsArgs) -> CommandResult {
    let screen = Screen::chosen();
    let algorithms = Algorithm::ALL.iter().map(|one| ("algorithm", one.name(), one.about().into()));
    let scenarios = library().iter().map(|told| ("scenario", told.name, told.scenario().about));
    let all: Vec<(&str, &str, String)> = algorithms.chain(scenarios).collect();
    match screen.output {
        Output::Json => {
            for (kind, name, about) in all {
                let told = json!({"kind": kind, "name": name, "about": about});
                screen.line(&told.to_string())?;
            }
        }
        Output::Text => {
            for kind in ["algorithm", "scenario"] {
                let of_kind = all.iter().filter(|(of, _, _)| *of == kind);
                let rows = of_kind.map(|(_, name, about)| vec![(*name).to_owned(), about.clone()]);
                let head = [(kind, Side::Left), ("about", Side::Left)];
                screen.line(&format!("{}\n", table(&head, rows.collect())))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Why there is no such scenario, with the exit code for it.
pub(super) fn unfound(error: FindError) -> Failure {
    match &error {
        FindError::Unknown(_) => Failure::usage(error.to_string()),
        FindError::Io(path, error) => Failure::file(path, error),
        FindError::TooLarge(..) | FindError::Parse(..) => {
            Failure::new(Exit::Config, error.to_string())
        }
    }
}
