//! A replica inside the application: copies of a program elect among themselves, with no server.
//!
//! Each copy keeps one replica of the store in a directory of its own and talks to the others at their
//! peer addresses. The replica has threads and a runtime of its own: whatever the application does on
//! its runtime, the replica goes on voting.
//!
//! A cluster is **founded once**. A copy that lost its directory has forgotten for whom it voted, and
//! founding it again could elect two leaders of the log: that is why an empty directory is refused
//! unless [`Embedded::founding`] says that this is the first start of all.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regent_election::Settings;
use regent_election::store::Store;
use regent_replica::disk::error::DataDirError;
use regent_replica::disk::{Disk, DiskOptions, Founding, Identity, Opened, RealFiles};
#[cfg(feature = "tls")]
use regent_replica::peers::Encrypted;
use regent_replica::peers::{Plaintext, Transport, beyond_loopback};
use regent_replica::{Member, Members, Node, NodeConfig, ReplicaId, ReplicaStore, Timing};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::connect::{BackendChoice, Connect};
use crate::error::ConnectError;
use crate::fresh;

/// A replica to be.
///
/// ```no_run
/// # async fn example(is_first_start: bool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut embedded = regent::Embedded::new(1, "/var/lib/my-app/regent")
///     .member(1, "app-1:7401")
///     .member(2, "app-2:7401")
///     .member(3, "app-3:7401")
///     .insecure_peers(); // or, with the feature `tls`, .tls("1.crt", "1.key", "ca.crt")
/// if is_first_start {
///     embedded = embedded.founding(0x6d79_2d61_7070);
/// }
/// let replica = embedded.start().await?;
/// let regent = replica.session().node("app-1").connect().await?;
/// # drop(regent);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Embedded {
    id: u64,
    directory: PathBuf,
    members: Vec<(u64, String)>,
    listen: Option<SocketAddr>,
    listener: Option<Arc<StdListener>>,
    founding: Option<u128>,
    timing: Timing,
    plaintext: Plaintext,
    #[cfg(feature = "tls")]
    certificates: Option<regent_tls::PeerFiles>,
    #[cfg(feature = "tls")]
    revocations: Option<PathBuf>,
}

impl Embedded {
    /// The replica of this number, in this directory.
    pub fn new(id: u64, directory: impl Into<PathBuf>) -> Self {
        let (members, timing) = (Vec::new(), Timing::LAN);
        let (listen, listener, founding) = (None, None, None);
        let (directory, plaintext) = (directory.into(), Plaintext::Loopback);
        Self {
            id,
            directory,
            members,
            listen,
            listener,
            founding,
            timing,
            plaintext,
            #[cfg(feature = "tls")]
            certificates: None,
            #[cfg(feature = "tls")]
            revocations: None,
        }
    }

    /// A founding member and where the others reach it. The same list in every copy, this one
    /// included; it counts only when the cluster is founded.
    pub fn member(mut self, id: u64, peer_address: impl Into<String>) -> Self {
        self.members.push((id, peer_address.into()));
        self
    }

    /// Where to listen to the others; by default at this copy's own address in the list.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// A socket that listens already, in place of an address.
    pub fn listener(mut self, listener: StdListener) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// This is the first start of all copies: an empty directory becomes a member of the cluster of
    /// this id, which is the same in every copy and was never used before.
    pub fn founding(mut self, cluster: u128) -> Self {
        self.founding = Some(cluster);
        self
    }

    /// Other timers than those for copies in one data centre.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Lets the copies prove to each other who they are, by mutual TLS: the files of this copy's certificate, of its key,
    /// which only this user may read, and of the certificates of the CAs that are believed. `regent tls issue --replica N
    /// --cluster ID` makes them; `ID` is the id of [`Embedded::founding`] in 32 hexadecimal digits. Copies on other machines
    /// may then be members. The files are read again when they change.
    #[cfg(feature = "tls")]
    pub fn tls(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        ca: impl Into<PathBuf>,
    ) -> Self {
        let (certificate, key, ca) = (certificate.into(), key.into(), ca.into());
        self.certificates = Some(regent_tls::PeerFiles { certificate, key, ca, crl: None });
        self
    }

