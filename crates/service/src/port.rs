//! What the service tells and changes of a cluster, over the replica of this process.
//!
//! The replica has the last word on every change; what can be told beforehand is told here, because
//! here it can be told as what it is: a definite no, or "ask the one that leads".

use std::collections::BTreeSet;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use regent_api::{
    AddMemberRequest, ClusterMember, ClusterResponse, ClusterTuning, Code, MemberKind, Problem,
    ReplicaRole, ReplicaTimers, TuneMode,
};
use regent_election::store::StoreError;
use regent_election::tuning::LogTimers;
use regent_replica::core::removed;
use regent_replica::io::{Request, Response};
use regent_replica::limits::REPLICAS_MAX;
use regent_replica::measure::Tally;
use regent_replica::peers::is_loopback;
use regent_replica::{
    Backup, Handle, Member, MemberChange, Members, ReplicaId, Role, Status, Tune,
};
use regent_server::{BackupFile, CertificateState, Cluster, Durations, Measured};
use tokio::time::{sleep, timeout};

use crate::address::host_and_port;
use crate::members::{quorum, warnings};
use crate::wall::wall_s;

/// How long a leader of the log that is to be removed waits for its successor.
const SUCCESSOR_WITHIN: Duration = Duration::from_secs(5);
/// How often it looks.
const CLUSTER_POLL_EVERY: Duration = Duration::from_millis(10);
/// Segments of the log that must still fit beside a backup: a log that fills its reserve makes as many new ones
/// (semantics 29).
const SEGMENTS_LEFT: u64 = 2;
/// When to try again what the replica cannot do just now.
const RETRY_MS: u64 = 500;

/// The cluster as the replica of this process knows it.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaCluster {
    /// Speaks to the replica.
    pub(crate) handle: Handle,
    /// Where its data are.
    pub(crate) directory: PathBuf,
    /// Bytes of a segment of its log.
    pub(crate) segment_bytes: u64,
    /// Whether its peers are plaintext ones, which must be on this machine.
    pub(crate) are_peers_local: bool,
    /// Whether links without TLS are taken beside those with it.
    pub(crate) accepts_plaintext: bool,
}

impl ReplicaCluster {
    /// For how long the certificates of this replica are good.
    fn certificates(&self) -> Vec<CertificateState> {
        let state = |at_s: u64| CertificateState {
            what: "peer",
            left_s: at_s.cast_signed().saturating_sub(wall_s().cast_signed()),
            reload_failures: self.handle.links_reload_failures(),
        };
        self.handle.links_expire_at_s().map(state).into_iter().collect()
    }
}

#[async_trait]
impl Cluster for ReplicaCluster {
    async fn show(&self) -> ClusterResponse {
        let status = self.handle.status();
        let (log_bytes, snapshot_bytes) = self.sizes().await;
        let members = status.removed_from.as_ref().unwrap_or(&status.members);
        let address = |id: &ReplicaId| Some(members.get(id)?.client_address.clone());
        let connected = self.handle.connected();
        let quorum = quorum(status.voters.len());
        let heard = voters_heard(&status, &connected);
        // A follower counts on its leader until it misses it, but a link that broke says so at once.
        let is_led = status.leader.is_some_and(|leader| connected.contains(&leader));
        let has_quorum = status.has_quorum && (status.role == Role::Leader || is_led);
        // Who led before this replica lost touch leads it no more.
        let leader = status.leader.filter(|_| status.role == Role::Leader || has_quorum);
        ClusterResponse {
            cluster_id: format!("{:032x}", self.handle.identity().cluster),
            replica: status.id.get(),
            role: match status.role {
                Role::Leader => ReplicaRole::Leader,
                Role::Follower => ReplicaRole::Follower,
                Role::Candidate => ReplicaRole::Candidate,
            },
            raft_term: status.raft_term,
            leader: leader.map(ReplicaId::get),
            leader_address: leader.as_ref().and_then(address),
            leader_changes: self.handle.leader_changes(),
            voters: status.voters.len() as u64,
            quorum: quorum as u64,
            voters_heard: Some(heard as u64),
            has_quorum: Some(has_quorum),
            failures_survived: if has_quorum { heard.saturating_sub(quorum) } else { 0 } as u64,
            removed: status.removed_from.is_some(),
            grants_paused_for_ms: status.grants_paused_for.map(|left| left.as_millis() as u64),
            changing: status.is_joint,
            last_index: status.last,
            committed_index: status.committed,
            applied_index: status.applied,
            snapshot_index: status.snapshot,
            log_bytes,
            snapshot_bytes,
            members: self.members(&status, members, &connected),
            warnings: self.warnings(&status),
            tuning: self.tuning(),
            // What only the server knows.
            auth: None,
            caller: None,
        }
    }

