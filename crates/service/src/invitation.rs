//! An invitation: one file with which a machine joins a cluster, so that nobody handles certificates by hand.
//!
//! It is made where the CA is, for a replica that the cluster has just taken in as a learner, and it holds the number, the
//! addresses, the certificate and the key of that replica: a secret. The machine that joins unpacks it into a directory of
//! its own, `joined` in the data directory, with the settings that `regent serve --config` needs.
//!
//! The first line has the SHA-256 of the rest, which finds a file that was cut off or changed on the way; it proves
//! nothing about who made the file. Carry it as you would carry the key.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use regent_api::{AddMemberRequest, ClusterResponse, MemberKind};
use regent_files::{FileError, Trust};
use regent_replica::ReplicaId;
use regent_replica::disk::DiskOptions;
use regent_tls::authority::{self, Owner, Subject};
use regent_tls::{PeerFiles, PeerTls, ReplicaName, TlsError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::address::host_and_port;
use crate::directory::{holds_replica, refuse_strangers};
use crate::error::ReplicaError;
use crate::founding::{cluster_id, prepare_to_join};
use crate::settings::{Key, Value};

/// What the file begins with; the digest follows.
const MARK: &str = "regent-invitation-1 ";
/// Larger than any honest invitation: four files of certificates and some addresses.
const INVITATION_BYTES_MAX: u64 = 1 << 20;
/// The folder of the data directory that what was invited is unpacked into.
const JOINED: &str = "joined";

/// What a machine needs to join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The id of the cluster, in 32 hexadecimal digits.
    pub cluster_id: String,
    /// The number of the replica that joins.
    pub replica: u64,
    /// Where the other replicas reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// Whether it votes and keeps no state.
    pub witness: bool,
    /// Whether the servers of the cluster authenticate callers: the one that joins must do the same.
    pub auth: String,
    /// Until when it may be used, in seconds since 1970.
    pub expires_at_s: u64,
    /// The replicas there were, as lists of members are written: for people.
    pub members: String,
    certificate: String,
    key: String,
    ca: String,
    crl: String,
}

