//! `regent lab compare`: all algorithms under all scenarios with many seeds, on all cores.
//!
//! The library has the plan, plays each of its jobs and adds up what they come to; here are threads, a
//! bar, and the forms in which it is written. Threads finish in any order and the sums do not depend on
//! it.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use regent_lab::stage::compare::html::html;
use regent_lab::stage::compare::markdown::{BEGIN, END, markdown, update};
use regent_lab::stage::compare::{
    Comparison, Done, Measure, Plan, SIZES, Table, csv, scale_table, summary,
};
use regent_lab::stage::{Algorithm, RunError, Scenario, library};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::bar::Bar;
use super::play::{algorithm, find};
use super::sweep::thread_count;
use super::told::comparison_json;
use super::{ShowArgs, spawn, threads};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen, Side, remark, table};
use crate::signals::Signals;

/// Columns of a usual terminal.
const WIDTH: usize = 98;

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
    #[command(flatten)]
    pub(super) show: ShowArgs,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |part: &str| part.trim().parse::<u64>().ok();
    let range = match text.split_once("..").or_else(|| text.split_once('-')) {
        Some((first, last)) => number(first).zip(number(last.trim_start_matches('='))),
        None => number(text).map(|count| (1, count)),
    };
    let range = range.map(|(first, last)| first..=last).filter(|range| !range.is_empty());
    range.ok_or_else(|| "1..1000 means seeds 1 to 1000, and 20 means 1 to 20".to_owned())
}

/// What all threads share.
#[derive(Debug)]
struct Shared {
    plan: Plan,
    next: AtomicU64,
    is_over: AtomicBool,
}

/// Plays everything and writes what it comes to.
pub(crate) async fn run(args: CompareArgs) -> Outcome {
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
    let screen = Screen { output: args.show.output() };
    match screen.output {
        Output::Json => {
            for line in comparison_json(&comparison) {
                screen.line(&line.to_string())?;
            }
        }
        Output::Text => screen.line(&told(&comparison))?,
    }
    Ok(Exit::Done)
}

fn plan(args: &CompareArgs) -> Result<Plan, Failure> {
    let algorithms = match args.algorithms.as_slice() {
        [] => Algorithm::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut scenarios: Vec<Scenario> = match args.scenarios.as_slice() {
        [] => library().iter().map(|told| told.scenario()).collect(),
        names => names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
    };
    for scenario in &mut scenarios {
        scenario.nodes = args.nodes.unwrap_or(scenario.nodes);
    }
    let sizes = if args.no_scale { &[] } else { args.sizes.as_slice() };
    Plan::new(algorithms, scenarios, args.seeds.clone(), sizes)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Plays a plan on so many threads; nothing if it was interrupted.
async fn play(plan: Plan, said: Option<usize>) -> Result<Option<Comparison>, Failure> {
    let (jobs, runs) = (plan.jobs(), plan.runs());
    let mut comparison = Comparison::new(plan.clone());
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { plan, next, is_over });
    let mut signals = Signals::listen()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("signals: {error}")))?;
    let (send, mut reports) = unbounded_channel();
    for _ in 0..threads(said) {
        let (shared, send) = (Arc::clone(&shared), send.clone());
        spawn(move || work(&shared, &send))?;
    }
    drop(send);
    let mut bar = Bar::new();
    let mut done = 0;
    loop {
        tokio::select! {
            report = reports.recv() => match report {
                Some(Ok(part)) => {
                    comparison.take(&part);
                    done += 1;
                    let ppm = u128::from(done) * 1_000_000 / u128::from(jobs);
                    let words = format!("{} of {runs} runs", comparison.runs());
                    bar.show(u64::try_from(ppm).unwrap_or(1_000_000), &words);
                }
                Some(Err(error)) => {
                    bar.clear();
                    shared.is_over.store(true, Ordering::Relaxed);
                    return Err(Failure::usage(error.to_string()));
                }
                None => break,
            },
            _ = signals.next() => {
                bar.clear();
                shared.is_over.store(true, Ordering::Relaxed);
                return Ok(None);
            }
        }
    }
    bar.clear();
    if done < jobs {
        return Err(Failure::new(Exit::Uncertain, "the simulator itself failed"));
    }
    Ok(Some(comparison))
}

/// One thread: the next job, and the next, until there is none or nobody listens.
fn work(shared: &Shared, send: &UnboundedSender<Result<Done, RunError>>) {
    while !shared.is_over.load(Ordering::Relaxed) {
        let job = shared.next.fetch_add(1, Ordering::Relaxed);
        if job >= shared.plan.jobs() || send.send(shared.plan.play(job)).is_err() {
            return;
        }
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

/// Everything for people: algorithms, growth, and every cell.
fn told(comparison: &Comparison) -> String {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let mut text = format!("seeds {first} to {last}, {} runs\n", comparison.runs());
    let tables = [Some(summary(comparison, false)), scale_table(comparison)];
    for Table { title, note, head, rows } in tables.into_iter().flatten() {
        let head: Vec<(&str, Side)> = head.iter().map(|name| (name.as_str(), side(name))).collect();
        text.push_str(&format!("\n{title}\n{}\n{}\n", wrapped(&note), table(&head, rows)));
    }
    let mut head = vec![("scenario", Side::Left), ("algorithm", Side::Left)];
    head.extend(Measure::ALL.iter().map(|measure| (measure.head(), Side::Right)));
    let mut rows = Vec::new();
    for scenario in comparison.scenarios() {
        for algorithm in comparison.algorithms() {
            let Some(cell) = comparison.cell(*algorithm, &scenario.name) else { continue };
            let mut row = vec![scenario.name.clone(), algorithm.name().to_owned()];
            row.extend(Measure::ALL.iter().map(|measure| measure.show(cell)));
            rows.push(row);
        }
    }
    text.push_str(
        "\nEvery algorithm under every scenario\nmessages and bytes per election; seconds and ",
    );
    text.push_str(&format!("wrong writes per run\n\n{}", table(&head, rows)));
    text
}

/// A note in lines that fit a usual terminal.
fn wrapped(note: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in note.split(' ') {
        let long = word.chars().count() + 1;
        if width > 0 && width + long > WIDTH {
            text.push('\n');
            width = 0;
        }
        text.push_str(if width > 0 { " " } else { "" });
        text.push_str(word);
        width += long;
    }
    text.push('\n');
    text
}

/// Names stand left, figures right.
fn side(head: &str) -> Side {
    if ["algorithm", "who notices"].contains(&head) { Side::Left } else { Side::Right }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_wrapped_between_words() {
        let note = ["word"; 50].join(" ");
        let lines = wrapped(&note);
        assert!(lines.lines().all(|line| line.len() <= WIDTH && !line.starts_with(' ')), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 50);
    }

    #[test]
    fn seeds_are_a_range_with_both_ends_or_how_many() {
        assert_eq!(seeds("1..1000"), Ok(1..=1000));
        assert_eq!(seeds("1..=1000"), Ok(1..=1000));
        assert_eq!(seeds("1-1000"), Ok(1..=1000));
        assert_eq!(seeds("20"), Ok(1..=20));
        for wrong in ["", "0", "5..4", "x", "1..", "-5"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }
}
