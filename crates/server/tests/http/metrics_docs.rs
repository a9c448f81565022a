//! What is written about metrics, and what is there: `docs/metrics.md`, the alerts, the dashboard, and a real `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Server, eventually};

/// One metric, as it is documented or shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// What follows the name of a metric in the names of its series.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_sum", "_count"],
        "info" => &["_info"],
        _ => &[""],
    }
}

/// The name under which a metric is documented.
fn documented(name: &str, kind: &str) -> String {
    match kind {
        "counter" | "info" => format!("{name}{}", suffixes(kind)[0]),
        _ => name.to_owned(),
    }
}

fn labels_of(line: &str) -> BTreeSet<String> {
    let Some((_, labels)) = line.split_once('{') else { return BTreeSet::new() };
    let labels = labels.rsplit_once('}').unwrap().0;
    let names = labels.split("\",").filter_map(|label| label.split_once("=\""));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "le").collect()
}

/// Everything that a server shows.
fn shown(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let series = suffixes(kind).iter().map(|suffix| format!("{name}{suffix}"));
        let series: Vec<String> = series.collect();
        let is_its = |line: &&str| {
            series.iter().any(|name| {
                line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
        };
        let labels = text.lines().filter(is_its).flat_map(labels_of).collect();
        metrics.insert(documented(name, kind), Metric { kind: kind.to_owned(), labels });
    }
    metrics
}

/// The rows of the table: the metric, its meaning, and the alerts that use it.
fn table() -> BTreeMap<String, (Metric, String, BTreeSet<String>)> {
    let page = file("docs/metrics.md");
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning, alerts] = cells[..] else { panic!("{line}") };
        let words = |cell: &str| -> BTreeSet<String> {
            let words = cell.split(',').map(|word| word.trim().trim_matches('`').to_owned());
            words.filter(|word| !word.is_empty()).collect()
        };
        let metric = Metric { kind: kind.to_owned(), labels: words(labels) };
        let row = (metric, meaning.to_owned(), words(alerts));
        assert!(rows.insert(name.trim_matches('`').to_owned(), row).is_none(), "{name} twice");
    }
    assert!(rows.len() > 40, "{}", rows.len());
    rows
}

/// The documented metrics that an expression names.
fn named(
    expression: &str,
    known: &BTreeMap<String, (Metric, String, BTreeSet<String>)>,
) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    // What stands in quotes and in lists of labels is no metric.
    let mut bare = String::new();
    let (mut is_quoted, mut depth) = (false, 0_u32);
    for letter in expression.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '{' if !is_quoted => depth += 1,
            '}' if !is_quoted => depth -= 1,
            _ if is_quoted || depth > 0 => {}
            _ => bare.push(letter),
        }
    }
    let mut found = BTreeSet::new();
    for word in bare.split(|letter| !is_word(letter)) {
        let opens = ["regent_", "leader_", "election_", "active_", "store_", "split_", "renew_"];
        if !opens.iter().any(|open| word.starts_with(open)) && !word.starts_with("time_to_elect") {
            continue;
        }
        let of = ["_bucket", "_sum", "_count"].iter().filter_map(|end| word.strip_suffix(end));
        let is_histogram =
            |name: &&str| known.get(*name).is_some_and(|row| row.0.kind == "histogram");
        let name =
            if known.contains_key(word) { Some(word) } else { of.clone().find(is_histogram) };
        let name = name.unwrap_or_else(|| panic!("there is no metric {word}: {expression}"));
        assert!(
            known[name].0.kind != "histogram" || name != word,
            "{word} is a histogram: {expression}"
        );
        found.insert(name.to_owned());
    }
    assert!(!found.is_empty(), "no metric in {expression}");
    found
}

#[tokio::test]
async fn the_table_of_metrics_is_what_a_server_shows() {
    let server = Server::start().await;
    server.lead("billing", "a").await;
    let metrics = eventually("all series", || async {
        let text = server.get("/metrics").await.text();
        text.contains("leader_stable_seconds{").then(|| shown(&text))
    })
    .await;
    let table = table();
    for (name, metric) in &metrics {
        let Some((told, ..)) = table.get(name) else { panic!("{name} is not in docs/metrics.md") };
        assert_eq!(told, metric, "{name}");
    }
    for (name, (_, meaning, _)) in &table {
        let is_seldom = meaning.contains("Only with TLS");
        assert!(is_seldom || metrics.contains_key(name), "{name} is in docs/metrics.md alone");
    }
    let ours =
        ["leader_", "election_", "time_to_elect_ms", "active_", "split_", "renew_", "store_"];
    for name in metrics.keys().filter(|name| !name.starts_with("regent_")) {
        assert!(ours.iter().any(|opening| name.starts_with(opening)), "{name} lacks regent_");
    }
}

/// The alerts of the rules: name, expression and the page with what to do.
fn alerts() -> Vec<(String, String, String)> {
    let rules = file("deploy/prometheus/regent.rules.yml");
    let mut alerts: Vec<(String, String, String)> = Vec::new();
    for line in rules.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new(), String::new()));
        } else if let Some(alert) = alerts.last_mut() {
            if let Some(expression) = line.strip_prefix("expr: ") {
                alert.1 = expression.to_owned();
            } else if let Some(runbook) = line.strip_prefix("runbook_url: ") {
                alert.2 = runbook.to_owned();
            }
        }
    }
    alerts
}

#[test]
fn every_alert_names_metrics_that_exist_and_a_runbook_that_exists() {
    let table = table();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let alerts = alerts();
    for (alert, expression, runbook) in &alerts {
        for metric in named(expression, &table) {
            used.entry(metric).or_default().insert(alert.clone());
        }
        let (page, anchor) =
            runbook.split_once('#').unwrap_or_else(|| panic!("{alert}: {runbook:?}"));
        let page = file(page);
        let slug = |heading: &str| heading.trim().to_lowercase().replace(": ", "-");
        let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
        assert!(headings.map(slug).any(|heading| heading == anchor), "{alert}: no {runbook}");
    }
    for expected in [
        "FrequentLeaderElections",
        "NoLeaderElected",
        "LeaderChangesHigh",
        "ElectionSlow",
        "SplitBrain",
    ] {
        assert!(alerts.iter().any(|(alert, ..)| alert == expected), "{expected}");
    }
    for (name, (_, _, told)) in &table {
        assert_eq!(*told, used.remove(name).unwrap_or_default(), "the alerts of {name}");
    }
}

#[test]
fn every_query_of_the_dashboard_names_metrics_that_exist() {
    let table = table();
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana/regent.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = 0;
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            named(target["expr"].as_str().unwrap(), &table);
            queries += 1;
        }
    }
    assert!(queries > 20, "{queries}");
}