    fn confirmed_ago(&self) -> Duration {
        let status = self.handle.status();
        status.confirmed_at.map_or(Duration::MAX, |at| regent_clock::now().since(at))
    }

    fn measured(&self) -> Measured {
        let measures = self.handle.measures();
        Measured {
            commits: durations(&measures.commits),
            syncs: durations(&measures.syncs),
            due_expiries: self.handle.status().due_expiries as u64,
            disk_free_bytes: regent_files::free_bytes(&self.directory).ok(),
            certificates: self.certificates(),
        }
    }

    async fn add(&self, request: AddMemberRequest) -> Result<(), Problem> {
        let id = self.number(request.id)?;
        let status = self.leading()?;
        for (field, text) in
            [("peer_address", &request.peer_address), ("client_address", &request.client_address)]
        {
            host_and_port(text).map_err(|why| Problem::new(Code::BadRequest, why).at(field))?;
        }
        let AddMemberRequest { peer_address, client_address, witness, .. } = request.clone();
        let member = Member { peer_address, client_address, is_witness: witness };
        // Asked for twice, by somebody who did not hear the answer.
        if status.members.get(&id) == Some(&member) && !status.voters.contains(&id) {
            return Ok(());
        }
        if let Some(why) = objection_to_adding(&status, id, &request) {
            return Err(Problem::new(Code::MemberRefused, why));
        }
        if self.are_peers_local && !is_loopback(&request.peer_address) {
            let why = format!(
                "{} is another machine, and this replica has no certificate for its peer links; set peer_cert, peer_key and peer_ca on every replica first (regent tls)",
                request.peer_address
            );
            return Err(Problem::new(Code::MemberRefused, why));
        }
        self.change(MemberChange::Add { id, member }).await
    }

    async fn promote(&self, id: u64) -> Result<(), Problem> {
        let id = self.number(id)?;
        let status = self.leading()?;
        if status.voters.contains(&id) {
            let why = format!("replica {id} is a voter already");
            return Err(Problem::new(Code::MemberRefused, why));
        }
        known(&status, id)?;
        self.change(MemberChange::Promote { id }).await
    }

