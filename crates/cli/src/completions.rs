//! `regent completions`: what a shell needs to complete our words.

use clap::Args;
use clap_complete::Shell;

use crate::command;
use crate::exit::Exit;
use crate::failure::CommandResult;
use crate::output::{Output, Screen};

const EXAMPLES: &str = "\
Examples:
  regent completions bash > ~/.local/share/bash-completion/completions/regent
  regent completions zsh > \"${fpath[1]}/_regent\"
  regent completions fish > ~/.config/fish/completions/regent.fish";

/// Flags of `regent completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "regent", &mut script);
    let screen = Screen { output: Output::Text };
    screen.line(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
