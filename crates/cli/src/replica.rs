//! A replica in a data directory: found or open it, listen to its peers, run it.
//!
//! An empty directory becomes a cluster of one, and nothing else ever does: a replica of a larger
//! cluster that lost its disk has forgotten for whom it voted, and voting again it could elect a
//! second leader of the log. It comes back by `regent cluster init --join`, under another number.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use regent_election::store::StoreError;
use regent_election::{Command, Settings as StoreSettings};
use regent_replica::core::Recovered;
use regent_replica::disk::error::OpenError;
use regent_replica::disk::{Disk, Founding, Identity, Opened, RealFiles};
use regent_replica::replicated::{Payload, payload};
use regent_replica::{Member, Members, Node, NodeConfig, ReplicaId, ReplicaStore, Tape};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::config::{ReplicaSettings, Settings};
use crate::exit::Exit;
use crate::failure::{Failure, plain};
use crate::flight::{self, Recorder, Whose};

/// How long a cluster of one may take until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs the replica in `directory`, which clients reach at `client`.
pub(crate) async fn run(
    directory: &Path,
    settings: &Settings,
    client: SocketAddr,
) -> Result<Arc<ReplicaStore>, Failure> {
    let opened = open(directory, settings, client)?;
    let Settled { members, settings: held, is_held } = settled(&opened.recovered)?;
    let id = opened.identity.replica;
    let is_alone = members.len() == 1 && members.contains_key(&id);
    let listener = listen(&settings.replica, is_alone).await?;
    tell_addresses(&members, id, &listener);
    let config = NodeConfig {
        tape: tape(directory, settings.replica.flight_bytes, opened.identity),
        timing: settings.replica.timing,
        snapshot_every: settings.replica.snapshot_every,
        is_witness: settings.replica.is_witness,
        tune: settings.replica.tune,
        ..NodeConfig::default()
    };
    let node = Node::start(opened, listener, &config)
        .map_err(|error| Failure::new(Exit::Files, error.to_string()))?;
    let place = directory.display().to_string();
    let store = Arc::new(ReplicaStore::new(node.handle().clone(), node.hub().clone(), place));
    if is_alone {
        serve_alone(&store).await?;
        put_settings(&store, settings, &held, is_held).await?;
    } else if held != settings.store_settings && !members.is_empty() {
        tracing::warn!(
            "auto_create, groups_max, ttl_min and ttl_max are those the cluster was founded with; what is set here does not count"
        );
    }
    Ok(store)
}

/// Starts the flight recorder, if one is wanted. A replica without one serves all the same.
fn tape(directory: &Path, bytes_max: u64, identity: Identity) -> Option<Arc<dyn Tape>> {
    if bytes_max == 0 {
        return None;
    }
    let whose = Whose { cluster: identity.cluster, replica: identity.replica.get() };
    match Recorder::start(&directory.join(flight::DIRECTORY), bytes_max, whose) {
        Ok(recorder) => Some(Arc::new(recorder)),
        Err(error) => {
            tracing::warn!(%error, "the flight recorder cannot start; nothing is recorded");
            None
        }
    }
}

/// Opens the replica in a directory, or founds a cluster of one in an empty one.
fn open(directory: &Path, settings: &Settings, client: SocketAddr) -> Result<Opened, Failure> {
    refuse_strangers(directory)?;
    let files = Arc::new(files(directory)?);
    match Disk::open(files.clone(), settings.replica.disk) {
        Err(OpenError::Empty { .. } | OpenError::HalfFounded { .. }) => {
            if let Some(origin) = &settings.replica.has_peers {
                return Err(Failure::new(
                    Exit::Config,
                    format!(
                        "{} is empty, and {origin} says that this replica has peers: prepare it with `regent cluster init`; if its disk was lost, it must not vote again: remove it from the cluster and let it join under another number (`regent cluster init --join`)",
                        directory.display()
                    ),
                ));
            }
            let replica = ReplicaId::new(1).expect("one is not zero");
            let identity = Identity { cluster: random()?, replica, incarnation: random()? as u64 };
            let members = alone(replica, &settings.replica, client);
            let founding = Founding::cluster(settings.store_settings.clone(), members);
            let opened = Disk::found(files, settings.replica.disk, identity, &founding);
            tracing::info!(directory = %directory.display(), "a cluster of one was founded");
            opened.map_err(|error| refused(&error))
        }
        opened => opened.map_err(|error| refused(&error)),
    }
}