    async fn remove(&self, id: u64) -> Result<(), Problem> {
        let id = self.number(id)?;
        let status = self.leading()?;
        known(&status, id)?;
        let stays = |id: &&ReplicaId| status.members.get(*id).is_some_and(|m| !m.is_witness);
        if !status.voters.iter().filter(|voter| **voter != id).any(|voter| stays(&voter)) {
            let why = format!(
                "without replica {id} nobody would be left who votes and keeps state; promote another first"
            );
            return Err(Problem::new(Code::MemberRefused, why));
        }
        if id == status.id {
            if let Some(why) = status.objection_to_removing(id) {
                return Err(Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS));
            }
            // It leads until somebody else does, and that one removes it.
            self.transfer(None).await?;
            return Err(self.succeeded().await);
        }
        self.change(MemberChange::Remove { id }).await
    }

    async fn transfer(&self, to: Option<u64>) -> Result<(), Problem> {
        let to = to.map(|to| self.number(to)).transpose()?;
        let status = self.leading()?;
        if let Some(to) = to {
            known(&status, to)?;
            let refuse = |why: String| Err(Problem::new(Code::MemberRefused, why));
            if !status.voters.contains(&to) {
                return refuse(format!("replica {to} is a learner; promote it first"));
            }
            if status.members.get(&to).is_some_and(|member| member.is_witness) {
                return refuse(format!("replica {to} is a witness, which leads only to hand over"));
            }
        }
        if to.is_none() && status.voters.len() <= 1 {
            let why = "there is no other voter to hand over to";
            return Err(Problem::new(Code::MemberRefused, why));
        }
        self.ask(Request::Transfer { to }).await
    }

    async fn backup(&self) -> Result<BackupFile, Problem> {
        let backup = Backup::take(&self.handle, wall_s()).await?;
        let directory = self.directory.clone();
        let reserve = self.segment_bytes.saturating_mul(SEGMENTS_LEFT);
        let written =
            tokio::task::spawn_blocking(move || write(&directory, &backup.into_bytes(), reserve));
        let internal = |error: String| Problem::new(Code::Internal, error);
        written.await.map_err(|error| internal(error.to_string()))?.map_err(|error| {
            let why = format!("the backup cannot be written beside the data: {error}");
            Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS)
        })
    }
}

