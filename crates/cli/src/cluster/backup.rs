//! `regent cluster backup`: everything that must outlive the machines, in one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use regent_replica::Backup;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::facts;

/// Flags of `regent cluster backup`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  regent cluster backup --to regent.backup
  regent cluster backup --to /srv/backups/monday --server http://10.0.0.2:7400

Groups, policies, terms and settings as of everything acknowledged before, with checksums.
Sessions are not in it, so it carries nobody's secret. `regent cluster restore` makes a cluster
of it.")]
pub(crate) struct BackupArgs {
    /// The file to write; it must not be there yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Fetches a backup, checks it, and writes it: the whole file, or none.
pub(crate) async fn run(args: BackupArgs) -> Outcome {
    if args.to.exists() {
        let why = format!("{} is there already; name another file", args.to.display());
        return Err(Failure::new(Exit::Files, why));
    }
    let bytes = args.client.remote()?.backup().await?;
    let backup = Backup::decode(&bytes).map_err(|error| {
        Failure::new(Exit::Uncertain, format!("what the server sent is no good: {error}"))
    })?;
    write(&args.to, &bytes).map_err(|error| Failure::file(&args.to, &error))?;
    let groups = backup.state.census().groups;
    let told = serde_json::json!({
        "file": args.to.display().to_string(),
        "bytes": bytes.len(),
        "cluster_id": format!("{:032x}", backup.cluster),
        "index": backup.index,
        "groups": groups,
    });
    args.client.screen().answer(&told, || {
        facts(vec![
            ("file", args.to.display().to_string()),
            ("bytes", bytes.len().to_string()),
            ("cluster", format!("{:032x}", backup.cluster)),
            ("index", backup.index.to_string()),
            ("groups", groups.to_string()),
        ])
    })?;
    Ok(Exit::Done)
}

/// Written beside its name, synced, and named: a power cut leaves all of it or nothing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // A link and not a rename: whatever came to that name meanwhile stays.
        fs::hard_link(&beside, path)
    })();
    let _ = fs::remove_file(&beside);
    written?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_written_whole_and_never_over_another_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("b");
        write(&path, b"one").unwrap();
        assert_eq!(write(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