/// The only member of a cluster of one.
fn alone(replica: ReplicaId, settings: &ReplicaSettings, client: SocketAddr) -> Members {
    let told = |said: &Option<String>, address: SocketAddr| {
        said.clone().unwrap_or_else(|| address.to_string())
    };
    let member = Member {
        peer_address: told(&settings.peer_advertise, settings.peer_listen),
        client_address: told(&settings.client_advertise, client),
        is_witness: false,
    };
    Members::from([(replica, member)])
}

/// The directory, made if it is not there.
pub(crate) fn files(directory: &Path) -> Result<RealFiles, Failure> {
    RealFiles::new(directory).map_err(|error| no_directory("use", directory, &error))
}

fn no_directory(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Config,
        format!(
            "cannot {what} {}: {}; make it writable, or choose another with --data-dir",
            path.display(),
            plain(error)
        ),
    )
}

/// Refuses a directory with files that no replica wrote: a replica founded beside another store's
/// files would begin all its terms anew.
pub(crate) fn refuse_strangers(directory: &Path) -> Result<(), Failure> {
    let mut strangers = names(directory)?;
    strangers.retain(|name| !is_of_replica(name));
    if strangers.iter().any(|name| is_of_local(name)) {
        return Err(Failure::new(
            Exit::Config,
            format!(
                "{} holds the data of store local:; serve it with --store local:{}, or choose another with --data-dir",
                directory.display(),
                directory.display()
            ),
        ));
    }
    match strangers.first() {
        None => Ok(()),
        Some(name) => Err(Failure::new(
            Exit::Config,
            format!(
                "{} holds {name:?}, which is no file of a replica; choose a directory of its own with --data-dir",
                directory.display()
            ),
        )),
    }
}

/// The other way round: the store of one process must not begin beside a replica.
pub(crate) fn refuse_replica(directory: &Path) -> Result<(), Failure> {
    if names(directory)?.iter().any(|name| name != "lock" && is_of_replica(name)) {
        return Err(Failure::new(
            Exit::Config,
            format!(
                "{} holds a replica; serve it with --store replica:{}, or choose another directory",
                directory.display(),
                directory.display()
            ),
        ));
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let refuse = |error: &io::Error| no_directory("read", directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| refuse(&error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| refuse(&error))?;
        if entry.file_type().map_err(|error| refuse(&error))?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_of_replica(name: &str) -> bool {
    let whole = ["lock", "acked", "founding", "peers"];
    let numbered = ["wal-", "spare-", "snapshot-"];
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    whole.contains(&name) || numbered.iter().any(|prefix| name.starts_with(prefix))
}

fn is_of_local(name: &str) -> bool {
    (name.starts_with("journal-") && name.ends_with(".log"))
        || (name.starts_with("state-") && name.ends_with(".snap"))
}

/// Why a directory is not used, with the way out.
pub(crate) fn refused(error: &OpenError) -> Failure {
    match error {
        OpenError::Io { what, path, source } => no_directory(what, path, source),
        OpenError::InUse { path } => Failure::new(
            Exit::Unavailable,
            format!(
                "{} is in use by another process; stop that one, or choose another with --data-dir",
                path.parent().unwrap_or(path).display()
            ),
        ),
        OpenError::Founded { .. } | OpenError::Empty { .. } | OpenError::HalfFounded { .. } => {
            Failure::new(Exit::Config, error.to_string())
        }
        OpenError::Stranger { .. }
        | OpenError::Newer { .. }
        | OpenError::Damaged { .. }
        | OpenError::Options(_)
        | OpenError::Write(_) => Failure::new(Exit::Files, error.to_string()),
    }
}

/// What holds once everything on the disk is applied.
struct Settled {
    members: Members,
    settings: StoreSettings,
    /// Whether leases of an earlier life may still run.
    is_held: bool,
}

fn settled(recovered: &Recovered) -> Result<Settled, Failure> {
    let mut is_held = recovered.whole.is_held;
    let mut members = recovered.whole.members.clone();
    let mut settings = recovered.whole.state.settings().clone();
    for entry in &recovered.entries {
        let payload = payload(entry).map_err(|error| {
            Failure::new(Exit::Files, format!("entry {} makes no sense: {error}", entry.index))
        })?;
        match payload {
            Payload::Members(change) => {
                // Only who is there matters here.
                let mut whole = regent_replica::Replicated::found(settings.clone(), members);
                whole.change_members(&change);
                members = whole.members;
            }
            Payload::Proposal(_, entry) => {
                if let Command::PutSettings { settings: put } = entry.command {
                    settings = *put;
                }
            }
            Payload::Release => is_held = false,
            Payload::Empty => {}
        }
    }
    Ok(Settled { members, settings, is_held })
}

/// Listens to peers. Nobody dials a cluster of one, so it may do so anywhere.
async fn listen(settings: &ReplicaSettings, is_alone: bool) -> Result<TcpListener, Failure> {
    let wanted = settings.peer_listen;
    let refuse = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::Unavailable,
            format!(
                "{wanted} is in use; stop what listens there, or choose another with --peer-listen"
            ),
        ),
        _ => Failure::new(
            Exit::Config,
            format!("{wanted}: {}; choose another with --peer-listen", plain(&error)),
        ),
    };
    match TcpListener::bind(wanted).await {
        Err(error) if is_alone && error.kind() == io::ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(refuse)?;
            if let Ok(address) = listener.local_addr() {
                tracing::warn!(%wanted, %address, "peer_listen is in use; this cluster of one listens elsewhere until it has peers");
            }
            Ok(listener)
        }
        bound => bound.map_err(refuse),
    }
}

