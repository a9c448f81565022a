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
            config: directory.join(format!("replica-{id}.toml")),
            log: directory.join(format!("replica-{id}.log")),
        }
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    fn settings(&self, data: &Path) -> String {
        let told = [
            (Key::Listen, Value::Address(self.client)),
            (Key::PeerListen, Value::Address(self.peer)),
            (Key::DataDir, Value::Directory(data.to_owned())),
            (Key::SegmentBytes, Value::Count(SEGMENT_BYTES)),
            (Key::Witness, Value::Bool(self.is_witness)),
        ];
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
                Ok(Self { is_witness, ..Self::of(directory, id, *client, *peer) })
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
            return Self::go_on(directory, nodes, port, witness);
        }
        refuse_others(&directory)?;
        fs::create_dir_all(&directory).map_err(|source| DevError::file(&directory, source))?;
        let seats = seats(&directory, nodes.unwrap_or(NODES_DEFAULT), port, witness)?;
        found(&directory, &seats)?;
        Ok(Self { directory, temporary, seats })
    }

    fn go_on(
        directory: PathBuf,
        nodes: Option<u16>,
        port: Option<u16>,
        witness: bool,
    ) -> Result<Self, DevError> {
        let seats = (1..)
            .map_while(ReplicaId::new)
            .take_while(|id| directory.join(format!("replica-{id}.toml")).exists())
            .map(|id| DevReplica::read(&directory, id))
            .collect::<Result<Vec<_>, _>>()?;
        let is_other = nodes.is_some_and(|nodes| usize::from(nodes) != seats.len())
            || port.is_some_and(|port| port != seats[0].client.port())
            || (witness && !seats.iter().any(|seat| seat.is_witness));
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
        let (place, servers) = (self.place(), self.servers());
        text.push_str(&format!(
            "{place}\n\
             try in another terminal:\n  \
             regent campaign billing --node a --keep --server {servers}\n\
             or name the servers once:\n  \
             export REGENT_SERVER={servers}\n  \
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
    bootstrap_all(&members, data, options)?;
    for seat in seats.iter().rev() {
        // The first replica's file is the last one: it says that the cluster is whole.
        let text = seat.settings(&data(seat.id));
        fs::write(&seat.config, text).map_err(|source| DevError::file(&seat.config, source))?;
    }
    Ok(())
}
