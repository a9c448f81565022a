//! The figures as comma-separated values: one row for every cell, exact, times in nanoseconds or
//! milliseconds as their heads say.

use std::fmt::Write as _;

use super::Comparison;
use super::cell::{Cell, Time, Times};

const HEAD: &str = "part,algorithm,scenario,nodes,first_seed,last_seed,runs,cut_short,elections,messages,bytes,\
upkeep_messages,upkeep_bytes,first_p50_ms,first_p99_ms,first_never,elect_count,elect_p50_ms,elect_p99_ms,\
elect_never,leaderless_ns,two_leaders_ns,runs_with_two,writes,wrong_writes,wrong_writes_fenced,refused_writes";

/// All of them. Rows of the part `scenario` are algorithms under scenarios, rows of the part `scale` the
/// death of one leader among so many nodes. A percentile that never ended is empty, and counted beside it.
#[must_use]
pub fn csv(comparison: &Comparison) -> String {
    let mut text = format!("{HEAD}\n");
    for scenario in comparison.scenarios() {
        for algorithm in comparison.algorithms() {
            if let Some(cell) = comparison.cell(*algorithm, &scenario.name) {
                let under = field(&scenario.name);
                let place = format!("scenario,{},{under},{}", algorithm.name(), scenario.nodes);
                row(&mut text, comparison, &place, cell);
            }
        }
    }
    for series in comparison.series() {
        for (nodes, cell) in &series.points {
            let (algorithm, noticer) = (series.algorithm.name(), series.noticer.name());
            row(&mut text, comparison, &format!("scale,{algorithm},{noticer},{nodes}"), cell);
        }
    }
    text
}

fn row(text: &mut String, comparison: &Comparison, place: &str, cell: &Cell) {
    let (first, last) = (comparison.seeds().start(), comparison.seeds().end());
    let ms = |times: &Times, percent| match times.at(percent) {
        Some(Time::Ms(ms)) => ms.to_string(),
        Some(Time::Never) | None => String::new(),
    };
    let Cell { runs, cut_short, elections, messages, bytes, upkeep_messages, upkeep_bytes, .. } =
        cell;
    let _ = write!(
        text,
        "{place},{first},{last},{runs},{cut_short},{elections},{messages},{bytes},{upkeep_messages},\
         {upkeep_bytes},{},{},{},{},{},{},{},",
        ms(&cell.first, 50),
        ms(&cell.first, 99),
        cell.first.endless(),
        cell.vacancies.count(),
        ms(&cell.vacancies, 50),
        ms(&cell.vacancies, 99),
        cell.vacancies.endless(),
    );
    let Cell { leaderless_ns, two_leaders_ns, runs_with_two, writes, .. } = cell;
    let Cell { wrong_writes, wrong_writes_fenced, refused_writes, .. } = cell;
    let _ = writeln!(
        text,
        "{leaderless_ns},{two_leaders_ns},{runs_with_two},{writes},{wrong_writes},\
         {wrong_writes_fenced},{refused_writes}"
    );
}

/// A name that may come from a file: quoted if it could be mistaken for more than one field.
fn field(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_stays_one_field() {
        assert_eq!(field("crash"), "crash");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
