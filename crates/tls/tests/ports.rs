//! Clients and servers: what is negotiated, whom a certificate names, and what is refused.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "common/trusting.rs"]
mod trusting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use regent_election::access::{CredentialFlaw, Voucher};
use regent_tls::authority::{self, Made, Owner, Subject};
use regent_tls::{
    ClientCa, ClientFiles, ClientIdentity, ClientNames, PeerFiles, PeerTls, Reload, ReplicaName,
    ServerFiles, ServerTls, client_config,
};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, NamedGroup, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trusting::TrustsEverybody;

const CLUSTER: u128 = 0xc1;
const DAY_S: u64 = 24 * 3600;
const NAMES: ClientNames = ClientNames { cluster: Some(CLUSTER), dns: true, common_name: false };

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn node(name: &str) -> Subject {
    Subject::Node { cluster: CLUSTER, name: name.parse().unwrap() }
}

fn issue(place: &Path, subject: &Subject) -> Made {
    authority::issue(place, subject, 30, now_s()).unwrap()
}

/// A CA in this directory, and the files of a server that asks clients for certificates.
fn port(place: &Path, is_required: bool) -> ServerFiles {
    authority::init(place, 3650, now_s()).unwrap();
    let hosts = ["localhost", "127.0.0.1"].map(|host| host.parse().unwrap());
    let made = issue(place, &Subject::Server(hosts.to_vec()));
    let clients = ClientCa { ca: made.ca, crl: Some(place.join("ca.crl")), is_required };
    ServerFiles { certificate: made.certificate, key: made.key, clients: Some(clients) }
}

fn open(files: &ServerFiles) -> ServerTls {
    ServerTls::open(files.clone(), NAMES, &["h2", "http/1.1"]).unwrap()
}

/// What a client of ours uses, with or without a certificate.
fn client(ca: PathBuf, own: Option<&Made>) -> ClientConfig {
    let certificate = own.map(|made| (made.certificate.clone(), made.key.clone()));
    let mut config = client_config(ClientFiles { ca: Some(ca), certificate }, None).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

type Both = (TlsStream<DuplexStream>, Option<ClientIdentity>);

/// A handshake, and a byte each way: over TLS 1.3 a client learns only then that it was refused.
async fn meet(server: &ServerTls, client: ClientConfig, host: &str) -> Result<Both, [String; 2]> {
    let (near, far) = duplex(1 << 16);
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let dialled = async {
        let mut stream = connector.connect(host, near).await.map_err(|error| error.to_string())?;
        let byte = stream.read_u8().await.map_err(|error| error.to_string())?;
        assert_eq!(byte, 7);
        Ok(stream)
    };
    let accepted = async {
        let (mut stream, who) = server.accept(far).await.map_err(|error| error.to_string())?;
        stream.write_u8(7).await.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        Ok(who)
    };
    match tokio::join!(dialled, accepted) {
        (Ok(stream), Ok(who)) => Ok((stream, who)),
        (near, far) => Err([near.err().unwrap_or_default(), far.err().unwrap_or_default()]),
    }
}

#[tokio::test]
async fn a_client_and_a_server_agree_on_a_post_quantum_key_exchange_and_on_who_calls() {
    let place = tempfile::tempdir().unwrap();
    let files = port(place.path(), false);
    let (server, ca) = (open(&files), place.path().join("ca.crt"));
    let made = issue(place.path(), &node("web-1"));
    let (stream, who) = meet(&server, client(ca.clone(), Some(&made)), "localhost").await.unwrap();
    let connection = stream.get_ref().1;
    assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let group = connection.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::X25519MLKEM768);
    assert_eq!(connection.alpn_protocol(), Some(&b"h2"[..]));
    let who = who.unwrap();
    assert_eq!((who.who().to_string(), who.flaw()), ("node:web-1".to_owned(), None));
    let (_, nobody) = meet(&server, client(ca, None), "127.0.0.1").await.unwrap();
    assert!(nobody.is_none());
    let mut other = client(place.path().join("ca.crt"), None);
    other.alpn_protocols = vec![b"smtp".to_vec()];
    let [_, far] = meet(&server, other, "localhost").await.unwrap_err();
    assert!(far.contains("protocol"), "{far}");
}

