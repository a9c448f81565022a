//! A replica in a data directory: found or open it, listen to its peers, run it.
//!
//! An empty directory becomes a cluster of one, and nothing else ever does: a replica of a larger
//! cluster that lost its disk has forgotten for whom it voted, and voting again it could elect a
//! second leader of the log. It joins again under another number ([`prepare_to_join`](crate::prepare_to_join)).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use regent_election::limits::STATE_BYTES_MAX_DEFAULT;
use regent_election::store::StoreError;
use regent_election::{Command, Settings as StoreSettings, StateBudget};
use regent_replica::core::Recovered;
use regent_replica::disk::error::DataDirError;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened};
use regent_replica::limits::LOG_ENTRIES_BETWEEN_SNAPSHOTS;
use regent_replica::peers::PeerListener;
use regent_replica::replicated::{Payload, payload};
use regent_replica::{
    Member, Members, Node, NodeConfig, ReplicaId, ReplicaStore, Tape, Timing, Tune,
};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::directory::{files, refuse_strangers};
use crate::error::ReplicaError;
use crate::random::random;
use crate::secure::{self, PeerCertificates};

/// How long a cluster of one may take until it serves.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const SETTLED_POLL_EVERY: Duration = Duration::from_millis(5);

/// What holds for one replica of a cluster, wherever its data are.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Where it listens to its peers.
    pub peer_listen: SocketAddr,
    /// Where peers reach it, if that is not where it listens. Counts when a cluster of one is founded.
    pub peer_advertise: Option<String>,
    /// Where clients reach it, if that is not where it listens. Counts when a cluster of one is founded.
    pub client_advertise: Option<String>,
    pub timing: Timing,
    /// What is done about timers that do not suit the network.
    pub tune: Tune,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// How it uses its directory.
    pub disk: DiskOptions,
    /// Whether a replica that joins is a witness.
    pub is_witness: bool,
    /// Which setting says that it has peers, if one does. Such a replica never founds a cluster of one.
    pub has_peers: Option<String>,
    /// By what it and its peers prove to each other who they are. Without, links are plaintext.
    pub certificates: Option<PeerCertificates>,
    /// Whether plaintext links may leave this machine.
    pub is_insecure: bool,
    /// The most that the state may weigh, and a principal's part of it, before growth is refused.
    pub state_budget: StateBudget,
}

impl Default for ReplicaSettings {
    /// A replica without peers, that listens on a free port of the loopback address.
    fn default() -> Self {
        Self {
            peer_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            peer_advertise: None,
            client_advertise: None,
            timing: Timing::LAN,
            tune: Tune::default(),
            snapshot_every: LOG_ENTRIES_BETWEEN_SNAPSHOTS,
            disk: DiskOptions::default(),
            is_witness: false,
            has_peers: None,
            certificates: None,
            is_insecure: false,
            state_budget: StateBudget::whole(STATE_BYTES_MAX_DEFAULT),
        }
    }
}

/// Starts the recorder of what a replica applies; none if it cannot start.
pub type StartTape = Box<dyn FnOnce(&Path, Identity) -> Option<Arc<dyn Tape>> + Send>;

/// A replica to be run.
pub struct ReplicaOptions {
    /// Where its data are. An empty directory becomes a cluster of one.
    pub directory: PathBuf,
    /// Where the service listens to clients.
    pub listen: SocketAddr,
    /// What holds for this replica.
    pub replica: ReplicaSettings,
    /// What holds for the whole store, if it is a cluster of one.
    pub store: StoreSettings,
    /// A socket that listens to peers already, in place of `peer_listen`.
    pub peer_socket: Option<StdListener>,
    /// Records what the replica applies.
    pub tape: Option<StartTape>,
    /// Says that certificates are to be read again now, and not only when it is time to look.
    pub reload: Arc<Notify>,
}

impl ReplicaOptions {
    /// The replica in this directory, whose clients ask at this address, with default settings.
    pub fn new(directory: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            directory: directory.into(),
            listen,
            replica: ReplicaSettings::default(),
            store: StoreSettings::default(),
            peer_socket: None,
            tape: None,
            reload: Arc::default(),
        }
    }
}

impl fmt::Debug for ReplicaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOptions")
            .field("directory", &self.directory)
            .field("listen", &self.listen)
            .field("replica", &self.replica)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Opens the replica or founds a cluster of one, and runs it. A cluster of one serves when this returns.
pub(crate) async fn run(options: ReplicaOptions) -> Result<Arc<ReplicaStore>, ReplicaError> {
    let opened = open(&options)?;
    let ReplicaOptions { directory, replica, store: wanted, peer_socket, tape, reload, .. } =
        options;
    let Settled { members, settings: held, grants_paused } = settled(&opened.recovered)?;
    let id = opened.identity.replica;
    let is_alone = members.len() == 1 && members.contains_key(&id);
    let bound = peer_socket.as_ref().and_then(|socket| socket.local_addr().ok());
    let address = bound.unwrap_or(replica.peer_listen);
    let transport = secure::transport(&replica, opened.identity, address, &members, reload)?;
    let listener = match peer_socket {
        Some(socket) => adopt(socket)?,
        None => listen(replica.peer_listen, is_alone).await?,
    };
    tell_addresses(&members, id, &listener);
    let config = NodeConfig {
        tape: tape.and_then(|start| start(&directory, opened.identity)),
        timing: replica.timing,
        snapshot_every: replica.snapshot_every,
        is_witness: replica.is_witness,
        tune: replica.tune,
        state_budget: replica.state_budget,
        transport,
        ..NodeConfig::default()
    };
    let node = Node::start(opened, listener, &config)?;
    let place = directory.display().to_string();
    let store = Arc::new(ReplicaStore::new(node.handle().clone(), node.hub().clone(), place));
    if is_alone {
        serve_alone(&store).await?;
        put_settings(&store, &wanted, &held, grants_paused).await?;
    } else if held != wanted && !members.is_empty() {
        tracing::warn!(
            "auto_create, groups_max, ttl_min and ttl_max are those the cluster was founded with; what is set here does not count"
        );
    }
    Ok(store)
}

