//! Where a cluster of `regent dev` lives: directories, addresses, and a settings file per replica.
//!
//! The files are ordinary ones of `regent serve`, so that a replica can be run by hand as well.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use regent_replica::disk::Options;
use regent_replica::{Member, Members, ReplicaId};
use tempfile::TempDir;

use super::processes::{Ended, Processes};
use crate::cluster::found_all;
use crate::config::{File, Key, Value};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::remark;
use crate::replica::random;

/// The first port if nobody says: that of `regent serve`, so that clients need not be told.
const PORT_DEFAULT: u16 = 7400;
/// Replicas if nobody says.
const NODES_DEFAULT: u16 = 3;
/// A cluster to try things writes little, and three segments for each replica add up.
const SEGMENT_BYTES: u32 = 1 << 20;
/// How often free ports are drawn.
const DRAWS_MAX: usize = 1_000;
/// Lines of a replica's log that are told when it does not start.
const LOG_LINES: usize = 5;

/// One replica's place.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Its number.
    pub(super) id: ReplicaId,
    /// Where clients reach it.
    pub(super) client: SocketAddr,
    /// Where the others reach it.
    pub(super) peer: SocketAddr,
    /// Whether it only votes.
    pub(super) is_witness: bool,
    /// The settings it runs with.
    pub(super) config: PathBuf,
    /// What it logs.
    pub(super) log: PathBuf,
}

/// The whole cluster's.
#[derive(Debug)]
pub(super) struct Site {
    directory: PathBuf,
    /// Held so that it goes with this process.
    temporary: Option<TempDir>,
    /// The replicas, in the order of their numbers.
    pub(super) seats: Vec<Seat>,
}

impl Seat {
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
    pub(super) fn url(&self) -> String {
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

    /// What [`Seat::settings`] wrote.
    fn read(directory: &Path, id: ReplicaId) -> Result<Self, Failure> {
        let path = directory.join(format!("replica-{id}.toml"));
        let settings = File::read(&path)?.settings()?;
        let of = |key| settings.iter().find(|(found, ..)| *found == key).map(|(_, value, _)| value);
        match (of(Key::Listen), of(Key::PeerListen), of(Key::Witness)) {
            (Some(Value::Address(client)), Some(Value::Address(peer)), witness) => {
                let is_witness = witness == Some(&Value::Bool(true));
                Ok(Self { is_witness, ..Self::of(directory, id, *client, *peer) })
            }
            _ => Err(Failure::new(
                Exit::Config,
                format!("{} does not say listen and peer_listen", path.display()),
            )),
        }
    }
}

impl Site {
    /// Goes on with the cluster in a directory, or founds one.
    pub(super) fn prepare(
        kept: Option<PathBuf>,
        nodes: Option<u16>,
        port: Option<u16>,
        witness: bool,
    ) -> Result<Self, Failure> {
        let (directory, temporary) = match kept {
            Some(directory) => (std::path::absolute(&directory).unwrap_or(directory), None),
            None => {
                let made = tempfile::Builder::new().prefix("regent-dev-").tempdir();
                let made = made.map_err(|error| Failure::file(&std::env::temp_dir(), &error))?;
                (made.path().to_owned(), Some(made))
            }
        };
        if directory.join("replica-1.toml").exists() {
            return Self::go_on(directory, nodes, port, witness);
        }
        refuse_others(&directory)?;
        fs::create_dir_all(&directory).map_err(|error| Failure::file(&directory, &error))?;
        let seats = seats(&directory, nodes.unwrap_or(NODES_DEFAULT), port, witness)?;
        found(&directory, &seats)?;
        Ok(Self { directory, temporary, seats })
    }