/// A client that knows older key exchanges only, and believes everybody.
fn classical(version: &'static rustls::SupportedProtocolVersion) -> ClientConfig {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsEverybody))
        .with_no_client_auth()
}

#[tokio::test]
async fn older_clients_still_connect_and_none_resumes() {
    let place = tempfile::tempdir().unwrap();
    let server = open(&port(place.path(), false));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        // The same configuration keeps what could be resumed.
        let config = classical(version);
        for _ in 0..2 {
            let (stream, _) = meet(&server, config.clone(), "localhost").await.unwrap();
            let connection = stream.get_ref().1;
            assert_eq!(connection.protocol_version(), Some(version.version));
            assert_eq!(connection.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
    }
}

/// A client of an attacker, who looks at nothing and shows these files.
fn hostile(made: &Made) -> ClientConfig {
    let chain = rustls::pki_types::CertificateDer::pem_file_iter(&made.certificate).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(&made.key).unwrap();
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsEverybody))
        .with_client_auth_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap()
}

#[tokio::test]
async fn a_certificate_that_names_no_client_of_this_cluster_ends_the_handshake() {
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = port(place.path(), false);
    let server = open(&files);
    let other = Subject::Node { cluster: 0xc2, name: "web-2".parse().unwrap() };
    let replica = Subject::Replica(ReplicaName { cluster: CLUSTER, replica: 1 });
    authority::init(elsewhere.path(), 3650, now_s()).unwrap();
    let expired = issue(place.path(), &node("old"));
    let owner = Owner::Node("old".parse().unwrap());
    authority::renew(place.path(), &owner, 1, false, now_s() - 2 * DAY_S).unwrap();
    let host = Subject::Server(vec!["web-3".parse().unwrap()]);
    let shown = [
        (issue(place.path(), &other), "belongs to another cluster"),
        (issue(place.path(), &replica), "is a replica, which is known on the peer port"),
        (issue(place.path(), &host), "another use"),
        (issue(elsewhere.path(), &node("web-1")), "no CA that is believed here"),
        (expired, "it has expired"),
    ];
    for (made, why) in shown {
        let [near, far] = meet(&server, hostile(&made), "localhost").await.unwrap_err();
        assert!(far.contains(why), "{far}");
        assert!(near.contains("alert"), "{near}");
    }
    // Nobody at all, where somebody is required.
    let strict = ServerFiles {
        clients: files.clients.clone().map(|clients| ClientCa { is_required: true, ..clients }),
        ..files
    };
    let nobody = client(place.path().join("ca.crt"), None);
    let [near, far] = meet(&open(&strict), nobody, "localhost").await.unwrap_err();
    assert!(far.contains("no certificates"), "{far}");
    assert!(near.contains("CertificateRequired"), "{near}");
}

