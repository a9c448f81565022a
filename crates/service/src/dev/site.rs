//! Where a cluster of `regent dev` lives: directories, addresses, and a settings file per replica.
//!
//! The files are ordinary ones of `regent serve`, so that a replica can be run by hand as well.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use regent_replica::disk::DiskOptions;
use regent_replica::member::failures_survived;
use regent_replica::{Member, Members, ReplicaId};
use tempfile::TempDir;

use super::{DevError, Processes};
use crate::founding::bootstrap_all;
use crate::random::random;
use crate::settings::{File, Key, Value};

/// The first port if nobody says: that of `regent serve`, so that clients need not be told.
const PORT_DEFAULT: u16 = 7400;
/// Replicas if nobody says.
const NODES_DEFAULT: u16 = 3;
/// A cluster to try things writes little, and three segments for each replica add up.
const SEGMENT_BYTES: u32 = 1 << 20;
/// How often free ports are drawn.
const DRAWS_MAX: usize = 1_000;

/// One replica's place.
#[derive(Clone, Debug)]
pub struct DevReplica {
    /// The number of the replica.
    pub id: ReplicaId,
    /// Where clients reach it.
    pub client: SocketAddr,
    /// Where the others reach it.
    pub peer: SocketAddr,
    /// Whether it only votes.
    pub is_witness: bool,
    /// Whether clients and peers speak TLS to it.
    pub is_tls: bool,
    /// The settings it runs with.
    pub config: PathBuf,
    /// What it logs.
    pub log: PathBuf,
}

/// The place of the whole cluster.
#[derive(Debug)]
pub struct DevCluster {
    directory: PathBuf,
    /// Held so that it goes with this process.
    temporary: Option<TempDir>,
    /// The replicas, in the order of their numbers.
    pub seats: Vec<DevReplica>,
}

impl DevReplica {
    fn of(directory: &Path, id: ReplicaId, client: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            id,
            client,
            peer,
            is_witness: false,
            is_tls: false,
            config: directory.join(format!("replica-{id}.toml")),
            log: directory.join(format!("replica-{id}.log")),
        }
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.client)
    }

    fn settings(&self, data: &Path) -> String {
        let mut told = vec![
            (Key::Listen, Value::Address(self.client)),
            (Key::PeerListen, Value::Address(self.peer)),
            (Key::DataDir, Value::Directory(data.to_owned())),
            (Key::SegmentBytes, Value::Count(SEGMENT_BYTES)),
            (Key::Witness, Value::Bool(self.is_witness)),
        ];
        if self.is_tls {
            let ca = ca_of(self.config.parent().unwrap_or(data));
            let file = |name: String| Value::Text(ca.join(name).display().to_string());
            told.extend([
                (Key::TlsCert, file("server-localhost.crt".to_owned())),
                (Key::TlsKey, file("server-localhost.key".to_owned())),
                (Key::PeerCert, file(format!("replica-{}.crt", self.id))),
                (Key::PeerKey, file(format!("replica-{}.key", self.id))),
                (Key::PeerCa, file("ca.crt".to_owned())),
            ]);
        }
        let mut text = format!("# replica {} of a cluster that `regent dev` made\n", self.id);
        for (key, value) in told {
            text.push_str(&format!("{key} = {value}\n"));
        }
        text
    }

    /// What [`DevReplica::settings`] wrote.
    fn read(directory: &Path, id: ReplicaId) -> Result<Self, DevError> {
        let path = directory.join(format!("replica-{id}.toml"));
        let settings = File::read(&path)?.settings()?;
        let of = |key| settings.iter().find(|(found, ..)| *found == key).map(|(_, value, _)| value);
        match (of(Key::Listen), of(Key::PeerListen), of(Key::Witness)) {
            (Some(Value::Address(client)), Some(Value::Address(peer)), witness) => {
                let is_witness = witness == Some(&Value::Bool(true));
                let is_tls = of(Key::TlsCert).is_some();
                Ok(Self { is_witness, is_tls, ..Self::of(directory, id, *client, *peer) })
            }
            _ => Err(DevError::NoAddresses { path }),
        }
    }
}