/// Why somebody is not invited, or does not join.
#[derive(Debug, thiserror::Error)]
pub enum InvitationError {
    /// The number is taken.
    #[error(
        "replica {id} is a member already, at {peer}; a number is used once: invite another one, above every number there was"
    )]
    Member { id: u64, peer: String },
    /// The file is no invitation, or not all of it.
    #[error("{}: {why}", .path.display())]
    Malformed { path: PathBuf, why: String },
    /// The server says nonsense.
    #[error("the server that was asked is no replica that can invite: {0}")]
    Server(String),
    /// Nobody could use it.
    #[error("an invitation that ends at once invites nobody; give --expires-in a second or more")]
    Late,
    /// It was used too late.
    #[error(
        "the invitation of replica {id} ended {ago_s} s ago; remove the replica (`regent cluster remove {id}`) and invite another number"
    )]
    Over { id: u64, ago_s: u64 },
    /// A replica lives in the data directory.
    #[error("{} holds a replica already, or what is left of one; choose an empty directory with --data-dir", .path.display())]
    Occupied { path: PathBuf },
    /// An address of the invitation is a name, and where to listen was not said.
    #[error("{address} is a name: say where to listen with {flag} ADDRESS:PORT")]
    Listen { address: String, flag: &'static str },
    /// It cannot be read, or must not be trusted.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The certificate cannot be made, or would be refused.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("cluster_id", &self.cluster_id)
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// For how long an invitation and its certificate are good.
#[derive(Clone, Copy, Debug)]
pub struct GoodFor {
    /// Of the certificate.
    pub days: u32,
    /// Of the invitation, in seconds.
    pub seconds: u64,
    /// From when on, in seconds since 1970.
    pub since_s: u64,
}

/// Looks whether somebody can be invited, before the cluster takes it in: all that would be refused afterwards, when
/// the cluster has a member that cannot join. One that was taken in as a learner under the same addresses can still be
/// invited, since an earlier attempt may have broken off: the cluster takes the very same member in twice.
///
/// # Errors
/// If not.
pub fn may_invite(
    cluster: &ClusterResponse,
    guest: &AddMemberRequest,
    ca: &Path,
    good_for: GoodFor,
) -> Result<(), InvitationError> {
    if good_for.seconds == 0 {
        return Err(InvitationError::Late);
    }
    authority::may_issue(ca, &Owner::Replica(guest.id), good_for.days, good_for.since_s)?;
    revocations(ca)?;
    known_auth(cluster)?;
    cluster_id(&cluster.cluster_id).map_err(InvitationError::Server)?;
    let Some(member) = cluster.members.iter().find(|member| member.id == guest.id) else {
        return Ok(());
    };
    let is_same = member.kind == MemberKind::Learner
        && member.peer_address == guest.peer_address
        && member.client_address == guest.client_address;
    if is_same {
        return Ok(());
    }
    Err(InvitationError::Member { id: guest.id, peer: member.peer_address.clone() })
}

/// The revocation list of a CA.
fn revocations(ca: &Path) -> Result<String, FileError> {
    regent_files::read_text(&ca.join("ca.crl"), 1 << 20, Trust::Own)
}

/// A file that is there and empty until an invitation is written into it. It is made first: when the cluster has taken
/// the replica in, it is too late to find out that the file cannot be written. Dropped before, it is removed.
#[derive(Debug)]
pub struct InvitationFile {
    path: PathBuf,
    is_written: bool,
}

impl InvitationFile {
    /// Makes a file that only this user may read, and that must not be there yet.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: PathBuf) -> Result<Self, InvitationError> {
        match regent_files::create_private(&path, b"") {
            Ok(()) => Ok(Self { path, is_written: false }),
            Err(source) => Err(InvitationError::Io { path, source }),
        }
    }

    /// Writes the invitation into it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(mut self, invitation: &Invitation) -> Result<(), InvitationError> {
        let io = |source| InvitationError::Io { path: self.path.clone(), source };
        let body = toml::to_string(invitation).map_err(|error| io(io::Error::other(error)))?;
        let text = format!("{MARK}{}\n{body}", digest(&body));
        regent_files::replace_private(&self.path, text.as_bytes()).map_err(io)?;
        self.is_written = true;
        Ok(())
    }
}

