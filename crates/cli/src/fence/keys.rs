//! `regent fence keys`: the keys by which a service signs terms.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use regent_signing::ring::Standing;
use regent_signing::{Algorithm, Entry, KeyError, KeyFile, KeyFileError, Ring, RingError};
use serde::Serialize;

use crate::duration;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Screen, Side, json, table};

const EXAMPLES: &str = "\
All instances of a service share one file of keys, which nobody else may read. A new key is
published an hour before it signs, so that whoever verifies knows it in time.

Examples:
  regent fence keys new /etc/regent/signing.keys
  regent fence keys rotate /etc/regent/signing.keys
  regent fence keys list /etc/regent/signing.keys
  regent fence keys publish /etc/regent/signing.keys";

/// Verbs of `regent fence keys`.
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum KeysVerb {
    /// Make a file with one key that signs at once
    New(NewArgs),
    /// Add a key that will sign instead of the present one
    Rotate(RotateArgs),
    /// Show the keys and what each does, without their secrets
    List(FileArgs),
    /// Let a key sign nothing any more, and be believed a little longer
    Retire(RetireArgs),
    /// Print the public keys, for those who verify
    Publish(FileArgs),
}

/// How terms are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Ed25519, which every JOSE library verifies
    Ed25519,
    /// Ed25519 and ML-DSA-65 together
    Hybrid,
}

impl From<Kind> for Algorithm {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Ed25519 => Self::EdDsa,
            Kind::Hybrid => Self::Hybrid,
        }
    }
}

/// Which file.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent fence keys list /etc/regent/signing.keys
  regent fence keys publish /etc/regent/signing.keys")]
pub(crate) struct FileArgs {
    /// The file of keys
    file: PathBuf,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    output: Output,
}

/// Flags of `regent fence keys new`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent fence keys new /etc/regent/signing.keys")]
pub(crate) struct NewArgs {
    /// The file of keys; there must be none yet
    file: PathBuf,
    /// How terms are signed
    #[arg(long, value_enum, default_value = "ed25519")]
    algorithm: Kind,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    output: Output,
}

/// Flags of `regent fence keys rotate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent fence keys rotate /etc/regent/signing.keys
  regent fence keys rotate /etc/regent/signing.keys --sign-from 10m")]
pub(crate) struct RotateArgs {
    /// The file of keys
    file: PathBuf,
    /// How terms are signed by the new key
    #[arg(long, value_enum, default_value = "ed25519")]
    algorithm: Kind,
    /// In how long the new key signs; until then it is only published
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    sign_from: Duration,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    output: Output,
}

/// Flags of `regent fence keys retire`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent fence keys retire /etc/regent/signing.keys kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k
  regent fence keys retire signing.keys kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k --after 0s")]
pub(crate) struct RetireArgs {
    /// The file of keys
    file: PathBuf,
    /// The key's name
    kid: String,
    /// For how long it is still believed: at least as long as what it signed is good
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    after: Duration,
    /// For people or for programs
    #[arg(short, long, value_enum, default_value_t, env = "REGENT_OUTPUT")]
    output: Output,
}

impl KeysVerb {
    /// For whom a failure is told.
    pub(crate) const fn output(&self) -> Output {
        match self {
            Self::New(args) => args.output,
            Self::Rotate(args) => args.output,
            Self::List(args) | Self::Publish(args) => args.output,
            Self::Retire(args) => args.output,
        }
    }
}

/// One key, as it is shown.
#[derive(Serialize)]
struct Row {
    kid: String,
    algorithm: Algorithm,
    standing: &'static str,
    created_at: u64,
    sign_from: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retire_at: Option<u64>,
}