    fn go_on(
        directory: PathBuf,
        nodes: Option<u16>,
        port: Option<u16>,
        witness: bool,
    ) -> Result<Self, Failure> {
        let seats = (1..)
            .map_while(ReplicaId::new)
            .take_while(|id| directory.join(format!("replica-{id}.toml")).exists())
            .map(|id| Seat::read(&directory, id))
            .collect::<Result<Vec<_>, _>>()?;
        let is_other = nodes.is_some_and(|nodes| usize::from(nodes) != seats.len())
            || port.is_some_and(|port| port != seats[0].client.port())
            || (witness && !seats.iter().any(|seat| seat.is_witness));
        if is_other {
            let why = format!(
                "{} holds a cluster of {} from port {} on; leave --nodes, --port and --witness out to go on with it, or choose another directory",
                directory.display(),
                seats.len(),
                seats[0].client.port()
            );
            return Err(Failure::usage(why));
        }
        Ok(Self { directory, temporary: None, seats })
    }

    /// Whether the data outlive this process.
    pub(super) const fn is_kept(&self) -> bool {
        self.temporary.is_none()
    }

    /// The addresses of all that serve clients, as `--server` takes them.
    pub(super) fn servers(&self) -> String {
        let serving = self.seats.iter().filter(|seat| !seat.is_witness);
        serving.map(Seat::url).collect::<Vec<_>>().join(",")
    }

    /// Where the logs are.
    pub(super) fn logs(&self) -> String {
        format!("the logs are {}", self.directory.join("replica-*.log").display())
    }

    /// Where the data are, and for how long.
    pub(super) fn place(&self) -> String {
        let until = if self.is_kept() { "and stay there" } else { "until it ends" };
        format!("data and logs are in {} {until}", self.directory.display())
    }

    /// What whoever started it can do.
    pub(super) fn greeting(&self, processes: &Processes) -> String {
        let count = self.seats.len();
        let survives = regent_replica::member::failures_survived(count);
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

    /// A replica that ended before it had begun.
    pub(super) fn did_not_start(&self, ended: &Ended) -> Failure {
        let seat = self.seats.iter().find(|seat| seat.id == ended.id);
        let log = seat.map(|seat| fs::read_to_string(&seat.log).unwrap_or_default());
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
        Failure::new(
            Exit::Unavailable,
            format!(
                "replica {} did not start ({}); its last words:\n  {tail}",
                ended.id, ended.how
            ),
        )
    }

    /// Removes what was temporary.
    pub(super) fn leave(self) {
        let Some(temporary) = self.temporary else { return };
        if let Err(error) = temporary.close() {
            remark(&format!("{} could not be removed: {error}", self.directory.display()));
        }
    }
}

/// A directory with anything else in it is somebody else's.
fn refuse_others(directory: &Path) -> Result<(), Failure> {
    let is_taken = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if !is_taken {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Config,
        format!(
            "{} holds something that `regent dev` did not make; choose an empty directory with --data-dir",
            directory.display()
        ),
    ))
}

fn seats(
    directory: &Path,
    nodes: u16,
    port: Option<u16>,
    witness: bool,
) -> Result<Vec<Seat>, Failure> {
    let ports = match port {
        Some(0) => free_ports(nodes)?,
        Some(first) => in_a_row(first, nodes).ok_or_else(|| {
            let last = u32::from(first) + 2 * u32::from(nodes) - 1;
            let why = format!(
                "not all of the ports {first} to {last} are free; say --port 0 for any that are"
            );
            Failure::new(Exit::Unavailable, why)
        })?,
        None => match in_a_row(PORT_DEFAULT, nodes) {
            Some(ports) => ports,
            None => free_ports(nodes)?,
        },
    };
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut seats: Vec<Seat> = ports
        .chunks_exact(2)
        .zip((1..).map_while(ReplicaId::new))
        .map(|(pair, id)| Seat::of(directory, id, address(pair[0]), address(pair[1])))
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
fn free_ports(nodes: u16) -> Result<Vec<u16>, Failure> {
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
    Err(Failure::new(Exit::Unavailable, "no free ports were found between 10000 and 29999"))
}

fn found(directory: &Path, seats: &[Seat]) -> Result<(), Failure> {
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
    let options = Options { segment_bytes: SEGMENT_BYTES.into(), ..Options::default() };
    found_all(&members, data, options)?;
    for seat in seats.iter().rev() {
        // The first replica's file is the last one: it says that the cluster is whole.
        let text = seat.settings(&data(seat.id));
        fs::write(&seat.config, text).map_err(|error| Failure::file(&seat.config, &error))?;
    }
    Ok(())
}
