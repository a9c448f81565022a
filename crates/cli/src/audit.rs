//! `regent audit`: who changed what and who was denied, from a server's files. No server is asked.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use regent_audit::{Filter, Head, ReadError, Report};

use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Output, Screen, facts, remark};
use crate::wall;
use regent_operate::escape::on_one_line;

/// Lines written at once.
const PAGE_LINES: usize = 1_000;

const EXAMPLES: &str = "\
Examples:
  regent audit show --dir /var/lib/regent --group billing
  regent audit verify --dir /var/lib/regent --keys keys.json";

/// The verbs.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum AuditVerb {
    /// Print the lines, oldest first
    Show(ShowArgs),
    /// Prove that nothing was changed and nothing is missing
    Verify(VerifyArgs),
}

/// Flags of `regent audit show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent audit show --dir /var/lib/regent
  regent audit show --dir ./data --group billing --who user:alice
  regent audit show --dir ./data --denied --since 2026-11-18T00:00:00Z --output json

A log is one server's: look at those of all replicas. The fields are in docs/formats.md.")]
pub(crate) struct ShowArgs {
    /// The data directory of a server, or its audit directory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Only what concerns this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only what this principal did or was denied
    #[arg(long, value_name = "PRINCIPAL")]
    who: Option<String>,
    /// Only denials
    #[arg(long)]
    denied: bool,
    /// Only what was written at this time or later, by the server's wall clock
    #[arg(long, value_name = "TIME", value_parser = wall::parse_ms)]
    since: Option<u64>,
}

/// Flags of `regent audit verify`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent audit verify --dir /var/lib/regent --keys keys.json
  regent audit verify --dir ./data --output json

keys.json is what `regent fence keys publish` writes, or what a server answers to
GET /.well-known/regent-keys. Without --keys only the hash chain is checked: whoever can write
the files can make it anew. What stands behind the last signed checkpoint can be cut off
unnoticed. Keep the head that this prints, elsewhere, and give it with --head the next time:
then that is found, too.")]
pub(crate) struct VerifyArgs {
    /// The data directory of a server, or its audit directory
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The file of public keys that sign checkpoints
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The last line as it was printed before: the log must contain it
    #[arg(long, value_name = "NUMBER:SHA256")]
    head: Option<Head>,
}

/// Runs a verb.
pub(crate) fn run(verb: &AuditVerb) -> CommandResult {
    match verb {
        AuditVerb::Show(args) => show(args),
        AuditVerb::Verify(args) => verify(args),
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::new(Exit::Files, error.to_string())
    }
}

fn show(args: &ShowArgs) -> CommandResult {
    let screen = Screen::chosen();
    let ShowArgs { dir, group, who, denied: is_denied, since: since_ms } = args.clone();
    let wanted = Filter { group, who, is_denied, since_ms };
    let mut page = Vec::new();
    let unread = regent_audit::lines(&dir, |line, text| {
        if wanted.takes(line) {
            page.push(match screen.output {
                Output::Json => text.to_owned(),
                // Every value stays on its line: the text was written by others.
                Output::Text => on_one_line(&line.sentence()).into_owned(),
            });
        }
        if page.len() == PAGE_LINES {
            screen.line(&page.join("\n"))?;
            page.clear();
        }
        Ok::<_, Failure>(())
    })?;
    if !page.is_empty() {
        screen.line(&page.join("\n"))?;
    }
    if unread > 0 {
        remark(&format!(
            "{unread} lines are no lines of an audit log and are left out; see `regent audit verify`"
        ));
        return Ok(Exit::Files);
    }
    Ok(Exit::Done)
}

fn verify(args: &VerifyArgs) -> CommandResult {
    let keys = args.keys.as_deref().map(regent_audit::keys).transpose()?;
    let report = regent_audit::verify(&args.dir, keys.as_ref(), args.head.clone())?;
    Screen::chosen().answer(&report.object(), || paragraph(&report))?;
    Ok(if report.is_intact() { Exit::Done } else { Exit::Tampered })
}

/// A report for people.
fn paragraph(report: &Report) -> String {
    let mut text = facts(report.facts());
    for line in report.findings() {
        text.push('\n');
        text.push_str(&line);
    }
    text
}