impl DevCluster {
    /// Goes on with the cluster in a directory, or founds one.
    pub fn prepare(
        kept: Option<PathBuf>,
        nodes: Option<u16>,
        port: Option<u16>,
        witness: bool,
        tls: bool,
    ) -> Result<Self, DevError> {
        let (directory, temporary) = match kept {
            Some(directory) => (std::path::absolute(&directory).unwrap_or(directory), None),
            None => {
                let made = tempfile::Builder::new().prefix("regent-dev-").tempdir();
                let made = made.map_err(|source| DevError::file(&std::env::temp_dir(), source))?;
                (made.path().to_owned(), Some(made))
            }
        };
        if directory.join("replica-1.toml").exists() {
            return Self::go_on(directory, nodes, port, witness, tls);
        }
        refuse_others(&directory)?;
        fs::create_dir_all(&directory).map_err(|source| DevError::file(&directory, source))?;
        let mut seats = seats(&directory, nodes.unwrap_or(NODES_DEFAULT), port, witness)?;
        seats.iter_mut().for_each(|seat| seat.is_tls = tls);
        found(&directory, &seats)?;
        Ok(Self { directory, temporary, seats })
    }

    fn go_on(
        directory: PathBuf,
        nodes: Option<u16>,
        port: Option<u16>,
        witness: bool,
        tls: bool,
    ) -> Result<Self, DevError> {
        let seats = (1..)
            .map_while(ReplicaId::new)
            .take_while(|id| directory.join(format!("replica-{id}.toml")).exists())
            .map(|id| DevReplica::read(&directory, id))
            .collect::<Result<Vec<_>, _>>()?;
        let is_other = nodes.is_some_and(|nodes| usize::from(nodes) != seats.len())
            || port.is_some_and(|port| port != seats[0].client.port())
            || (witness && !seats.iter().any(|seat| seat.is_witness))
            || (tls && !seats[0].is_tls);
        if is_other {
            let (replicas, port) = (seats.len(), seats[0].client.port());
            return Err(DevError::AnotherCluster { path: directory, replicas, port });
        }
        Ok(Self { directory, temporary: None, seats })
    }

    /// Whether the data outlive this process.
    pub const fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// The addresses of all that serve clients, as `--server` takes them.
    pub fn servers(&self) -> String {
        let serving = self.seats.iter().filter(|seat| !seat.is_witness);
        serving.map(DevReplica::url).collect::<Vec<_>>().join(",")
    }

    /// The file of the CA by which clients believe the servers, if they speak TLS.
    #[must_use]
    pub fn ca(&self) -> Option<PathBuf> {
        let is_tls = self.seats.iter().any(|seat| seat.is_tls);
        is_tls.then(|| ca_of(&self.directory).join("ca.crt"))
    }

    /// What a shell exports so that commands find the servers.
    #[must_use]
    pub fn exports(&self) -> String {
        let ca = self.ca().map(|ca| format!(" REGENT_CA={}", ca.display())).unwrap_or_default();
        format!("REGENT_SERVER={}{ca}", self.servers())
    }

    /// Where the data are, and for how long, in words.
    #[must_use]
    pub fn place(&self) -> String {
        let until = if self.is_kept() { "and stay there" } else { "until it ends" };
        format!("data and logs are in {} {until}", self.directory.display())
    }

    /// What whoever started it can do.
    #[must_use]
    pub fn greeting(&self, processes: &Processes) -> String {
        let count = self.seats.len();
        let survives = failures_survived(count);
        let mut text =
            format!("{count} replicas run on this machine; {survives} of them may fail\n");
        for seat in &self.seats {
            let witness = if seat.is_witness { "  a witness, which serves no clients" } else { "" };
            text.push_str(&format!(
                "  replica {}  {}  process {}{witness}\n",
                seat.id,
                seat.url(),
                processes.pid(seat.id).map_or_else(|| "-".into(), |pid| pid.to_string())
            ));
        }
        let (place, servers, exports) = (self.place(), self.servers(), self.exports());
        let ca = self.ca().map(|ca| format!(" --ca {}", ca.display())).unwrap_or_default();
        text.push_str(&format!(
            "{place}\n\
             try in another terminal:\n  \
             regent campaign billing --node a --keep --server {servers}{ca}\n\
             or name the servers once:\n  \
             export {exports}\n  \
             regent watch\n  \
             regent cluster status\n\
             kill -9 a replica and see the others go on; Ctrl-C ends everything"
        ));
        text
    }

    /// Where data, settings and logs are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The last lines that a replica logged.
    #[must_use]
    pub fn last_words(&self, id: ReplicaId, lines_max: usize) -> Vec<String> {
        let seat = self.seats.iter().find(|seat| seat.id == id);
        let log = seat.map(|seat| fs::read_to_string(&seat.log).unwrap_or_default());
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(lines_max)..].iter().map(ToString::to_string).collect()
    }

    /// Removes what was temporary.
    pub fn leave(self) -> Result<(), DevError> {
        let Some(temporary) = self.temporary else { return Ok(()) };
        temporary.close().map_err(|source| DevError::NotRemoved { path: self.directory, source })
    }
}

