//! What changed, one line each: of the replicas from one picture to the next, of the groups as a
//! watch tells it.

use std::collections::VecDeque;

use regent::remote::{Watched, Watching};

use super::look::Picture;
use crate::failure::Failure;
use crate::watch::lines;

/// Changes that are remembered for the screen.
const CHANGES_MAX: usize = 50;

/// What is different in the later picture, as far as replicas are concerned.
pub(super) fn between(before: &Picture, after: &Picture) -> Vec<String> {
    let mut told = Vec::new();
    for (id, said) in &after.replicas {
        let was_there = before.replicas.iter().any(|(other, said)| other == id && said.is_some());
        match (was_there, said.is_some()) {
            (true, false) => told.push(format!("replica {id} does not answer")),
            (false, true) => told.push(format!("replica {id} answers")),
            (true, true) | (false, false) => {}
        }
    }
    if let Some((leader, raft_term)) = after.leader()
        && before.leader() != Some((leader, raft_term))
    {
        told.push(format!("replica {leader} leads the log, Raft term {raft_term}"));
    }
    told
}

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

#[cfg(test)]
mod tests {
    use regent_replica::ReplicaId;

    use super::super::look::tests::said;
    use super::*;

    #[test]
    fn who_falls_silent_and_who_leads_instead_is_told_once() {
        let id = |number| ReplicaId::new(number).unwrap();
        let before = Picture {
            replicas: vec![(id(1), Some(said(1, 2, Some(1)))), (id(2), Some(said(2, 2, Some(1))))],
            ..Picture::default()
        };
        let after = Picture {
            replicas: vec![(id(1), None), (id(2), Some(said(2, 3, Some(2))))],
            ..Picture::default()
        };
        let told = between(&before, &after);
        assert_eq!(told, ["replica 1 does not answer", "replica 2 leads the log, Raft term 3"]);
        assert!(between(&after, &after).is_empty());
    }
}
