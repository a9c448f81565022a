//! Which groups have series, and what their gauges say.

use prometheus_client::encoding::text::encode;
use regent_election::{Metadata, Node, Revision, Term};

use super::*;

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

fn event(name: &str, term: u64, leader: Option<&str>, cause: Cause) -> Event {
    Event {
        group: group(name),
        revision: Revision(1),
        ordinal: 0,
        term: Term::new(term).unwrap(),
        leader: leader.map(|leader| Node::new(leader).unwrap()),
        metadata: Metadata::NONE,
        cause,
    }
}

fn metrics(max: usize) -> GroupMetrics {
    GroupMetrics::new(&ServerConfig { metrics_groups_max: max, ..ServerConfig::default() })
}

fn at(s: u64) -> Moment {
    Moment::from_millis(s * 1000)
}

fn text(metrics: &GroupMetrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

fn value(metrics: &GroupMetrics, series: &str) -> Option<f64> {
    let text = text(metrics);
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

fn changes(metrics: &GroupMetrics, name: &str, cause: &str) -> Option<f64> {
    value(metrics, &format!("leader_changes_total{{group_id=\"{name}\",cause=\"{cause}\"}}"))
}

#[test]
fn an_expiry_and_the_election_after_it_are_one_change() {
    let metrics = metrics(9);
    metrics.changed(at(0), &event("g", 1, Some("a"), Cause::Elected));
    assert_eq!(changes(&metrics, "g", "expired"), Some(0.0), "before the first");
    metrics.changed(at(1), &event("g", 1, None, Cause::Expired));
    metrics.changed(at(2), &event("g", 2, Some("b"), Cause::Elected));
    metrics.changed(at(3), &event("g", 3, Some("c"), Cause::Expired));
    assert_eq!(changes(&metrics, "g", "expired"), Some(2.0));
    assert_eq!(changes(&metrics, "g", "elected"), Some(1.0), "the first one alone");
    assert_eq!(value(&metrics, "leader_elections_total{cluster=\"regent\"}"), Some(3.0));
}

#[test]
fn groups_beyond_the_bound_share_one_label_until_they_are_more_active() {
    let metrics = metrics(2);
    for name in ["a", "b", "c", "d"] {
        metrics.changed(at(0), &event(name, 1, Some("n"), Cause::Elected));
    }
    assert_eq!(changes(&metrics, "_other", "elected"), Some(2.0));
    assert_eq!(
        metrics.names(),
        [group("a"), group("b")],
        "one change each is no more than another"
    );
    for _ in 0..3 {
        metrics.changed(at(1), &event("d", 2, Some("n"), Cause::Expired));
    }
    assert!(metrics.names().contains(&group("d")));
    assert_eq!(metrics.names().len(), 2);
    assert!(changes(&metrics, "d", "expired") >= Some(1.0));
    assert_eq!(changes(&metrics, "a", "elected"), None, "its series are gone");
    metrics.changed(at(2), &event("d", 2, None, Cause::Deleted));
    assert_eq!(changes(&metrics, "d", "expired"), None);
}

const LED: OfficeNote = OfficeNote { is_led: true, is_wanted: true, changed_wall_ms: Some(40_000) };
const VACANT: OfficeNote =
    OfficeNote { is_led: false, is_wanted: true, changed_wall_ms: Some(40_000) };
const UNWANTED: OfficeNote = OfficeNote { is_wanted: false, ..VACANT };

fn active(metrics: &GroupMetrics, name: &str) -> Option<f64> {
    value(metrics, &format!("active_leaders_count{{group_id=\"{name}\",expected=\"1\"}}"))
}

#[test]
fn a_vacant_group_is_seen_among_many_and_one_that_nobody_wants_is_not() {
    let metrics = metrics(3);
    let names = ["a", "b", "c"].map(group);
    metrics.found(names.iter());
    let offices = |led| OfficesView {
        offices: vec![Some(LED), Some(VACANT), Some(UNWANTED)],
        led,
        wanted: 12,
        times: None,
    };
    let nobody = BTreeMap::new();
    metrics.show(at(0), 100_000, &names, Some(&offices(11)), &nobody);
    let seen = |name: &str| active(&metrics, name);
    assert_eq!([seen("a"), seen("b"), seen("c")], [Some(1.0), Some(0.0), None]);
    assert_eq!(seen("_other"), Some(1.0), "ten of ten");
    assert_eq!(value(&metrics, "regent_groups_vacant"), Some(1.0));
    metrics.show(at(0), 100_000, &names, Some(&offices(10)), &nobody);
    assert_eq!(seen("_other"), Some(0.0), "nine of ten");
    let accused = BTreeMap::from([(group("a"), 1), (group("z"), 1)]);
    metrics.show(at(0), 100_000, &names, Some(&offices(11)), &accused);
    assert_eq!([seen("a"), seen("_other")], [Some(2.0), Some(2.0)]);
    metrics.show(at(0), 100_000, &names, None, &nobody);
    assert_eq!([seen("a"), seen("b"), seen("_other")], [None, None, None], "not known");
    assert_eq!(value(&metrics, "regent_groups_vacant"), None, "not known");
}

#[test]
fn stability_is_taken_from_the_history_once_and_counted_from_there() {
    let metrics = metrics(3);
    let names = [group("a")];
    metrics.found(names.iter());
    let offices = OfficesView { offices: vec![Some(LED)], led: 1, wanted: 1, times: None };
    let nobody = BTreeMap::new();
    let stable = || value(&metrics, "leader_stable_seconds{group_id=\"a\"}");
    metrics.show(at(5), 100_000, &names, Some(&offices), &nobody);
    assert_eq!(stable(), Some(60.0), "by the history, right after a restart");
    // The wall clock jumps, and decides nothing.
    metrics.show(at(15), 999_000, &names, Some(&offices), &nobody);
    assert_eq!(stable(), Some(70.0));
    metrics.changed(at(16), &event("a", 2, Some("b"), Cause::Expired));
    metrics.show(at(20), 999_000, &names, Some(&offices), &nobody);
    assert_eq!(stable(), Some(4.0));
}
