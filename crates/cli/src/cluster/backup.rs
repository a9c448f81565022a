//! `regent cluster backup`: everything that must outlive the machines, in one file.

use std::path::PathBuf;

use clap::Args;
use regent_replica::Backup;
use regent_service::write_backup;

use crate::client::ClientArgs;
use crate::exit::Exit;
use crate::failure::{CommandResult, Failure};
use crate::output::{Screen, facts};

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
pub(crate) async fn run(args: BackupArgs) -> CommandResult {
    if args.to.exists() {
        let why = format!("{} is there already; name another file", args.to.display());
        return Err(Failure::new(Exit::Files, why));
    }
    let bytes = args.client.remote()?.backup().await?;
    let backup = Backup::decode(&bytes).map_err(|error| {
        Failure::new(Exit::Uncertain, format!("what the server sent is no good: {error}"))
    })?;
    write_backup(&args.to, &bytes).map_err(|error| Failure::file(&args.to, &error))?;
    let groups = backup.state.census().groups;
    let told = serde_json::json!({
        "file": args.to.display().to_string(),
        "bytes": bytes.len(),
        "cluster_id": format!("{:032x}", backup.cluster),
        "index": backup.index,
        "groups": groups,
    });
    Screen::chosen().answer(&told, || {
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
