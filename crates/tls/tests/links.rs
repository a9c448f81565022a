//! Links between replicas: what is negotiated, what is refused, and how certificates change.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "common/trusting.rs"]
mod trusting;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use regent_tls::authority::{self, Made, Owner, Subject};
use regent_tls::{PeerFiles, PeerTls, Reload, Reloaded, ReplicaName, TlsError};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, NamedGroup, ProtocolVersion, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsConnector;
use trusting::TrustsEverybody;

const CLUSTER: u128 = 0xc1;
const DAY_S: u64 = 24 * 3600;

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn name(replica: u64) -> ReplicaName {
    ReplicaName { cluster: CLUSTER, replica }
}

fn subject(replica: u64) -> Subject {
    Subject::Replica(name(replica))
}

fn files(made: Made) -> PeerFiles {
    PeerFiles { certificate: made.certificate, key: made.key, ca: made.ca, crl: None }
}

/// A CA in this directory, and the files of replicas 1 and 2.
fn two(place: &Path) -> [PeerFiles; 2] {
    authority::init(place, 3650, now_s()).unwrap();
    [1, 2].map(|replica| files(authority::issue(place, &subject(replica), 365, now_s()).unwrap()))
}

#[tokio::test]
async fn a_link_is_tls_13_with_a_post_quantum_key_exchange_and_names_both_ends() {
    let place = tempfile::tempdir().unwrap();
    let [one, two] = two(place.path());
    let (one, two) = (PeerTls::open(name(1), one).unwrap(), PeerTls::open(name(2), two).unwrap());
    let (near, far) = duplex(1 << 16);
    let (dialled, accepted) = tokio::join!(one.connect(near), two.accept(far));
    let ((mut near, second), (mut far, first)) = (dialled.unwrap(), accepted.unwrap());
    assert_eq!((first, second), (name(1), name(2)));
    for connection in [near.get_ref().1, far.get_ref().1] {
        assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        let group = connection.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, NamedGroup::X25519MLKEM768);
    }
    near.write_all(b"vote").await.unwrap();
    near.flush().await.unwrap();
    let mut heard = [0; 4];
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"vote");
}

/// A client that knows older key exchanges only.
fn classical(files: &PeerFiles, version: &'static SupportedProtocolVersion) -> TlsConnector {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsEverybody))
        .with_client_auth_cert(chain, key)
        .unwrap();
    TlsConnector::from(Arc::new(client))
}

#[tokio::test]
async fn a_peer_without_post_quantum_key_exchange_still_connects_and_one_of_tls_12_does_not() {
    let place = tempfile::tempdir().unwrap();
    let [one, two] = two(place.path());
    let accepting = PeerTls::open(name(1), one).unwrap();
    let host = || ServerName::try_from("replica.invalid").unwrap();

    let (near, far) = duplex(1 << 16);
    let connector = classical(&two, &rustls::version::TLS13);
    let (dialled, accepted) = tokio::join!(connector.connect(host(), near), accepting.accept(far));
    let (link, who) = accepted.unwrap();
    assert_eq!(who, name(2));
    let group = link.get_ref().1.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519);
    dialled.unwrap();

    let (near, far) = duplex(1 << 16);
    let connector = classical(&two, &rustls::version::TLS12);
    let (dialled, accepted) = tokio::join!(connector.connect(host(), near), accepting.accept(far));
    assert!(accepted.is_err() && dialled.is_err());
}

#[tokio::test]
async fn new_links_use_the_certificates_that_took_the_place_of_others() {
    let place = tempfile::tempdir().unwrap();
    let [one, two] = two(place.path());
    let (first, second) =
        (PeerTls::open(name(1), one.clone()).unwrap(), PeerTls::open(name(2), two).unwrap());
    assert_eq!(first.reload().unwrap(), Reloaded::Same);

    let renewed = authority::renew(place.path(), &Owner::Replica(1), 90, true, now_s()).unwrap();
    let expires_at_s = renewed.expires_at_s;
    assert_eq!(first.reload().unwrap(), Reloaded::Changed { expires_at_s });
    assert_eq!(first.expires_at_s(), expires_at_s);
    let (near, far) = duplex(1 << 16);
    let (dialled, accepted) = tokio::join!(first.connect(near), second.accept(far));
    dialled.unwrap();
    let (link, _) = accepted.unwrap();
    let shown = link.get_ref().1.peer_certificates().unwrap()[0].clone();
    assert_eq!(shown, CertificateDer::from_pem_file(&one.certificate).unwrap());

    // Half of a change is refused, and what was there stays in use.
    let key = std::fs::read(&one.key).unwrap();
    authority::renew(place.path(), &Owner::Replica(1), 80, true, now_s()).unwrap();
    std::fs::write(&one.key, key).unwrap();
    let refused = first.reload().unwrap_err();
    assert!(matches!(refused, TlsError::Mismatch { .. }), "{refused}");
    // It is tried again: a certificate that is refused because it is not valid yet will be.
    let refused = first.reload().unwrap_err();
    assert!(matches!(refused, TlsError::Mismatch { .. }), "{refused}");
    assert_eq!(first.expires_at_s(), expires_at_s);
    let (near, far) = duplex(1 << 16);
    let (dialled, accepted) = tokio::join!(first.connect(near), second.accept(far));
    assert!(dialled.is_ok() && accepted.is_ok());
}

