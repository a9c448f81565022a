//! Acts the script of a trace in a world of the real parts, and judges it like any other run.
//!
//! Every session of the recording is a simulated process with the library's driver; every deed is done
//! at its time, or as soon as what was recorded before it has come about. Once a group has taken another
//! course nothing is waited for in it any more: what follows is shown as it comes.

use std::collections::{BTreeMap, BTreeSet};

use regent_election::deed::Party;
use regent_election::{Group, SessionNo};
use regent_recording::LineContent;

use super::Trace;
use super::course::{Course, Step as Change};
use super::script::{Script, Step, What, script};
use crate::plan::Plan;
use crate::trial::{Trial, TrialVerdict, attempt};
use crate::world::World;

/// How long a deed may take until the store has it.
const DEED_MS_MAX: u64 = 5_000;
/// How long a change is waited for, beyond two of the longest ttl.
const CHANGE_MS_MAX: u64 = 10_000;
/// How often that is looked at.
const TRACE_POLL_EVERY_MS: u64 = 10;
/// How long another replica may take to lead the log.
const LEADER_MS_MAX: u64 = 20_000;

/// A recorded course, acted again.
#[derive(Debug)]
pub struct Reenactment {
    /// The run, judged by the promises.
    pub trial: Trial,
    /// What came about, beside what was recorded.
    pub course: Course,
    /// What could not be acted, for people.
    pub remarks: Vec<String>,
    /// How much time without deeds was left out.
    pub shortened_ms: u64,
}

/// Acts a recorded course again, in the world of a seed, which decides delays and timers. The same trace
/// and the same seed give the same history.
#[must_use]
pub fn reenact(trace: &Trace, seed: u64) -> Reenactment {
    let script = script(trace);
    let mut plan = Plan::calm(seed, trace.replicas() as u64);
    plan.faults.clear();
    // Work is done and read now and then, so that hours make no more history than minutes of a sweep.
    plan.act_every_ms = 500..=1_500;
    plan.call_every_ms = 30_000..=60_000;
    plan.groups = 1;
    let ttls: BTreeSet<u64> = trace.lines().iter().filter_map(|line| ttl_of(&line.told)).collect();
    plan.ttls_ms = if ttls.is_empty() { vec![10_000] } else { ttls.into_iter().collect() };
    let mut acted = Vec::new();
    let steps = script.steps.clone();
    let lasts_ms = script.lasts_ms;
    let mut trial = attempt(plan, |world| {
        world.prepare_stage();
        let mut company = Company::new(world.now(), &steps);
        for step in &steps {
            company.act(world, step);
        }
        world.run_until(world.now().max(company.began + lasts_ms * 1_000_000));
        acted = world.changes().to_vec();
        for (at, _) in &mut acted {
            *at = at.saturating_sub(company.began);
        }
        world.finish();
    });
    if matches!(trial.verdict, TrialVerdict::Void(_)) {
        trial.verdict = TrialVerdict::Passed;
    }
    let acted: Vec<(u64, Change)> = acted
        .into_iter()
        .filter(|(_, change)| !change.cause.is_finding())
        .map(|(at, change)| {
            let (group, leader) = (change.group, change.leader);
            (at, Change { group, leader, term: change.term, cause: change.cause })
        })
        .collect();
    let course = Course::compare(&expected(&script), &acted);
    let Script { remarks, shortened_ms, .. } = script;
    Reenactment { trial, course, remarks, shortened_ms }
}

fn ttl_of(told: &LineContent) -> Option<u64> {
    match told {
        LineContent::Deed { party, .. } => party.as_ref().map(|party| party.ttl_ms),
        LineContent::Begin { .. }
        | LineContent::Change { .. }
        | LineContent::LogLeader { .. }
        | LineContent::Gap { .. }
        | LineContent::End => None,
    }
}

/// What was recorded, with its lines.
fn expected(script: &Script) -> Vec<(usize, Change)> {
    let changes = script.steps.iter().filter_map(|step| match &step.what {
        What::Expect(change) => Some((step.line, change.clone())),
        What::Stand { .. }
        | What::Accept { .. }
        | What::Withdraw { .. }
        | What::Transfer { .. }
        | What::Leave { .. }
        | What::Fall { .. }
        | What::Administer(_)
        | What::LogLeaderFalls
        | What::StoreDown { .. } => None,
    });
    changes.collect()
}