    /// Lists of certificates that are not believed any more, one of every CA of [`Embedded::tls`]:
    /// `regent tls revoke` writes them. They count for new connections, and are read again when they change. A
    /// certificate whose CA has no list in the file is refused.
    #[cfg(feature = "tls")]
    pub fn revocation_lists(mut self, path: impl Into<PathBuf>) -> Self {
        self.revocations = Some(path.into());
        self
    }

    /// Lets copies on other machines be members without TLS. Their connections are neither encrypted nor
    /// authenticated: whoever reaches a peer address can depose leaders. Keep them on a network that
    /// nobody else is on.
    pub fn insecure_peers(mut self) -> Self {
        self.plaintext = Plaintext::Anywhere;
        self
    }

    /// Opens the directory, listens to the others and runs the replica.
    pub async fn start(self) -> Result<Replica, ConnectError> {
        let (told, started) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let system = |error: std::io::Error| ConnectError::System(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("regent-replica")
            .enable_all()
            .build()
            .map_err(system)?;
        std::thread::Builder::new()
            .name("regent-embedded".to_owned())
            .spawn(move || runtime.block_on(self.run(told, stopped)))
            .map_err(system)?;
        match started.await {
            Ok(Ok(store)) => Ok(Replica { store, stop: Some(stop) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ConnectError::System("the replica's thread ended".to_owned())),
        }
    }

    /// The life of the replica, on its own runtime.
    async fn run(
        self,
        told: oneshot::Sender<Result<Arc<ReplicaStore>, ConnectError>>,
        stopped: oneshot::Receiver<oneshot::Sender<()>>,
    ) {
        let store = match self.begin().await {
            Ok(store) => store,
            Err(error) => {
                let _ = told.send(Err(error));
                return;
            }
        };
        if told.send(Ok(Arc::clone(&store))).is_err() {
            store.shut_down().await;
            return;
        }
        // Asked to, or its owner is gone.
        let done = stopped.await.ok();
        store.shut_down().await;
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    async fn begin(&self) -> Result<Arc<ReplicaStore>, ConnectError> {
        let opened = self.open()?;
        let listener = match &self.listener {
            Some(listener) => adopt(listener)
                .map_err(|error| ConnectError::Store(format!("the given socket: {error}")))?,
            None => self.bind(&opened).await?,
        };
        let transport = self.transport(&opened, &listener)?;
        let config = NodeConfig { timing: self.timing, transport, ..NodeConfig::default() };
        let node = Node::start(opened, listener, &config)
            .map_err(|error| ConnectError::Store(error.to_string()))?;
        let place = self.directory.display().to_string();
        Ok(Arc::new(ReplicaStore::new(node.handle().clone(), node.hub().clone(), place)))
    }

    /// What the links to the other copies travel on.
    fn transport(
        &self,
        opened: &Opened,
        listener: &TcpListener,
    ) -> Result<Arc<dyn Transport>, ConnectError> {
        #[cfg(feature = "tls")]
        if let Some(files) = &self.certificates {
            let files = regent_tls::PeerFiles { crl: self.revocations.clone(), ..files.clone() };
            let links = Encrypted::open(files, opened.identity, Arc::default());
            let links = links.map_err(|error| ConnectError::Store(error.to_string()))?;
            return Ok(Arc::new(links));
        }
        #[cfg(feature = "tls")]
        if self.revocations.is_some() {
            let why =
                "revocation_lists() is about certificates, and there are none; call tls(), too";
            return Err(ConnectError::Store(why.to_owned()));
        }
        let members = &opened.recovered.replicated.members;
        let address = listener.local_addr().ok().map(|address| address.to_string());
        if self.plaintext == Plaintext::Loopback
            && let Some(address) = beyond_loopback(address.as_deref(), members)
        {
            return Err(ConnectError::Store(format!(
                "{address} can be reached from other machines, and copies prove nothing to each other; give each a certificate with tls() (feature \"tls\"), keep them on one machine, or accept the risk with insecure_peers()"
            )));
        }
        Ok(Arc::new(self.plaintext))
    }

    async fn bind(&self, opened: &Opened) -> Result<TcpListener, ConnectError> {
        let own = opened.recovered.replicated.members.get(&opened.identity.replica);
        let known = own.map(|member| member.peer_address.clone());
        let Some(wanted) = self.listen.map(|address| address.to_string()).or(known) else {
            return Err(ConnectError::Store(format!(
                "replica {} does not know its own address; say where to listen",
                self.id
            )));
        };
        TcpListener::bind(&wanted)
            .await
            .map_err(|error| ConnectError::Store(format!("cannot listen at {wanted}: {error}")))
    }

    /// The directory as it is, or as the founding makes it.
    fn open(&self) -> Result<Opened, ConnectError> {
        let files = Arc::new(files(&self.directory)?);
        let opened = match Disk::open(files.clone(), DiskOptions::default()) {
            Err(DataDirError::Empty { .. } | DataDirError::HalfFounded { .. }) => {
                let (identity, founding) = self.first()?;
                Disk::found(files, DiskOptions::default(), identity, &founding)
            }
            opened => opened,
        };
        let opened = opened.map_err(|error| ConnectError::Store(error.to_string()))?;
        let found = opened.identity.replica.get();
        if found != self.id {
            let directory = self.directory.display();
            return Err(ConnectError::Store(format!(
                "{directory} holds replica {found}, not {}; give each copy its own directory",
                self.id
            )));
        }
        Ok(opened)
    }

    fn first(&self) -> Result<(Identity, Founding), ConnectError> {
        let refuse = |why: String| ConnectError::Store(why);
        let Some(cluster) = self.founding.filter(|cluster| *cluster != 0) else {
            return Err(refuse(format!(
                "{} is empty: if this is the first start of all copies, say so with founding(cluster id); if its disk was lost, this copy must not vote again under the number {}",
                self.directory.display(),
                self.id
            )));
        };
        let mut members = Members::new();
        for (number, peer_address) in &self.members {
            let id = ReplicaId::new(*number)
                .ok_or_else(|| refuse("members are numbered from 1".to_owned()))?;
            let (peer_address, client_address) = (peer_address.clone(), String::new());
            let member = Member { peer_address, client_address, is_witness: false };
            if members.insert(id, member).is_some() {
                return Err(refuse(format!("member {number} is listed twice")));
            }
        }
        let replica = ReplicaId::new(self.id)
            .filter(|id| members.contains_key(id))
            .ok_or_else(|| refuse(format!("replica {} is not among the members", self.id)))?;
        let identity = Identity { cluster, replica, incarnation: fresh::number()? };
        Ok((identity, Founding::cluster(Settings::default(), members)))
    }
}

fn adopt(listener: &StdListener) -> std::io::Result<TcpListener> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn files(directory: &Path) -> Result<RealFiles, ConnectError> {
    regent_files::check_directory(directory)
        .map_err(|error| ConnectError::Store(error.to_string()))?;
    RealFiles::new(directory)
        .map_err(|error| ConnectError::Store(format!("{}: {error}", directory.display())))
}

/// A running replica of this process. Dropping it stops it in the background, and with it every
/// session over it.
#[derive(Debug)]
#[must_use = "dropping the replica stops it"]
pub struct Replica {
    pub(crate) store: Arc<ReplicaStore>,
    stop: Option<oneshot::Sender<oneshot::Sender<()>>>,
}

impl Replica {
    /// A session over this replica, with options to be set.
    pub fn session(&self) -> Connect {
        Connect::new(BackendChoice::Store(Arc::clone(&self.store) as Arc<dyn Store>))
    }

    /// Hands the log's leadership over if it has it, stops, and waits for that. Close the sessions
    /// over it first.
    pub async fn stop(mut self) {
        let (done, is_done) = oneshot::channel();
        if self.stop.take().is_some_and(|stop| stop.send(done).is_ok()) {
            let _ = is_done.await;
        }
    }
}