/// A directory with anything else in it is somebody else's.
fn refuse_others(directory: &Path) -> Result<(), DevError> {
    let is_taken = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if !is_taken {
        return Ok(());
    }
    Err(DevError::Taken { path: directory.to_owned() })
}

fn seats(
    directory: &Path,
    nodes: u16,
    port: Option<u16>,
    witness: bool,
) -> Result<Vec<DevReplica>, DevError> {
    let ports = match port {
        Some(0) => free_ports(nodes)?,
        Some(first) => in_a_row(first, nodes).ok_or_else(|| {
            let last = u32::from(first) + 2 * u32::from(nodes) - 1;
            DevError::PortsTaken { first, last }
        })?,
        None => match in_a_row(PORT_DEFAULT, nodes) {
            Some(ports) => ports,
            None => free_ports(nodes)?,
        },
    };
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut seats: Vec<DevReplica> = ports
        .chunks_exact(2)
        .zip((1..).map_while(ReplicaId::new))
        .map(|(pair, id)| DevReplica::of(directory, id, address(pair[0]), address(pair[1])))
        .collect();
    if let Some(last) = seats.last_mut() {
        last.is_witness = witness;
    }
    Ok(seats)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Two ports for each, one after the other, if all are free.
fn in_a_row(first: u16, nodes: u16) -> Option<Vec<u16>> {
    let last = first.checked_add(2 * nodes - 1)?;
    let ports: Vec<u16> = (first..=last).collect();
    ports.iter().all(|port| is_free(*port)).then_some(ports)
}

/// Two free ports for each. They lie below those that systems give to connections by themselves, so
/// that none is taken between now and when its replica listens.
fn free_ports(nodes: u16) -> Result<Vec<u16>, DevError> {
    let mut ports = Vec::new();
    for _ in 0..DRAWS_MAX {
        if ports.len() == usize::from(2 * nodes) {
            return Ok(ports);
        }
        let drawn = 10_000 + (random()? % 20_000) as u16;
        if !ports.contains(&drawn) && is_free(drawn) {
            ports.push(drawn);
        }
    }
    Err(DevError::NoPorts)
}

fn found(directory: &Path, seats: &[DevReplica]) -> Result<(), DevError> {
    let data = |id: ReplicaId| directory.join(format!("replica-{id}"));
    let members: Members = seats
        .iter()
        .map(|seat| {
            let member = Member {
                peer_address: seat.peer.to_string(),
                client_address: seat.client.to_string(),
                is_witness: seat.is_witness,
            };
            (seat.id, member)
        })
        .collect();
    let options = DiskOptions { segment_bytes: SEGMENT_BYTES.into(), ..DiskOptions::default() };
    let cluster = bootstrap_all(&members, data, options)?;
    if seats.iter().any(|seat| seat.is_tls) {
        certify(&ca_of(directory), cluster, seats)?;
    }
    for seat in seats.iter().rev() {
        // The first replica's file is the last one: it says that the cluster is whole.
        let text = seat.settings(&data(seat.id));
        fs::write(&seat.config, text).map_err(|source| DevError::file(&seat.config, source))?;
    }
    Ok(())
}

/// Where the CA of a cluster with TLS is.
fn ca_of(directory: &Path) -> PathBuf {
    directory.join("ca")
}

/// Makes a CA and the certificates of all replicas: one by which clients believe them all, and one each for their peers.
#[cfg(feature = "tls")]
fn certify(ca: &Path, cluster: u128, seats: &[DevReplica]) -> Result<(), DevError> {
    use regent_tls::ReplicaName;
    use regent_tls::authority::{Host, Subject, init, issue};
    use regent_tls::limits::{CA_DAYS, CERTIFICATE_DAYS};

    let now_s = crate::wall::wall_s();
    let wrong = |error| DevError::Replica(crate::ReplicaError::Tls(error));
    init(ca, CA_DAYS, now_s).map_err(wrong)?;
    let hosts = vec![
        Host::Name("localhost".to_owned()),
        Host::Address(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ];
    let replicas = seats.iter().map(|seat| ReplicaName { cluster, replica: seat.id.get() });
    let subjects = std::iter::once(Subject::Server(hosts)).chain(replicas.map(Subject::Replica));
    for subject in subjects {
        issue(ca, &subject, CERTIFICATE_DAYS, now_s).map_err(wrong)?;
    }
    Ok(())
}

/// A build without TLS has no certificates.
#[cfg(not(feature = "tls"))]
fn certify(_: &Path, _: u128, _: &[DevReplica]) -> Result<(), DevError> {
    Err(DevError::Replica(crate::ReplicaError::NoTls { setting: "tls_cert" }))
}
