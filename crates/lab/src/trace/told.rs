//! What was acted beside what was recorded, for people and for programs.

use serde_json::{Value, json};

use super::{Change, Reenactment, Row};
use crate::blocks::{Block, Side, show_ms};

impl Reenactment {
    /// For people: every change, remarks, and the verdict.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let head = [
            ("line", Side::Right),
            ("", Side::Left),
            ("recorded", Side::Left),
            ("at", Side::Right),
            ("acted", Side::Left),
        ];
        let rows = &self.course.rows;
        let mut text = String::from("\n");
        if self.shortened_ms > 0 {
            let left_out = show_ms(self.shortened_ms);
            text.push_str(&format!("{left_out} in which nobody did anything were left out\n"));
        }
        for remark in &self.remarks {
            text.push_str(&format!("{remark}\n"));
        }
        let course = match (rows.len(), rows.iter().filter(|row| !row.is_same).count()) {
            (0, _) => "nobody ever led".to_owned(),
            (all, 0) => format!("all {all} changes came about as they were recorded"),
            (all, count) => format!("{count} of {all} changes differ"),
        };
        text.push_str(&format!("{course}\n{}", self.trial.verdict));
        vec![Block::table(&head, rows.iter().map(cells).collect()), Block::Text(text)]
    }

    /// For programs: one object for every change, then one for the whole.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let step = |step: &Change| {
            json!({
                "group": step.group.to_string(), "leader": step.leader.as_ref().map(ToString::to_string),
                "term": step.term.get(), "cause": step.cause.word(),
            })
        };
        let compared = self.course.rows.iter().map(|row| {
            json!({
                "ev": "compared", "same": row.is_same,
                "line": row.recorded.as_ref().map(|(line, _)| line),
                "recorded": row.recorded.as_ref().map(|(_, it)| step(it)),
                "t": row.acted.as_ref().map(|(at, _)| at),
                "acted": row.acted.as_ref().map(|(_, it)| step(it)),
            })
        });
        let mut objects: Vec<Value> = compared.collect();
        let broken: Vec<Value> =
            self.trial.violations().iter().map(|violation| violation.to_string().into()).collect();
        objects.push(json!({
            "ev": "reenacted", "same": self.course.is_same(), "broken": broken,
            "remarks": self.remarks, "shortened_ms": self.shortened_ms,
        }));
        objects
    }
}

fn cells(row: &Row) -> Vec<String> {
    let change = |change: &Change| match &change.leader {
        Some(leader) => {
            format!("{}: {leader} leads, term {} ({})", change.group, change.term, change.cause)
        }
        None => {
            format!("{}: nobody leads, last term {} ({})", change.group, change.term, change.cause)
        }
    };
    let dash = || "-".to_owned();
    vec![
        row.recorded.as_ref().map_or_else(dash, |(line, _)| line.to_string()),
        if row.is_same { "" } else { "!" }.to_owned(),
        row.recorded.as_ref().map_or_else(dash, |(_, step)| change(step)),
        row.acted.as_ref().map_or_else(dash, |(at, _)| {
            format!("{}.{:03}s", at / 1_000_000_000, at / 1_000_000 % 1_000)
        }),
        row.acted.as_ref().map_or_else(dash, |(_, step)| change(step)),
    ]
}
