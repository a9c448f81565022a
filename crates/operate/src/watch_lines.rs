//! What a watch tells, in lines for people.

use std::collections::VecDeque;

use regent::remote::{RemoteError, Watched, Watching};
use regent_api::{LeaderChanged, Office, Present, WatchEvent};
use regent_election::{Group, Node, Term};
use serde::Serialize;

/// Changes that are remembered for a screen.
const CHANGES_MAX: usize = 50;

/// Changes of groups, and the last lines that were told.
#[derive(Debug)]
pub struct Changes {
    watch: Watching,
    last: VecDeque<String>,
}

impl Changes {
    /// Those of a watch, from here on.
    #[must_use]
    pub const fn new(watch: Watching) -> Self {
        Self { watch, last: VecDeque::new() }
    }

    /// Waits for the next thing that a watch tells. Being cut off is no change of a group, and the
    /// replicas' own lines tell it better.
    ///
    /// # Errors
    /// If the watch can never go on.
    pub async fn next(&mut self) -> Result<Vec<String>, RemoteError> {
        match self.watch.next().await? {
            Watched::Event(event) => Ok(lines(&event)),
            Watched::Interrupted { .. } => Ok(Vec::new()),
        }
    }

    /// Keeps lines for the screen.
    pub fn remember(&mut self, lines: Vec<String>) {
        self.last.extend(lines);
        let beyond = self.last.len().saturating_sub(CHANGES_MAX);
        self.last.drain(..beyond);
    }

    /// The last lines, oldest first.
    pub fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}

/// An event for programs, with when it was received. That is by the clock of this machine: the event itself carries no
/// time, since nothing may be decided by one.
#[derive(Debug, Serialize)]
pub struct Received<'a> {
    #[serde(flatten)]
    event: &'a WatchEvent,
    received_at: String,
}

impl<'a> Received<'a> {
    /// This event, received at this time.
    #[must_use]
    pub const fn new(event: &'a WatchEvent, received_at: String) -> Self {
        Self { event, received_at }
    }
}

/// An event for people. A sign of life is nothing to tell.
#[must_use]
pub fn lines(event: &WatchEvent) -> Vec<String> {
    match event {
        WatchEvent::State(present) => state(present),
        WatchEvent::LeaderChanged(changed) => vec![change(changed)],
        WatchEvent::Gap(gap) => {
            let gap_line = format!("gap: changes before {} are forgotten; this holds:", gap.oldest);
            std::iter::once(gap_line).chain(state(&gap.present)).collect()
        }
        WatchEvent::Bookmark(_) | WatchEvent::Stale(_) | WatchEvent::Closing(_) => Vec::new(),
    }
}

fn change(changed: &LeaderChanged) -> String {
    let leads = leads(&changed.group, changed.leader.as_ref(), changed.term);
    format!("{leads} ({})", changed.cause)
}

fn state(present: &Present) -> Vec<String> {
    let of = |office: &Office| {
        let leads = leads(&office.group, office.leader.as_ref(), office.term);
        format!("{leads} (present state: {})", office.state.word())
    };
    let more = present
        .next
        .as_ref()
        .map(|next| format!("… and more groups after {next}: see `regent group list`"));
    present.offices.iter().map(of).chain(more).collect()
}

fn leads(group: &Group, leader: Option<&Node>, term: Term) -> String {
    match leader {
        Some(leader) => format!("{group}: {leader} leads, term {term}"),
        None => format!("{group}: nobody leads, last term {term}"),
    }
}