#[tokio::test]
async fn a_client_opens_no_peer_link_though_both_have_one_ca() {
    let place = tempfile::tempdir().unwrap();
    port(place.path(), false);
    let own = ReplicaName { cluster: CLUSTER, replica: 1 };
    let made = issue(place.path(), &Subject::Replica(own));
    let files = PeerFiles { certificate: made.certificate, key: made.key, ca: made.ca, crl: None };
    let link = PeerTls::open(own, files).unwrap();
    let user = Subject::User { cluster: CLUSTER, name: "alice".parse().unwrap() };
    for subject in [node("web-1"), user] {
        let made = issue(place.path(), &subject);
        let (near, far) = duplex(1 << 16);
        let connector = TlsConnector::from(Arc::new(hostile(&made)));
        let host = ServerName::try_from("localhost").unwrap();
        let (_, accepted) = tokio::join!(connector.connect(host, near), link.accept(far));
        let error = accepted.unwrap_err().to_string();
        assert!(error.contains("is no replica's name"), "{error}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_opens_no_connection_and_ends_those_that_it_opened() {
    let place = tempfile::tempdir().unwrap();
    let server = open(&port(place.path(), true));
    let [first, second] = ["web-1", "web-2"].map(|name| issue(place.path(), &node(name)));
    let first_client = hostile(&first);
    let (_first, revoked) = meet(&server, first_client.clone(), "localhost").await.unwrap();
    let (_second, good) = meet(&server, hostile(&second), "localhost").await.unwrap();
    let (revoked, good) = (revoked.unwrap(), good.unwrap());
    let owner = Owner::Node("web-1".parse().unwrap());
    // One that was renewed since is still in somebody's hands.
    authority::renew(place.path(), &owner, 60, true, now_s()).unwrap();
    assert_eq!(authority::revoke(place.path(), &owner, now_s()).unwrap().count, 2);
    assert_eq!(revoked.flaw(), None, "nobody has read the list yet");
    server.reload().unwrap();
    assert_eq!((revoked.flaw(), good.flaw()), (Some(CredentialFlaw::Revoked), None));
    let [near, far] = meet(&server, first_client, "localhost").await.unwrap_err();
    assert!(far.contains("it was revoked"), "{far}");
    assert!(near.contains("CertificateRevoked"), "{near}");
    meet(&server, hostile(&second), "localhost").await.unwrap();
    // Another one for the same name is good, and a second revocation keeps the first.
    let again = issue(place.path(), &node("web-1"));
    let again = hostile(&again);
    meet(&server, again.clone(), "localhost").await.unwrap();
    assert_eq!(authority::revoke(place.path(), &owner, now_s()).unwrap().count, 3);
    // What cannot be used changes nothing, and is counted.
    let crl = place.path().join("ca.crl");
    let list = std::fs::read(&crl).unwrap();
    std::fs::write(&crl, "nonsense").unwrap();
    assert!(server.reload().is_err());
    assert_eq!((server.failures(), revoked.flaw()), (1, Some(CredentialFlaw::Revoked)));
    std::fs::write(&crl, list).unwrap();
    server.reload().unwrap();
    let [_, far] = meet(&server, again, "localhost").await.unwrap_err();
    assert!(far.contains("it was revoked"), "{far}");
}

#[tokio::test]
async fn a_revoked_replica_opens_no_link() {
    let place = tempfile::tempdir().unwrap();
    authority::init(place.path(), 3650, now_s()).unwrap();
    let crl = Some(place.path().join("ca.crl"));
    let [one, two] = [1, 2].map(|replica| {
        let name = ReplicaName { cluster: CLUSTER, replica };
        let Made { certificate, key, ca, .. } = issue(place.path(), &Subject::Replica(name));
        PeerTls::open(name, PeerFiles { certificate, key, ca, crl: crl.clone() }).unwrap()
    });
    let meet = async || {
        let (near, far) = duplex(1 << 16);
        let (dialled, accepted) = tokio::join!(one.connect(near), two.accept(far));
        (dialled.is_ok(), accepted.map(|_| ()).map_err(|error| error.to_string()))
    };
    assert_eq!(meet().await, (true, Ok(())));
    authority::revoke(place.path(), &Owner::Replica(1), now_s()).unwrap();
    two.reload().unwrap();
    let (_, accepted) = meet().await;
    assert!(accepted.unwrap_err().contains("it was revoked"));
    let (near, far) = duplex(1 << 16);
    let (dialled, _) = tokio::join!(two.connect(near), one.accept(far));
    assert!(dialled.unwrap_err().to_string().contains("it was revoked"));
}

#[tokio::test]
async fn a_client_believes_its_own_ca_only_and_reads_its_files_again() {
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = open(&port(place.path(), true));
    authority::init(elsewhere.path(), 3650, now_s()).unwrap();
    let made = issue(place.path(), &node("web-1"));
    let believed = elsewhere.path().join("believed.crt");
    std::fs::copy(elsewhere.path().join("ca.crt"), &believed).unwrap();
    let config = client(believed.clone(), Some(&made));
    let why = |error: [String; 2]| error[0].clone();
    let error = why(meet(&server, config.clone(), "localhost").await.unwrap_err());
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    // The same configuration, as a program that runs on: another CA, and a renewed certificate with another key.
    std::fs::copy(place.path().join("ca.crt"), &believed).unwrap();
    let owner = Owner::Node("web-1".parse().unwrap());
    meet(&server, config.clone(), "localhost").await.unwrap();
    let renewed = authority::renew(place.path(), &owner, 60, true, now_s()).unwrap();
    let (stream, who) = meet(&server, config.clone(), "localhost").await.unwrap();
    drop(stream);
    assert_eq!(who.unwrap().who().to_string(), "node:web-1");
    assert_eq!(renewed.certificate, made.certificate);
    let error = why(meet(&server, config, "elsewhere").await.unwrap_err());
    assert!(error.contains("not valid for name"), "{error}");
}

#[test]
fn files_that_do_not_go_together_are_told() {
    let place = tempfile::tempdir().unwrap();
    let files = port(place.path(), false);
    let [one, two] = ["web-1", "web-2"].map(|name| issue(place.path(), &node(name)));
    let refused = |files: ServerFiles| ServerTls::open(files, NAMES, &[]).unwrap_err().to_string();
    let error = refused(ServerFiles { key: one.key.clone(), ..files.clone() });
    assert!(error.contains("does not fit the key"), "{error}");
    let error = refused(ServerFiles { certificate: one.certificate.clone(), ..files.clone() });
    assert!(error.contains("would be refused by clients: it names no host"), "{error}");
    let with = |certificate: &Path, key: &Path| {
        let certificate = Some((certificate.to_owned(), key.to_owned()));
        let files = ClientFiles { ca: Some(place.path().join("ca.crt")), certificate };
        client_config(files, None).unwrap_err().to_string()
    };
    assert!(with(&one.certificate, &two.key).contains("does not fit the key"));
    assert!(with(&one.certificate, &one.certificate).contains("can be read by others"));
    let owner = Owner::Node("web-1".parse().unwrap());
    authority::renew(place.path(), &owner, 1, false, now_s() - 2 * DAY_S).unwrap();
    let error = with(&one.certificate, &one.key);
    assert!(error.contains("would be refused by servers: it has expired"), "{error}");
    let owner = Owner::Server("localhost".parse().unwrap());
    authority::renew(place.path(), &owner, 1, false, now_s() - 2 * DAY_S).unwrap();
    assert!(refused(files).contains("would be refused by clients: it has expired"));
}

#[test]
fn a_server_s_names_survive_a_renewal_and_odd_names_get_files_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    authority::init(place.path(), 3650, now_s()).unwrap();
    let hosts = ["a.example", "*.b.example", "10.0.0.1", "::1"].map(|host| host.parse().unwrap());
    let made = issue(place.path(), &Subject::Server(hosts.to_vec()));
    assert!(made.certificate.ends_with("server-a.example.crt"));
    let owner = made.subject.clone().unwrap().owner().unwrap();
    let renewed = authority::renew(place.path(), &owner, 60, false, now_s()).unwrap();
    assert_eq!(renewed.subject, made.subject);
    let slash = issue(place.path(), &node("shop/web:1"));
    assert!(slash.certificate.ends_with("node-shop%2fweb%3a1.crt"), "{slash:?}");
    let owner = Owner::Node("shop/web:1".parse().unwrap());
    authority::renew(place.path(), &owner, 60, true, now_s()).unwrap();
    for bad in ["", "A.example", "a..b", "-a", "a-", "a b", "*", "a.*.b", "http://a", "a/b"] {
        assert!(bad.parse::<authority::Host>().is_err(), "{bad:?}");
    }
}