impl Drop for InvitationFile {
    fn drop(&mut self) {
        if !self.is_written {
            // Nothing is in it; that it stays there is said by the next attempt.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether the cluster authenticates callers. A replica that does not passes on what strangers ask for, so one is invited
/// only if that is known.
fn known_auth(cluster: &ClusterResponse) -> Result<String, InvitationError> {
    cluster.auth.clone().filter(|auth| ["off", "required"].contains(&auth.as_str())).ok_or_else(
        || InvitationError::Server("it does not say whether it authenticates callers".to_owned()),
    )
}

impl Invitation {
    /// Issues a certificate for a replica that the cluster has taken in, and invites it.
    ///
    /// # Errors
    /// If the CA cannot issue it.
    pub fn issue(
        cluster: &ClusterResponse,
        guest: &AddMemberRequest,
        ca: &Path,
        good_for: GoodFor,
    ) -> Result<Self, InvitationError> {
        let GoodFor { days, seconds, since_s: now_s } = good_for;
        let number = cluster_id(&cluster.cluster_id).map_err(InvitationError::Server)?;
        let auth = known_auth(cluster)?;
        let name = ReplicaName { cluster: number, replica: guest.id };
        let made = authority::issue(ca, &Subject::Replica(name), days, now_s)?;
        let text = |path: &Path, trust| regent_files::read_text(path, 1 << 20, trust);
        let member = |it: &regent_api::ClusterMember| {
            format!("{}={}/{}", it.id, it.peer_address, it.client_address)
        };
        let members: Vec<String> = cluster.members.iter().map(member).collect();
        Ok(Self {
            cluster_id: cluster.cluster_id.clone(),
            replica: guest.id,
            peer_address: guest.peer_address.clone(),
            client_address: guest.client_address.clone(),
            witness: guest.witness,
            auth,
            expires_at_s: now_s.saturating_add(seconds),
            members: members.join(","),
            certificate: text(&made.certificate, Trust::Own)?,
            key: text(&made.key, Trust::Secret)?,
            ca: text(&made.ca, Trust::Own)?,
            crl: revocations(ca)?,
        })
    }

    /// Reads one that nobody else could read.
    ///
    /// # Errors
    /// If it is none, was changed or cut off, or others can read it.
    pub fn read(path: &Path) -> Result<Self, InvitationError> {
        let text = regent_files::read_text(path, INVITATION_BYTES_MAX, Trust::Secret)?;
        let malformed =
            |why: &str| InvitationError::Malformed { path: path.to_owned(), why: why.to_owned() };
        let rest = text.strip_prefix(MARK);
        let rest =
            rest.ok_or_else(|| malformed("this is no invitation of `regent cluster invite`"))?;
        let (told, body) = rest.split_once('\n').unwrap_or((rest, ""));
        if told != digest(body) {
            return Err(malformed(
                "the invitation was changed or cut off on its way; copy it again",
            ));
        }
        // What it holds is not repeated: it may be a key.
        let invitation: Self = toml::from_str(body)
            .map_err(|_| malformed("this is an invitation of another version"))?;
        for address in [&invitation.peer_address, &invitation.client_address] {
            host_and_port(address).map_err(|why| malformed(&why))?;
        }
        invitation.name().ok_or_else(|| malformed("it names no replica of a cluster"))?;
        Ok(invitation)
    }

    /// Which replica of which cluster is invited.
    fn name(&self) -> Option<(u128, ReplicaId)> {
        Some((cluster_id(&self.cluster_id).ok()?, ReplicaId::new(self.replica)?))
    }
}

/// Where a replica that joins listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenAt {
    /// To clients; none: at the address of the invitation.
    pub clients: Option<SocketAddr>,
    /// To peers; none: at the address of the invitation.
    pub peers: Option<SocketAddr>,
}

/// Unpacks an invitation into a data directory that holds no replica yet, and prepares the replica to join. Gives the file
/// of its settings.
///
/// # Errors
/// If the invitation is over or its files do not fit together, or the directory cannot be used: nothing was written then.
pub fn join(
    invitation: &Invitation,
    directory: &Path,
    listen: ListenAt,
    options: DiskOptions,
    now_s: u64,
) -> Result<PathBuf, InvitationError> {
    let id = invitation.replica;
    let no_name = || InvitationError::Server("an invitation names no replica".to_owned());
    let (cluster, replica) = invitation.name().ok_or_else(no_name)?;
    let ago_s = now_s.saturating_sub(invitation.expires_at_s);
    if ago_s > 0 {
        return Err(InvitationError::Over { id, ago_s });
    }
    if holds_replica(directory)? {
        return Err(InvitationError::Occupied { path: directory.to_owned() });
    }
    refuse_strangers(directory)?;
    let clients = at(listen.clients, &invitation.client_address, "--listen")?;
    let peers = at(listen.peers, &invitation.peer_address, "--peer-listen")?;
    // Whole paths, so that the server may be started anywhere.
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let folder = directory.join(JOINED);
    if folder.symlink_metadata().is_ok() {
        return Err(InvitationError::Occupied { path: folder });
    }
    let files = PeerFiles {
        certificate: folder.join("replica.crt"),
        key: folder.join("replica.key"),
        ca: folder.join("ca.crt"),
        crl: Some(folder.join("ca.crl")),
    };
    let texts = [&invitation.certificate, &invitation.key, &invitation.ca, &invitation.crl];
    let own = ReplicaName { cluster, replica: id };
    // Before anything is written.
    PeerTls::check(own, files.clone(), &texts.map(|text| text.clone().into_bytes()))?;
    let settings = settings(&files, [clients, peers], &directory, invitation, options);
    prepare_to_join(&directory, cluster, replica, options)?;
    let io = |path: &Path, source| InvitationError::Io { path: path.to_owned(), source };
    regent_files::create_private_directory(&folder).map_err(|source| io(&folder, source))?;
    let config = folder.join("regent.toml");
    let paths = [Some(&files.certificate), Some(&files.key), Some(&files.ca), files.crl.as_ref()];
    let unpacked = paths.into_iter().flatten().zip(texts.map(String::as_str));
    for (path, text) in unpacked.chain([(&config, settings.as_str())]) {
        regent_files::create_private(path, text.as_bytes()).map_err(|source| io(path, source))?;
    }
    Ok(config)
}

/// The settings that a replica with these files runs with.
fn settings(
    files: &PeerFiles,
    [clients, peers]: [SocketAddr; 2],
    directory: &Path,
    invitation: &Invitation,
    options: DiskOptions,
) -> String {
    let path = |path: &Path| Value::Text(path.display().to_string());
    let segment_bytes = u32::try_from(options.segment_bytes).unwrap_or(u32::MAX);
    let mut told = vec![
        (Key::Listen, Value::Address(clients)),
        (Key::PeerListen, Value::Address(peers)),
        (Key::DataDir, Value::Directory(directory.to_owned())),
        (Key::SegmentBytes, Value::Count(segment_bytes)),
        (Key::Witness, Value::Bool(invitation.witness)),
        (Key::Auth, Value::Text(invitation.auth.clone())),
        (Key::PeerCert, path(&files.certificate)),
        (Key::PeerKey, path(&files.key)),
        (Key::PeerCa, path(&files.ca)),
    ];
    told.extend(files.crl.as_deref().map(|crl| (Key::PeerCrl, path(crl))));
    let lines = told.iter().map(|(key, value)| format!("{key} = {value}\n"));
    std::iter::once("# a replica that was invited\n".to_owned()).chain(lines).collect()
}

fn at(
    said: Option<SocketAddr>,
    address: &str,
    flag: &'static str,
) -> Result<SocketAddr, InvitationError> {
    said.or_else(|| address.parse().ok())
        .ok_or_else(|| InvitationError::Listen { address: address.to_owned(), flag })
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW_S: fn() -> u64 = crate::wall::wall_s;
    const DAY_S: u64 = 24 * 3600;

    fn cluster() -> ClusterResponse {
        serde_json::from_value(serde_json::json!({
            "cluster_id": "2f6e63b8d1a04c57a3f4b0c9d8e7f601", "replica": 1, "role": "leader", "auth": "required",
            "raft_term": 1, "leader": 1, "leader_address": null, "leader_changes": 1, "voters": 1,
            "quorum": 1, "failures_survived": 0, "changing": false, "last_index": 1,
            "committed_index": 1, "applied_index": 1, "snapshot_index": 0, "log_bytes": 0,
            "snapshot_bytes": 0, "warnings": [], "members": [{
                "id": 1, "kind": "voter", "leads": true, "peer_address": "a:7401",
                "client_address": "a:7400", "heard": null, "behind": null, "round_trip_us": null,
            }],
        }))
        .unwrap()
    }

    fn guest(id: u64) -> AddMemberRequest {
        let (peer_address, client_address) = ("127.0.0.1:7403".into(), "127.0.0.1:7404".into());
        AddMemberRequest { id, peer_address, client_address, witness: false }
    }

    fn options() -> DiskOptions {
        DiskOptions { segment_bytes: 1 << 20, ..DiskOptions::default() }
    }

    #[test]
    fn an_invitation_is_unpacked_once_and_refused_if_it_is_changed_over_or_of_another_cluster() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        let (ca, now_s) = (at("ca"), NOW_S());
        authority::init(&ca, 30, now_s).unwrap();
        let good_for = GoodFor { days: 7, seconds: DAY_S, since_s: now_s };
        let may = |id, good_for| may_invite(&cluster(), &guest(id), &ca, good_for);
        let taken = may(1, good_for).unwrap_err().to_string();
        assert!(taken.contains("replica 1 is a member already, at a:7401"), "{taken}");
        for days in [0, 31, u32::MAX] {
            let refused = may(2, GoodFor { days, ..good_for }).unwrap_err();
            assert!(matches!(refused, InvitationError::Tls(_)), "{days}: {refused}");
        }
        assert!(may(2, GoodFor { seconds: 0, ..good_for }).is_err(), "nobody could use it");
        fs::rename(ca.join("ca.crl"), at("hidden")).unwrap();
        assert!(may(2, good_for).is_err(), "it would lack the revocation list");
        fs::rename(at("hidden"), ca.join("ca.crl")).unwrap();
        may(2, good_for).unwrap();
        assert!(InvitationFile::create(at("no/such/folder")).is_err());
        let file = at("2.invitation");
        drop(InvitationFile::create(file.clone()).unwrap());
        assert!(!file.exists(), "one that was not needed is gone");
        let place = InvitationFile::create(file.clone()).unwrap();
        let invitation = Invitation::issue(&cluster(), &guest(2), &ca, good_for).unwrap();
        let again = may(2, good_for).unwrap_err();
        assert!(matches!(again, InvitationError::Tls(TlsError::Exists { .. })), "{again}");
        place.write(&invitation).unwrap();
        assert_eq!(Invitation::read(&file).unwrap(), invitation);
        assert!(InvitationFile::create(file.clone()).is_err(), "nothing is written over");
        assert!(!format!("{invitation:?}").contains("KEY"));

        // Every byte counts.
        let bytes = fs::read(&file).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let path = at("changed");
            regent_files::replace_private(&path, &changed).unwrap();
            let refused = Invitation::read(&path).unwrap_err().to_string();
            assert!(!refused.contains("BEGIN"), "{refused}");
        }
        regent_files::replace_private(&at("cut"), &bytes[..bytes.len() / 2]).unwrap();
        let cut = Invitation::read(&at("cut")).unwrap_err().to_string();
        assert!(cut.contains("changed or cut off"), "{cut}");

        let join = |invitation: &Invitation, data: &str, now_s| {
            join(invitation, &at(data), ListenAt::default(), options(), now_s)
        };
        let over = join(&invitation, "late", now_s + DAY_S + 1).unwrap_err();
        assert!(matches!(over, InvitationError::Over { id: 2, ago_s: 1 }), "{over}");
        let foreign = Invitation { cluster_id: "1".repeat(32), ..invitation.clone() };
        let foreign = join(&foreign, "foreign", now_s).unwrap_err();
        assert!(matches!(foreign, InvitationError::Tls(TlsError::OtherName { .. })), "{foreign}");
        assert!(!at("foreign").exists(), "no key is left behind");
        let named = Invitation { peer_address: "d:7401".to_owned(), ..invitation.clone() };
        let named = join(&named, "named", now_s).unwrap_err().to_string();
        assert!(named.contains("--peer-listen"), "{named}");

        let config = join(&invitation, "data", now_s).unwrap();
        let settings = crate::settings::File::read(&config).unwrap().settings().unwrap();
        assert!(settings.iter().any(|(key, ..)| *key == Key::PeerCert));
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("auth = \"required\""), "strangers would be served: {text}");
        let silent = ClusterResponse { auth: None, ..cluster() };
        let silent = may_invite(&silent, &guest(3), &ca, good_for).unwrap_err().to_string();
        assert!(silent.contains("authenticates"), "{silent}");
        let left = at("left");
        fs::create_dir_all(left.join(JOINED)).unwrap();
        let left_over = join(&invitation, "left", now_s).unwrap_err();
        assert!(matches!(left_over, InvitationError::Occupied { .. }), "{left_over}");
        assert_eq!(fs::read_dir(left).unwrap().count(), 1, "nothing was written");
        for name in ["regent.toml", "replica.key", "replica.crt", "ca.crt", "ca.crl"] {
            let facts = fs::metadata(at("data/joined").join(name)).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::mode(&facts.permissions());
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let twice = join(&invitation, "data", now_s).unwrap_err();
        assert!(matches!(twice, InvitationError::Occupied { .. }), "{twice}");
        assert!(at("data/joined/replica.key").exists(), "what is used stays");
    }
}
