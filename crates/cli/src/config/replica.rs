//! Settings of a replica: its addresses and its timers.

use std::net::SocketAddr;

use regent_replica::disk::Options;
use regent_replica::{Timing, TimingError, Tune};

use super::{ConfigError, Effective, Key, Origin};
use crate::duration::millis;

/// What holds for this replica of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaSettings {
    /// Where peers are listened to.
    pub(crate) peer_listen: SocketAddr,
    /// Where peers reach it, if that is not where it listens.
    pub(crate) peer_advertise: Option<String>,
    /// Where clients reach it, if that is not where it listens.
    pub(crate) client_advertise: Option<String>,
    /// Its timers.
    pub(crate) timing: Timing,
    /// What is done about timers that do not suit the network.
    pub(crate) tune: Tune,
    /// Entries between two snapshots.
    pub(crate) snapshot_every: u64,
    /// How it uses its directory.
    pub(crate) disk: Options,
    /// How many bytes its flight recorder keeps.
    pub(crate) flight_bytes: u64,
    /// Whether it is a witness, if it joins.
    pub(crate) is_witness: bool,
    /// Who says that it has peers, if anybody does.
    pub(crate) has_peers: Option<Origin>,
}

impl Effective {
    pub(super) fn replica_settings(&self) -> Result<ReplicaSettings, ConfigError> {
        let advertised = |key| -> Result<Option<String>, ConfigError> {
            let text = self.text(key);
            if text.is_empty() {
                return Ok(None);
            }
            let refuse = |what| ConfigError::Given { origin: self.origin(key).clone(), what };
            host_and_port(&text).map_err(refuse)?;
            Ok(Some(text))
        };
        let snapshot_every = u64::from(self.count(Key::SnapshotEvery));
        if snapshot_every == 0 {
            let said = self.origin(Key::SnapshotEvery);
            let what = format!("snapshot_every must be more than zero (from {said})");
            return Err(ConfigError::Together { what });
        }
        let speaks_of_peers = [Key::PeerListen, Key::PeerAdvertise, Key::Witness];
        Ok(ReplicaSettings {
            peer_listen: self.address(Key::PeerListen),
            peer_advertise: advertised(Key::PeerAdvertise)?,
            client_advertise: advertised(Key::ClientAdvertise)?,
            timing: self.timing()?,
            tune: match self.text(Key::Tune).as_str() {
                "off" => Tune::Off,
                "apply" => Tune::Apply,
                _ => Tune::Report,
            },
            snapshot_every,
            disk: self.disk_options()?,
            flight_bytes: u64::from(self.count(Key::FlightBytes)),
            is_witness: self.bool(Key::Witness),
            has_peers: speaks_of_peers
                .iter()
                .map(|key| self.origin(*key))
                .find(|origin| **origin != Origin::Default)
                .cloned(),
        })
    }

    fn disk_options(&self) -> Result<Options, ConfigError> {
        let segment_bytes = u64::from(self.count(Key::SegmentBytes));
        let options = Options { segment_bytes, ..Options::default() };
        options.check().map_err(|error| {
            let said = self.origin(Key::SegmentBytes);
            ConfigError::Together { what: format!("segment_bytes: {error} (from {said})") }
        })?;
        Ok(options)
    }

    /// The timers of the profile, but for those that were named.
    fn timing(&self) -> Result<Timing, ConfigError> {
        let profile = match self.text(Key::Timing).as_str() {
            "wan" => Timing::WAN,
            _ => Timing::LAN,
        };
        let or = |key, default| match millis(self.duration(key)) {
            0 => default,
            ms => ms,
        };
        let timing = Timing::new(
            or(Key::ElectionMin, profile.election_ms_min()),
            or(Key::ElectionMax, profile.election_ms_max()),
            or(Key::Heartbeat, profile.heartbeat_ms()),
            or(Key::PeerRequest, profile.peer_request_ms()),
        );
        timing.map_err(|error| {
            let keys: &[Key] = match error {
                TimingError::Heartbeat { .. } => &[Key::Heartbeat, Key::ElectionMin],
                TimingError::PeerRequest { .. } => &[Key::PeerRequest, Key::Heartbeat],
                TimingError::Election { .. } => &[Key::ElectionMin, Key::ElectionMax],
                TimingError::TooShort { .. } => &[Key::Heartbeat],
            };
            let said: Vec<String> = keys.iter().map(|key| self.origin(*key).to_string()).collect();
            ConfigError::Together { what: format!("{error} (from {})", said.join(" and ")) }
        })
    }
}

/// Why a text is no address that another machine could use.
pub(crate) fn host_and_port(text: &str) -> Result<(), String> {
    let is_good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let host_is_good = !host.is_empty()
            && host.len() <= 253
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b));
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        host_is_good
            && (is_bracketed || !host.contains([':', '[', ']']))
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if is_good {
        return Ok(());
    }
    let shown: String = text.chars().take(80).collect();
    Err(format!("{shown:?} is no host and port; write it like 10.0.0.1:7401 or db-1:7401"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[(Key, &str)]) -> Result<ReplicaSettings, String> {
        let flags: Vec<(Key, String)> =
            flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        let effective = Effective::resolve(&flags, &|_| None, None).map_err(|e| e.to_string())?;
        effective.replica_settings().map_err(|error| error.to_string())
    }

    #[test]
    fn a_profile_gives_the_timers_that_nobody_names() {
        assert_eq!(settings(&[]).unwrap().timing, Timing::LAN);
        assert_eq!(settings(&[(Key::Timing, "wan")]).unwrap().timing, Timing::WAN);
        assert_eq!(settings(&[]).unwrap().tune, Tune::Report);
        assert_eq!(settings(&[(Key::Tune, "apply")]).unwrap().tune, Tune::Apply);
        assert_eq!(settings(&[(Key::Tune, "off")]).unwrap().tune, Tune::Off);
        let named = settings(&[(Key::Timing, "wan"), (Key::ElectionMax, "9s")]).unwrap().timing;
        assert_eq!((named.election_ms_max(), named.heartbeat_ms()), (9000, 250));
    }

    #[test]
    fn timers_that_do_not_go_together_are_told_with_the_arithmetic_and_who_said_so() {
        let error = settings(&[(Key::Heartbeat, "80ms")]).unwrap_err();
        assert!(error.contains("150 ms / 2 = 75 ms"), "{error}");
        assert!(error.ends_with("(from --heartbeat and default)"), "{error}");
        let error = settings(&[(Key::PeerRequest, "50ms")]).unwrap_err();
        assert!(error.contains("at or above the heartbeat of 50 ms"), "{error}");
        assert!(settings(&[(Key::SnapshotEvery, "0")]).unwrap_err().contains("more than zero"));
        let error = settings(&[(Key::SegmentBytes, "4095")]).unwrap_err();
        assert!(error.contains("segments of 4095 bytes are refused: from 4096"), "{error}");
    }

    #[test]
    fn whoever_names_an_address_for_peers_has_peers() {
        assert_eq!(settings(&[]).unwrap().has_peers, None);
        let named = settings(&[(Key::PeerListen, "127.0.0.1:7401")]).unwrap();
        assert_eq!(named.has_peers, Some(Origin::Flag("--peer-listen".into())));
    }

    #[test]
    fn an_address_for_others_has_a_host_and_a_port() {
        for good in ["10.0.0.1:7401", "db-1.example:1", "[::1]:7401", "localhost:65535"] {
            assert_eq!(host_and_port(good), Ok(()), "{good}");
        }
        for bad in ["", "db-1", ":7401", "db-1:0", "db-1:65536", "::1:7401", "a b:1", "a/b:1"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