/// Writes a backup into a file without a name in this directory, which goes with its last reader. Refuses if less
/// than `reserve` bytes would stay free.
fn write(directory: &Path, bytes: &[u8], reserve: u64) -> io::Result<BackupFile> {
    let free = regent_files::free_bytes(directory)?;
    let needed = (bytes.len() as u64).saturating_add(reserve);
    if free < needed {
        let why = format!(
            "{free} bytes are free, and {needed} are needed: {} for the backup and {reserve} that stay for the log",
            bytes.len()
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    let mut file = tempfile::tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(BackupFile { file, bytes: bytes.len() as u64 })
}

impl ReplicaCluster {
    fn number(&self, id: u64) -> Result<ReplicaId, Problem> {
        ReplicaId::new(id)
            .ok_or_else(|| Problem::new(Code::BadRequest, "replicas count from 1 on").at("id"))
    }

    /// The condition of this replica, if it leads the log.
    fn leading(&self) -> Result<Status, Problem> {
        let status = self.handle.status();
        if status.role == Role::Leader {
            return Ok(status);
        }
        Err(elsewhere(&status))
    }

    async fn change(&self, change: MemberChange) -> Result<(), Problem> {
        self.ask(Request::Members(change)).await
    }

    async fn ask(&self, request: Request) -> Result<(), Problem> {
        let error = match self.handle.ask(request).await {
            Ok(Response::Error(error)) | Err(error) => error,
            Ok(_) => return Ok(()),
        };
        let status = self.handle.status();
        match error {
            // It led a moment ago.
            StoreError::Unavailable { .. } if status.role != Role::Leader => {
                Err(elsewhere(&status))
            }
            StoreError::Unavailable { why, retry_after: None } => {
                Err(Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS))
            }
            other => Err(other.into()),
        }
    }

    /// Waits for somebody else to lead, and says who does.
    async fn succeeded(&self) -> Problem {
        let succeeded = async {
            loop {
                let status = self.handle.status();
                if status.role != Role::Leader && status.leader.is_some() {
                    return status;
                }
                sleep(CLUSTER_POLL_EVERY).await;
            }
        };
        match timeout(SUCCESSOR_WITHIN, succeeded).await {
            Ok(status) => elsewhere(&status),
            Err(_) => {
                let why = "no other replica took the lead; nothing was removed";
                Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS)
            }
        }
    }

    fn members(
        &self,
        status: &Status,
        members: &Members,
        connected: &BTreeSet<ReplicaId>,
    ) -> Vec<ClusterMember> {
        let round_trips = self.handle.round_trips();
        let leads_here = status.role == Role::Leader;
        let of = |id: &ReplicaId| {
            status.progress.iter().find(|(other, ..)| other == id).filter(|_| leads_here)
        };
        let member = |(id, member): (&ReplicaId, &Member)| ClusterMember {
            id: id.get(),
            kind: match (member.is_witness, status.voters.contains(id)) {
                (false, true) => MemberKind::Voter,
                (true, true) => MemberKind::Witness,
                (_, false) => MemberKind::Learner,
            },
            leads: status.leader == Some(*id) && (leads_here || status.has_quorum),
            peer_address: member.peer_address.clone(),
            client_address: member.client_address.clone(),
            matched_index: of(id).map(|(_, matched, _)| *matched),
            heard: of(id).and_then(|_| status.heard(*id)),
            // Members end the links of one that was removed, which is no silence of theirs.
            connected: status
                .removed_from
                .is_none()
                .then(|| *id == status.id || connected.contains(id)),
            round_trip_us: round_trips.get(id).map(|trip| trip.as_micros() as u64),
        };
        members.iter().map(member).collect()
    }

    fn warnings(&self, status: &Status) -> Vec<String> {
        let witnesses = status
            .members
            .iter()
            .filter(|(id, member)| member.is_witness && status.voters.contains(id))
            .count();
        let mut told = warnings(status.voters.len(), witnesses);
        if let Some(members) = &status.removed_from {
            told.push(removed(status.id, members));
        } else if !status.has_quorum {
            told.push(match status.role {
                Role::Leader => "too few voters answer: nothing can be decided".into(),
                Role::Follower | Role::Candidate => {
                    "no replica is known to lead the log: nothing can be decided".into()
                }
            });
        }
        if let Some(left) = status.grants_paused_for {
            told.push(format!(
                "the cluster was restored and grants nothing for another {} s: leases granted before that may still run",
                left.as_millis().div_ceil(1000)
            ));
        }
        if status.role == Role::Leader {
            for (id, ..) in &status.progress {
                if status.heard(*id) == Some(false) {
                    told.push(format!("replica {id} was not heard lately"));
                }
            }
        }
        if self.accepts_plaintext {
            told.push(format!(
                "replica {} still takes peer links without TLS (peer_tls is \"accept\"): set it to \"required\" as soon as every replica has a certificate",
                status.id
            ));
        }
        told.extend(self.handle.timing_warning());
        let is_local = |member: &Member| is_loopback(&member.peer_address);
        let (local, remote): (Vec<_>, Vec<_>) =
            status.members.iter().partition(|(_, member)| is_local(member));
        if !remote.is_empty() {
            told.extend(local.iter().map(|(id, member)| {
                format!(
                    "replica {id} is at {}, where other machines cannot reach it",
                    member.peer_address
                )
            }));
        }
        told
    }

    fn tuning(&self) -> Option<ClusterTuning> {
        let mode = match self.handle.tune() {
            Tune::Off => return None,
            Tune::Report => TuneMode::Report,
            Tune::Apply => TuneMode::Apply,
        };
        let advice = self.handle.advice()?;
        let timers = |patience_percent: u64, timers: LogTimers| ReplicaTimers {
            heartbeat_ms: timers.heartbeat_ms,
            election_ms_min: timers.election_ms_min,
            election_ms_max: timers.election_ms_max,
            patience_percent,
        };
        let per_year = advice.present_costs.false_per_day() * 365.0;
        Some(ClusterTuning {
            mode,
            measured_for_ms: u64::try_from(advice.watched.as_millis()).unwrap_or(u64::MAX),
            round_trips: advice.round_trips,
            round_trip_us_p50: advice.round_trip_us_p50,
            round_trip_us_p99: advice.round_trip_us_p99,
            pauses: advice.pauses,
            pause_ms_max: advice.pause_ms_max,
            present: timers(advice.percent, advice.present),
            // Whole ones; beyond what a number holds, the largest.
            false_elections_per_year: per_year.round() as u64,
            better: advice.better.map(|(percent, better)| timers(percent, better)),
            ttl_ms_min: advice.ttl_ms_min,
            why: advice.why,
        })
    }

    /// Bytes of the log and of the newest snapshot.
    async fn sizes(&self) -> (u64, u64) {
        let directory = self.directory.clone();
        let sizes = tokio::task::spawn_blocking(move || {
            let (mut log, mut newest) = (0, (String::new(), 0));
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let bytes = entry.metadata().map_or(0, |data| data.len());
                if name.starts_with("wal-") {
                    log += bytes;
                } else if name.starts_with("snapshot-") && !name.ends_with(".tmp") {
                    newest = newest.max((name, bytes));
                }
            }
            (log, newest.1)
        });
        sizes.await.unwrap_or_default()
    }
}

