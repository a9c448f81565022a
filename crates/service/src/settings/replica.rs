//! Settings of a replica: its addresses and its timers.

use regent_replica::disk::DiskOptions;
use regent_replica::{Timing, TimingError, Tune};

use super::{ConfigError, Effective, Key, Origin};
use crate::address::host_and_port;
use crate::duration::millis;
use crate::replica::ReplicaSettings;
use crate::secure::PeerCertificates;

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
            is_witness: self.bool(Key::Witness),
            has_peers: speaks_of_peers
                .iter()
                .map(|key| self.origin(*key))
                .find(|origin| **origin != Origin::Default)
                .map(ToString::to_string),
            certificates: self.certificates()?,
            is_insecure: self.bool(Key::Insecure),
            state_budget: self.state_budget()?,
        })
    }

    /// All three files, or none.
    fn certificates(&self) -> Result<Option<PeerCertificates>, ConfigError> {
        let keys = [Key::PeerCert, Key::PeerKey, Key::PeerCa];
        let [certificate, key, ca] = keys.map(|key| self.text(key));
        let is_given = |key: &Key| !self.text(*key).is_empty();
        let accepts = || self.text(Key::PeerTls) == "accept";
        let is_said = *self.origin(Key::PeerTls) != Origin::Default;
        match (keys.iter().find(|key| is_given(key)), keys.iter().find(|key| !is_given(key))) {
            (None, _) if is_given(&Key::PeerCrl) => {
                let said = self.origin(Key::PeerCrl);
                let what = format!("peer_crl is set and peer_cert is not (from {said})");
                Err(ConfigError::Together { what })
            }
            // The default may stand in a file that `regent config` printed. With `insecure` it would be plaintext beyond
            // this machine, whatever it says.
            (None, _) if accepts() || (is_said && self.bool(Key::Insecure)) => {
                let (said, tls) = (self.origin(Key::PeerTls), self.text(Key::PeerTls));
                let what = format!(
                    "peer_tls is \"{tls}\" and peer_cert is not set (from {said}); without certificates no peer speaks TLS"
                );
                Err(ConfigError::Together { what })
            }
            (None, _) => Ok(None),
            (Some(_), None) => {
                let (certificate, key, ca) = (certificate.into(), key.into(), ca.into());
                let crl = Some(self.text(Key::PeerCrl)).filter(|text| !text.is_empty());
                let crl = crl.map(Into::into);
                let accepts_plaintext = accepts();
                Ok(Some(PeerCertificates { certificate, key, ca, crl, accepts_plaintext }))
            }
            (Some(given), Some(missing)) => {
                let said = self.origin(*given);
                let what = format!(
                    "{given} is set and {missing} is not (from {said}); peer_cert, peer_key and peer_ca go together"
                );
                Err(ConfigError::Together { what })
            }
        }
    }

    fn disk_options(&self) -> Result<DiskOptions, ConfigError> {
        let segment_bytes = u64::from(self.count(Key::SegmentBytes));
        let options = DiskOptions { segment_bytes, ..DiskOptions::default() };
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
    fn certificates_are_given_with_their_key_and_their_ca_or_not_at_all() {
        assert_eq!(settings(&[]).unwrap().certificates, None);
        let all = [(Key::PeerCert, "c"), (Key::PeerKey, "k"), (Key::PeerCa, "a")];
        let given = settings(&all).unwrap().certificates.unwrap();
        assert_eq!((given.certificate, given.key, given.ca), ("c".into(), "k".into(), "a".into()));
        for missing in 0..3 {
            let mut some = all.to_vec();
            let (key, _) = some.remove(missing);
            let error = settings(&some).unwrap_err();
            assert!(error.contains(&format!("is set and {key} is not (from --peer-")), "{error}");
        }
    }

    #[test]
    fn links_without_tls_are_taken_only_beside_certificates_and_only_if_said() {
        let all = [(Key::PeerCert, "c"), (Key::PeerKey, "k"), (Key::PeerCa, "a")];
        assert!(!settings(&all).unwrap().certificates.unwrap().accepts_plaintext);
        let accept = (Key::PeerTls, "accept");
        let both = settings(&[&all[..], &[accept]].concat()).unwrap();
        assert!(both.certificates.unwrap().accepts_plaintext);
        assert!(settings(&[accept]).unwrap_err().contains("peer_cert is not set"));
        let (required, insecure) = ((Key::PeerTls, "required"), (Key::Insecure, "true"));
        assert!(settings(&[required]).is_ok(), "on this machine, and `regent config` prints it");
        assert!(settings(&[required, insecure]).unwrap_err().contains("peer_cert is not set"));
        assert!(settings(&[(Key::PeerTls, "off")]).is_err());
    }

    #[test]
    fn whoever_names_an_address_for_peers_has_peers() {
        assert_eq!(settings(&[]).unwrap().has_peers, None);
        let named = settings(&[(Key::PeerListen, "127.0.0.1:7401")]).unwrap();
        assert_eq!(named.has_peers, Some("--peer-listen".to_owned()));
    }
}
