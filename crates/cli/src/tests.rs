//! What the help promises, for every verb.

use clap::Command;

use crate::command;
use crate::config::Key;

fn every(command: &Command, path: String, visit: &mut dyn FnMut(&Command, &str)) {
    visit(command, &path);
    for verb in command.get_subcommands() {
        every(verb, format!("{path} {}", verb.get_name()), visit);
    }
}

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
}

#[test]
fn every_verb_shows_examples_that_can_be_typed() {
    every(&command(), "regent".to_owned(), &mut |verb, path| {
        let help = verb.clone().render_long_help().to_string();
        let examples = help.split("Examples:\n").nth(1);
        let examples = examples.unwrap_or_else(|| panic!("{path} has no examples"));
        let mentions = examples.lines().any(|line| line.contains("regent "));
        assert!(mentions, "{path} has no example of itself");
        let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in after.lines() {
            assert!(line.chars().count() <= 98, "{path} wraps on a usual terminal: {line}");
        }
        assert!(verb.get_about().is_some(), "{path} does not say what it does");
    });
}

#[test]
fn every_example_is_a_command_line_that_parses() {
    let mut seen = 0;
    every(&command(), "regent".to_owned(), &mut |verb, path| {
        let help = verb.clone().render_long_help().to_string();
        let Some(examples) = help.split("Examples:\n").nth(1) else { return };
        for line in examples.lines().filter(|line| line.starts_with("  ")) {
            let Some(words) = words_of(line) else { continue };
            seen += 1;
            if let Err(error) = command().try_get_matches_from(words) {
                panic!("an example of {path} does not parse: {line}\n{error}");
            }
        }
    });
    assert!(seen > 30, "only {seen} examples were found");
}

/// The words of an example that is nothing but our command; others are the shell's business.
fn words_of(line: &str) -> Option<Vec<String>> {
    let line = line.split(" #").next()?.trim();
    let is_plain = line.starts_with("regent ") && !line.contains(['|', '>', '$', '"']);
    is_plain.then(|| {
        let mut words = Vec::new();
        for (place, part) in line.split('\'').enumerate() {
            if place % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    })
}

#[test]
fn every_setting_has_its_flag() {
    let command = command();
    for verb in ["serve", "config show"] {
        let mut at = &command;
        for name in verb.split(' ') {
            at = at.find_subcommand(name).unwrap();
        }
        let flags: Vec<String> = at
            .get_arguments()
            .chain(command.get_arguments())
            .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
            .collect();
        for key in Key::ALL {
            assert!(flags.contains(&key.flag()), "{verb} has no {}", key.flag());
        }
    }
}

#[test]
fn nothing_that_asks_a_server_hides_how_to_reach_it() {
    every(&command(), "regent".to_owned(), &mut |verb, path| {
        let is_local = [
            "serve",
            "dev",
            "peer",
            "lab",
            "config",
            "completions",
            "exit-codes",
            "store",
            "doctor",
            // Two of them, each by its own flag.
            "migrate",
            "fence install",
            "fence test",
            "cluster init",
            "cluster restore",
            "cluster join",
            "cluster recover",
            "fence keys",
            "record",
            "audit",
            "tls",
            "login",
            "logout",
            "context",
        ]
        .iter()
        .any(|name| path.starts_with(&format!("regent {name}")));
        if verb.has_subcommands() || is_local {
            return;
        }
        let flags: Vec<_> = verb.get_arguments().filter_map(|flag| flag.get_long()).collect();
        for flag in ["server", "timeout"] {
            assert!(flags.contains(&flag), "{path} has no --{flag}");
        }
    });
}