#[test]
fn certificates_that_peers_would_refuse_are_refused_before_they_are_used() {
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [one, two] = two(place.path());
    let open = |files: &PeerFiles| PeerTls::open(name(1), files.clone()).unwrap_err();

    let error = open(&two);
    assert!(matches!(error, TlsError::OtherName { found, .. } if found == name(2)), "{error}");
    authority::init(elsewhere.path(), 30, now_s()).unwrap();
    let other_ca = PeerFiles { ca: elsewhere.path().join("ca.crt"), ..one.clone() };
    let error = open(&other_ca);
    assert!(error.to_string().contains("no CA that is believed here has issued it"), "{error}");
    let error = open(&PeerFiles { key: one.certificate.clone(), ..one.clone() });
    assert!(matches!(error, TlsError::KeyIsOpen { mode: 0o644, .. }), "{error}");
    let error = open(&PeerFiles { certificate: one.key.clone(), ..one.clone() });
    assert!(error.to_string().contains("no certificate in PEM"), "{error}");
    for mode in [0o640, 0o604, 0o644] {
        std::fs::set_permissions(&one.key, PermissionsExt::from_mode(mode)).unwrap();
        assert!(matches!(open(&one), TlsError::KeyIsOpen { .. }), "{mode:o}");
    }
    std::fs::set_permissions(&one.key, PermissionsExt::from_mode(0o600)).unwrap();
    // Whoever can write to them decides who is believed.
    for file in [&one.ca, &one.certificate] {
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
            let error = open(&one).to_string();
            assert!(error.contains("can be written by others"), "{mode:o}: {error}");
        }
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o644)).unwrap();
    }
    // A pipe would be waited for.
    let pipe = place.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let piped = [
        PeerFiles { ca: pipe.clone(), ..one.clone() },
        PeerFiles { certificate: pipe.clone(), ..one.clone() },
        PeerFiles { key: pipe, ..one.clone() },
    ];
    for files in piped {
        let error = open(&files).to_string();
        assert!(error.contains("is a named pipe and not a regular file"), "{error}");
    }
    PeerTls::open(name(1), one.clone()).unwrap();
    authority::renew(place.path(), &Owner::Replica(1), 1, false, now_s() - 2 * DAY_S).unwrap();
    let error = open(&one);
    assert!(error.to_string().contains("it has expired"), "{error}");
}

#[test]
fn a_ca_writes_nothing_over_and_promises_no_longer_than_it_lives() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("ca");
    let made = authority::init(&directory, 100, now_s()).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&made.key), mode(&directory)), (0o600, 0o700));
    let key = std::fs::read(&made.key).unwrap();
    assert!(matches!(authority::init(&directory, 100, now_s()), Err(TlsError::Exists { .. })));
    assert_eq!(std::fs::read(&made.key).unwrap(), key);

    let issued = authority::issue(&directory, &subject(1), 99, now_s()).unwrap();
    assert_eq!(mode(&issued.key), 0o600);
    let again = authority::issue(&directory, &subject(1), 99, now_s());
    assert!(matches!(again, Err(TlsError::Exists { .. })));
    let error = authority::issue(&directory, &subject(2), 101, now_s()).unwrap_err();
    assert!(matches!(error, TlsError::OutlivesCa { days: 101, left_days: 100 | 99 }), "{error}");
    let none = authority::renew(&directory, &Owner::Replica(2), 30, false, now_s()).unwrap_err();
    assert!(matches!(none, TlsError::Unknown { .. }), "{none}");
    for days in [0, 36_501] {
        let error =
            authority::renew(&directory, &Owner::Replica(1), days, false, now_s()).unwrap_err();
        assert!(matches!(error, TlsError::Days { .. }), "{error}");
    }
}