fn durations(tally: &Tally) -> Durations {
    Durations { buckets: tally.buckets(), sum_s: tally.sum_s() }
}

/// How many voters this replica hears, itself included: those that answered its messages if it leads, else those that
/// answer its pings.
fn voters_heard(status: &Status, connected: &BTreeSet<ReplicaId>) -> usize {
    let is_heard = |id: &&ReplicaId| {
        let is_connected = **id == status.id || connected.contains(*id);
        match status.role {
            Role::Leader => status.heard(**id).unwrap_or(is_connected),
            Role::Follower | Role::Candidate => is_connected,
        }
    };
    status.voters.iter().filter(is_heard).count()
}

/// Another replica leads, or none is known to, or this one was removed.
fn elsewhere(status: &Status) -> Problem {
    if let Some(members) = &status.removed_from {
        return Problem::new(Code::StoreUnavailable, removed(status.id, members));
    }
    let Some(leader) = status.leader.filter(|leader| *leader != status.id) else {
        let why = "no replica is known to lead the log; ask again";
        return Problem::new(Code::StoreUnavailable, why).retry_after(RETRY_MS);
    };
    let address = status.members.get(&leader).map(|member| member.client_address.clone());
    let place = address.as_deref().unwrap_or("an unknown address");
    let why = format!("replica {leader} at {place} leads the log; ask it");
    let mut problem = Problem::new(Code::OtherReplicaLeads, why);
    problem.facts.leader_address = address;
    problem
}

fn known(status: &Status, id: ReplicaId) -> Result<(), Problem> {
    if status.members.contains_key(&id) {
        return Ok(());
    }
    Err(Problem::new(Code::MemberRefused, format!("replica {id} is no member")))
}

fn objection_to_adding(
    status: &Status,
    id: ReplicaId,
    request: &AddMemberRequest,
) -> Option<String> {
    if status.members.contains_key(&id) {
        return Some(format!(
            "replica {id} is a member already, as another kind or at other addresses (regent cluster status)"
        ));
    }
    // A number that was used before may belong to a disk that remembers another life; and the
    // replica with the lower number dials, so one that knows nobody must have the highest.
    let highest = status.highest;
    if highest >= id.get() {
        let next = highest.saturating_add(1);
        return Some(format!(
            "replica {id} must have a number above {highest}, the highest that was ever used; take {next} or more"
        ));
    }
    if status.members.len() >= REPLICAS_MAX {
        return Some(format!("there are {REPLICAS_MAX} replicas already, the most there can be"));
    }
    status.members.iter().find_map(|(other, member)| {
        let is_taken = member.peer_address == request.peer_address
            || member.client_address == request.client_address;
        is_taken.then(|| format!("replica {other} has one of these addresses already"))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_backup_leaves_room_for_the_log() {
        let place = tempfile::tempdir().unwrap();
        let refused = write(place.path(), b"backup", 1 << 60).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert!(refused.to_string().contains("are free"), "{refused}");
        let mut written = write(place.path(), b"backup", 0).unwrap();
        let mut text = String::new();
        written.file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), written.bytes), ("backup", 6));
    }
}
