//! Numbers of each group, for as many groups as have series of their own.
//!
//! The most active groups have series of their own, the others share `_other`. A group that changes while there is room
//! gets series; later a group gets them when it changed more often lately than one that has some. One change of each of
//! 100,000 groups, as after the crash of their leader, makes none of them more active than another, so that series do
//! not come and go. Series begin at zero before the first event that they count, as alerts on their rise need it.
//!
//! Counters count what the observer of this server saw. Gauges are read from the store with every scrape, and are
//! absent when it cannot be read or cannot decide: a number that may be old would be believed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use regent_election::store::{OfficeNote, OfficesView};
use regent_election::{Cause, Event, Group, Moment};

use crate::config::ServerConfig;
use crate::limits::{GROUP_ACTIVITY_FOR, GROUPS_KNOCKING_MAX};
use crate::metrics::{ByCluster, signed};

/// The label of all groups that have no series of their own. No group can have this name.
const OTHER: &str = "_other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroup {
    group_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroupAndCause {
    group_id: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroupAndExpected {
    group_id: String,
    expected: &'static str,
}

/// The causes for which leaders change.
pub(crate) fn causes_of_change() -> impl Iterator<Item = Cause> {
    Cause::ALL.into_iter().filter(|cause| !cause.is_finding())
}

/// The series of groups.
#[derive(Debug)]
pub(crate) struct GroupMetrics {
    named: Mutex<NamedGroups>,
    elections: Family<ByCluster, Counter>,
    /// The one series of that.
    elected: Counter,
    changes: Family<ByGroupAndCause, Counter>,
    /// The series of all other groups, by cause: most changes of a server with many groups are theirs.
    changes_of_others: Vec<(Cause, Counter)>,
    split_brains: Family<ByGroup, Counter>,
    stable_seconds: Family<ByGroup, Gauge<f64, AtomicU64>>,
    active_leaders: Family<ByGroupAndExpected, Gauge>,
    vacant: KnownCount,
}

impl GroupMetrics {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let elections = Family::<ByCluster, Counter>::default();
        let elected =
            elections.get_or_create(&ByCluster { cluster: config.cluster.clone() }).clone();
        let changes = Family::<ByGroupAndCause, Counter>::default();
        let of_others = |cause: Cause| {
            let label = ByGroupAndCause { group_id: OTHER.to_owned(), cause: cause.word() };
            (cause, changes.get_or_create(&label).clone())
        };
        let changes_of_others = causes_of_change().map(of_others).collect();
        let metrics = Self {
            named: Mutex::new(NamedGroups::new(config.metrics_groups_max)),
            elections,
            elected,
            changes,
            changes_of_others,
            split_brains: Family::default(),
            stable_seconds: Family::default(),
            active_leaders: Family::default(),
            vacant: KnownCount::default(),
        };
        metrics.begin_series(OTHER);
        metrics
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("leader_elections", "Tenures that began", self.elections.clone());
        registry.register(
            "leader_changes",
            "Tenures that ended, by why, and first tenures of groups as elected; an expiry and the election after it are one change",
            self.changes.clone(),
        );
        registry.register(
            "split_brain_detected",
            "Nodes that acted under a term which was not the one in office",
            self.split_brains.clone(),
        );
        registry.register(
            "leader_stable_seconds",
            "How long the present leader of a group has led; absent while nobody leads",
            self.stable_seconds.clone(),
        );
        registry.register(
            "active_leaders_count",
            "Who acts as leader of a group that has candidates: 1 unless something is wrong; of all other groups together 0 if one of them lacks a leader",
            self.active_leaders.clone(),
        );
        registry.register(
            "regent_groups_vacant",
            "Groups that have candidates and no leader that has accepted",
            self.vacant.clone(),
        );
    }

    /// These groups were there when the observer began.
    pub(crate) fn found<'a>(&self, groups: impl Iterator<Item = &'a Group>) {
        let mut named = self.named();
        for group in groups {
            if named.add(group) {
                self.begin_series(group.as_str());
            }
        }
    }

    /// Changes went by untold: when leaders changed last must be asked again.
    pub(crate) fn blind(&self) {
        for group in self.named().groups.values_mut() {
            group.stable = None;
        }
    }

    /// A leader changed.
    pub(crate) fn changed(&self, now: Moment, event: &Event) {
        let own = self.label_of_change(now, event);
        if event.leader.is_some() {
            self.elected.inc();
        }
        // Whoever is elected into a vacant office follows a leader whose end was counted, unless it is the first.
        let is_counted = event.cause == Cause::Elected && event.term.get() > 1;
        if !is_counted {
            let of_others = self.changes_of_others.iter().find(|(cause, _)| *cause == event.cause);
            match (own, of_others) {
                (None, Some((_, counter))) => counter.inc(),
                (own, _) => {
                    let group_id = own.unwrap_or_else(|| OTHER.to_owned());
                    let label = ByGroupAndCause { group_id, cause: event.cause.word() };
                    self.changes.get_or_create(&label).inc()
                }
            };
        }
        if event.cause == Cause::Deleted && self.named().groups.remove(&event.group).is_some() {
            self.end_series(&event.group);
        }
    }

    /// The label of a group with series of its own, after this change.
    fn label_of_change(&self, now: Moment, event: &Event) -> Option<String> {
        let group = &event.group;
        let mut named = self.named();
        match named.change(now, group) {
            Place::Own => {}
            Place::Fresh { instead_of } => {
                instead_of.iter().for_each(|group| self.end_series(group));
                self.begin_series(group.as_str());
            }
            Place::Other => return None,
        }
        if let Some(known) = named.groups.get_mut(group) {
            known.stable = Some(Stable { before: Duration::ZERO, since: now });
        }
        Some(group.as_str().to_owned())
    }

    pub(crate) fn split_brain(&self, group: &Group) {
        let is_named = self.named().groups.contains_key(group);
        let group_id = if is_named { group.as_str() } else { OTHER }.to_owned();
        self.split_brains.get_or_create(&ByGroup { group_id }).inc();
    }

    /// The groups that have series of their own, in order.
    pub(crate) fn names(&self) -> Vec<Group> {
        let mut names: Vec<Group> = self.named().groups.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Sets the gauges by what the store says of the groups `names`; without it they are absent. `accused` are those who
    /// act and must not.
    pub(crate) fn show(
        &self,
        now: Moment,
        wall_ms: u64,
        names: &[Group],
        offices: Option<&OfficesView>,
        accused: &BTreeMap<Group, u64>,
    ) {
        self.active_leaders.clear();
        self.stable_seconds.clear();
        self.vacant.set(offices.map(|offices| offices.wanted.saturating_sub(offices.led)));
        let Some(offices) = offices else { return };
        let mut named = self.named();
        let (mut led, mut wanted) = (offices.led, offices.wanted);
        let mut accused_others: u64 = accused.values().sum();
        for (group, note) in names.iter().zip(&offices.offices) {
            let note = note.unwrap_or(OfficeNote {
                is_led: false,
                is_wanted: false,
                changed_wall_ms: None,
            });
            let accused_here = accused.get(group).copied().unwrap_or_default();
            led -= u64::from(note.is_led).min(led);
            wanted -= u64::from(note.is_wanted).min(wanted);
            accused_others -= accused_here;
            if note.is_wanted || accused_here > 0 {
                self.set_active(group.as_str(), u64::from(note.is_led) + accused_here);
            }
            if note.is_led
                && let Some(known) = named.groups.get_mut(group)
                && let Some(stable) = known.stable_by(now, wall_ms, note.changed_wall_ms)
            {
                let group_id = group.as_str().to_owned();
                let gauge = self.stable_seconds.get_or_create(&ByGroup { group_id });
                gauge.set(stable.so_far(now).as_secs_f64());
            }
        }
        if wanted > 0 || accused_others > 0 {
            let lacks_none = u64::from(led >= wanted);
            self.set_active(OTHER, if lacks_none == 0 { 0 } else { lacks_none + accused_others });
        }
    }

    fn set_active(&self, group: &str, count: u64) {
        let label = ByGroupAndExpected { group_id: group.to_owned(), expected: "1" };
        self.active_leaders.get_or_create(&label).set(signed(count));
    }

    fn begin_series(&self, group: &str) {
        let group_id = || group.to_owned();
        for cause in causes_of_change() {
            let label = ByGroupAndCause { group_id: group_id(), cause: cause.word() };
            self.changes.get_or_create(&label).inc_by(0);
        }
        self.split_brains.get_or_create(&ByGroup { group_id: group_id() }).inc_by(0);
    }

    fn end_series(&self, group: &Group) {
        let group_id = || group.as_str().to_owned();
        for cause in causes_of_change() {
            let label = ByGroupAndCause { group_id: group_id(), cause: cause.word() };
            self.changes.remove(&label);
        }
        self.split_brains.remove(&ByGroup { group_id: group_id() });
    }

    fn named(&self) -> MutexGuard<'_, NamedGroups> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gauge that is absent while its number is not known.
#[derive(Clone, Debug, Default)]
struct KnownCount(Arc<Mutex<Option<u64>>>);

impl KnownCount {
    fn set(&self, count: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = count;
    }
}

impl EncodeMetric for KnownCount {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let count = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count.map_or(Ok(()), |count| encoder.encode_gauge(&signed(count)))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// Since when a leader has led.
#[derive(Clone, Copy, Debug)]
struct Stable {
    /// How long it had led before.
    before: Duration,
    since: Moment,
}

impl Stable {
    fn so_far(self, now: Moment) -> Duration {
        self.before + now.since(self.since)
    }
}

/// A group with series of its own.
#[derive(Debug, Default)]
struct NamedGroup {
    /// None if this server has not seen its leader change and has not asked.
    stable: Option<Stable>,
    /// Changes in this stretch of time, and in the one before.
    changes: u32,
    changes_before: u32,
}

impl NamedGroup {
    const fn activity(&self) -> u32 {
        self.changes.saturating_add(self.changes_before)
    }

    /// Since when its leader has led. What this server has not seen it takes from the history once: the difference of
    /// two wall clocks, a note for people. From there on it counts by itself.
    fn stable_by(&mut self, now: Moment, wall_ms: u64, changed_ms: Option<u64>) -> Option<Stable> {
        if self.stable.is_none() {
            let before = Duration::from_millis(wall_ms.saturating_sub(changed_ms?));
            self.stable = Some(Stable { before, since: now });
        }
        self.stable
    }
}

/// Which groups have series of their own.
#[derive(Debug)]
struct NamedGroups {
    groups: HashMap<Group, NamedGroup>,
    max: usize,
    /// Changes of other groups in this stretch of time.
    knocks: HashMap<Group, u32>,
    since: Option<Moment>,
}

/// Where a change of a group is counted.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Own,
    /// In series that are new, and replace those of another group, if there was no room.
    Fresh {
        instead_of: Option<Group>,
    },
    Other,
}

impl NamedGroups {
    fn new(max: usize) -> Self {
        Self { groups: HashMap::new(), max, knocks: HashMap::new(), since: None }
    }

    /// Gives a group series if there is room; whether they are new.
    fn add(&mut self, group: &Group) -> bool {
        let is_new = self.groups.len() < self.max && !self.groups.contains_key(group);
        if is_new {
            self.groups.insert(group.clone(), NamedGroup::default());
        }
        is_new
    }

    fn change(&mut self, now: Moment, group: &Group) -> Place {
        self.turn(now);
        if let Some(known) = self.groups.get_mut(group) {
            known.changes = known.changes.saturating_add(1);
            return Place::Own;
        }
        if self.groups.len() < self.max {
            self.groups.insert(group.clone(), NamedGroup { changes: 1, ..NamedGroup::default() });
            return Place::Fresh { instead_of: None };
        }
        if self.knocks.len() >= GROUPS_KNOCKING_MAX && !self.knocks.contains_key(group) {
            return Place::Other;
        }
        let knocks = self.knocks.entry(group.clone()).or_default();
        *knocks = knocks.saturating_add(1);
        let knocks = *knocks;
        // Looking for the least active takes a walk over all, which one change each does not cause.
        if knocks < 2 {
            return Place::Other;
        }
        // Of several the first by name, whatever the order of the table.
        let least = self.groups.iter().min_by_key(|(name, known)| (known.activity(), *name));
        let least = least.filter(|(_, known)| known.activity() < knocks);
        let Some(least) = least.map(|(group, _)| group.clone()) else { return Place::Other };
        self.knocks.remove(group);
        self.groups.remove(&least);
        self.groups.insert(group.clone(), NamedGroup { changes: knocks, ..NamedGroup::default() });
        Place::Fresh { instead_of: Some(least) }
    }

    /// Begins another stretch of time when this one is over.
    fn turn(&mut self, now: Moment) {
        if self.since.is_some_and(|since| now.since(since) < GROUP_ACTIVITY_FOR) {
            return;
        }
        self.since = Some(now);
        self.knocks.clear();
        for known in self.groups.values_mut() {
            known.changes_before = std::mem::take(&mut known.changes);
        }
    }
}

#[cfg(test)]
#[path = "group_metrics/tests.rs"]
mod tests;