/// Runs the verb.
pub(crate) fn run(verb: &KeysVerb) -> Outcome {
    let now = wall_seconds()?;
    let (file, output) = match verb {
        KeysVerb::New(args) => {
            let mut ring = Ring::empty();
            ring.add(fresh(args.algorithm.into(), now, now)?, now).map_err(ring_failure)?;
            (KeyFile::create(&args.file, &ring).map_err(file_failure)?, args.output)
        }
        KeysVerb::Rotate(args) => {
            let mut file = KeyFile::open(&args.file).map_err(file_failure)?;
            let mut ring = file.ring().clone();
            let sign_from = now.saturating_add(args.sign_from.as_secs());
            ring.add(fresh(args.algorithm.into(), now, sign_from)?, now).map_err(ring_failure)?;
            file.replace(ring).map_err(file_failure)?;
            (file, args.output)
        }
        KeysVerb::Retire(args) => {
            let mut file = KeyFile::open(&args.file).map_err(file_failure)?;
            let mut ring = file.ring().clone();
            let at = now.saturating_add(args.after.as_secs());
            ring.retire(&args.kid, at, now).map_err(ring_failure)?;
            file.replace(ring).map_err(file_failure)?;
            (file, args.output)
        }
        KeysVerb::List(args) => (KeyFile::open(&args.file).map_err(file_failure)?, args.output),
        KeysVerb::Publish(args) => {
            let file = KeyFile::open(&args.file).map_err(file_failure)?;
            Screen { output: args.output }.line(&json(&file.ring().published(now).to_jwks()))?;
            return Ok(Exit::Done);
        }
    };
    show(&file, output, now)
}

fn show(file: &KeyFile, output: Output, now: u64) -> Outcome {
    let ring = file.ring();
    let rows: Vec<Row> = ring
        .entries()
        .iter()
        .map(|entry| Row {
            kid: entry.kid.clone(),
            algorithm: entry.algorithm,
            standing: match ring.standing(entry, now) {
                Standing::Coming => "coming",
                Standing::Signs => "signs",
                Standing::Believed => "believed",
                Standing::Retired => "retired",
            },
            created_at: entry.created_at,
            sign_from: entry.sign_from,
            retire_at: entry.retire_at,
        })
        .collect();
    Screen { output }.answer(&rows, || {
        let heads = [("KEY", Side::Left), ("ALGORITHM", Side::Left), ("", Side::Left)];
        let lines =
            rows.iter().map(|row| vec![row.kid.clone(), row.algorithm.to_string(), told(row, now)]);
        table(&heads, lines.collect())
    })?;
    Ok(Exit::Done)
}

/// What a key does, in words.
fn told(row: &Row, now: u64) -> String {
    let in_seconds = |at: u64| duration::show(Duration::from_secs(at.saturating_sub(now)));
    match (row.standing, row.retire_at) {
        ("coming", _) => format!("signs in {}", in_seconds(row.sign_from)),
        ("believed", Some(at)) => format!("believed for {}", in_seconds(at)),
        (word, _) => word.to_owned(),
    }
}

/// A key that nobody can guess.
fn fresh(algorithm: Algorithm, now: u64, sign_from: u64) -> Result<Entry, Failure> {
    let mut seed = vec![0; algorithm.seed_bytes()];
    loop {
        getrandom::fill(&mut seed)
            .map_err(|_| Failure::new(Exit::Unavailable, "this machine gives no random numbers"))?;
        let entry = Entry::new(algorithm, &seed, now, sign_from).map_err(|error| match error {
            KeyError::NotBuiltIn(_) | KeyError::Malformed(_) => Failure::usage(error.to_string()),
        })?;
        // One name in 64 begins with a hyphen, which a command line takes for a flag.
        if !entry.kid.starts_with('-') {
            return Ok(entry);
        }
    }
}

fn ring_failure(error: RingError) -> Failure {
    Failure::new(Exit::Refused, error.to_string())
}

fn file_failure(error: KeyFileError) -> Failure {
    let exit = match error {
        KeyFileError::Exists { .. } => Exit::Refused,
        KeyFileError::Io { .. }
        | KeyFileError::Open { .. }
        | KeyFileError::Malformed { .. }
        | KeyFileError::Ring { .. } => Exit::Files,
    };
    Failure::new(exit, error.to_string())
}

/// The wall clock: dates of keys are read on other machines.
fn wall_seconds() -> Result<u64, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).map_err(|_| {
        Failure::new(Exit::Unavailable, "the clock of this machine stands before 1970")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thousand names about sixteen would, if nobody looked.
    #[test]
    fn no_key_has_a_name_that_a_command_line_takes_for_a_flag() {
        for _ in 0..1_000 {
            assert!(!fresh(Algorithm::EdDsa, 0, 0).unwrap().kid.starts_with('-'));
        }
    }
}
