//! One run of one plan, judged.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use regent_stores::lease::reading::session;
use regent_stores::register::KeyKind;

use crate::checkers::{Violation, check, why_void};
use crate::history::{Event, History, What};
use crate::plan::{Plan, StoreKind};
use crate::stats::Stats;
use crate::world::World;

/// How long before a broken promise a story begins.
const STORY_NS: u64 = 3_000_000_000;
/// Most lines of a story.
const STORY_LINES_MAX: usize = 400;

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialVerdict {
    /// Every promise was kept.
    Passed,
    /// It did too little to mean anything.
    Void(String),
    /// Promises were broken.
    Failed(Vec<Violation>),
}

impl fmt::Display for TrialVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("every promise was kept"),
            Self::Void(why) => write!(f, "void: {why}"),
            Self::Failed(violations) => {
                let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

/// A run and its verdict.
#[derive(Debug)]
pub struct Trial {
    /// What was to be run.
    pub plan: Plan,
    pub history: History,
    /// What it amounted to.
    pub stats: Stats,
    /// How it is judged.
    pub verdict: TrialVerdict,
}

/// Runs a plan from its first fault to its last read and judges the history. A panic of the code under
/// test is a broken promise, too.
#[must_use]
pub fn run(plan: Plan) -> Trial {
    attempt(plan, World::live)
}

/// Runs the plan that a seed decides.
#[must_use]
pub fn replay(store: StoreKind, seed: u64) -> Trial {
    run(Plan::draw_for(store, seed))
}

/// Runs something of one's own in the world of a plan and judges the history.
pub fn attempt(plan: Plan, script: impl FnOnce(&mut World)) -> Trial {
    let mut world = World::new(plan.clone());
    let ended = catch_unwind(AssertUnwindSafe(|| script(&mut world)));
    let (history, stats) = world.into_history();
    let verdict = match ended {
        Ok(()) => judge(&history),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let how = said.unwrap_or("without a word").to_owned();
            TrialVerdict::Failed(vec![Violation::new("panic", history.end(), how)])
        }
    };
    Trial { plan, history, stats, verdict }
}

fn judge(history: &History) -> TrialVerdict {
    let violations = check(history);
    if !violations.is_empty() {
        return TrialVerdict::Failed(violations);
    }
    why_void(history).map_or(TrialVerdict::Passed, TrialVerdict::Void)
}

impl Trial {
    /// The broken promises.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match &self.verdict {
            TrialVerdict::Failed(violations) => violations,
            TrialVerdict::Passed | TrialVerdict::Void(_) => &[],
        }
    }

    /// What led to the first broken promise, for people; empty if none is broken.
    #[must_use]
    pub fn story(&self) -> String {
        let Some(violation) = self.violations().first() else { return String::new() };
        let mut story = story_of(&self.history, violation.at);
        for violation in self.violations() {
            writeln!(story, "{violation}").expect("a string takes everything");
        }
        story
    }
}

/// What led to an instant, for people.
pub(crate) fn story_of(history: &History, at: u64) -> String {
    let from = at.saturating_sub(STORY_NS);
    let until = at + STORY_NS / 10;
    let is_meant = |event: &&Event| (from..=until).contains(&event.at) && !is_noise(&event.what);
    let lines: Vec<&Event> = history.events.iter().filter(is_meant).collect();
    let mut story = String::new();
    for line in lines.iter().skip(lines.len().saturating_sub(STORY_LINES_MAX)) {
        let text: String = line.to_string().chars().take(200).collect();
        writeln!(story, "{text}").expect("a string takes everything");
    }
    story
}

/// What happens all the time and explains little.
fn is_noise(what: &What) -> bool {
    if let What::Entry { key, value } = what {
        let is_open = |value| session(value).is_ok_and(|entry| entry.open.is_some());
        return key.kind() == KeyKind::Session && is_open(value);
    }
    matches!(
        what,
        What::Apply { .. }
            | What::Append { .. }
            | What::Hear { .. }
            | What::StateHash { .. }
            | What::Guard { .. }
            | What::Write { .. }
            | What::Heartbeat { .. }
    )
}
