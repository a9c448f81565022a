//! `regent lab compare`: all algorithms under all scenarios with many seeds, on all cores.
//!
//! The library has the plan, plays each of its jobs and adds up what they come to; here are threads, a
//! bar, and the forms in which it is written. Threads finish in any order and the sums do not depend on
//! it.

use std::fs;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};

use clap::Args;
use regent_lab::stage::compare::html::html;
use regent_lab::stage::compare::markdown::{BEGIN, END, markdown, update};
use regent_lab::stage::compare::{
    ComparePlan, Comparison, SIZES, blocks, comparison_json, csv, seeds,
};
use regent_lab::stage::{Algorithm, Scenario, find, library};

use super::bar::Bar;
use super::play::{algorithm, unfound};
use super::sweep::thread_count;
use super::{each, laid_out, simulator_failed};
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, remark};

/// Flags of `regent lab compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent lab compare
  regent lab compare --seeds 1..1000 --html report.html --csv figures.csv
  regent lab compare --algorithms bully,raft --scenarios clean-partition,my.scenario
  regent lab compare --seeds 1..1000 --update docs/algorithms.md

The same seeds give the same figures on any number of threads. `regent lab algorithms` lists
algorithms and scenarios, and docs/algorithms.md says what is measured and shows seeds 1 to 1000.
A release build is faster: cargo run --release -- lab compare")]
pub(crate) struct CompareArgs {
    /// Seeds, both ends included: 1..1000, or how many from 1 on
    #[arg(long, value_name = "A..B", default_value = "1..20", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// Only these algorithms, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = algorithm)]
    algorithms: Vec<Algorithm>,
    /// Only these scenarios: names or paths of files, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// How many candidates, in place of what the scenarios say
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,
    /// Numbers of nodes that the growth of messages is measured with
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = SIZES.to_vec())]
    sizes: Vec<u16>,
    /// Leave out how messages grow with the number of nodes
    #[arg(long)]
    no_scale: bool,
    /// How many runs beside each other [default: one for each core]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Write all figures as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a report with plots: one file that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the tables as Markdown between the marks of a document
    #[arg(long, value_name = "FILE")]
    update: Option<PathBuf>,
}

/// Plays everything and writes what it comes to.
pub(crate) async fn run(args: CompareArgs) -> CommandResult {
    let plan = plan(&args)?;
    // What cannot be written is told before, not after minutes of work.
    let document = args.update.as_deref().map(read_document).transpose()?;
    let Some(comparison) = play(plan, args.threads).await? else { return Ok(Exit::Interrupted) };
    if comparison.cut_short() > 0 {
        let cut = comparison.cut_short();
        remark(&format!(
            "{cut} runs were stopped because too much happened: their ends are missing"
        ));
    }
    let files = [
        (&args.csv, csv as fn(&Comparison) -> String),
        (&args.html, html as fn(&Comparison) -> String),
    ];
    for (path, form) in files {
        if let Some(path) = path {
            write(path, &form(&comparison))?;
        }
    }
    if let (Some(path), Some(document)) = (&args.update, document) {
        let text = update(&document, &markdown(&comparison)).ok_or_else(|| no_marks(path))?;
        write(path, &text)?;
    }
    let screen = Screen::chosen();
    match screen.output {
        Output::Json => {
            for line in comparison_json(&comparison) {
                screen.line(&line.to_string())?;
            }
        }
        Output::Text => screen.line(&laid_out(blocks(&comparison)))?,
    }
    Ok(Exit::Done)
}

fn plan(args: &CompareArgs) -> Result<ComparePlan, Failure> {
    let algorithms = match args.algorithms.as_slice() {
        [] => Algorithm::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut scenarios: Vec<Scenario> = match args.scenarios.as_slice() {
        [] => library().iter().map(|told| told.scenario()).collect(),
        names => {
            let found = names.iter().map(|name| find(name).map_err(unfound));
            found.collect::<Result<_, _>>()?
        }
    };
    for scenario in &mut scenarios {
        scenario.nodes = args.nodes.unwrap_or(scenario.nodes);
    }
    let sizes = if args.no_scale { &[] } else { args.sizes.as_slice() };
    ComparePlan::new(algorithms, scenarios, args.seeds.clone(), sizes)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Plays a plan on so many threads; nothing if it was interrupted.
async fn play(plan: ComparePlan, threads: Option<usize>) -> Result<Option<Comparison>, Failure> {
    let (jobs, runs) = (plan.jobs(), plan.runs());
    let mut comparison = Comparison::new(plan.clone());
    let (mut bar, mut done) = (Bar::new(), 0);
    let job = move |number| (number < jobs).then(|| plan.play(number));
    let is_whole = each(threads, job, |part| {
        comparison.take(&part.map_err(|error| Failure::usage(error.to_string()))?);
        done += 1;
        let ppm = u128::from(done) * 1_000_000 / u128::from(jobs);
        let words = format!("{} of {runs} runs", comparison.runs());
        bar.show(u64::try_from(ppm).unwrap_or(1_000_000), &words);
        Ok(ControlFlow::Continue(()))
    })
    .await;
    bar.clear();
    match is_whole? {
        false => Ok(None),
        true if done < jobs => Err(simulator_failed()),
        true => Ok(Some(comparison)),
    }
}

fn read_document(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    if update(&text, "").is_none() {
        return Err(no_marks(path));
    }
    Ok(text)
}

fn no_marks(path: &Path) -> Failure {
    Failure::usage(format!(
        "{}: the tables go between a line {BEGIN} and a line {END}, and there is not one of each",
        path.display()
    ))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::file(path, &error))
}