/// Says so if the others look for this replica where it does not listen.
fn tell_addresses(members: &Members, id: ReplicaId, listener: &TcpListener) {
    let (Some(member), Ok(address)) = (members.get(&id), listener.local_addr()) else { return };
    let port = member.peer_address.rsplit_once(':').map(|(_, port)| port);
    if members.len() > 1 && port != Some(address.port().to_string().as_str()) {
        tracing::warn!(
            listens = %address, others_dial = %member.peer_address,
            "the other replicas dial another port; that is right only if something forwards it (--peer-listen)"
        );
    }
}

/// Waits until a cluster of one serves.
async fn serve_alone(store: &ReplicaStore) -> Result<(), Failure> {
    let serving = async {
        while !store.handle().status().is_serving {
            sleep(LOOK_EVERY).await;
        }
    };
    if timeout(SERVES_WITHIN, serving).await.is_err() {
        let why = format!("the replica does not serve after {} s", SERVES_WITHIN.as_secs());
        return Err(Failure::new(Exit::Unavailable, why));
    }
    Ok(())
}

/// Makes the settings of this server hold in a cluster of one.
async fn put_settings(
    store: &ReplicaStore,
    settings: &Settings,
    held: &StoreSettings,
    is_held: bool,
) -> Result<(), Failure> {
    if *held == settings.store_settings {
        return Ok(());
    }
    if is_held {
        // The longest ttl of the earlier life says how long its leases may run: it must not fall yet.
        tracing::warn!(
            "auto_create, groups_max, ttl_min and ttl_max are those of the backup until the leases of the earlier life are over; what is set here counts from the next start after that"
        );
        return Ok(());
    }
    store.put_settings(settings.store_settings.clone()).await.map_err(|error| match error {
        StoreError::Refused(refusal) => Failure::new(Exit::Config, refusal.to_string()),
        other => Failure::new(Exit::Unavailable, other.to_string()),
    })
}

/// Chance, for names that must not be drawn twice.
pub(crate) fn random() -> Result<u128, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(Exit::Unavailable, format!("this machine gives no random numbers: {error}"))
    })?;
    Ok(u128::from_le_bytes(bytes))
}
