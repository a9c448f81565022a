//! Runs the scripts in `tests/scripts/`: elections that people can read.
//!
//! A script is blocks of commands, a line `----`, and what they bring about. `REWRITE=1` writes what
//! really happens into the files, to be reviewed as a diff.

#[path = "script/stage.rs"]
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Plays a script and returns it with the outcome of every block as it really is.
fn play(text: &str) -> Result<String, String> {
    let mut stage = stage::Stage::new();
    let mut played = String::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            played.push_str(line);
            played.push('\n');
            continue;
        }
        let mut outcome = String::new();
        let mut command = Some((number, line));
        while let Some((number, line)) = command {
            if line == "----" {
                break;
            }
            if line.is_empty() {
                return Err(format!("line {}: a block has no ----", number + 1));
            }
            played.push_str(line);
            played.push('\n');
            if !line.starts_with('#') {
                let said = stage.play(line).map_err(|why| format!("line {}: {why}", number + 1))?;
                outcome.push_str(&said);
            }
            command = lines.next();
        }
        if command.is_none() {
            return Err("the last block has no ----".into());
        }
        played.push_str("----\n");
        played.push_str(&outcome);
        while lines.next_if(|(_, line)| !line.is_empty()).is_some() {}
    }
    Ok(played)
}

#[test]
fn scripts_say_what_happens() {
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut names: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in names.iter().filter(|path| path.extension().is_some_and(|e| e == "script")) {
        count += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(path).unwrap();
        let played = play(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        if played == text {
            continue;
        }
        if rewrite {
            fs::write(path, &played).unwrap();
            continue;
        }
        let line = played.lines().zip(text.lines()).position(|(is, was)| is != was);
        let line = line.unwrap_or(played.lines().count().min(text.lines().count()));
        wrong.push(format!(
            "{name}:{}\n    expected: {}\n    happened: {}",
            line + 1,
            text.lines().nth(line).unwrap_or("(the end)"),
            played.lines().nth(line).unwrap_or("(the end)"),
        ));
    }
    assert!(count >= 10, "only {count} scripts were found");
    assert!(
        wrong.is_empty(),
        "scripts that say something else (REWRITE=1 rewrites them):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_script_with_a_wrong_line_says_where() {
    assert_eq!(play("dance a\n----\n"), Err("line 1: no such command: dance".into()));
    assert!(play("open a ttl=10s\n").unwrap_err().contains("no ----"));
}
