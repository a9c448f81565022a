//! Asking back before something that cannot be undone. Never without a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Exit;
use crate::failure::Failure;
use regent_operate::escape::shown;

/// Asks a person on the terminal, unless `yes` was said before. A script must say it.
pub(crate) fn confirm(yes: bool, warning: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !is_interactive {
        return Err(Failure::usage(format!("{warning}; if that is meant, add --yes")));
    }
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "{}\ngo on? [y/N] ", shown(warning)).and_then(|()| stderr.flush());
    asked.map_err(|error| Failure::new(Exit::Files, format!("the terminal: {error}")))?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(Exit::Files, format!("the terminal: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::No, "nothing was done")),
    }
}
