//! The live view: one frame of text, drawn over the one before.
//!
//! A frame is made whole and cut to the size of the terminal, so that nothing wraps and nothing
//! scrolls. It is drawn on the terminal's other screen; what was there before is back at the end.

use std::io::{self, Write};

use regent_operate::cluster_view::ClusterPicture;
use regent_service::dev::{DevCluster, Processes};

use crate::duration::show_ms;
use crate::failure::Failure;
use crate::output::{Side, or_dash, table};
use regent_operate::escape::shown;
use regent_operate::watch_lines::Changes;

/// A terminal that shows frames until this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {}

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The first screen, with one.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

impl Terminal {
    pub(super) fn enter() -> Result<Self, Failure> {
        write(ENTER)?;
        Ok(Self {})
    }

    /// Draws a frame over the last one.
    pub(super) fn draw(&self, frame: &str) -> Result<(), Failure> {
        let (columns, rows) = size();
        // Each line clears what is left of the one below it; the last clears the rest.
        let lines: Vec<String> = cut(&shown(frame), columns, rows)
            .into_iter()
            .map(|line| format!("{line}\x1b[K"))
            .collect();
        write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::stdout(&error))
}

/// Columns and rows of the terminal, or what terminals usually have.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        Ok(_) | Err(_) => (80, 24),
    }
}

fn cut(frame: &str, columns: usize, rows: usize) -> Vec<String> {
    frame.lines().take(rows).map(|line| line.chars().take(columns).collect()).collect()
}

/// Everything that is shown, uncut. The newest change comes first: what is cut is the oldest.
pub(super) fn frame(
    site: &DevCluster,
    processes: &Processes,
    picture: &ClusterPicture,
    changes: &Changes,
) -> String {
    let lead = match picture.leader() {
        Some((leader, raft_term)) => {
            format!("replica {leader} leads the log, Raft term {raft_term}")
        }
        None => "no replica leads the log".to_owned(),
    };
    let mut text =
        format!("{}; {lead}\n{}\nexport {}\n\n", picture.health(), site.place(), site.exports());
    text.push_str(&replicas(site, processes, picture));
    text.push_str("\n\n");
    text.push_str(&groups(picture));
    text.push_str("\n\nLAST CHANGES\n");
    let last: Vec<&str> = changes.last().collect();
    for line in last.iter().rev() {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn replicas(site: &DevCluster, processes: &Processes, picture: &ClusterPicture) -> String {
    let rows = site.seats.iter().map(|seat| {
        let said = picture.replica(seat.id.get());
        let role = match (said, processes.again_in(seat.id)) {
            (_, Some(again_in)) => format!("ended, again in {} s", again_in.as_secs()),
            (Some(said), None) if said.removed => "removed".to_owned(),
            (Some(said), None) => said.role.word().to_owned(),
            (None, None) => "does not answer".to_owned(),
        };
        let kind = if seat.is_witness { "witness" } else { "voter" };
        vec![
            seat.id.to_string(),
            kind.to_owned(),
            role,
            or_dash(said.map(|said| said.raft_term)),
            or_dash(said.map(|said| said.last_index)),
            or_dash(said.map(|said| said.applied_index)),
            or_dash(processes.pid(seat.id)),
            seat.url(),
        ]
    });
    let head = [
        ("replica", Side::Right),
        ("kind", Side::Left),
        ("role", Side::Left),
        ("raft term", Side::Right),
        ("log", Side::Right),
        ("applied", Side::Right),
        ("process", Side::Right),
        ("clients", Side::Left),
    ];
    table(&head, rows.collect())
}

fn groups(picture: &ClusterPicture) -> String {
    let Some(groups) = &picture.groups else {
        return "groups unknown: no replica that answers can say".to_owned();
    };
    if groups.is_empty() {
        return "no groups yet: regent campaign billing --node a --keep".to_owned();
    }
    let rows = groups.iter().map(|office| {
        vec![
            office.group.to_string(),
            or_dash(office.leader.as_ref()),
            office.term.to_string(),
            office.state.word().to_owned(),
            or_dash(office.valid_for_ms.map(|ms| show_ms(ms / 100 * 100))),
        ]
    });
    let head = [
        ("group", Side::Left),
        ("leader", Side::Left),
        ("term", Side::Right),
        ("state", Side::Left),
        ("valid for", Side::Left),
    ];
    let mut text = table(&head, rows.collect());
    if picture.has_more {
        text.push_str("\n… and more: see `regent group list`");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_cut_to_the_terminal_by_characters_and_lines() {
        assert_eq!(cut("häuser\nzwei\ndrei", 3, 2), ["häu", "zwe"]);
        assert_eq!(cut("a", 80, 24), ["a"]);
    }
}
