//! What changed in replicas and groups, one line each.

use std::collections::VecDeque;

use regent::remote::{Watched, Watching};

use crate::failure::Failure;
use crate::watch::lines;

/// Changes that are remembered for the screen.
const CHANGES_MAX: usize = 50;

/// Changes of groups, and the last lines that were told.
#[derive(Debug)]
pub(super) struct Changes {
    watch: Watching,
    last: VecDeque<String>,
}

impl Changes {
    pub(super) const fn new(watch: Watching) -> Self {
        Self { watch, last: VecDeque::new() }
    }

    /// Waits for the next thing that a watch tells. Being cut off is no change of a group, and the
    /// replicas' own lines tell it better.
    pub(super) async fn next(&mut self) -> Result<Vec<String>, Failure> {
        match self.watch.next().await? {
            Watched::Event(event) => Ok(lines(&event)),
            Watched::Interrupted { .. } => Ok(Vec::new()),
        }
    }

    /// Keeps lines for the screen.
    pub(super) fn remember(&mut self, lines: Vec<String>) {
        self.last.extend(lines);
        let beyond = self.last.len().saturating_sub(CHANGES_MAX);
        self.last.drain(..beyond);
    }

    /// The last lines, oldest first.
    pub(super) fn last(&self) -> impl Iterator<Item = &str> {
        self.last.iter().map(String::as_str)
    }
}
