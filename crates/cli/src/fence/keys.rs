//! `regent fence keys`: the keys by which a service signs terms.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use regent_signing::rotation::{self, RotationError, list};
use regent_signing::{KeyFile, KeyFileError, SigningAlgorithm};

use crate::duration;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, Side, json, table};
use crate::wall::wall_seconds;

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

impl From<Kind> for SigningAlgorithm {
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
}

/// Runs the verb.
pub(crate) fn run(verb: &KeysVerb) -> CommandResult {
    let now = wall_seconds()?;
    let file = match verb {
        KeysVerb::New(args) => rotation::create(&args.file, args.algorithm.into(), now),
        KeysVerb::Rotate(args) => {
            let sign_from = now.saturating_add(args.sign_from.as_secs());
            rotation::rotate(&args.file, args.algorithm.into(), now, sign_from)
        }
        KeysVerb::Retire(args) => {
            let at = now.saturating_add(args.after.as_secs());
            rotation::retire(&args.file, &args.kid, now, at)
        }
        KeysVerb::List(args) => KeyFile::open(&args.file).map_err(RotationError::from),
        KeysVerb::Publish(args) => {
            let file = KeyFile::open(&args.file).map_err(|error| failure(error.into()))?;
            Screen::chosen().line(&json(&file.ring().published(now).to_jwks()))?;
            return Ok(Exit::Done);
        }
    };
    let keys = list(file.map_err(failure)?.ring(), now);
    Screen::chosen().answer(&keys, || {
        let heads = [("KEY", Side::Left), ("ALGORITHM", Side::Left), ("", Side::Left)];
        let show = |left_s| duration::show(Duration::from_secs(left_s));
        let lines = keys
            .iter()
            .map(|key| vec![key.kid.clone(), key.algorithm.to_string(), key.told(now, show)]);
        table(&heads, lines.collect())
    })?;
    Ok(Exit::Done)
}

fn failure(error: RotationError) -> Failure {
    let exit = match &error {
        RotationError::NoRandomness => Exit::Unavailable,
        RotationError::Key(_) => Exit::Usage,
        RotationError::Ring(_) | RotationError::File(KeyFileError::Exists { .. }) => Exit::Refused,
        RotationError::File(
            KeyFileError::Io { .. }
            | KeyFileError::File(_)
            | KeyFileError::Malformed { .. }
            | KeyFileError::Ring { .. },
        ) => Exit::Files,
    };
    Failure::new(exit, error.to_string())
}