/// Those who act, and how far each group is.
#[derive(Debug)]
struct Company {
    began: u64,
    people: BTreeMap<SessionNo, u32>,
    /// How many changes of each group have been waited for.
    awaited: BTreeMap<Group, usize>,
    /// How many have come about, among as many changes of the world as are counted.
    came: BTreeMap<Group, usize>,
    counted: usize,
    /// Groups in which something recorded did not come about.
    astray: BTreeSet<Group>,
    patience_ms: u64,
}

impl Company {
    fn new(began: u64, steps: &[Step]) -> Self {
        let ttls = steps.iter().map(|step| match &step.what {
            What::Stand { who, .. } => who.ttl_ms,
            What::Accept { .. }
            | What::Withdraw { .. }
            | What::Transfer { .. }
            | What::Leave { .. }
            | What::Fall { .. }
            | What::Administer(_)
            | What::LogLeaderFalls
            | What::StoreDown { .. }
            | What::Expect(_) => 0,
        });
        let patience_ms = 2 * ttls.max().unwrap_or(0) + CHANGE_MS_MAX;
        Self {
            began,
            people: BTreeMap::new(),
            awaited: BTreeMap::new(),
            came: BTreeMap::new(),
            counted: 0,
            astray: BTreeSet::new(),
            patience_ms,
        }
    }

    fn act(&mut self, world: &mut World, step: &Step) {
        world.run_until(world.now().max(self.began + step.at_ms * 1_000_000));
        match &step.what {
            What::Stand { who, group, priority } => {
                let number = self.person(world, who);
                world.let_stand(number, group, *priority);
                world.await_until(DEED_MS_MAX, |world| world.is_known_in(number, group));
            }
            What::Accept { session, group } => {
                if let Some(number) = self.people.get(session) {
                    world.await_until(DEED_MS_MAX, |world| world.has_accepted(*number, group));
                }
            }
            What::Withdraw { session, group } => {
                if let Some(number) = self.people.get(session) {
                    world.let_withdraw(*number, group);
                    world.await_until(DEED_MS_MAX, |world| !world.is_known_in(*number, group));
                }
            }
            What::Transfer { session, group, to } => {
                if let Some(number) = self.people.get(session) {
                    world.let_transfer(*number, group, to);
                }
            }
            What::Leave { session } => {
                if let Some(number) = self.people.get(session) {
                    world.let_leave(*number);
                    world.await_until(DEED_MS_MAX, |world| !world.has_session(*number));
                    world.kill_client(*number);
                }
            }
            What::Fall { session } => {
                if let Some(number) = self.people.get(session) {
                    world.let_fall(*number);
                }
            }
            What::Administer(command) => {
                world.administer(command.clone());
            }
            What::LogLeaderFalls => fell(world),
            What::StoreDown { for_ms } => {
                for id in world.up() {
                    world.crash_replica(id);
                    world.run_for_ms(*for_ms);
                    world.start_replica(id);
                }
                world.await_leader(LEADER_MS_MAX);
            }
            What::Expect(change) => self.expect(world, &change.group),
        }
    }

    fn person(&mut self, world: &mut World, who: &Party) -> u32 {
        *self
            .people
            .entry(who.session)
            .or_insert_with(|| world.add_puppet(who.node.clone(), who.ttl_ms))
    }

    /// Waits until a group has seen one more change.
    fn expect(&mut self, world: &mut World, group: &Group) {
        let awaited = self.awaited.entry(group.clone()).or_default();
        *awaited += 1;
        let count = *awaited;
        let patience_ms = if self.astray.contains(group) { 0 } else { self.patience_ms };
        for _ in 0..=patience_ms / TRACE_POLL_EVERY_MS {
            for (_, change) in &world.changes()[self.counted..] {
                self.counted += 1;
                if !change.cause.is_finding() {
                    *self.came.entry(change.group.clone()).or_default() += 1;
                }
            }
            if self.came.get(group).is_some_and(|came| *came >= count) {
                return;
            }
            world.run_for_ms(TRACE_POLL_EVERY_MS);
        }
        self.astray.insert(group.clone());
    }
}

/// The leader of the log dies and comes back when another one leads.
fn fell(world: &mut World) {
    let Some(leader) = world.leader() else { return };
    world.crash_replica(leader);
    world.await_leader(LEADER_MS_MAX);
    world.start_replica(leader);
}