/// Opens the replica in a directory, or founds a cluster of one in an empty one.
fn open(options: &ReplicaOptions) -> Result<Opened, ReplicaError> {
    let ReplicaOptions { directory, replica: settings, .. } = options;
    refuse_strangers(directory)?;
    let files = Arc::new(files(directory)?);
    match Disk::open(files.clone(), settings.disk) {
        Err(DataDirError::Empty { .. } | DataDirError::HalfFounded { .. }) => {
            if let Some(said_by) = settings.has_peers.clone() {
                return Err(ReplicaError::NotPrepared { path: directory.clone(), said_by });
            }
            let replica = ReplicaId::new(1).expect("one is not zero");
            let identity = Identity { cluster: random()?, replica, incarnation: random()? as u64 };
            let members = alone(replica, settings, options.listen);
            let founding = Founding::cluster(options.store.clone(), members);
            let opened = Disk::found(files, settings.disk, identity, &founding)?;
            tracing::info!(directory = %directory.display(), "a cluster of one was founded");
            Ok(opened)
        }
        opened => Ok(opened?),
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

/// What holds once everything on the disk is applied.
struct Settled {
    members: Members,
    settings: StoreSettings,
    /// Whether leases of an earlier life may still run.
    grants_paused: bool,
}

fn settled(recovered: &Recovered) -> Result<Settled, ReplicaError> {
    let mut grants_paused = recovered.replicated.grants_paused;
    let mut members = recovered.replicated.members.clone();
    let mut settings = recovered.replicated.state.settings().clone();
    for entry in &recovered.entries {
        let payload = payload(entry)
            .map_err(|error| ReplicaError::Entry { index: entry.index, why: error.to_string() })?;
        match payload {
            Payload::Members(change) => {
                // Only who is there matters here.
                let mut replicated =
                    regent_replica::ReplicatedState::found(settings.clone(), members);
                replicated.change_members(&change);
                members = replicated.members;
            }
            Payload::Proposal(_, entry) => {
                if let Command::PutSettings { settings: put } = entry.command {
                    settings = *put;
                }
            }
            Payload::Release => grants_paused = false,
            Payload::Empty => {}
        }
    }
    Ok(Settled { members, settings, grants_paused })
}

/// Takes over a socket that listens to peers already.
fn adopt(socket: StdListener) -> Result<PeerListener, ReplicaError> {
    let address = socket.local_addr().unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let adopted = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
    let adopted = adopted.map_err(|source| ReplicaError::PeerListen { address, source })?;
    Ok(PeerListener::Bound(adopted))
}

/// Listens to peers. Nobody dials a cluster of one, so it listens once it has peers.
async fn listen(wanted: SocketAddr, is_alone: bool) -> Result<PeerListener, ReplicaError> {
    if is_alone {
        return Ok(PeerListener::WhenNeeded(wanted));
    }
    let bound = TcpListener::bind(wanted).await;
    let refuse = |source| ReplicaError::PeerListen { address: wanted, source };
    Ok(PeerListener::Bound(bound.map_err(refuse)?))
}

/// Says so if the others look for this replica where it does not listen.
fn tell_addresses(members: &Members, id: ReplicaId, listener: &PeerListener) {
    let address = match listener {
        PeerListener::Bound(listener) => listener.local_addr().ok(),
        PeerListener::WhenNeeded(address) => Some(*address),
    };
    let (Some(member), Some(address)) = (members.get(&id), address) else { return };
    let port = member.peer_address.rsplit_once(':').map(|(_, port)| port);
    if members.len() > 1 && port != Some(address.port().to_string().as_str()) {
        tracing::warn!(
            listens = %address, others_dial = %member.peer_address,
            "the other replicas dial another port; that is right only if something forwards it (--peer-listen)"
        );
    }
}

/// Waits until a cluster of one serves.
async fn serve_alone(store: &ReplicaStore) -> Result<(), ReplicaError> {
    let serving = async {
        while !store.handle().status().is_serving {
            sleep(SETTLED_POLL_EVERY).await;
        }
    };
    if timeout(SERVES_WITHIN, serving).await.is_err() {
        return Err(ReplicaError::NotServing { within: SERVES_WITHIN });
    }
    Ok(())
}

/// Makes the settings of this server hold in a cluster of one.
async fn put_settings(
    store: &ReplicaStore,
    wanted: &StoreSettings,
    held: &StoreSettings,
    grants_paused: bool,
) -> Result<(), ReplicaError> {
    if wanted == held {
        return Ok(());
    }
    if grants_paused {
        // The longest ttl of the earlier life says how long its leases may run: it must not fall yet.
        tracing::warn!(
            "auto_create, groups_max, ttl_min and ttl_max are those of the backup until the leases of the earlier life are over; what is set here counts from the next start after that"
        );
        return Ok(());
    }
    store.put_settings(wanted.clone()).await.map_err(|error| match error {
        StoreError::Refused(refusal) => ReplicaError::Settings(refusal),
        other => ReplicaError::Store(other),
    })
}
